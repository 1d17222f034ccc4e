"""What is to be mended in the files of agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from retinue.agents.definition import Agent, Remark
from retinue.agents.policy import conflict
from retinue.agents.roster import Roster
from retinue.app import Retinue


def check_roster(roster: Roster) -> tuple[int, list[Remark]]:
    """How many agents were found, and what is to be mended in their files."""
    found = [entry.agent for entry in roster.listing()]
    return len(found), [
        *roster.problems,
        *(remark for agent in found for remark in _remarks(agent)),
        *_repeated_names(found),
    ]


def check_files(retinue: Retinue, paths: Sequence[Path]) -> tuple[int, list[Remark]]:
    """The same for files, and for all files in folders."""
    known = {entry.agent.source: entry.agent for entry in retinue.roster().listing()}
    files = [file for path in paths for file in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]
    remarks: list[Remark] = []
    agents: list[Agent] = []
    for path in files:
        found = known.get(str(path.absolute())) or retinue.read_agent(path)
        if isinstance(found, Agent):
            remarks += _remarks(found)
            agents.append(found)
        else:
            remarks.append(found or Remark(str(path), "is no agent: it has no `name`"))
    return len(files), [*remarks, *_repeated_names(agents)]


def _repeated_names(agents: Sequence[Agent]) -> Iterator[Remark]:
    """Yield a remark on each file whose agent is called as another one of the same folder, which is used instead."""
    used: dict[tuple[str, Path], str] = {}
    for agent in agents:
        if agent.source:
            first = used.setdefault((agent.name, Path(agent.source).parent), agent.source)
            if first != agent.source:
                yield Remark(agent.source, f"name: {Path(first).name} has the name {agent.name}, too, and is used")


def _remarks(agent: Agent) -> Iterator[Remark]:
    yield from agent.notices
    place = agent.source or agent.name
    yield from (Remark(place, f"unknown key {key!r}; it is ignored") for key in agent.unknown)
    if contradiction := conflict(agent.as_subagent()):
        yield Remark(place, contradiction.message)
