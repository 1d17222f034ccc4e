"""`retinue doctor`: what there is, where each setting comes from, what is wrong, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import anyio
import click

from retinue.app import Retinue
from retinue.frontends.cli.diagnosis import Diagnosis, EngineFound, SettingFound, diagnose
from retinue.frontends.cli.options import cwd_option, json_option
from retinue.frontends.cli.results import whole
from retinue.frontends.cli.table import screen_columns, table
from retinue.frontends.cli.talk import answer_json, examples, lines
from retinue.frontends.hosts.checking import HostFound
from retinue.frontends.wording import counted, did_you_mean
from retinue.output.frame import one_line
from retinue.output.truncate import human_size
from retinue.settings import KEYS, Problem

MOST = 500
"""Characters of a sentence."""
INDENT = "  "


@click.command(
    epilog=examples(
        "retinue doctor", "retinue doctor --json", then="Exit codes: 0 all is well, 1 something needs you."
    )
)
@json_option
@cwd_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, cwd: str | None) -> None:
    """Show engines, settings and what is wrong, with what to do.

    Every setting stands with its value and where that comes from: a call, the environment (RETINUE_…), the project's
    .retinue/config.toml, your ~/.config/retinue/config.toml, or the default of a surface.
    """
    found = anyio.run(diagnose, Retinue(cwd=cwd, owns_process=True))
    if as_json:
        answer_json(whole(found))
    else:
        lines(_told(found))
    ctx.exit(1 if found.broken else 0)


def _told(found: Diagnosis) -> Iterator[str]:
    yield click.style(f"retinue {found.version}", bold=True) + f" on Python {found.python}, {found.platform}"
    yield from _section("Engines", engine_lines(found.engines))
    yield from _section("State", _state(found))
    yield from _section("Processes", [found.processes])
    yield from _section("Agents", _agents(found))
    yield from _section("Installed in", _hosts(found))
    yield from _section("Terminal", [", ".join(f"{name} {value}" for name, value in found.terminal.items())])
    settings = [["NAME", "VALUE", "FROM", "WHAT IT IS"], *map(_setting, found.settings)]
    yield from _section("Settings", table(settings, columns=screen_columns() - len(INDENT)))
    if found.problems:
        yield from _section("Not taken as written", (f"{each.source}: {_hinted(each)}" for each in found.problems))
    yield ""
    if found.broken:
        yield click.style("To mend", fg="red", bold=True)
        yield from (click.style(f"  ✗ {one_line(sentence, MOST)}", fg="red") for sentence in found.broken)
    else:
        yield click.style("✓ All is well.", fg="green")


def _section(title: str, told: Iterable[str]) -> Iterator[str]:
    yield ""
    yield click.style(title, bold=True)
    yield from (f"{INDENT}{line}" for line in told)


def engine_lines(found: Iterable[EngineFound]) -> list[str]:
    """A line for each engine: whether it can be used, and if not, what it lacks."""
    rows = []
    for engine in found:
        chosen = " (auto takes this one)" if engine.is_chosen else ""
        rows.append(["✗" if engine.missing else "✓", engine.name, f"{engine.missing or engine.about}{chosen}"])
    return table(rows, columns=MOST)


def _state(found: Diagnosis) -> Iterator[str]:
    state = found.state
    sessions = "unreadable" if state.sessions is None else counted(state.sessions, "session")
    yield f"{one_line(state.folder, MOST)}: {sessions}, {human_size(state.size_bytes)}"
    yield from (f"✗ {one_line(fault, MOST)}" for fault in state.faults)


def _agents(found: Diagnosis) -> Iterator[str]:
    yield f"{found.agents} can be called from here (retinue agents)"
    if count := len(found.broken_agents):
        yield f"{counted(count, 'file')} cannot be used (retinue agents check)"
    yield from (f"✗ {one_line(remark, MOST)}" for remark in found.broken_agents)


def _hosts(found: Diagnosis) -> list[str]:
    rows = [["✗" if host.fault else "✓", host.title, one_line(host.file, MOST), _seen(host)] for host in found.hosts]
    return table(rows, columns=MOST) if rows else ["no other program (retinue install)"]


def _seen(host: HostFound) -> str:
    """What the host gets when it starts us."""
    if host.tools is not None:
        return f"{counted(host.tools, 'tool')} when it is started"
    return "" if host.fault or host.is_ours else "starts another program, which was not tried"


def _setting(setting: SettingFound) -> list[str]:
    return [
        setting.name,
        _by_surface({surface: _value(value) for surface, value in setting.values.items()}),
        _by_surface({surface: _source(source) for surface, source in setting.sources.items()}),
        KEYS[setting.name].note,
    ]


def _by_surface(told: Mapping[str, str]) -> str:
    """What holds for most surfaces, and those where it is otherwise."""
    usual = Counter(told.values()).most_common(1)[0][0]
    others = [f"{surface} {value}" for surface, value in told.items() if value != usual]
    return f"{usual} ({', '.join(others)})" if others else usual


def _value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _source(source: str) -> str:
    return "default" if source.startswith("default of ") else source


def _hinted(problem: Problem) -> str:
    """What was wrong; for a name nobody knows, the one that may have been meant instead of all there are."""
    unknown = re.match(r"unknown setting '?(?:\w+\.)?(\w+)'? ignored", problem.message)
    if unknown is None:
        return one_line(problem.message, MOST)
    return f"{one_line(unknown[0], MOST)}.{did_you_mean(unknown[1], KEYS)}"
