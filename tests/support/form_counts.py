"""Count what becomes of the stand-ins for public agent files: found, callable, run on which engine, refused and why.

`python -m tests.support.form_counts` writes the table into docs/agents.md. Runs are planned with the real engines, up to
the start of their program; `tests/real/test_agent_forms.py` runs a sample for real.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec import Struct, structs
from tests.support.agent_forms import AgentForm, list_public_forms, list_restrictions, write_forms
from tests.support.repositories import make_repository
from tests.support.retinue_factory import plan_of

from retinue.agents.agent import Agent
from retinue.agents.registry import DefinitionStatus
from retinue.client import Retinue
from retinue.composition import available_engines
from retinue.engines.base import EngineInfo
from retinue.model.tasks import CallContext, Lineage, Plan, Task
from retinue.runtime.planner import PlannedRun
from retinue.sessions.memory import MemoryStore

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- made by `python -m tests.support.form_counts` -->\n", "<!-- end of the counts -->"
KEYS = {
    "scripted": {},
    "pi": {"OPENAI_API_KEY": "sk-of-nobody"},
    "claude": {"ANTHROPIC_API_KEY": "sk-of-nobody"},
    "api": {"OPENAI_API_KEY": "sk-of-nobody"},
}
"""The engines of the table, each with the only key it has: pi and `api` cannot have a model of Claude's."""


class FormCount(Struct, frozen=True, kw_only=True):
    """What became of the files of one tool."""

    tool: str
    files: int
    found: int
    """Files that are agents."""
    callable_names: int
    """Agents in use: neither shadowed nor broken."""
    runs: Mapping[str, int]
    """For each engine, how many of the callable agents it would run."""
    refused: Mapping[str, int]
    """Reasons of all refusals, with the engine."""
    not_found: Mapping[str, int]


class PlannedForms(Struct, frozen=True):
    """The agents that are found in a home, and their runs on each engine."""

    agents: Mapping[str, Agent]
    """The agents in use, by file."""
    shadowed: frozenset[str]
    problems: Mapping[str, str]
    runs: Mapping[str, Mapping[str, PlannedRun]]
    """By engine and file."""


async def plan_forms(forms: Sequence[AgentForm], folder: Path) -> PlannedForms:
    """Write the files into a new home and plan a run of each agent on each engine."""
    home, repository = folder / "home", make_repository(folder / "work", {"a.txt": "one\n"})
    write_forms([*forms], home)
    runs: dict[str, Mapping[str, PlannedRun]] = {}
    listed: PlannedForms | None = None
    for engine, keys in KEYS.items():
        environ = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), **keys}
        settings = {"allow_write": True, "max_tasks": 100_000}
        retinue = Retinue(
            cwd=repository,
            environ=environ,
            engine=engine,
            engines=_installed_engines(environ),
            store=MemoryStore(),
            state=folder / "state",
            settings=settings,
        )
        listed = listed or _list_agents(retinue, home)
        tasks = tuple(Task(agent=agent.name, prompt="Do it") for agent in listed.agents.values())
        lineage = Lineage(root="forms", parent_call="forms")
        call = CallContext(
            toolset="single", cwd=str(repository), lineage=lineage, settings={**settings, "max_depth": 2}
        )
        async with retinue:
            planned = await plan_of(retinue, Plan(tasks=tasks), call)
        runs[engine] = dict(zip(listed.agents, planned, strict=True))
    assert listed
    return structs.replace(listed, runs=runs)


def _installed_engines(environ: Mapping[str, str]) -> Mapping[str, EngineInfo]:
    """Return the real engines, as if all programs were installed: only their abilities are counted."""
    return {
        name: structs.replace(kind, not_installed_reason=lambda: None)
        for name, kind in available_engines(environ).items()
    }


def _list_agents(retinue: Retinue, home: Path) -> PlannedForms:
    roster = retinue.roster()
    entries = [(entry.agent.source, entry) for entry in roster.list_definitions() if entry.agent.source]
    own = [
        (str(Path(source).relative_to(home)), entry) for source, entry in entries if Path(source).is_relative_to(home)
    ]
    return PlannedForms(
        {source: entry.agent for source, entry in own if entry.status is DefinitionStatus.USED},
        frozenset(source for source, entry in own if entry.status is DefinitionStatus.SHADOWED),
        {str(Path(problem.file).relative_to(home)): problem.text for problem in roster.problems},
        {},
    )


def count_forms(forms: Sequence[AgentForm], planned: PlannedForms) -> list[FormCount]:
    """Return what became of the files, tool by tool."""
    tools = dict.fromkeys(form.tool for form in forms)
    return [_count_tool(tool, [form for form in forms if form.tool == tool], planned) for tool in tools]


def _count_tool(tool: str, forms: Sequence[AgentForm], planned: PlannedForms) -> FormCount:
    used = [form.path for form in forms if form.path in planned.agents]
    shadowed = [form.path for form in forms if form.path in planned.shadowed]
    broken = [form.path for form in forms if form.path in planned.problems]
    refused: Counter[str] = Counter()
    for engine, runs in planned.runs.items():
        refused.update(f"{engine}: {failure.reason}" for path in used if (failure := runs[path].failure))
    left = len(forms) - len(used) - len(shadowed) - len(broken)
    return FormCount(
        tool=tool,
        files=len(forms),
        found=len(used) + len(shadowed),
        callable_names=len(used),
        runs={engine: sum(not runs[path].failure for path in used) for engine, runs in planned.runs.items()},
        refused=dict(refused),
        not_found={
            name: count
            for name, count in (("no header", left), ("broken", len(broken)), ("shadowed", len(shadowed)))
            if count
        },
    )


def render_counts(counts: Sequence[FormCount]) -> Iterator[str]:
    """Yield the lines of the table of the public agents."""
    yield _row("agents of", "files", "found", "callable", *(f"run on `{engine}`" for engine in KEYS), "not callable")
    yield _row(*["---"] * (5 + len(KEYS)))
    for count in counts:
        rest = ", ".join(f"{number} {name}" for name, number in count.not_found.items())
        numbers = (count.files, count.found, count.callable_names, *count.runs.values())
        yield _row(count.tool, *map(str, numbers), rest)


def render_restrictions(planned: PlannedForms) -> Iterator[str]:
    """Yield the lines of the table of restrictions: what each engine does with them."""
    yield _row("restriction", "of", "outcome")
    yield _row(*["---"] * 3)
    for each in list_restrictions():
        outcomes = {engine: describe_outcome(planned.runs[engine][each.form.path]) for engine in KEYS}
        different = len({*outcomes.values()}) > 1
        outcome = (
            "; ".join(f"`{engine}`: {text}" for engine, text in outcomes.items()) if different else outcomes["pi"]
        )
        yield _row(f"`{each.written}`", each.form.tool, outcome)


def describe_outcome(run: PlannedRun) -> str:
    """Return in a few words what a run may do, or why it is refused."""
    if run.failure:
        return "refused by name" if run.failure.reason == "restriction" else f"refused: {run.failure.reason}"
    spec = run.spec
    limits = [
        "in a worktree" if spec.worktree else "",
        f"sandbox `{spec.sandbox.mode}`" if spec.sandbox.is_on else "",
        "reads only" if not {"write", "edit", "bash"}.intersection(spec.grant.tools) else "",
        f"without {', '.join(f'`{tool}`' for tool in _list_denied(run))}" if _list_denied(run) else "",
        f"calls only {', '.join(spec.agent.tools.callable_agents)}" if spec.agent.tools.callable_agents else "",
    ]
    return ", ".join(filter(None, limits))


def _list_denied(run: PlannedRun) -> list[str]:
    """Return the tools that the file takes away; a tool for some arguments only is left out where nothing enforces it."""
    grant = run.spec.grant
    return [
        *(removed.tool for removed in grant.removed if removed.by == "denied"),
        *(tool for tool in grant.missing if "(" in tool),
    ]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


async def render_section() -> str:
    """Return both tables."""
    with TemporaryDirectory() as scratch:
        forms, restrictions = list_public_forms(), [each.form for each in list_restrictions()]
        public = await plan_forms(forms, Path(scratch, "public"))
        restricted = await plan_forms(restrictions, Path(scratch, "restricted"))
    lines = [*render_counts(count_forms(forms, public)), "", *render_restrictions(restricted)]
    return "\n".join(lines) + "\n"


def replace_section(page: str, section: str) -> str:
    """Return a page with the tables between the marks."""
    return re.sub(
        f"({re.escape(BEGIN)}).*?({re.escape(END)})",
        lambda found: f"{found[1]}\n{section}\n{found[2]}",
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(replace_section(PAGE.read_text("utf-8"), anyio.run(render_section)), "utf-8")
