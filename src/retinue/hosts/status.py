"""Find our entries in the configurations of hosts and check that they start Retinue, for `retinue doctor`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct, structs

from retinue.hosts.changes import read_text
from retinue.hosts.config_editors import ConfigEntry, UnsupportedConfigError
from retinue.hosts.hosts import HOSTS, SERVER_NAME, WINDOWS, Host, HostMachine
from retinue.hosts.own_command import own_command
from retinue.output.untrusted_text import to_one_line
from retinue.support.own_process import drop_placeholders


class HostStatus(Struct, frozen=True, rename="camel"):
    """A host in which Retinue is installed."""

    name: str
    title: str
    file: str
    fault: str | None
    """The reason why it cannot use Retinue, with what to do; None if it can."""
    command: tuple[str, ...] = ()
    """The command it starts."""
    is_ours: bool = False
    """Whether the command is this installation of Retinue."""
    tools: int | None = None
    """Number of tools offered when the command was started; None if it was not started."""
    is_project: bool = False
    """Whether the file is that of a project."""
    missing_variables: tuple[str, ...] = ()
    """Variables of this environment that Retinue needs, and that the host does not pass to its servers."""

    @property
    def remedy(self) -> str:
        """Return the command that installs Retinue again in the same file; a user's own file keeps its arguments."""
        return _install_command(HOSTS[self.name], self.command, is_project=self.is_project)

    @property
    def engine(self) -> str | None:
        """The engine in its command; None if the settings decide."""
        for number, word in enumerate(self.command):
            if word == "--engine" and number + 1 < len(self.command):
                return self.command[number + 1]
            if word.startswith("--engine="):
                return word.partition("=")[2]
        return None


class HostInstallation(Struct, frozen=True):
    """A host in which Retinue is installed, with the environment in which it starts Retinue."""

    status: HostStatus
    environ: Mapping[str, str]


def find_installations(
    machine: HostMachine, cwd: Path, needed_variables: Sequence[str] = ()
) -> Iterator[HostInstallation]:
    """Yield the hosts in which Retinue is installed, for the user and for the project.

    A file that cannot be read is skipped unless its text names Retinue. `needed_variables` are names of this
    environment that every host should pass.
    """
    for host in HOSTS.values():
        # In the home folder the files of project and user are the same.
        files = {host.config_path(machine, project): project for project in (cwd, None)}
        for file, project in files.items():
            with suppress(UnsupportedConfigError):
                text = read_text(file) or ""
                try:
                    entry = host.editor.find_entry(text)
                except UnsupportedConfigError as error:
                    if host.speaks_mcp and SERVER_NAME in text:
                        yield _broken_installation(host, file, project, error)
                    continue
                if entry is not None:
                    yield describe_installation(host, file, entry, project, machine, needed_variables)


async def probe_hosts(found: Sequence[HostInstallation], cwd: str) -> tuple[HostInstallation, ...]:
    """Start each command in the environment of its host and return the hosts with the result.

    Only this installation of Retinue is started: a project's file may name any program.
    """
    offered: dict[Hashable, int | str] = {}

    async def start(key: Hashable, host: HostInstallation) -> None:
        offered[key] = await list_offered_tools(
            host.status.command, speaks_mcp=HOSTS[host.status.name].speaks_mcp, cwd=cwd, environ=host.environ
        )

    async with anyio.create_task_group() as group:
        started = [each for each in found if each.status.is_ours and not each.status.fault]
        for key, host in {_probe_key(each): each for each in started}.items():
            group.start_soon(start, key, host)
    return tuple(
        structs.replace(host, status=_with_probe_result(host.status, offered.get(_probe_key(host)))) for host in found
    )


def _probe_key(host: HostInstallation) -> Hashable:
    """Return what is equal for hosts that start the same command in the same environment."""
    return host.status.command, frozenset(host.environ.items())


def _with_probe_result(host: HostStatus, offered: int | str | None) -> HostStatus:
    if host.fault or offered is None:
        return host
    if isinstance(offered, int):
        return structs.replace(host, tools=offered)
    fault = f"{host.title} cannot use the server it starts ({shlex.join(host.command)}): {offered.removesuffix('.')}."
    return structs.replace(host, fault=fault)


def describe_installation(
    host: Host,
    file: Path,
    entry: ConfigEntry,
    project: Path | None,
    machine: HostMachine,
    needed_variables: Sequence[str] = (),
) -> HostInstallation:
    """Return what a host with this entry starts, and in which environment."""
    command, own = host_command(host, entry), own_command()
    environ = drop_placeholders(host.environment.build_environment(machine.environ, entry))
    status = HostStatus(
        host.name,
        host.title,
        str(file),
        _find_fault(host, entry, project, machine.platform),
        command,
        command[: len(own) + 1] == (*own, "mcp" if host.speaks_mcp else "bridge"),
        is_project=project is not None,
        missing_variables=tuple(name for name in needed_variables if name not in environ),
    )
    return HostInstallation(status, environ)


def _broken_installation(
    host: Host, file: Path, project: Path | None, error: UnsupportedConfigError
) -> HostInstallation:
    """Return the status of a host whose configuration names Retinue and cannot be read."""
    fault = f"{host.title} cannot read {file}, which names Retinue: {error}. Correct the file."
    return HostInstallation(HostStatus(host.name, host.title, str(file), fault, is_project=project is not None), {})


def _install_command(host: Host, command: Sequence[str], *, is_project: bool) -> str:
    """Return the command that writes this command of a host again, with its arguments."""
    if is_project:  # another author may have chosen the arguments
        return f"retinue install {host.name} --project"
    start = "mcp" if host.speaks_mcp else "bridge"
    words = list(command[command.index(start) + 1 :]) if start in command else []
    chosen, rest = (words[:2], words[2:]) if words[:1] == ["--toolset"] else ([], words)
    if not host.speaks_mcp and chosen == ["--toolset", "fanout"]:
        chosen = []  # the default
    return shlex.join(["retinue", "install", host.name, *chosen, *(["--", *rest] if rest else [])])


def host_command(host: Host, entry: ConfigEntry) -> tuple[str, ...]:
    """Return the command a host starts, as a list of arguments."""
    command = _to_arguments(entry.get("command"))
    if host.speaks_mcp:
        return (*command, *_to_arguments(entry.get("args", [])))
    toolset = entry.get("surface")
    chosen = ("--toolset", toolset) if isinstance(toolset, str) else ()
    return (*command, "bridge", *chosen, *_to_arguments(entry.get("arguments", [])))


def _to_arguments(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _find_fault(host: Host, entry: ConfigEntry, project: Path | None, platform: str) -> str | None:
    again = f"Run: {_install_command(host, host_command(host, entry), is_project=project is not None)}"
    extension = str(entry.get("extension", ""))
    if extension and not os.path.exists(file_uri_to_path(extension, platform)):  # noqa: PTH110 - never raises
        return f"{host.title} loads an extension that no longer exists ({extension}). {again}"
    program = next(iter(_to_arguments(entry.get("command"))), None)
    if program is None or shutil.which(program) is None:
        return f"{host.title} starts a program that does not exist ({program}). {again}"
    if entry.get("enabled") is False:
        return f"{host.title} has Retinue disabled. Set enabled to true in its configuration."
    return None


def file_uri_to_path(uri: str, platform: str) -> str:
    """Return the path of a `file:` URI, without the slash before a Windows drive."""
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if platform == WINDOWS and path[2:3] == ":" else path


PROBE_TIMEOUT = 20.0
"""Seconds for its answer and its exit: hosts wait longer, people do not."""
MAX_REPLY_BYTES = 4 * 2**20
"""Limit of one answer."""
MAX_QUOTED_CHARS = 300
"""Characters of stderr quoted when it fails."""

_REVISION = "2026-07-28"
_CLIENT_META = {"protocolVersion": _REVISION, "clientCapabilities": {}}
_META = {f"io.modelcontextprotocol/{name}": value for name, value in _CLIENT_META.items()}
MCP_REQUEST = {"jsonrpc": "2.0", "id": "tools", "method": "tools/list", "params": {"_meta": _META}}
BRIDGE_REQUEST = {"type": "tools", "id": "tools"}


async def list_offered_tools(
    command: Sequence[str], *, speaks_mcp: bool, cwd: str, environ: Mapping[str, str]
) -> int | str:
    """Return the number of tools the program offers, or the reason why it offers none."""
    request = json.dumps(MCP_REQUEST if speaks_mcp else BRIDGE_REQUEST).encode() + b"\n"
    with tempfile.TemporaryFile() as stderr:
        try:
            with anyio.fail_after(PROBE_TIMEOUT):
                process = await anyio.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd, env=environ
                )
                async with process:  # leaving the block closes its stdin, which ends it
                    count = await _read_tool_count(process, request)
        except TimeoutError:
            return f"the server did not answer within {PROBE_TIMEOUT:g} seconds"
        except OSError as error:
            return f"the server cannot be started: {error.strerror}"
        return count if count is not None else _last_stderr_line(stderr) or "the server ended without output"


async def _read_tool_count(process: Process, request: bytes) -> int | None:
    """Return the number of tools in the answer; None if there is no answer."""
    assert process.stdin
    assert process.stdout
    lines = BufferedByteReceiveStream(process.stdout)
    try:
        await process.stdin.send(request)
        while True:
            match json.loads(await lines.receive_until(b"\n", MAX_REPLY_BYTES)):
                case {"id": "tools", "tools": list(tools)} | {"id": "tools", "result": {"tools": list(tools)}}:
                    return len(tools)
                case {"id": "tools"}:
                    return None
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound, ValueError):
        return None


def _last_stderr_line(stderr: IO[bytes]) -> str:
    """Return the last line of stderr as a reason; empty if there is none."""
    stderr.seek(0)
    lines = stderr.read(MAX_REPLY_BYTES).decode("utf-8", "replace").strip().splitlines()
    return f"the server printed: {to_one_line(lines[-1].removeprefix('error: '), MAX_QUOTED_CHARS)}" if lines else ""
