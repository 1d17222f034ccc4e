"""Arguments, environment and session file of a pi process, and the key that decides whether it can be reused."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from retinue.config.directories import engine_session_file, pi_folder
from retinue.config.run_environment import write_prompt_files
from retinue.engines.pi.installation import PiInstallation
from retinue.engines.pi.providers import PiConfiguration
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.engines.sandbox.access import find_installation
from retinue.engines.sandbox.configuration import list_read_only
from retinue.engines.sandbox.launch import SandboxNeeds
from retinue.model.events import Notice
from retinue.model.providers import THINKING_LEVELS
from retinue.model.runs import RunSpec, process_limits
from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy
from retinue.model.tool_names import FINALIZE_TOOL, is_delegation, is_on_server

EXTENSION_PATH = Path(__file__).with_name("child.js")

MCP_SINCE = (1, 0)
TRANSPILED_CACHE = "jiti"
"""Name of the folder among temporary files in which pi keeps transpiled extensions; it uses a writable one only."""
COMPILE_CACHE = "node-compile-cache"
"""Name of the folder among temporary files in which node keeps compiled code. A sandboxed pi can only read it."""

HEADER_BYTES = 1 << 20
"""Size of the start of a session file in which its header must end."""


class ProcessKey(Struct, frozen=True):
    """Everything a process cannot change; runs with equal keys can share one process, one after the other."""

    program: str
    stamp: tuple[int, int]
    cwd: str
    arguments: tuple[str, ...]
    environment: str
    """A digest, since the environment contains keys."""
    limits: tuple[tuple[str, int], ...] = ()
    """Limits on what its processes use."""
    confinement: str = ""
    """A digest of its sandbox; empty without one."""


class PiLaunch(Struct, frozen=True):
    """A pi process to start for a run."""

    key: ProcessKey
    session: str | None
    """The file of pi's own session; None if none could be created."""
    environ: dict[str, str]
    sandbox: SandboxPolicy = NO_SANDBOX
    needs: SandboxNeeds = SandboxNeeds()
    providers: tuple[str, ...] = ()
    """The providers whose logins it needs; empty: all."""
    compile_cache: str = ""
    """The folder of compiled code that a sandboxed pi can read; empty: none."""

    def rpc_command(self) -> ChildCommand:
        """Return the command of a process that takes commands until its standard input is closed."""
        return self._build_command("--mode", "rpc", *self.key.arguments, *self._session_arguments())

    def oneshot_command(self, spec: RunSpec, folder: Path) -> ChildCommand:
        """Return the command of a process for this run alone, which reads its prompt from standard input."""
        granted = [tool for tool in list_granted_tools(spec) if not is_delegation(tool)]
        tools = ["--tools", ",".join(granted)] if granted else ["--no-tools"]
        texts = {"--system-prompt": spec.system_prompt, "--append-system-prompt": spec.append_prompt}
        prompts = write_prompt_files(folder, texts)
        return self._build_command(
            "--mode", "json", "-p", *self.key.arguments, *self._session_arguments(), *tools, *prompts
        )

    def _session_arguments(self) -> tuple[str, ...]:
        return ("--session", self.session) if self.session else ("--no-session",)

    def _build_command(self, *arguments: str) -> ChildCommand:
        argv = (self.key.program, *arguments)
        return ChildCommand(
            argv=argv,
            cwd=self.key.cwd,
            environ=self.environ,
            stdin=StdinMode.PIPE,
            private_streams=True,
            limits=dict(self.key.limits),
        )


def plan_launch(spec: RunSpec, installation: PiInstallation) -> PiLaunch:
    """Return the launch of the spec on this pi."""
    environ = {**spec.environment, **{name: secret.reveal() for name, secret in spec.secrets.items()}}
    digest = hashlib.sha256(repr(sorted(environ.items())).encode()).hexdigest()
    key = ProcessKey(
        program=installation.program,
        stamp=installation.stamp,
        cwd=spec.cwd,
        arguments=(*_build_arguments(spec, installation), *spec.agent.extra_args),
        environment=digest,
        limits=tuple(process_limits(spec.limits).items()),
    )
    session = spec.native_session or _prepare_session_file(spec)
    if not spec.sandbox.is_on:
        return PiLaunch(key, session, environ)
    configuration = PiConfiguration(environ)
    cache = _find_compile_cache(environ)
    providers = configuration.providers_of_run(spec.model, spec.agent.provider)
    temporary = environ.get("TMPDIR") or tempfile.gettempdir()
    needs = SandboxNeeds(
        temporary=(os.path.join(temporary, TRANSPILED_CACHE),),  # noqa: PTH118 - part of a list of texts
        read=_list_needed_paths(spec, installation, environ, cache),
        sockets=tuple({each.address for each in (spec.callback, spec.gate_address) if each}),
        hosts=configuration.hosts_of(providers),
    )
    # What is read-only in a sandbox was there when its process started.
    read_only = tuple(list_read_only(spec.sandbox, os.path.realpath(spec.cwd)))
    confinement = hashlib.sha256(repr((spec.sandbox, needs, providers, read_only)).encode()).hexdigest()
    key = structs.replace(key, confinement=confinement)
    return PiLaunch(key, session, environ, spec.sandbox, needs, providers, cache)


def _list_needed_paths(
    spec: RunSpec, installation: PiInstallation, environ: Mapping[str, str], cache: str
) -> tuple[str, ...]:
    """Return what pi reads besides the system: itself, our extension, those of the agent, and compiled code."""
    search_path = environ.get("PATH", "")
    paths = (str(EXTENSION_PATH), str(pi_folder(environ) / "bin"), cache, *spec.agent.extensions)
    return (
        *find_installation(installation.program, search_path),
        *map(os.path.realpath, filter(os.path.isabs, paths)),
    )


def _find_compile_cache(environ: Mapping[str, str]) -> str:
    """Return the folder in which node keeps compiled code; empty if there is none yet."""
    folder = environ.get("NODE_COMPILE_CACHE") or Path(environ.get("TMPDIR") or tempfile.gettempdir(), COMPILE_CACHE)
    real = os.path.realpath(folder)
    return real if os.path.isdir(real) else ""  # noqa: PTH112 - a text, as in the environment


def list_granted_tools(spec: RunSpec) -> list[str]:
    """Return the granted tools, without those of MCP servers of ours: the extension adds these once it knows them."""
    labels = spec.tool_servers.labels if spec.tool_servers else ()
    granted = [tool for tool in spec.grant.tools if not any(is_on_server(tool, label) for label in labels)]
    return [*granted, *([FINALIZE_TOOL] if spec.finalize else [])]


def list_unapplied_preferences(spec: RunSpec, start: PiLaunch) -> Iterator[Notice]:
    """Yield a notice on each preference of the agent or session that is not applied."""
    agent = spec.agent
    if agent.thinking and agent.thinking not in THINKING_LEVELS:
        levels = ", ".join(THINKING_LEVELS)
        message = f"pi has no thinking level {agent.thinking!r} (it has: {levels}); its default is used."
        yield Notice("not_applied", message, preference="thinking")
    if agent.provider and not spec.model:
        yield Notice(
            "not_applied",
            f"The provider {agent.provider!r} is ignored, because no model is set.",
            preference="provider",
        )
    if start.session is None:
        yield Notice("not_applied", f"pi's own session file is not kept: {spec.native_folder} cannot be written.")


def _build_arguments(spec: RunSpec, installation: PiInstallation) -> list[str]:
    agent = spec.agent
    arguments = ["-e", str(EXTENSION_PATH)]
    if installation.supports_rpc:
        arguments += ["--no-themes", "-np"]  # useless without a screen, and slow to load
    if agent.provider and spec.model:
        arguments += ["--provider", agent.provider]
    if spec.model:
        arguments += ["--model", spec.model]
    if agent.thinking in THINKING_LEVELS:
        arguments += ["--thinking", agent.thinking]
    if agent.no_extensions:
        arguments.append("-ne")
    # Servers of ours may be those of pi's own configuration, which would be started twice.
    if (agent.no_extensions or spec.tool_servers) and (
        installation.version is None or installation.version >= MCP_SINCE
    ):
        arguments.append("--no-mcp")
    for extension in agent.extensions:
        arguments += ["-e", extension]
    if agent.no_skills:
        arguments.append("--no-skills")
    if agent.no_context_files:
        arguments.append("-nc")
    return arguments


def _prepare_session_file(spec: RunSpec) -> str | None:
    """Return the path of a new session file, moving one of an earlier attempt aside; None if none can be written."""
    path = engine_session_file(Path(spec.native_folder), spec.agent.name, spec.session)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            move_out_of_the_way(path)
    except OSError:
        return None
    return str(path) if os.access(path.parent, os.W_OK | os.X_OK) else None


class _Header(Struct, tag="session"):
    """The first line of a session file."""

    id: str


def continue_or_set_aside(spec: RunSpec) -> tuple[RunSpec, str | None]:
    """Return the spec with a session that pi can continue, and a notice if pi's own file had to be moved aside.

    Without that file the run continues from the stored messages.
    """
    if not spec.native_session or _has_header(Path(spec.native_session)):
        return spec, None
    path = Path(spec.native_session)
    try:
        kept = move_out_of_the_way(path, ".damaged")
    except OSError as error:
        fate = f"The file could not be moved ({error.strerror})."
    else:
        fate = f"The file was moved to {kept}."
    notice = f"pi cannot read its own session file {path}. {fate} The session continues from the stored messages."
    return structs.replace(spec, native_session=None), notice


def move_out_of_the_way(path: Path, label: str = "") -> Path:
    """Rename the file to the first free name with a number, such as `x.1.jsonl`; return where it is now.

    Raises:
        OSError: it could not be renamed.
    """
    names = (path.with_suffix(f"{label}.{number}{path.suffix}") for number in count(1))
    free = next(name for name in names if not name.exists())
    return path.rename(free)


def _has_header(path: Path) -> bool:
    """Return whether the file starts with the header that pi requires; pi skips blank lines."""
    try:
        with path.open("rb") as file:
            beginning = file.read(HEADER_BYTES).lstrip()
        msgspec.json.decode(beginning.partition(b"\n")[0], type=_Header)
    except (OSError, ValueError):  # msgspec's errors are value errors
        return False
    return True
