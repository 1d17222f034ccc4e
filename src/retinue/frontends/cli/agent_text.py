"""Agents as a person reads them: a summary, and the whole definition. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.agents.definition import Agent
from retinue.agents.roster import Entry, Status
from retinue.frontends.cli.table import table
from retinue.models import join_model
from retinue.output.frame import one_line, plain
from retinue.secret import Secret

MASK = "****"
MOST = 500
"""Characters of a value in a summary."""

_OF_THE_FILE = frozenset(
    {"name", "description", "body", "persona", "memory", "layer", "source", "level", "digest", "unknown", "notices"}
)
"""Fields that are told in their own way."""

MARKS = {
    Status.USED: "",
    Status.SHADOWED: "shadowed",
    Status.UNTRUSTED: "not trusted",
    Status.DISABLED: "disabled",
}


def tools_text(agent: Agent) -> str:
    """What an agent may use, in a few words."""
    policy = agent.as_subagent().tools
    if policy.nothing:
        return "none"
    if policy.allow is None:
        told = "read-only" if policy.readonly else "inherited"
    else:
        told = ", ".join(policy.allow) or "none"
    denied = f" without {', '.join(policy.deny)}" if policy.deny else ""
    return f"{told}{denied}{', delegates' if policy.delegates else ''}"


def summary_lines(agent: Agent) -> list[str]:
    """Who it is, where it is from and what it can do: what to look at before accepting it."""
    rows = [
        ["name", agent.name],
        ["file", agent.source or agent.layer],
        ["about", agent.description],
        ["tools", tools_text(agent)],
        ["model", join_model(agent.provider, agent.model) or agent.provider or "the engine's default"],
        *([name, value] for name, value in _own_ways(agent)),
    ]
    # Not cut to the screen: half a path is no basis for trust.
    return table([row for row in rows if row[1]], columns=MOST)


def whole_lines(entry: Entry) -> Iterator[str]:
    """Everything there is to know of a definition, but secrets."""
    agent = entry.agent
    rows = [
        ["name", agent.name],
        ["about", agent.description],
        ["layer", agent.layer],
        ["file", agent.source or ""],
        ["status", MARKS[entry.status] or ("accepted" if entry.accepted else "used")],
        ["used instead", entry.shadowed_by or ""],
        ["shadows", ", ".join(entry.shadows)],
        ["effective tools", tools_text(agent)],
        ["persona", _unprinted(agent, "SOUL.md") if agent.persona else ""],
        ["memory", _unprinted(agent, "MEMORY.md") if agent.memory else ""],
        *([name, shown(value)] for name, value in fields(agent)),
        ["unknown keys", ", ".join(agent.unknown)],
        ["digest", agent.digest],
    ]
    yield from table([row for row in rows if row[1]], columns=MOST)
    yield from (f"note: {one_line(str(remark), MOST)}" for remark in agent.notices)
    if agent.body:
        yield "\n--- Prompt ---"
        yield plain(agent.body)


def _unprinted(agent: Agent, name: str) -> str:
    """Return the path of a text that is for the agent's own conversations only: a host reads what is printed."""
    return f"{Path(agent.source).with_name(name) if agent.source else name} (not printed)"


def fields(agent: Agent) -> Iterator[tuple[str, Any]]:
    """The fields a definition sets, by name."""
    for name in agent.__struct_fields__:
        value = getattr(agent, name)
        if name not in _OF_THE_FILE and value not in (None, "", (), False) and not (name == "enabled" and value):
            yield name, MASK if isinstance(value, Secret) else value


def shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _own_ways(agent: Agent) -> Iterator[tuple[str, str]]:
    """What it brings along that acts, redirects or reads: reason to look twice."""
    names = ("engine", "extensions", "extra_args", "environment", "output", "default_reads", "api_key")
    yield from ((name, shown(value)) for name, value in fields(agent) if name in names)
