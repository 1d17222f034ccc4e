"""`retinue doctor`: show engines, agents, hosts, settings with their sources, and problems with what to do."""

from __future__ import annotations

import errno
import os
import platform
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
from retinue.agents.registry import AgentSet, DefinitionStatus
from retinue.cli.json_output import result_json, to_json
from retinue.cli.options import cwd_option, json_option
from retinue.cli.printing import (
    Cell,
    StyledCell,
    help_examples,
    print_error,
    print_hint,
    print_json,
    print_lines,
    render_table,
    stdout_columns,
)
from retinue.cli.run_output import format_setting_problem
from retinue.client import Retinue
from retinue.config.directories import config_folder
from retinue.config.settings import SETTING_RULES, SettingProblem
from retinue.hosts.environments import list_needed_variables
from retinue.hosts.hosts import HostMachine
from retinue.hosts.status import HostInstallation, HostStatus, find_installations, probe_hosts
from retinue.model.errors import RefusedError
from retinue.model.results import RunResult
from retinue.output.truncate import format_size
from retinue.output.untrusted_text import to_one_line
from retinue.support.formatting import pluralize
from retinue.tui.widths import text_width, wrap_text

MAX_LINES = 100
"""Lines of an explanation: none is cut."""
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
    problem: str | None = None
    """The reason why it cannot run on the model and keys that the user configured; None if it can."""


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
    sandboxes: Mapping[str, str]
    """What enforces each mode of the sandbox here, and what it leaves open; or why it cannot be built."""
    agents: int
    broken_agents: tuple[str, ...]
    broken_servers: tuple[str, ...]
    """MCP servers of agents that cannot be started, and why."""
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
    model = retinue.settings("single").settings.model
    needed = list_needed_variables(os.environ, retinue.engines.values(), model)
    installed = tuple(find_installations(HostMachine(os.environ), Path(retinue.cwd), needed))
    roster, hosts = retinue.roster(), await probe_hosts(installed, retinue.cwd)
    return DiagnosisReport(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        terminal=_terminal_facts(),
        engines=engines,
        state=state,
        processes=retinue.containment[1],
        sandboxes=retinue.sandboxes,
        agents=len(roster.names()),
        broken_agents=tuple(map(str, roster.problems)),
        broken_servers=tuple(_list_broken_servers(retinue, roster)),
        hosts=tuple(host.status for host in hosts),
        settings=tuple(_list_settings(retinue)),
        problems=problems,
        broken=(
            *_list_problems(retinue, engines, state, problems),
            *(host.status.fault for host in hosts if host.status.fault),
            *list_hosts_without_engine(retinue, hosts),
        ),
    )


def _list_broken_servers(retinue: Retinue, roster: AgentSet) -> Iterator[str]:
    for entry in roster.list_definitions():
        if entry.status is DefinitionStatus.USED:
            for server in retinue.find_servers(entry.agent):
                if server.problem:
                    yield f"{entry.agent.name}: MCP server {server.name}: {server.problem}"


def list_engine_status(retinue: Retinue) -> Iterator[EngineStatus]:
    """Yield the engines in the order of `auto`, without starting a process."""
    model = retinue.settings("single").settings.model
    chosen = retinue.automatic_engine()
    for kind in retinue.engines.values():
        missing = kind.unavailable_reason()
        failure = None if missing else kind.find_model_problem(model, None, os.environ)
        yield EngineStatus(
            kind.name,
            kind.summary_for(model),
            missing,
            kind is chosen,
            kind.automatic,
            kind.uses_models,
            failure.message if failure else None,
        )


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
        yield f"Sessions cannot be stored: {nearest} cannot be written ({error.strerror}). {advice}."


def _check_permissions(folder: Path) -> Iterator[str]:
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"chmod go-w {shlex.quote(str(folder))}"
        yield f"Other users can change the stored sessions in {folder} (mode {mode:o}). Run: {remedy}"


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
        yield "No engine can be used: the list of engines above shows what each needs."
    yield from (engine.problem for engine in engines if engine.is_chosen and engine.problem)
    if (mode := retinue.settings("single").settings.sandbox) in retinue.unavailable_sandboxes:
        yield f"Runs fail: {retinue.sandboxes[mode]}"
    if fault := retinue.trust.fault():
        yield f"{fault}. Approve the agents again with `retinue agents trust NAME`."
    mine = str(config_folder(os.environ))
    for problem in problems:
        # A setting that a project's file may not set is not the user's mistake.
        if problem.source == "environment" or problem.source.startswith(mine):
            text = format_setting_problem(problem)
            yield f"{text}{'' if text.endswith('?') else '.'} Change or remove it in {_name_source(problem.source)}."


def _name_source(source: str) -> str:
    return "your environment" if source == "environment" else source


def list_hosts_without_engine(retinue: Retinue, hosts: Iterable[HostInstallation]) -> Iterator[str]:
    """Yield the reasons why calls from hosts are refused: no engine can be used in their environment."""
    titles: dict[str, list[str]] = {}
    for host in hosts:
        if not host.status.fault and (reason := _find_refusal(retinue, host)):
            titles.setdefault(reason, []).append(host.status.title)
    for reason, named in titles.items():
        yield f"Calls from {', '.join(dict.fromkeys(named))} are refused, because {reason}"


def _find_refusal(retinue: Retinue, host: HostInstallation) -> str | None:
    """Return why calls from a host find no engine and what to do; None if they find one."""
    named = host.status.engine
    problem = _find_engine_problem(Retinue(cwd=retinue.cwd, environ=host.environ), named)
    if problem and host.status.missing_variables and _find_engine_problem(retinue, named) is None:
        missing = ", ".join(host.status.missing_variables)
        return f"the host does not pass {missing} to its servers. Run: {host.status.remedy}"
    return problem


def _find_engine_problem(retinue: Retinue, named: str | None) -> str | None:
    """Return why the engine that is named, or else configured, cannot be used by a server; None if it can."""
    name = named or retinue.settings("single").settings.engine
    if name == AUTO:
        if _find_model_engine(list_engine_status(retinue)):
            return None
        return "no engine with a language model is ready. Run `retinue setup` to configure and test an engine."
    kind = retinue.engines.get(name)
    why = kind.not_installed_reason() if kind else None
    return f"the engine {name} cannot be used: {why}" if why else None


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
MIN_TEXT_COLUMNS = 40
"""Columns that an explanation needs beside other columns."""
MAX_ANSWER_CHARS = 60
INDENT = "  "
DEFAULT = "default"
NO_MODEL = (
    "! No engine with a language model is ready: `retinue run` uses the offline engine (rules), and calls from "
    "hosts are refused. "
    "Set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or run `retinue setup`."
)


@click.command(
    epilog=help_examples(
        "retinue doctor",
        "retinue doctor --try",
        "retinue doctor --all --json",
        then="Exit codes: 0 no problems, 1 there are problems to fix, or --try failed.",
    )
)
@click.option("--try", "is_tried", is_flag=True, help="Send one short request with the engine that auto selects.")
@click.option("--all", "shows_all", is_flag=True, help="Show every setting, and facts about the system.")
@json_option
@cwd_option
@click.pass_context
def doctor(ctx: click.Context, is_tried: bool, shows_all: bool, as_json: bool, cwd: str | None) -> None:
    """Check whether a model can be used, and list problems with their fixes.

    Shows engines with the key or login found for each, settings that differ from their defaults with their source,
    agents, and the programs that Retinue is installed in. The source of a setting is the environment (RETINUE_…), the
    project's .retinue/config.toml, your ~/.config/retinue/config.toml, or the default of a toolset. Without --try
    nothing is sent to a provider.
    """
    found = anyio.run(diagnose, Retinue(cwd=cwd))
    if not as_json:
        print_lines(_render_report(found, shows_all=shows_all, columns=stdout_columns()))
    result = _try_engine(found, cwd) if is_tried else None
    if as_json:
        print_json({**to_json(found), **({"trial": result_json(result)} if result else {})})
    ctx.exit(1 if found.broken or (is_tried and (result is None or result.failure)) else 0)


def _try_engine(found: DiagnosisReport, cwd: str | None) -> RunResult | None:
    """Send one short request with the engine that `auto` uses; None if it has no model."""
    from retinue.cli.runner import REQUEST_TASK, run_trial

    engine = _find_model_engine(found.engines)
    if engine is None:
        print_error("Nothing to test: no engine with a language model is ready. Run `retinue setup`.")
        return None
    result = run_trial(engine.name, REQUEST_TASK, cwd=cwd)
    if result.failure is None:
        print_hint(f"Test passed: {engine.name} answered {to_one_line(result.text, MAX_ANSWER_CHARS)!r}.")
    return result


def _find_model_engine(engines: Iterable[EngineStatus]) -> EngineStatus | None:
    return next((engine for engine in engines if engine.is_chosen and engine.uses_models), None)


def _render_report(found: DiagnosisReport, *, shows_all: bool, columns: int) -> Iterator[str]:
    yield from _render_verdict(found, columns)
    if found.broken:
        problems = (line for sentence in found.broken for line in _wrap(f"✗ {sentence}", columns))
        yield from _render_section("Problems to fix", (click.style(line, fg="red") for line in problems))
    yield from _render_section("Engines", render_engines(found.engines, columns - len(INDENT)))
    yield from _render_section("Settings", _render_settings(found.settings, columns, shows_all=shows_all))
    if found.problems:
        ignored = map(format_setting_problem, found.problems)
        yield from _render_section("Ignored settings", (line for text in ignored for line in _wrap(text, columns)))
    yield from _render_section("Agents", _render_agents(found, columns))
    yield from _render_section("Installed in", _render_hosts(found, columns - len(INDENT)))
    yield from _render_section("State", _render_state(found, columns))
    if shows_all:
        yield from _render_section("Processes", _wrap(found.processes, columns))
        yield from _render_section(
            "Sandbox", [line for mode, text in found.sandboxes.items() for line in _wrap(f"{mode}: {text}", columns)]
        )
        facts = ", ".join(f"{name} {value}" for name, value in found.terminal.items())
        yield from _render_section("Terminal", _wrap(facts, columns))


def _render_verdict(found: DiagnosisReport, columns: int) -> Iterator[str]:
    """Render whether a model can be used, the number of problems, and the version."""
    engine = _find_model_engine(found.engines)
    if engine and engine.problem:
        yield click.style(f"✗ Not ready: {engine.name} cannot be used as it is configured", fg="red")
    elif engine:
        yield from (
            click.style(line, fg="green") for line in _wrap(f"✓ Ready: {engine.name}, {engine.about}", columns, 0)
        )
    else:
        yield from (click.style(line, fg="yellow") for line in _wrap(NO_MODEL, columns, 0))
    if found.broken:
        yield click.style(f"✗ {pluralize(len(found.broken), 'problem')} to fix", fg="red")
    yield f"retinue {found.version} on Python {found.python}, {found.platform}"


def _wrap(text: str, columns: int, indent: int = len(INDENT)) -> list[str]:
    """Break a sentence between words; further lines are indented."""
    first, *others = wrap_text(to_one_line(text, MAX_COLUMNS), columns - indent - len(INDENT), MAX_COLUMNS) or [""]
    return [first, *(INDENT + line for line in others)]


def _render_section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield ""
    yield click.style(title, bold=True)
    yield from (f"{INDENT}{line}" for line in lines)


def render_engines(found: Iterable[EngineStatus], columns: int) -> list[str]:
    """Render each engine: whether it can be used, the key or login that was found, and else what is missing."""
    engines = list(found)
    width = max((len(engine.name) for engine in engines), default=0)
    lines: list[str] = []
    for engine in engines:
        is_broken = engine.missing or engine.problem
        mark = click.style("✗", fg="red") if is_broken else click.style("✓", fg="green")
        text = to_one_line(engine.missing or engine.about, MAX_COLUMNS) + (
            " (auto uses it)" if engine.is_chosen else ""
        )
        indent = width + len("✓    ")
        first, *others = wrap_text(text, max(columns - indent, MIN_TEXT_COLUMNS), MAX_COLUMNS) or [""]
        lines += [f"{mark}  {engine.name:<{width}}  {first}", *(" " * indent + line for line in others)]
    return lines


def _render_settings(settings: Iterable[SettingStatus], columns: int, *, shows_all: bool) -> Iterator[str]:
    """Render the settings that differ from their defaults, or all; explanations move to a line below if need be."""
    everything = list(settings)
    shown = everything if shows_all else [each for each in everything if _is_changed(each)]
    if shown:
        rows = [["NAME", "VALUE", "FROM", "DESCRIPTION"], *map(_setting_row, shown)]
        used = sum(max(text_width(row[index]) for row in rows) + len(INDENT) for index in range(3))
        if columns - len(INDENT) - used >= MIN_TEXT_COLUMNS:
            yield from render_table(rows, columns=columns - len(INDENT), has_headings=True, lines=MAX_LINES)
        else:
            for name, value, source, note in rows[1:]:
                yield from _wrap(f"{name} = {value} ({source})", columns)
                yield from (click.style(INDENT + line, fg="bright_black") for line in _wrap(note, columns))
    if not shows_all:
        others = (
            f"{len(everything) - len(shown)} others have their defaults"
            if shown
            else "all settings have their defaults"
        )
        yield click.style(f"{others} (retinue doctor --all)", fg="bright_black")


def _is_changed(setting: SettingStatus) -> bool:
    return any(_format_source(source) != DEFAULT for source in setting.sources.values())


def _render_state(found: DiagnosisReport, columns: int) -> Iterator[str]:
    state = found.state
    sessions = "unreadable" if state.sessions is None else pluralize(state.sessions, "session")
    yield f"{to_one_line(state.folder, MAX_COLUMNS)}: {sessions}, {format_size(state.size_bytes)}"
    yield from (line for fault in state.faults for line in _wrap(f"✗ {fault}", columns))


def _render_agents(found: DiagnosisReport, columns: int) -> Iterator[str]:
    yield f"{found.agents} can be used from here (retinue agents)"
    if count := len(found.broken_agents):
        yield f"{pluralize(count, 'file')} cannot be used (retinue agents check)"
    yield from (line for remark in found.broken_agents for line in _wrap(f"✗ {remark}", columns))
    if count := len(found.broken_servers):
        yield f"{pluralize(count, 'MCP server')} of agents cannot be started; the agents run without"
    yield from (line for remark in found.broken_servers for line in _wrap(f"✗ {remark}", columns))


def _render_hosts(found: DiagnosisReport, columns: int) -> list[str]:
    rows: list[list[Cell]] = [
        [
            StyledCell("✗", "red") if host.fault else StyledCell("✓", "green"),
            host.title,
            StyledCell(host.file, "bright_black"),
            _describe_host(host),
        ]
        for host in found.hosts
    ]
    return render_table(rows, columns=columns, lines=MAX_LINES) if rows else ["no other program (retinue install)"]


def _describe_host(host: HostStatus) -> str:
    """Return what the host gets when it starts Retinue."""
    if host.tools is not None:
        missing = f", without {', '.join(host.missing_variables)} ({host.remedy})" if host.missing_variables else ""
        return f"{pluralize(host.tools, 'tool')} when it is started{missing}"
    return "" if host.fault or host.is_ours else "starts another program, which was not tested"


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
        case tuple():
            return ", ".join(value) or "none"
        case _:
            return str(value)


def _format_source(source: str) -> str:
    return DEFAULT if source.startswith("default of ") else source
