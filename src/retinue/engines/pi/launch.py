"""How pi is started for a run: its arguments, its environment, and what a process must agree on to serve another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from retinue.engines.child import Command, Stdin
from retinue.engines.pi.installation import Installation
from retinue.engines.pi.session_file import move_out_of_the_way
from retinue.engines.prompt import prompt_files
from retinue.folders import native_file
from retinue.tool_names import FINALIZE, is_delegation
from retinue.types import RunSpec

EXTENSION = Path(__file__).with_name("child.js")

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

MCP_SINCE = (1, 0)


class Key(Struct, frozen=True):
    """What a process cannot change: runs that agree on all of it may be served by one, one after the other."""

    program: str
    stamp: tuple[int, int]
    cwd: str
    arguments: tuple[str, ...]
    environment: str
    """A digest: it holds keys."""


class Launch(Struct, frozen=True):
    """A pi process for a run."""

    key: Key
    session: str | None
    """The file in which pi keeps the conversation; None: nowhere, as it could not be written."""
    environ: dict[str, str]

    def conversing(self) -> Command:
        """A process that takes commands until its standard input is closed."""
        return self._command("--mode", "rpc", *self.key.arguments, *self._kept())

    def once(self, spec: RunSpec, folder: Path) -> Command:
        """A process for this run alone, which reads its prompt from its standard input."""
        granted = [tool for tool in tools_of(spec) if not is_delegation(tool)]
        tools = ["--tools", ",".join(granted)] if granted else ["--no-tools"]
        texts = {"--system-prompt": spec.system_prompt, "--append-system-prompt": spec.append_prompt}
        prompts = prompt_files(folder, texts)
        return self._command("--mode", "json", "-p", *self.key.arguments, *self._kept(), *tools, *prompts)

    def _kept(self) -> tuple[str, ...]:
        return ("--session", self.session) if self.session else ("--no-session",)

    def _command(self, *arguments: str) -> Command:
        argv = (self.key.program, *arguments)
        return Command(argv=argv, cwd=self.key.cwd, environ=self.environ, stdin=Stdin.PIPE, forks_late=True)


def launch(spec: RunSpec, installation: Installation) -> Launch:
    """What it takes to run the spec on this pi."""
    environ = {**spec.environment, **{name: secret.reveal() for name, secret in spec.secrets.items()}}
    digest = hashlib.sha256(repr(sorted(environ.items())).encode()).hexdigest()
    key = Key(
        program=installation.program,
        stamp=installation.stamp,
        cwd=spec.cwd,
        arguments=(*_arguments(spec, installation), *spec.agent.extra_args),
        environment=digest,
    )
    return Launch(key, spec.native_session or _session_file(spec), environ)


def tools_of(spec: RunSpec) -> list[str]:
    return [*spec.grant.tools, *([FINALIZE] if spec.finalize else [])]


def unapplied(spec: RunSpec, start: Launch) -> Iterator[str]:
    """What the agent or its session wishes for and does not get, each as a sentence."""
    agent = spec.agent
    if agent.thinking and agent.thinking not in THINKING:
        yield f"pi has no thinking level {agent.thinking!r} (it has: {', '.join(THINKING)}): its own default is used."
    if agent.provider and not spec.model:
        yield f"The provider {agent.provider!r} is not used, as no model is named."
    if start.session is None:
        yield f"pi's own session is not kept: {spec.native_folder} cannot be written."


def _arguments(spec: RunSpec, installation: Installation) -> list[str]:
    agent = spec.agent
    arguments = ["-e", str(EXTENSION)]
    if installation.converses:
        arguments += ["--no-themes", "-np"]  # of no use without a screen, and they cost time at the start
    if agent.provider and spec.model:
        arguments += ["--provider", agent.provider]
    if spec.model:
        arguments += ["--model", spec.model]
    if agent.thinking in THINKING:
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


def _session_file(spec: RunSpec) -> str | None:
    """A file no conversation is in yet; one of an earlier attempt is moved aside, not continued."""
    path = native_file(Path(spec.native_folder), spec.agent.name, spec.session)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists():
            move_out_of_the_way(path)
    except OSError:
        return None
    return str(path) if os.access(path.parent, os.W_OK | os.X_OK) else None
