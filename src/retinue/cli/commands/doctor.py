"""`retinue doctor`: show engines, agents, hosts, settings with their sources, and problems with what to do."""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec import Struct

from retinue import __version__
from retinue.cli.json_output import to_json
from retinue.cli.options import cwd_option, json_option
from retinue.cli.printing import help_examples, print_json, print_lines, render_table, stdout_columns
from retinue.client import Retinue
from retinue.config.directories import config_folder
from retinue.config.settings import SETTING_RULES, SettingProblem
from retinue.hosts.hosts import HostMachine
from retinue.hosts.status import HostStatus, find_installations, probe_hosts
from retinue.model.errors import RefusedError
from retinue.output.truncate import format_size
from retinue.output.untrusted_text import to_one_line
from retinue.support.formatting import pluralize, suggest_spelling

PROBE_BYTES = 64 * 2**10
"""Bytes written to test for free space: more than the rest of the last block of a full disk."""
AUTO = "auto"
DISK_FULL_HINT = "Free some space, or set RETINUE_STATE to a folder elsewhere"
NOT_WRITABLE_HINT = "Make it writable, or set RETINUE_STATE to another folder"


class EngineStatus(Struct, frozen=True, rename="camel"):
    name: str
    about: str
    missing: str | None
    """The reason why it cannot be used, with what to do; None if it can."""
    is_chosen: bool
    """Whether `auto` chooses it."""
    is_automatic: bool = True
    """Whether `auto` may choose it."""
    uses_models: bool = True


class StateStatus(Struct, frozen=True, rename="camel"):
    """The condition of the state folder."""

    folder: str
    sessions: int | None
    """Number of sessions; None if they cannot be read."""
    size_bytes: int
    faults: tuple[str, ...]
    """Problems of the folder, each with what to do."""


class SettingStatus(Struct, frozen=True):
    """A setting with its value and the source of the value for each toolset."""

    name: str
    values: Mapping[str, Any]
    sources: Mapping[str, str]


class DiagnosisReport(Struct, frozen=True, kw_only=True, rename="camel"):
    version: str
    python: str
    platform: str
    terminal: Mapping[str, Any]
    engines: tuple[EngineStatus, ...]
    state: StateStatus
    processes: str
    """How the processes of an agent are contained."""
    agents: int
    broken_agents: tuple[str, ...]
    hosts: tuple[HostStatus, ...]
    """Programs in which Retinue is installed."""
    settings: tuple[SettingStatus, ...]
    problems: tuple[SettingProblem, ...]
    """Settings that were ignored or changed."""
    broken: tuple[str, ...]
    """Problems the user has to fix, one sentence each."""


async def diagnose(retinue: Retinue) -> DiagnosisReport:
    """Inspect the installation without changing it; start Retinue as each host does. Retinue need not be open."""
    engines = tuple(list_engine_status(retinue))
    state = await _check_state(retinue)
    problems = tuple(
        dict.fromkeys(problem for name in retinue.toolsets for problem in retinue.settings(name).problems)
    )
    installed = tuple(find_installations(HostMachine(os.environ), Path(retinue.cwd)))
    roster, hosts = retinue.roster(), await probe_hosts(installed, retinue.cwd)
    return DiagnosisReport(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        terminal=_terminal_facts(),
        engines=engines,
        state=state,
        processes=retinue.containment[1],
        agents=len(roster.names()),
        broken_agents=tuple(map(str, roster.problems)),
        hosts=hosts,
        settings=tuple(_list_settings(retinue)),
        problems=problems,
        broken=(
            *_list_problems(retinue, engines, state, problems),
            *(host.fault for host in hosts if host.fault),
            *list_hosts_without_engine(retinue, engines, hosts),
        ),
    )


def list_engine_status(retinue: Retinue) -> Iterator[EngineStatus]:
    """Yield the engines in the order of `auto`, without starting a process."""
    has_choice, model = False, retinue.settings("single").settings.model
    for kind in retinue.engines.values():
        missing = kind.unavailable_reason()
        is_chosen = kind.automatic and missing is None and not has_choice
        has_choice = has_choice or is_chosen
        about = kind.summary_for(model)
        yield EngineStatus(kind.name, about, missing, is_chosen, kind.automatic, kind.uses_models)


# -- the state folder ------------------------------------------------------------------------------


async def _check_state(retinue: Retinue) -> StateStatus:
    folder, faults = retinue.state, [*_check_writable(retinue.state), *_check_permissions(retinue.state)]
    sessions = None
    try:
        sessions = len(await retinue.sessions())
    except RefusedError as refusal:
        faults.append(refusal.failure.message)
    return StateStatus(str(folder), sessions, _folder_size(folder), tuple(faults))


def _check_writable(folder: Path) -> Iterator[str]:
    """Yield the reason if a test file cannot be written to the folder, or to its nearest existing parent."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - never raises
    try:
        with tempfile.TemporaryFile(dir=nearest, prefix=".doctor-") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        advice = DISK_FULL_HINT if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else NOT_WRITABLE_HINT
        yield f"Nothing can be remembered: {nearest} cannot be written ({error.strerror}). {advice}."


def _check_permissions(folder: Path) -> Iterator[str]:
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"chmod go-w {shlex.quote(str(folder))}"
        yield f"Others can change what is remembered in {folder} (mode {mode:o}). Run: {remedy}"


def _folder_size(folder: Path) -> int:
    """Return the bytes of all readable files of a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total


# -- settings and problems -------------------------------------------------------------------------


def _list_settings(retinue: Retinue) -> Iterator[SettingStatus]:
    found = {toolset: retinue.settings(toolset).sources for toolset in retinue.toolsets}
    for name in SETTING_RULES:
        yield SettingStatus(
            name,
            {toolset: sources[name].value for toolset, sources in found.items()},
            {toolset: sources[name].source for toolset, sources in found.items()},
        )


def _list_problems(
    retinue: Retinue, engines: tuple[EngineStatus, ...], state: StateStatus, problems: tuple[SettingProblem, ...]
) -> Iterator[str]:
    yield from state.faults
    if not any(engine.is_chosen for engine in engines):
        yield "No engine can be used: see above what each of them lacks."
    if fault := retinue.trust.fault():
        yield f"{fault}. Accept them again with `retinue agents trust NAME`."
    mine = str(config_folder(os.environ))
    for problem in problems:
        # A setting that a project's file may not set is not the user's mistake.
        if problem.source == "environment" or problem.source.startswith(mine):
            yield f"{problem.source}: {problem.message}. Mend it there."


def list_hosts_without_engine(
    retinue: Retinue, engines: tuple[EngineStatus, ...], hosts: tuple[HostStatus, ...]
) -> Iterator[str]:
    """Yield a sentence for hosts whose calls are refused because no engine with a language model is available."""
    usual = retinue.settings("single").settings.engine
    titles = dict.fromkeys(host.title for host in hosts if not host.fault and (host.engine or usual) == AUTO)
    if titles and not any(engine.is_chosen and engine.uses_models for engine in engines):
        yield (
            f"Calls from {', '.join(titles)} are refused, as no engine with a language model is ready. "
            "`retinue setup` says what each lacks, and tries it."
        )
    missing = {name: kind.not_installed_reason() for name, kind in retinue.engines.items()}
    for host in hosts:
        if (name := host.engine or usual) != AUTO and (why := missing.get(name)):
            yield f"Calls from {host.title} are refused, as the engine {name} cannot be used: {why}"


def _terminal_facts() -> dict[str, Any]:
    size = shutil.get_terminal_size()
    return {
        "stdin": _stream_kind(sys.stdin),
        "stdout": _stream_kind(sys.stdout),
        "stderr": _stream_kind(sys.stderr),
        "encoding": getattr(sys.stdout, "encoding", None),
        "term": os.environ.get("TERM"),
        "columns": size.columns,
        "lines": size.lines,
    }


def _stream_kind(stream: Any) -> str:
    if stream is None:
        return "closed"
    return "terminal" if stream.isatty() else "not a terminal"


MAX_COLUMNS = 500
"""Characters of a line."""
INDENT = "  "


@click.command(
    epilog=help_examples(
        "retinue doctor", "retinue doctor --json", then="Exit codes: 0 all is well, 1 something needs you."
    )
)
@json_option
@cwd_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, cwd: str | None) -> None:
    """Show engines, settings and what is wrong, with what to do.

    Every setting stands with its value and where that comes from: a call, the environment (RETINUE_…), the project's
    .retinue/config.toml, your ~/.config/retinue/config.toml, or the default of a toolset.
    """
    found = anyio.run(diagnose, Retinue(cwd=cwd, owns_process=True))
    if as_json:
        print_json(to_json(found))
    else:
        print_lines(_render_report(found))
    ctx.exit(1 if found.broken else 0)


def _render_report(found: DiagnosisReport) -> Iterator[str]:
    yield click.style(f"retinue {found.version}", bold=True) + f" on Python {found.python}, {found.platform}"
    yield from _render_section("Engines", render_engines(found.engines))
    yield from _render_section("State", _render_state(found))
    yield from _render_section("Processes", [found.processes])
    yield from _render_section("Agents", _render_agents(found))
    yield from _render_section("Installed in", _render_hosts(found))
    yield from _render_section("Terminal", [", ".join(f"{name} {value}" for name, value in found.terminal.items())])
    settings = [["NAME", "VALUE", "FROM", "WHAT IT IS"], *map(_setting_row, found.settings)]
    yield from _render_section("Settings", render_table(settings, columns=stdout_columns() - len(INDENT)))
    if found.problems:
        yield from _render_section(
            "Not taken as written", (f"{each.source}: {_format_problem(each)}" for each in found.problems)
        )
    yield ""
    if found.broken:
        yield click.style("To mend", fg="red", bold=True)
        yield from (click.style(f"  ✗ {to_one_line(sentence, MAX_COLUMNS)}", fg="red") for sentence in found.broken)
    else:
        yield click.style("✓ All is well.", fg="green")


def _render_section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield ""
    yield click.style(title, bold=True)
    yield from (f"{INDENT}{line}" for line in lines)


def render_engines(found: Iterable[EngineStatus]) -> list[str]:
    """Render a line for each engine: whether it can be used and, if not, what is missing."""
    rows = []
    for engine in found:
        chosen = " (auto takes this one)" if engine.is_chosen else ""
        rows.append(["✗" if engine.missing else "✓", engine.name, f"{engine.missing or engine.about}{chosen}"])
    return render_table(rows, columns=MAX_COLUMNS)


def _render_state(found: DiagnosisReport) -> Iterator[str]:
    state = found.state
    sessions = "unreadable" if state.sessions is None else pluralize(state.sessions, "session")
    yield f"{to_one_line(state.folder, MAX_COLUMNS)}: {sessions}, {format_size(state.size_bytes)}"
    yield from (f"✗ {to_one_line(fault, MAX_COLUMNS)}" for fault in state.faults)


def _render_agents(found: DiagnosisReport) -> Iterator[str]:
    yield f"{found.agents} can be called from here (retinue agents)"
    if count := len(found.broken_agents):
        yield f"{pluralize(count, 'file')} cannot be used (retinue agents check)"
    yield from (f"✗ {to_one_line(remark, MAX_COLUMNS)}" for remark in found.broken_agents)


def _render_hosts(found: DiagnosisReport) -> list[str]:
    rows = [
        ["✗" if host.fault else "✓", host.title, to_one_line(host.file, MAX_COLUMNS), _describe_host(host)]
        for host in found.hosts
    ]
    return render_table(rows, columns=MAX_COLUMNS) if rows else ["no other program (retinue install)"]


def _describe_host(host: HostStatus) -> str:
    """Return what the host gets when it starts Retinue."""
    if host.tools is not None:
        return f"{pluralize(host.tools, 'tool')} when it is started"
    return "" if host.fault or host.is_ours else "starts another program, which was not tried"


def _setting_row(setting: SettingStatus) -> list[str]:
    return [
        setting.name,
        _format_by_toolset({toolset: _format_value(value) for toolset, value in setting.values.items()}),
        _format_by_toolset({toolset: _format_source(source) for toolset, source in setting.sources.items()}),
        SETTING_RULES[setting.name].note,
    ]


def _format_by_toolset(values: Mapping[str, str]) -> str:
    """Return the most common value, followed by the toolsets that have another one."""
    usual = Counter(values.values()).most_common(1)[0][0]
    others = [f"{toolset} {value}" for toolset, value in values.items() if value != usual]
    return f"{usual} ({', '.join(others)})" if others else usual


def _format_value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _format_source(source: str) -> str:
    return "default" if source.startswith("default of ") else source


def _format_problem(problem: SettingProblem) -> str:
    """Return the problem in one line; for an unknown setting, with the nearest name instead of all names."""
    unknown = re.match(r"unknown setting '?(?:\w+\.)?(\w+)'? ignored", problem.message)
    if unknown is None:
        return to_one_line(problem.message, MAX_COLUMNS)
    return f"{to_one_line(unknown[0], MAX_COLUMNS)}.{suggest_spelling(unknown[1], SETTING_RULES)}"
