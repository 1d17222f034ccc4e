"""Run tasks on one pi process that takes commands (`--mode rpc`).

ready         pi responds
switch        to the session file of the run: nothing of the run before is known there
configure     tools and prompts, through our own extension
prompt        then pi's events until its agent is done; steering messages are sent meanwhile
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec import structs

from retinue.config.run_environment import build_prompt
from retinue.engines.base import Completion, Emit, EngineError, engine_error
from retinue.engines.json_lines import LineSplitter
from retinue.engines.pi.confinement import ConfinedPi
from retinue.engines.pi.events import (
    PI,
    AgentIdle,
    CommandResponse,
    ExtensionPrompt,
    ExtensionReady,
    PiEventReader,
    PiMessage,
    PiReporter,
    UserMessageDelivered,
)
from retinue.engines.pi.launch import list_granted_tools
from retinue.engines.process.child import ChildExitedError, ChildProcess
from retinue.engines.process_reporter import wait_for_exit
from retinue.engines.steering import SteeringChannel, steering_refused
from retinue.engines.toolbox import finalize_tool
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import EngineSessionStarted, Notice, ProcessUsageCounted, SteeringDelivered
from retinue.model.runs import RunSpec
from retinue.model.tool_names import DELEGATION_TOOL_NAMES, FINALIZE_TOOL, is_pattern

START_TIMEOUT = 60.0
"""Seconds within which a working process responds, even on a loaded machine."""

T = TypeVar("T", CommandResponse, AgentIdle)


NOT_CONFIGURED = (
    "pi did not load Retinue's extension, or the extension failed, so the agent's tools could not be restricted. The "
    "task was not sent. Run `retinue doctor`, and test another extension with `pi -e`."
)
CONTROL_MESSAGES = (CommandResponse, UserMessageDelivered, ExtensionReady, AgentIdle, ExtensionPrompt)


class StaleProcessError(Exception):
    """Raised if a reused process had exited since its last run."""


class RpcProcess:
    """A pi process that serves one run at a time."""

    def __init__(self, child: ChildProcess, confined: ConfinedPi) -> None:
        self.child = child
        self.proxy = confined.proxy
        self._config = confined.config
        self.runs = 0
        self.is_clean = False
        """True if the process may serve another run: the last one ended cleanly and nothing is in doubt."""
        self._is_fresh = True
        self._session = confined.session
        """The session file that is open, while nothing was written to it."""
        self._lines = LineSplitter()
        self._reader = PiEventReader()
        self._pending: deque[PiMessage] = deque()
        self._commands = 0
        self._writing = anyio.Lock()
        self._reporter: PiReporter | None = None
        self._steering = SteeringChannel()
        self._extension_ready: ExtensionReady | None = None
        self._questions: deque[str] = deque()
        """Titles of questions that were not answered, until a run reports them."""
        self._run_started = False
        """True once the run has started; earlier events belong to no run or to the one before."""
        self._has_task = False
        """True once the agent has received its task."""
        self._counted_seconds = 0.0
        """CPU time that the earlier runs have reported."""
        self._initial_descendants = 0
        """Child processes from the start, such as servers of extensions; further ones were left by a run."""

    async def wait_ready(self) -> None:
        """Wait until pi responds.

        Raises:
            EngineError: it does not respond.
        """
        with anyio.move_on_after(START_TIMEOUT) as scope:
            try:
                await self._command("get_state")
            except ChildExitedError:
                raise PI.produced_nothing_error(self.child, self._reader, await wait_for_exit(self.child)) from None
            self._initial_descendants = await self.child.count_descendants()
            self.is_clean = True
        if scope.cancelled_caught:
            message = f"pi did not answer within {START_TIMEOUT:g}s after its start."
            raise engine_error(message, code=ErrorCode.SPAWN_FAILED)

    async def run(self, spec: RunSpec, session: str | None, emit: Emit, steering: SteeringChannel) -> None:
        """Run the spec in the session of this file, or in none; return when pi is done or has exited.

        Raises:
            EngineError: pi cannot do what the spec asks for, or exited.
            StaleProcessError: the process had exited since its last run; nothing was sent to it.
        """
        self.is_clean = self.child.answered = False
        self.runs += 1
        self._reader = PiEventReader()
        self._pending.clear()
        self._run_started = self._has_task = False
        self._reporter = PiReporter(self.child, self._reader, emit)
        self._steering = steering
        try:
            await self._reporter.start()
            await self._report_questions()
            await self._open_session(await self._config.import_session(session) if self._config else session)
            await self._configure(spec)
            self._run_started = True
            await emit(Completion.PENDING)
            await self._command("prompt", message=_escape_slash(build_prompt(spec)))
            steering.open(self._steer)
            if session:
                await emit(EngineSessionStarted(session))
            await self._wait_for(AgentIdle)
            steering_delivered = steering.close()
            self.child.answered = True
            await emit(Completion.REPORTED)
            self._reporter.late_messages += sum(
                not isinstance(message, CONTROL_MESSAGES) for message in self._pending
            )
            await self._reporter.finish()
            is_alone = await self._reporter.report_leftovers(self._initial_descendants) == 0
            self.is_clean = is_alone and steering_delivered and self._reporter.succeeded
        except ChildExitedError:
            if self.runs > 1 and not self._run_started:
                raise StaleProcessError from None
            await self._reporter.finish_after_exit()
        finally:
            await self._report_usage(emit)
            self._reporter = None
            if self._config:
                await self._config.collect(session)

    async def _report_questions(self) -> None:
        """Report the unanswered questions, those of the start of the process in its first run."""
        while self._reporter and self._questions:
            message = (
                "An extension of pi asked a question that was not answered, because pi runs without a terminal: "
                f"{self._questions.popleft()}"
            )
            await self._reporter.emit(Notice("question", message))

    async def _report_usage(self, emit: Emit) -> None:
        """Emit what the process used since the end of its last run; its start counts for the first."""
        if (usage := self.child.measure_usage()) and self._run_started:
            spent = structs.replace(usage, cpu_seconds=max(usage.cpu_seconds - self._counted_seconds, 0.0))
            self._counted_seconds = usage.cpu_seconds
            with anyio.CancelScope(shield=True):
                await emit(ProcessUsageCounted(spent))

    async def _open_session(self, session: str | None) -> None:
        """Open a session that contains only what its file contains."""
        if self._is_fresh and session == self._session:
            pass
        elif session:
            await self._command("switch_session", sessionPath=session)
        else:
            await self._command("new_session")
        self._is_fresh = False

    async def _configure(self, spec: RunSpec) -> None:
        tools = list_granted_tools(spec)
        config: dict[str, Any] = {
            "tools": tools,
            "system": spec.system_prompt,
            "append": spec.append_prompt,
            "skills": [*spec.agent.load_skills, *spec.agent.suggested_skills],
        }
        if spec.output_schema is not None:
            config["finalize"] = finalize_tool(spec.output_schema).schema.schema
        if spec.callback:
            config["home"] = {"socket": spec.callback.address, "token": spec.callback.token.reveal()}
        if spec.gate and spec.gate_address:
            config["gate"] = {
                "socket": spec.gate_address.address,
                "token": spec.gate_address.token.reveal(),
                # Tools of servers have their names only in pi: every tool that is not listed here is asked about.
                "free": [tool for tool in tools if not is_pattern(tool) and not spec.gate.covers(tool)],
            }
        self._extension_ready = None
        await self._command("prompt", message=f"/retinue_configure {msgspec.json.encode(config).decode()}")
        ready = self._extension_ready
        if ready is None:
            # The command may have reached the model as if it were a task: the process cannot be used.
            raise engine_error(NOT_CONFIGURED, code=ErrorCode.SPAWN_FAILED, reason="extension_missing")
        # Tools named by the agent are required; tools it would only inherit are not.
        requested = {*(spec.agent.tools.allow or ()), *DELEGATION_TOOL_NAMES, FINALIZE_TOOL} - {
            *spec.agent.tools.optional
        }
        if required := [tool for tool in ready.missing if tool in requested]:
            raise EngineError(_missing_tools(spec, required))
        if ready.missing and self._reporter:
            message = f"This pi does not have {', '.join(ready.missing)}, which are optional for the agent."
            await self._reporter.emit(Notice("missing_tools", message))

    async def _command(self, kind: str, **fields: Any) -> None:
        await self._wait_response(await self._send(kind, **fields))

    async def _send(self, kind: str, **fields: Any) -> str:
        self._commands += 1
        number = f"r{self._commands}"
        await self._write({"id": number, "type": kind, **fields})
        return number

    async def _steer(self, name: str, text: str) -> None:
        await self._write({"id": name, "type": "steer", "message": _escape_slash(text)})

    async def _write(self, message: dict[str, Any]) -> None:
        async with self._writing:  # steering messages arrive at any time, and lines must not mix
            await self.child.send(msgspec.json.encode(message) + b"\n")

    async def _wait_response(self, number: str) -> None:
        """Wait until the command has succeeded.

        Raises:
            EngineError: pi refused it.
        """
        answer = await self._wait_for(CommandResponse, lambda response: response.id == number)
        if answer.error is not None:
            raise PI.start_error(answer.error)

    async def _wait_for(self, kind: type[T], matches: Callable[[T], bool] = lambda _: True) -> T:
        """Return the first message of this kind; handle the messages before it.

        Raises:
            ChildExitedError: the process ended without it.
        """
        while True:
            while self._pending:
                message = self._pending.popleft()
                if isinstance(message, kind) and matches(message):
                    return message
                await self._handle_message(message)
            await self._receive()

    async def _receive(self) -> None:
        chunk = await (self._reporter.receive() if self._reporter else self.child.receive())
        if chunk:
            self._pending.extend(self._reader.read(self._lines.feed(chunk)))
        elif not (rest := self._reader.read(self._lines.flush())):
            raise ChildExitedError("pi has closed its output")
        else:
            self._pending.extend(rest)
        if self._reporter:
            await self._reporter.count(len(chunk))

    async def _handle_message(self, incoming: PiMessage) -> None:
        match incoming:
            case ExtensionPrompt(id=number, title=title):
                if number is not None:  # nobody can answer, and pi would wait forever
                    await self._write({"type": "extension_ui_response", "id": number, "cancelled": True})
                self._questions.append(title)
                await self._report_questions()
            case ExtensionReady():
                self._extension_ready = incoming
            case CommandResponse(id=name, error=error):
                if error is None:
                    self._steering.mark_accepted(name)
                else:
                    self._steering.mark_refused(name, steering_refused("pi", error))
            case UserMessageDelivered() if self._reporter:
                # The first user message is the task; later ones are steering messages, in the order pi accepted them.
                if self._has_task and (text := self._steering.mark_delivered()):
                    await self._reporter.emit(SteeringDelivered(text))
                self._has_task = True
            case AgentIdle() | UserMessageDelivered():
                return  # not what is waited for
            case event if self._reporter and (self._run_started or isinstance(event, Notice)):
                await self._reporter.emit(event)


def _escape_slash(prompt: str) -> str:
    """Return the prompt with a space before a leading slash, so that pi does not take it for a command."""
    return f" {prompt}" if prompt.startswith("/") else prompt


def _missing_tools(spec: RunSpec, tools: list[str]) -> Failure:
    named = f"the tool{'s' * (len(tools) > 1)} {', '.join(tools)}"
    return Failure(
        ErrorCode.UNSUPPORTED,
        f'Agent "{spec.agent.name}" needs {named}, which this pi does not have. No model was called. Install the '
        "extension that provides it, or list it under optional_tools.",
        "missing_tool",
        {"agent": spec.agent.name, "tools": ", ".join(tools), "engine": "pi"},
    )
