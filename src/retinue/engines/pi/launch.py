"""How pi is started for a run: its arguments, its environment, and what a process must agree on to serve another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from retinue.config.directories import engine_session_file
from retinue.engines.child_environment import write_prompt_files
from retinue.engines.pi.installation import PiInstallation
from retinue.engines.pi.session_file import move_out_of_the_way
from retinue.engines.process.child import ChildCommand, StdinMode
from retinue.model.runs import RunSpec
from retinue.model.tool_names import FINALIZE_TOOL, is_delegation

EXTENSION_PATH = Path(__file__).with_name("child.js")

THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

MCP_SINCE = (1, 0)


class ProcessKey(Struct, frozen=True):
    """What a process cannot change: runs that agree on all of it may be served by one, one after the other."""

    program: str
    stamp: tuple[int, int]
    cwd: str
    arguments: tuple[str, ...]
    environment: str
    """A digest: it holds keys."""


class PiLaunch(Struct, frozen=True):
    """A pi process for a run."""

    key: ProcessKey
    session: str | None
    """The file in which pi keeps the conversation; None: nowhere, as it could not be written."""
    environ: dict[str, str]

    def rpc_command(self) -> ChildCommand:
        """A process that takes commands until its standard input is closed."""
        return self._build_command("--mode", "rpc", *self.key.arguments, *self._session_arguments())

    def oneshot_command(self, spec: RunSpec, folder: Path) -> ChildCommand:
        """A process for this run alone, which reads its prompt from its standard input."""
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
        return ChildCommand(argv=argv, cwd=self.key.cwd, environ=self.environ, stdin=StdinMode.PIPE, late_fork=True)


def plan_launch(spec: RunSpec, installation: PiInstallation) -> PiLaunch:
    """What it takes to run the spec on this pi."""
    environ = {**spec.environment, **{name: secret.reveal() for name, secret in spec.secrets.items()}}
    digest = hashlib.sha256(repr(sorted(environ.items())).encode()).hexdigest()
    key = ProcessKey(
        program=installation.program,
        stamp=installation.stamp,
        cwd=spec.cwd,
        arguments=(*_build_arguments(spec, installation), *spec.agent.extra_args),
        environment=digest,
    )
    return PiLaunch(key, spec.native_session or _prepare_session_file(spec), environ)


def list_granted_tools(spec: RunSpec) -> list[str]:
    return [*spec.grant.tools, *([FINALIZE_TOOL] if spec.finalize else [])]


def list_unapplied_preferences(spec: RunSpec, start: PiLaunch) -> Iterator[str]:
    """What the agent or its session wishes for and does not get, each as a sentence."""
    agent = spec.agent
    if agent.thinking and agent.thinking not in THINKING_LEVELS:
        levels = ", ".join(THINKING_LEVELS)
        yield f"pi has no thinking level {agent.thinking!r} (it has: {levels}): its own default is used."
    if agent.provider and not spec.model:
        yield f"The provider {agent.provider!r} is not used, as no model is named."
    if start.session is None:
        yield f"pi's own session is not kept: {spec.native_folder} cannot be written."


def _build_arguments(spec: RunSpec, installation: PiInstallation) -> list[str]:
    agent = spec.agent
    arguments = ["-e", str(EXTENSION_PATH)]
    if installation.supports_rpc:
        arguments += ["--no-themes", "-np"]  # of no use without a screen, and they cost time at the start
    if agent.provider and spec.model:
        arguments += ["--provider", agent.provider]
    if spec.model:
        arguments += ["--model", spec.model]
    if agent.thinking in THINKING_LEVELS:
        arguments += ["--thinking", agent.thinking]
    if agent.no_extensions:
        arguments.append("-ne")
        if installation.version is None or installation.version >= MCP_SINCE:
            arguments.append("--no-mcp")
    for extension in agent.extensions:
        arguments += ["-e", extension]
    if agent.no_skills:
        arguments.append("--no-skills")
    if agent.no_context_files:
        arguments.append("-nc")
    return arguments


def _prepare_session_file(spec: RunSpec) -> str | None:
    """A file no conversation is in yet; one of an earlier attempt is moved aside, not continued."""
    path = engine_session_file(Path(spec.native_folder), spec.agent.name, spec.session)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            move_out_of_the_way(path)
    except OSError:
        return None
    return str(path) if os.access(path.parent, os.W_OK | os.X_OK) else None
