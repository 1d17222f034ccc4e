"""The scripted engine: plays back events. For tests, demos and documents; no model, no tools, no surprises.

    engine = ScriptedEngine(call("read", path="x"), Wait(2), say("done"))
    engine = ScriptedEngine.in_turn([fail("429 rate limit")], [say("made it")])

Or a file: `script_file.load(path)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal

import anyio
import msgspec
from msgspec import Struct

from retinue.engines.base import NOT_AT_WORK, Capabilities, Completion, Emit, EngineError, engine_error
from retinue.events import (
    Event,
    Finalized,
    MessageEnded,
    Steered,
    StopReason,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.results import Finalization
from retinue.tool_names import FINALIZE
from retinue.types import Args, Failure, RunSpec, ToolUse, Usage

CAPABILITIES = Capabilities(
    tools=frozenset({"read", "write", "edit", "bash", "grep", "find", "ls"}),
    more_tools=True,
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files"}),
    knows=frozenset({"model"}),
    resumes=True,
    finalizes=True,
    nests=True,
    steers=True,
)

SPAWN = "spawn_subagent"


class Wait(Struct, frozen=True):
    """Nothing happens for so many seconds."""

    seconds: float


class Hang(Struct, frozen=True):
    """Nothing happens any more."""


class Raise(Struct, frozen=True):
    """The engine fails."""

    error: EngineError


class Hear(Struct, frozen=True):
    """Nothing happens until the run is steered, unless it was since the step before. Any step hears what was said."""


class Do(Struct, frozen=True):
    """Awaits something of the test's own, such as an event it sets."""

    action: Callable[[], Awaitable[None]]


class Say(Struct, frozen=True, kw_only=True):
    """One assistant message of text. `{task}`, `{agent}` and `{steer}`, what it heard last, are filled in."""

    text: str
    deltas: int = 0
    """Into how many pieces it is cut for showing it live; 0: not shown live."""
    usage: Usage = Usage()
    stop_reason: Literal["stop", "length"] = "stop"


class Call(Struct, frozen=True, kw_only=True):
    """One assistant message that calls a tool, and the tool's answer. The call's id is made when it is played."""

    name: str
    args: Args
    returns: str = ""
    is_error: bool = False
    usage: Usage = Usage()


class Spawn(Struct, frozen=True):
    """One assistant message that delegates, and what really came of it."""

    args: Args
    """Of `spawn_subagent`."""


class Fail(Struct, frozen=True):
    """The provider fails."""

    error: str


class Finalize(Struct, frozen=True):
    """The agent calls its finalize tool."""

    finalization: Finalization


Step = Event | Completion | Say | Call | Spawn | Fail | Finalize | Wait | Hang | Hear | Raise | Do
Script = Sequence[Step]
ScriptFor = Callable[[RunSpec], Script]


NOTHING = Usage()
"""What a step costs unless it says so."""


def say(
    text: str, *, deltas: int = 0, usage: Usage = NOTHING, stop_reason: Literal["stop", "length"] = "stop"
) -> Say:
    return Say(text=text, deltas=deltas, usage=usage, stop_reason=stop_reason)


def call(name: str, /, *, returns: str = "", is_error: bool = False, **args: object) -> Call:
    """A tool call with these arguments, answered with what it `returns`."""
    return Call(name=name, args=dict(args), returns=returns, is_error=is_error)


def spawn(agent: str, task: str) -> Spawn:
    """Delegates a task, where the run may."""
    return Spawn({"agent": agent, "task": task})


def fail(error: str) -> Fail:
    return Fail(error)


def finalize(result: str | None = None, *, error: str | None = None) -> Finalize:
    """Success with a result, or, where an error is given, a failure."""
    return Finalize(Finalization("ERROR" if error else "SUCCESS", result, error))


class ScriptedEngine:
    """Plays its steps in every run; or, given one function, the steps it returns for the run's spec."""

    def __init__(self, *script: Step | ScriptFor) -> None:
        steps = tuple(step for step in script if not callable(step))
        functions = [step for step in script if callable(step)]
        if functions and len(script) > 1:
            raise TypeError("a script is steps, or one function that returns them")
        self.script_for: ScriptFor = functions[0] if functions else lambda _: steps
        self._players: dict[str, _Player] = {}

    @classmethod
    def in_turn(cls, *scripts: Script) -> ScriptedEngine:
        """Plays one script after the other, one per run or attempt; one run too many fails."""
        left = iter(scripts)

        def following(_: RunSpec) -> Script:
            return next(left, (Raise(engine_error(f"The script has {len(scripts)} runs and no more.")),))

        return cls(following)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        player = self._players[spec.run] = _Player(spec, emit)
        try:
            for step in self.script_for(spec):
                await player.play(step)
        finally:
            self._players.pop(spec.run, None)

    async def steer(self, run: str, text: str) -> Failure | None:
        player = self._players.get(run)
        if player is None:
            return NOT_AT_WORK
        player.tell(text)
        return None


class _Player:
    """One run: fills in what a script leaves open."""

    def __init__(self, spec: RunSpec, emit: Emit) -> None:
        self._spec = spec
        self._emit = emit
        self._calls = 0
        self._told: list[str] = []
        """What it has not heard yet."""
        self._was_told = anyio.Event()
        self._heard = ""

    def tell(self, text: str) -> None:
        self._told.append(text)
        self._was_told.set()

    async def play(self, step: Step) -> None:
        has_heard = await self._hear()
        match step:
            case Hear() if not has_heard:
                self._was_told = anyio.Event()
                await self._was_told.wait()
                await self._hear()
            case Wait(seconds=seconds):
                await anyio.sleep(seconds)
            case Hang():
                await anyio.sleep_forever()
            case Raise(error=error):
                raise error
            case Do(action=action):
                await action()
            case Spawn(args=args):
                await self._delegate(args)
        for event in self._events(step):
            await self._emit(event)

    def _events(self, step: Step) -> Iterator[Event | Completion]:
        match step:
            case Say():
                text = self._filled(step.text)
                yield from _deltas(text, step.deltas)
                yield Text(text)
                yield self._ended(step.stop_reason, step.usage)
            case Call():
                yield from self._called(step)
            case Fail(error=error):
                yield self._ended("error", error=error)
            case Finalize(finalization=said):
                given = {"status": said.status, "result": said.result, "error": said.error}
                args = {key: self._filled(value) for key, value in given.items() if value}
                yield from self._called(Call(name=FINALIZE, args=args, returns="finalized"))
                yield Finalized(msgspec.convert(args, Finalization))
            case Wait() | Hang() | Hear() | Raise() | Do() | Spawn():
                return
            case event:
                yield event

    async def _hear(self) -> bool:
        """Tells what the agent was told since the last step; whether there was anything."""
        was_told = bool(self._told)
        while self._told:
            self._heard = self._told.pop(0)
            await self._emit(Steered(self._heard))
        return was_told

    async def _delegate(self, args: Args) -> None:
        from retinue.engines.calling_home import call_home
        from retinue.engines.toolbox import Outcome

        use, home = ToolUse(self._next_call(), SPAWN, args), self._spec.home
        await self._emit(ToolCalled(use.id, use.name, use.args))
        await self._emit(self._ended("tool_use"))
        outcome = await call_home(home, use) if home else Outcome(f"Unknown tool: {SPAWN}", is_error=True)
        await self._emit(ToolReturned(use.id, use.name, outcome.text, outcome.is_error))

    def _next_call(self) -> str:
        self._calls += 1
        return f"{self._spec.run[:8]}-{self._calls}"

    def _called(self, step: Call) -> Iterator[Event]:
        name = self._next_call()
        yield ToolCalled(name, step.name, step.args)
        yield self._ended("tool_use", step.usage)
        yield ToolReturned(name, step.name, step.returns, step.is_error)

    def _ended(self, reason: StopReason, usage: Usage = NOTHING, error: str | None = None) -> MessageEnded:
        usage = msgspec.structs.replace(usage, turns=1)
        return MessageEnded(stop_reason=reason, model=self._spec.model or "scripted", usage=usage, error=error)

    def _filled(self, text: str) -> str:
        named = text.replace("{task}", self._spec.task).replace("{agent}", self._spec.agent.name)
        return named.replace("{steer}", self._heard)


def _deltas(text: str, count: int) -> Iterator[TextDelta]:
    size = -(-len(text) // count) if count else 0
    for start in range(0, len(text), size) if size else ():
        yield TextDelta(text[start : start + size])
