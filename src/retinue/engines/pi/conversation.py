"""One pi process that takes commands, and the run it serves: `--mode rpc`.

ready         it answers
switch        to the file of the run's session: nothing of the run before is known there
configure     its tools and its prompts, through our own extension
prompt        and then pi's events, until it has settled; what others say to the agent goes to it meanwhile
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import anyio
import msgspec

from retinue.engines.base import Completion, Emit, EngineError, engine_error
from retinue.engines.child import ChildGone, Process
from retinue.engines.lines import Lines
from retinue.engines.pi.launch import tools_of
from retinue.engines.pi.telling import PI, Telling
from retinue.engines.pi.wire import Configured, Dialog, Given, Reader, Response, Said, Settled
from retinue.engines.prompt import prompt_of
from retinue.engines.steering import Steering, not_taken
from retinue.engines.telling import end_of
from retinue.events import NativeSession, Notice, Steered
from retinue.tool_names import DELEGATION, FINALIZE
from retinue.types import Code, Failure, RunSpec

START = 60.0
"""Seconds in which a process that is going to work has answered: machines under load are slow."""

T = TypeVar("T", Response, Settled)


NOT_CONFIGURED = (
    "pi did not load Retinue's extension, or that failed, so the agent's tools could not be bounded. The task was "
    "not given to it. See what `pi -e` says to other extensions, and `retinue doctor`."
)
NO_EVENTS = (Response, Given, Configured, Settled, Dialog)


class Stale(Exception):  # noqa: N818 - it names what it is
    """A process that had served a run has ended, and nobody knew yet."""


class Conversation:
    """A process and what was said to it. One run at a time."""

    def __init__(self, child: Process, session: str | None) -> None:
        self.child = child
        self.runs = 0
        self.is_clean = False
        """Whether it may serve another run: its last one settled, and nothing about it is in doubt."""
        self._is_fresh = True
        self._session = session
        """The file it is in, as long as nothing was said there."""
        self._lines = Lines()
        self._reader = Reader()
        self._waiting: deque[Said] = deque()
        self._commands = 0
        self._writing = anyio.Lock()
        self._telling: Telling | None = None
        self._steering = Steering()
        self._configured: Configured | None = None
        self._was_asked = False
        """Whether the run has begun: what is said before belongs to none, or to the one before."""
        self._has_task = False
        """Whether its agent has been given its task."""
        self._companions = 0
        """Processes it has from the start, such as servers of its extensions; any more were left by a run."""

    async def ready(self) -> None:
        """Returns when pi answers.

        Raises:
            EngineError: it does not.
        """
        with anyio.move_on_after(START) as scope:
            try:
                await self._command("get_state")
            except ChildGone:
                raise PI.silent(self.child, self._reader, await end_of(self.child)) from None
            self._companions = await self.child.others()
            self.is_clean = True
        if scope.cancelled_caught:
            raise engine_error(f"pi did not answer within {START:g}s of its start.", code=Code.SPAWN_FAILED)

    async def serve(self, spec: RunSpec, session: str | None, emit: Emit, steering: Steering) -> None:
        """Carries the spec out in the session of this file, or of none; returns when pi has settled, or is gone.

        Raises:
            EngineError: pi cannot do what the spec asks for, or broke off.
            Stale: the process had ended since its last run; nothing was asked of it.
        """
        self.is_clean = self.child.answered = False
        self.runs += 1
        self._reader = Reader()
        self._waiting.clear()
        self._was_asked = self._has_task = False
        self._telling = Telling(self.child, self._reader, emit)
        self._steering = steering
        try:
            await self._telling.begin()
            await self._enter(session)
            await self._configure(spec)
            self._was_asked = True
            await emit(Completion.PENDING)
            await self._command("prompt", message=_literal(prompt_of(spec)))
            steering.begin(self._steer)
            if session:
                await emit(NativeSession(session))
            await self._heard(Settled)
            is_heard = steering.end()
            self.child.answered = True
            await emit(Completion.REPORTED)
            self._telling.late += sum(not isinstance(said, NO_EVENTS) for said in self._waiting)
            await self._telling.end()
            is_alone = await self._telling.leftovers(self._companions) == 0
            self.is_clean = is_alone and is_heard and self._telling.went_well
        except ChildGone:
            if self.runs > 1 and not self._was_asked:
                raise Stale from None
            await self._telling.child_gone()
        finally:
            self._telling = None

    async def _enter(self, session: str | None) -> None:
        """A session of which nothing is known here but what its file says."""
        if self._is_fresh and session == self._session:
            pass
        elif session:
            await self._command("switch_session", sessionPath=session)
        else:
            await self._command("new_session")
        self._is_fresh = False

    async def _configure(self, spec: RunSpec) -> None:
        wanted = tools_of(spec)
        config: dict[str, Any] = {
            "tools": wanted,
            "system": spec.system_prompt,
            "append": spec.append_prompt,
            "skills": [*spec.agent.load_skills, *spec.agent.suggested_skills],
        }
        if spec.home:
            config["home"] = {"socket": spec.home.address, "token": spec.home.token.reveal()}
        self._configured = None
        await self._command("prompt", message=f"/retinue_configure {msgspec.json.encode(config).decode()}")
        configured = self._configured
        if configured is None:
            # The command may have gone to the model, as if it were a task: this process is of no use.
            raise engine_error(NOT_CONFIGURED, code=Code.SPAWN_FAILED, reason="extension_missing")
        # What an agent asked for by name it needs; what it would only have inherited it does without.
        asked = {*(spec.agent.tools.allow or ()), *DELEGATION, FINALIZE} - {*spec.agent.tools.optional}
        if required := [tool for tool in configured.missing if tool in asked]:
            raise EngineError(_lacking(spec, required))
        if configured.missing and self._telling:
            message = f"This pi does not have {', '.join(configured.missing)}, which the agent can do without."
            await self._telling.pass_on(Notice("missing_tools", message))

    async def _command(self, kind: str, **fields: Any) -> None:
        await self._answered(await self._send(kind, **fields))

    async def _send(self, kind: str, **fields: Any) -> str:
        self._commands += 1
        number = f"r{self._commands}"
        await self._write({"id": number, "type": kind, **fields})
        return number

    async def _steer(self, name: str, text: str) -> None:
        await self._write({"id": name, "type": "steer", "message": _literal(text)})

    async def _write(self, said: dict[str, Any]) -> None:
        async with self._writing:  # what others say comes at any time, and lines must not mix
            await self.child.send(msgspec.json.encode(said) + b"\n")

    async def _answered(self, number: str) -> None:
        """Returns when the command was done.

        Raises:
            EngineError: pi refused it.
        """
        answer = await self._heard(Response, lambda response: response.id == number)
        if answer.error is not None:
            raise PI.failed_to_start(answer.error)

    async def _heard(self, kind: type[T], is_it: Callable[[T], bool] = lambda _: True) -> T:
        """The first thing of this kind that pi says; what it says before is passed on.

        Raises:
            ChildGone: it is never said.
        """

        def is_awaited(said: Said) -> TypeGuard[T]:
            return isinstance(said, kind) and is_it(said)

        while True:
            while self._waiting:
                said = self._waiting.popleft()
                if is_awaited(said):
                    return said
                await self._pass_on(said)
            await self._receive()

    async def _receive(self) -> None:
        chunk = await (self._telling.receive() if self._telling else self.child.receive())
        if chunk:
            self._waiting.extend(self._reader.read(self._lines.feed(chunk)))
        elif not (rest := self._reader.read(self._lines.end())):
            raise ChildGone("pi has closed its output")
        else:
            self._waiting.extend(rest)
        if self._telling:
            await self._telling.count(len(chunk))

    async def _pass_on(self, said: Said) -> None:
        match said:
            case Dialog(id=number, title=title):
                # Nobody is there to answer, and waiting would be for ever.
                await self._write({"type": "extension_ui_response", "id": number, "cancelled": True})
                if self._telling:
                    message = f"An extension of pi asked, and nobody could answer: {title}"
                    await self._telling.pass_on(Notice("question", message))
            case Configured():
                self._configured = said
            case Response(id=name, error=error):
                if error is None:
                    self._steering.taken(name)
                else:
                    self._steering.refused(name, not_taken("pi", error))
            case Given() if self._telling:
                # The first is the task itself. What was told while pi works is given in the order pi took it.
                if self._has_task and (text := self._steering.given()):
                    await self._telling.pass_on(Steered(text))
                self._has_task = True
            case Settled() | Given():
                return  # of nothing that is waited for
            case event if self._telling and (self._was_asked or isinstance(event, Notice)):
                await self._telling.pass_on(event)


def _literal(prompt: str) -> str:
    """A task is text: a slash at its beginning must not be taken for a command."""
    return f" {prompt}" if prompt.startswith("/") else prompt


def _lacking(spec: RunSpec, tools: list[str]) -> Failure:
    named = f"the tool{'s' * (len(tools) > 1)} {', '.join(tools)}"
    return Failure(
        Code.UNSUPPORTED,
        f'Agent "{spec.agent.name}" needs {named}, which this pi does not have. No model was asked. Install the '
        "extension that brings it, or list it under optional_tools.",
        "missing_tool",
        {"agent": spec.agent.name, "tools": ", ".join(tools), "engine": "pi"},
    )
