"""The scripted engine: plays back events, for tests, demos and documents. It has no model and no tools.

    engine = ScriptedEngine(call("read", path="x"), WaitStep(2), reply("done"))
    engine = ScriptedEngine.from_scripts([fail("429 rate limit")], [reply("made it")])

Or from a file: `load_script(path)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct, field

from retinue.engines.base import RUN_NOT_ACTIVE, Completion, Emit, EngineCapabilities, EngineError, engine_error
from retinue.model.errors import Failure
from retinue.model.events import (
    BUDGET_WAIT_END_NOTICE_CODE,
    BUDGET_WAIT_NOTICE_CODE,
    Event,
    Finalized,
    MessageEnded,
    Notice,
    SteeringDelivered,
    StopReason,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage
from retinue.model.runs import RunSpec, ToolArguments, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL, SPAWN_TOOL, is_mcp_tool
from retinue.output.untrusted_text import map_strings
from retinue.support.safe_files import FileTooLargeError, read_regular_file

CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "write", "edit", "bash", "grep", "find", "ls"}),
    allows_other_tools=True,
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files", "gate"}),
    preferences=frozenset({"model"}),
    resumes=True,
    finalizes=True,
    delegates=True,
    calls_servers=True,
    steers=True,
    calls_functions=True,
    confines=True,
)


class WaitStep(Struct, frozen=True):
    """A pause."""

    seconds: float


class HangStep(Struct, frozen=True):
    """A run that never ends."""


class FailEngine(Struct, frozen=True):
    """A failure of the engine."""

    error: EngineError


class WaitForSteering(Struct, frozen=True):
    """A pause until the run is steered, unless it was since the step before. Every step delivers pending messages."""


class RunCallback(Struct, frozen=True):
    """A function of the test that is awaited."""

    action: Callable[[], Awaitable[None]]


class TextStep(Struct, frozen=True, kw_only=True):
    """One assistant message of text. `{task}`, `{agent}` and `{steer}`, the last steering message, are filled in."""

    text: str
    deltas: int = 0
    """Number of deltas; 0: none."""
    usage: Usage = Usage()
    stop_reason: Literal["stop", "length"] = "stop"


class ToolCallStep(Struct, frozen=True, kw_only=True):
    """One assistant message that calls a tool, and the tool's result. Its id is generated when it is played.

    A function of the program, or a tool of an MCP server of the run, is called, and its own result is used.
    """

    name: str
    args: ToolArguments
    returns: str = ""
    is_error: bool = False
    usage: Usage = Usage()


class DelegateStep(Struct, frozen=True):
    """One assistant message that delegates, and the result of that real call."""

    args: ToolArguments
    """Arguments of `spawn_subagent`."""


class ProviderErrorStep(Struct, frozen=True):
    """A failure of the provider."""

    error: str


class FinalizeStep(Struct, frozen=True):
    """A call of the finalize tool."""

    finalization: Finalization


Step = (
    Event
    | Completion
    | TextStep
    | ToolCallStep
    | DelegateStep
    | ProviderErrorStep
    | FinalizeStep
    | WaitStep
    | HangStep
    | WaitForSteering
    | FailEngine
    | RunCallback
)
Script = Sequence[Step]
ScriptFor = Callable[[RunSpec], Script]


NO_USAGE = Usage()
"""Usage of a step without any of its own."""


def reply(
    text: str, *, deltas: int = 0, usage: Usage = NO_USAGE, stop_reason: Literal["stop", "length"] = "stop"
) -> TextStep:
    return TextStep(text=text, deltas=deltas, usage=usage, stop_reason=stop_reason)


def call(name: str, /, *, returns: str = "", is_error: bool = False, **args: object) -> ToolCallStep:
    """Return the step of a tool call with these arguments and this result."""
    return ToolCallStep(name=name, args=dict(args), returns=returns, is_error=is_error)


def spawn(agent: str, task: str) -> DelegateStep:
    """Return the step that delegates a task, where the run may."""
    return DelegateStep({"agent": agent, "task": task})


def fail(error: str) -> ProviderErrorStep:
    return ProviderErrorStep(error)


def finalize(result: object = None, *, error: str | None = None) -> FinalizeStep:
    """Return the step that finalizes with a result, or with a failure where an error is given.

    A result that is not text is the JSON value of a run with an output schema.
    """
    return FinalizeStep(
        Finalization.from_arguments({"status": "ERROR" if error else "SUCCESS", "result": result, "error": error})
    )


class ScriptedEngine:
    """Plays its steps in every run, or the steps that one function returns for the run's spec."""

    def __init__(self, *script: Step | ScriptFor) -> None:
        steps = tuple(step for step in script if not callable(step))
        functions = [step for step in script if callable(step)]
        if functions and len(script) > 1:
            raise TypeError("a script is steps, or one function that returns them")
        self.script_for: ScriptFor = functions[0] if functions else lambda _: steps
        self._runners: dict[str, _ScriptRunner] = {}

    @classmethod
    def from_scripts(cls, *scripts: Script) -> ScriptedEngine:
        """Return an engine that plays one script per run or attempt; a further run fails."""
        remaining = iter(scripts)

        def next_script(_: RunSpec) -> Script:
            return next(remaining, (FailEngine(engine_error(f"The script has {len(scripts)} runs and no more.")),))

        return cls(next_script)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        runner = self._runners[spec.run] = _ScriptRunner(spec, emit)
        try:
            for step in self.script_for(spec):
                await runner.run_step(step)
        finally:
            self._runners.pop(spec.run, None)

    async def steer(self, run: str, text: str) -> Failure | None:
        runner = self._runners.get(run)
        if runner is None:
            return RUN_NOT_ACTIVE
        runner.queue_steering(text)
        return None


_MESSAGES = TextStep | ToolCallStep | FinalizeStep | MessageEnded
"""Steps that are one message of the model, or its end."""


class _ScriptRunner:
    """One run of a script: fills in ids and placeholders."""

    def __init__(self, spec: RunSpec, emit: Emit) -> None:
        self._spec = spec
        self._emit = emit
        self._calls = 0
        self._pending: list[str] = []
        """Steering messages that were not delivered yet."""
        self._steered = anyio.Event()
        self._last_steering = ""

    def queue_steering(self, text: str) -> None:
        self._pending.append(text)
        self._steered.set()

    async def run_step(self, step: Step) -> None:
        was_steered = await self._deliver_steering()
        match step:
            case WaitForSteering() if not was_steered:
                self._steered = anyio.Event()
                await self._steered.wait()
                await self._deliver_steering()
            case WaitStep(seconds=seconds):
                await anyio.sleep(seconds)
            case HangStep():
                await anyio.sleep_forever()
            case FailEngine(error=error):
                raise error
            case RunCallback(action=action):
                await action()
            case DelegateStep(args=args):
                await self._delegate(args)
            case ToolCallStep():
                step = await self._execute_call(step)
        async with self._reserved() if isinstance(step, _MESSAGES) else nullcontext():
            for event in self._step_events(step):
                await self._emit(event)

    @asynccontextmanager
    async def _reserved(self) -> AsyncIterator[None]:
        """Reserve the message of a step in the budgets of the run, alone: its usage is known when it ends."""
        if self._spec.budget is None:
            yield
            return
        async with self._spec.budget.reserve(None, self._report_wait):
            yield

    async def _report_wait(self, begins: bool) -> None:
        if begins:
            await self._emit(Notice(BUDGET_WAIT_NOTICE_CODE, "The next message waits for those of other runs."))
        else:
            await self._emit(Notice(BUDGET_WAIT_END_NOTICE_CODE, "The message that waited is sent."))

    def _step_events(self, step: Step) -> Iterator[Event | Completion]:
        match step:
            case TextStep():
                text = self._fill_placeholders(step.text)
                yield from _split_deltas(text, step.deltas)
                yield Text(text)
                yield self._message_ended(step.stop_reason, step.usage)
            case ToolCallStep():
                yield from self._tool_call_events(step)
            case ProviderErrorStep(error=error):
                yield self._message_ended("error", error=error)
            case FinalizeStep(finalization=final):
                result = final.result if final.structured is None else final.structured
                arguments = {"status": final.status, "result": result, "error": final.error}
                given = {key: value for key, value in arguments.items() if value is not None and value != ""}
                args = map_strings(given, self._fill_placeholders)
                yield from self._tool_call_events(ToolCallStep(name=FINALIZE_TOOL, args=args, returns="finalized"))
                yield Finalized(Finalization.from_arguments(args))
            case WaitStep() | HangStep() | WaitForSteering() | FailEngine() | RunCallback() | DelegateStep():
                return
            case event:
                yield event

    async def _deliver_steering(self) -> bool:
        """Emit the messages since the last step, and return whether there were any."""
        was_steered = bool(self._pending)
        while self._pending:
            self._last_steering = self._pending.pop(0)
            await self._emit(SteeringDelivered(self._last_steering))
        return was_steered

    async def _execute_call(self, step: ToolCallStep) -> ToolCallStep:
        """Return the step with what really happened: a denied call, or the result of a function of the program."""
        gate, context = self._spec.gate, ""
        if gate and gate.covers(step.name):
            decision = await gate.check(ToolUse(f"{self._spec.run[:8]}-{self._calls + 1}", step.name, step.args))
            if decision.denied is not None:
                return msgspec.structs.replace(step, returns=decision.denied, is_error=True)
            step, context = msgspec.structs.replace(step, args=decision.args or step.args), decision.context
        if any(each.__name__ == step.name for each in self._spec.functions):
            step = await self._call_function(step)
        elif self._spec.tool_servers and is_mcp_tool(step.name):
            answer = await self._spec.tool_servers.call(step.name, step.args)
            step = msgspec.structs.replace(step, returns=answer.text, is_error=answer.is_error)
        return msgspec.structs.replace(step, returns="\n\n".join(filter(None, (step.returns, context))))

    async def _call_function(self, step: ToolCallStep) -> ToolCallStep:
        """Call a function of the program, and return the step with its result."""
        from retinue.engines.toolbox import AgentToolbox, make_tool

        toolbox = AgentToolbox(map(make_tool, self._spec.functions))
        outcome = await toolbox.call(ToolUse("", step.name, step.args))
        return msgspec.structs.replace(step, returns=outcome.text, is_error=outcome.is_error)

    async def _delegate(self, args: ToolArguments) -> None:
        from retinue.engines.toolbox import ToolOutcome, call_delegation

        use, delegation = ToolUse(self._next_call_id(), SPAWN_TOOL, args), self._spec.delegation
        async with self._reserved():
            await self._emit(ToolCalled(use.id, use.name, use.args))
            await self._emit(self._message_ended("tool_use"))
        gate = self._spec.gate
        decision = await gate.check(use) if gate and gate.covers(use.name) else None
        if decision and decision.denied is not None:
            outcome = ToolOutcome(decision.denied, is_error=True)
        elif delegation is None:
            outcome = ToolOutcome(f"Unknown tool: {SPAWN_TOOL}", is_error=True)
        else:
            args = decision.args if decision and decision.args is not None else use.args
            outcome = await call_delegation(delegation, msgspec.structs.replace(use, args=args))
        await self._emit(ToolReturned(use.id, use.name, outcome.text, outcome.is_error))

    def _next_call_id(self) -> str:
        self._calls += 1
        return f"{self._spec.run[:8]}-{self._calls}"

    def _tool_call_events(self, step: ToolCallStep) -> Iterator[Event]:
        call_id = self._next_call_id()
        yield ToolCalled(call_id, step.name, step.args)
        yield self._message_ended("tool_use", step.usage)
        yield ToolReturned(call_id, step.name, step.returns, step.is_error)

    def _message_ended(self, reason: StopReason, usage: Usage = NO_USAGE, error: str | None = None) -> MessageEnded:
        usage = msgspec.structs.replace(usage, turns=1)
        return MessageEnded(stop_reason=reason, model=self._spec.model or "scripted", usage=usage, error=error)

    def _fill_placeholders(self, text: str) -> str:
        filled = text.replace("{task}", self._spec.task).replace("{agent}", self._spec.agent.name)
        return filled.replace("{steer}", self._last_steering)


def _split_deltas(text: str, count: int) -> Iterator[TextDelta]:
    size = -(-len(text) // count) if count else 0
    for start in range(0, len(text), size) if size else ():
        yield TextDelta(text[start : start + size])


SCRIPT_VARIABLE = "RETINUE_SCRIPT"
MAX_SCRIPT_BYTES = 64 * 2**20
"""Bytes of a script: large, because scripts also simulate floods of output."""
DEFAULT_ANSWER = "A scripted answer of {agent} to: {task}"
"""The answer where no script is configured."""


class StepEntry(Struct, forbid_unknown_fields=True, rename="camel"):
    """One step as written in a file."""

    say: str | None = None
    deltas: int = 0
    call: str | None = None
    args: ToolArguments = field(default_factory=dict)
    returns: str = ""
    is_error: bool = False
    spawn: ToolArguments | None = None
    fail: str | None = None
    raises: str | None = field(default=None, name="raise")
    finalize: Any = None
    error: str | None = None
    wait: float | None = None
    hang: bool = False
    hear: bool = False
    event: Event | None = None


class ScriptFile(Struct, forbid_unknown_fields=True):
    steps: tuple[StepEntry, ...] = ()
    runs: tuple[tuple[StepEntry, ...], ...] = ()
    agents: Mapping[str, tuple[StepEntry, ...]] = field(default_factory=dict)


def load_script(path: str | Path) -> ScriptedEngine:
    """Return an engine that plays a script file.

    Raises:
        EngineError: the file cannot be read or is no script; the message names the position.
    """
    try:
        data = read_regular_file(path, MAX_SCRIPT_BYTES)
    except (OSError, ValueError, FileTooLargeError) as error:
        why = getattr(error, "strerror", None) or error
        raise engine_error(f"Cannot read the script {path}: {why}.", reason="script") from error
    return parse_script(data, is_toml=str(path).endswith(".toml"), name=str(path))


def from_environment(environment: Mapping[str, str]) -> ScriptedEngine:
    """Return an engine for `RETINUE_SCRIPT`, a path or JSON; without it, one that answers with one sentence.

    Raises:
        EngineError: the value is no script.
    """
    value = environment.get(SCRIPT_VARIABLE, "")
    if value.lstrip().startswith("{"):
        return parse_script(value.encode(), name=SCRIPT_VARIABLE)
    return load_script(value) if value else ScriptedEngine(_default_script)


def parse_script(data: bytes, *, name: str, is_toml: bool = False) -> ScriptedEngine:
    """Return an engine that plays the text of a script, which errors call `name`.

    Raises:
        EngineError: it is no script.
    """
    decode: Callable[..., Any] = msgspec.toml.decode if is_toml else msgspec.json.decode
    try:
        script: ScriptFile = decode(data, type=ScriptFile)
        every = _build_script(script.steps)
        agents = {agent: _build_script(steps) for agent, steps in script.agents.items()}
        turns = ScriptedEngine.from_scripts(*(_build_script(steps) for steps in script.runs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise engine_error(f"{name} is not a valid script: {error}.", reason="script") from error

    def script_for(spec: RunSpec) -> Script:
        if spec.agent.name in agents:
            return agents[spec.agent.name]
        return turns.script_for(spec) if script.runs else every

    return ScriptedEngine(script_for)


def _build_script(entries: tuple[StepEntry, ...]) -> Script:
    return tuple(_build_step(entry) for entry in entries)


def _build_step(entry: StepEntry) -> Step:
    kinds = (
        entry.say,
        entry.call,
        entry.spawn,
        entry.fail,
        entry.raises,
        entry.finalize,
        entry.wait,
        entry.hang or None,
        entry.hear or None,
        entry.event,
    )
    if sum(kind is not None for kind in kinds) != 1:
        raise msgspec.ValidationError(
            "a step needs exactly one of say, call, spawn, fail, raise, finalize, wait, hang, hear and event"
        )
    match entry:
        case StepEntry(say=str(text)):
            return reply(text, deltas=entry.deltas)
        case StepEntry(call=str(name)):
            return ToolCallStep(name=name, args=entry.args, returns=entry.returns, is_error=entry.is_error)
        case StepEntry(spawn=dict(args)):
            return DelegateStep(args)
        case StepEntry(fail=str(text)):
            return fail(text)
        case StepEntry(raises=str(text)):
            return FailEngine(engine_error(text))
        case StepEntry(finalize=result) if result is not None:
            return finalize(result, error=entry.error)
        case StepEntry(wait=float(seconds)):
            return WaitStep(seconds)
        case StepEntry(hear=True):
            return WaitForSteering()
        case _:
            return entry.event or HangStep()


def _default_script(spec: RunSpec) -> Script:
    return (finalize(DEFAULT_ANSWER),) if spec.finalize else (reply(DEFAULT_ANSWER, deltas=4),)
