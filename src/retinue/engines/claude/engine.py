"""The claude engine: one Claude Code process per run, spoken with through the Claude Agent SDK."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import anyio
from anyio import CapacityLimiter
from anyio.abc import TaskStatus
from msgspec import structs

from retinue.beside import Beside
from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.calling_home import agents_at_home
from retinue.engines.child import Process, child
from retinue.engines.claude import sdk
from retinue.engines.claude.conversation import Forgotten, Telling, check_known
from retinue.engines.claude.delegating import SPAWN, aliases
from retinue.engines.claude.installation import found
from retinue.engines.claude.launch import allowed, built_in, command, loaded, unapplied, unasked
from retinue.engines.claude.own_tools import our_name, own_name, own_toolbox
from retinue.engines.claude.said import Begun, Ended
from retinue.engines.claude.session import new_session, pointer_of, remember, resumable, why_not_resumable
from retinue.engines.claude.wire import Wire
from retinue.engines.processes.keeper import Family, Keeper
from retinue.engines.prompt import prompt_of
from retinue.engines.steering import SteeredRuns, Steering
from retinue.events import NativeSession, Notice
from retinue.types import Code, Failure, RunSpec

READERS = 4
"""Directories that are listed at once, over all runs."""


class ClaudeEngine:
    """Runs specs on the Claude Code of their environment."""

    def __init__(self, *, owns_process: bool = False, family: Family | None = None) -> None:
        self._owns_process = owns_process
        self._family = family
        self._keeper: Keeper | None = None
        self._readers = CapacityLimiter(READERS)
        self._steered = SteeredRuns()

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        async with Keeper(owns_process=self._owns_process, family=self._family) as self._keeper:
            task_status.started()
            await anyio.sleep_forever()

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._steered.tell(run, text)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        with self._steered.at_work(spec.run) as steering:
            await self._run(spec, emit, steering)

    async def _run(self, spec: RunSpec, emit: Emit, steering: Steering) -> None:
        program = found(spec.environment)
        for sentence in unapplied(spec):
            await emit(Notice("not_applied", sentence))
        session = resumable(spec)
        if session:
            try:
                await self._carry(spec, program, session, emit, steering, resumes=True)
            except Forgotten:
                pass
            else:
                return
        if spec.native_session:
            await emit(Notice("native_session", why_not_resumable(spec)))
            spec = structs.replace(spec, native_session=None)
        await self._carry(spec, program, new_session(), emit, steering, resumes=False)

    async def _carry(
        self, spec: RunSpec, program: str, session: str, emit: Emit, steering: Steering, *, resumes: bool
    ) -> None:
        """Carries the spec out in a session, begun here or gone on with.

        Raises:
            EngineError: Claude Code cannot do what the spec asks for, or broke off.
            Forgotten: it does not know the session.
        """
        assert self._keeper is not None
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            start = command(spec, program, Path(folder), session=session, resumes=resumes)
            async with child(start, self._keeper) as process:
                if self._keeper.unguarded:
                    await emit(Notice("unguarded", self._keeper.unguarded))
                await sdk.load()
                await self._converse(spec, process, emit, steering)

    async def _converse(self, spec: RunSpec, process: Process, emit: Emit, steering: Steering) -> None:
        wire = Wire(process, aliases(own_name(SPAWN)) if spec.home else None)
        telling = Telling(process, wire, emit, steering)
        await telling.begin()
        await emit(Completion.PENDING)
        toolbox = await own_toolbox(spec, self._readers)
        agents = await agents_at_home(spec.home) if spec.home else ()
        async with (
            Beside(wire.pump),
            sdk.connected(wire, toolbox, allowed(spec), agents, unasked=unasked(spec)) as client,
        ):
            if client:
                await client.query(prompt_of(spec))
            said = await telling.until_begun()
            if client and isinstance(said, Begun):
                steering.begin(partial(sdk.say, client))
                try:
                    await _check_tools(spec, said, emit)
                    await _remember(spec, said.session, emit)
                    said = await telling.until_ended()
                finally:
                    steering.end()  # before the client is gone, which could not be told anything
            if isinstance(said, Ended):
                check_known(said)
                await telling.over(said, spec.limits)
            else:
                await telling.gone()


async def _remember(spec: RunSpec, session: str, emit: Emit) -> None:
    pointer = pointer_of(spec)
    try:
        remember(pointer, session)
    except OSError as error:
        message = f"Claude Code's own session is not kept: {pointer.parent} cannot be written ({error.strerror})."
        await emit(Notice("not_applied", message))
    else:
        await emit(NativeSession(str(pointer)))


async def _check_tools(spec: RunSpec, begun: Begun, emit: Emit) -> None:
    """Checks that this Claude Code has the granted tools.

    Raises:
        EngineError: it lacks one that the agent needs.
    """
    lacking = [our_name(tool) for tool in built_in(spec) if tool not in begun.tools]
    required = [tool for tool in lacking if tool not in spec.agent.tools.optional]
    if required:
        named = f"the tool{'s' * (len(required) > 1)} {', '.join(required)}"
        why = "does not have or its settings deny (claude_settings)" if loaded(spec) else "does not have"
        raise EngineError(
            Failure(
                Code.UNSUPPORTED,
                f'Agent "{spec.agent.name}" needs {named}, which this Claude Code {why}. No tool was run. '
                "Choose another engine, or list it under optional_tools.",
                "missing_tool",
                {"agent": spec.agent.name, "tools": ", ".join(required), "engine": "claude"},
            )
        )
    if lacking:
        message = f"This Claude Code does not have {', '.join(lacking)}, which the agent can do without."
        await emit(Notice("missing_tools", message))
