"""The conformance suite of engines: subclass it and define how the engine is made to show each behavior.

    class TestMyEngine(EngineSuite):
        def make_case(self, behavior, folder):
            return EngineCase(MyEngine(...), make_run_spec(folder, task=PROMPTS[behavior]))

pytest with anyio's plugin runs the inherited tests, except those of behaviors the subclass lists as `unsupported`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct
from msgspec.structs import replace

from retinue.engines.base import Completion, Emit, Engine, EngineError, SupportsSteering
from retinue.model.agents import AgentProfile
from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, EventSource, from_line, to_line
from retinue.model.events import (
    AttemptStarted,
    DeadlineExtended,
    Event,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    ProcessUsageCounted,
    RunEnded,
    RunQueued,
    RunStarted,
    SteeringDelivered,
    Text,
    TextDelta,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import Message, RunSpec, ToolGrant, ToolUse
from retinue.model.tasks import Lineage
from retinue.model.tool_names import FINALIZE_TOOL

EngineBehavior = Literal["answer", "call", "fail", "hang", "break", "finalize", "steer"]
"""Behaviors of an engine under test: answer; call a tool and then answer; report a failure of the provider; emit an
event and then go silent; fail itself; finalize; answer only after it was steered."""
OPTIONAL_BEHAVIORS: frozenset[EngineBehavior] = frozenset({"steer"})
"""Behaviors of some engines only."""

STOP_TIMEOUT = 5.0
"""Seconds in which a cancelled run and its processes must end."""
_STOP_POINTS = 12
"""Number of points at which a run is cancelled."""
_RUNTIME_EVENTS = (RunQueued, RunStarted, AttemptStarted, ModelChanged, DeadlineExtended, RunEnded)
"""Events emitted by the runtime, never by an engine."""


class EngineCase(Struct, frozen=True):
    """An engine and a spec that makes it show a behavior."""

    engine: Engine
    spec: RunSpec


def make_run_spec(folder: Path, *, task: str = "Answer.", **changes: Any) -> RunSpec:
    """Return a complete spec for a test, with changes."""
    spec = RunSpec(
        run="0123456789abcdef0123456789abcdef",
        session="0123456789abcdef0123456789abcdef",
        name="subject",
        toolset="single",
        agent=AgentProfile(name="subject"),
        task=task,
        prompt=task,
        cwd=str(folder),
        engine="under-test",
        grant=ToolGrant(tools=("read", "grep", "find", "ls")),
        lineage=Lineage(root="root", parent_call="call", depth=1),
    )
    return replace(spec, **changes)


async def record_run(engine: Engine, spec: RunSpec) -> list[Event]:
    """Run the engine to its end and return all events."""
    events: list[Event] = []
    await engine.run(spec, _collect_into(events))
    return events


def messages_from_events(events: Sequence[Event]) -> tuple[Message, ...]:
    """Return the messages in the events; fail if blocks follow the last `message_ended`."""
    messages: list[Message] = []
    texts: list[str] = []
    calls: list[ToolUse] = []
    for event in events:
        match event:
            case Text(text=text):
                texts.append(text)
            case ToolCalled(call=call, name=name, args=args):
                calls.append(ToolUse(call, name, args))
            case MessageEnded():
                messages.append(Message(role="assistant", text="\n\n".join(texts), calls=tuple(calls)))
                texts, calls = [], []
            case ToolReturned(call=call, text=text, is_error=is_error):
                messages.append(Message(role="tool", text=text, call=call, is_error=is_error))
    assert not texts, f"text after the last message_ended: {texts}"
    assert not calls, f"calls after the last message_ended: {calls}"
    return tuple(messages)


def check_order(events: Sequence[Event]) -> None:
    """Assert the order of an engine's events in a run that was not cancelled."""
    assert not [event for event in events if isinstance(event, _RUNTIME_EVENTS)], "an event that is not an engine's"
    for message in _split_messages(events):
        _check_message(message)
    _check_calls(events)


T = TypeVar("T", bound=Callable[..., object])


def _requires(behavior: EngineBehavior) -> Callable[[T], T]:
    """Mark a test that needs a behavior."""

    def mark(test: T) -> T:
        test.__dict__["behavior"] = behavior
        return test

    return mark


class EngineSuite(ABC):
    """The tests. A subclass must define `make_case`; the other attributes and methods are optional."""

    unsupported: ClassVar[frozenset[EngineBehavior]] = frozenset()
    """Behaviors the engine cannot show, except `answer`: their tests are removed."""
    supported: ClassVar[frozenset[EngineBehavior]] = frozenset()
    """Optional behaviors the engine can show: their tests are run, too."""
    reports_completion: ClassVar[bool] = False
    """True if the engine reports the completion of its agent (`Completion`)."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in filter(lambda name: name.startswith("test_"), dir(cls)):
            if getattr(getattr(cls, name), "behavior", None) in cls.unsupported | (
                OPTIONAL_BEHAVIORS - cls.supported
            ):
                setattr(cls, name, None)

    @abstractmethod
    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        """Return the engine and a spec for the behavior, in a working folder."""

    def find_leftovers(self) -> Sequence[object]:
        """Return what cancelled runs of this engine left behind, such as processes."""
        return ()

    async def test_answer_is_text_and_a_message_that_stopped(self, tmp_path: Path) -> None:
        events = await self._record_behavior("answer", tmp_path)
        check_order(events)
        *_, last = messages_from_events(events)
        assert last.role == "assistant"
        assert last.text.strip()
        assert _message_ends(events)[-1].stop_reason == "stop"

    async def test_completion_is_reported_once_after_the_last_message(self, tmp_path: Path) -> None:
        case = self.make_case("answer", tmp_path)
        reports: list[Event | Completion] = []

        async def emit(report: Event | Completion) -> None:
            reports.append(report)
            await anyio.lowlevel.checkpoint()

        await case.engine.run(case.spec, emit)
        completion = [report for report in reports if isinstance(report, Completion)]
        if not self.reports_completion:
            assert completion == []
            return
        assert completion == [Completion.PENDING, Completion.REPORTED]
        messages = [number for number, report in enumerate(reports) if isinstance(report, MessageEnded)]
        assert reports.index(Completion.PENDING) < messages[0]
        assert messages[-1] < reports.index(Completion.REPORTED)

    @_requires("call")
    async def test_tool_call_is_emitted_before_its_result_and_the_answer(self, tmp_path: Path) -> None:
        events = await self._record_behavior("call", tmp_path)
        check_order(events)
        messages = messages_from_events(events)
        assert [message.role for message in messages if message.role == "tool"], "no tool was called"
        assert messages[-1].role == "assistant"
        assert messages[-1].text.strip()

    @_requires("call")
    async def test_only_granted_tools_are_called(self, tmp_path: Path) -> None:
        case = self.make_case("call", tmp_path)
        events = await record_run(case.engine, case.spec)
        used = {event.name for event in events if isinstance(event, ToolCalled)}
        assert used <= {*case.spec.grant.tools, FINALIZE_TOOL}

    @_requires("call")
    async def test_each_message_counts_as_one_turn(self, tmp_path: Path) -> None:
        for ending in _message_ends(await self._record_behavior("call", tmp_path)):
            assert ending.usage.turns == 1
            assert ending.usage.tokens >= 0

    @_requires("call")
    async def test_every_event_survives_encoding(self, tmp_path: Path) -> None:
        case = self.make_case("call", tmp_path)
        origin = EventSource.of(case.spec)
        for number, event in enumerate(await record_run(case.engine, case.spec)):
            record = EventRecord(origin, number, 1.0, event)
            assert from_line(to_line(record)) == record

    @_requires("fail")
    async def test_provider_failure_is_a_message_not_an_exception(self, tmp_path: Path) -> None:
        events = await self._record_behavior("fail", tmp_path)
        check_order(events)
        last = _message_ends(events)[-1]
        assert last.stop_reason == "error"
        assert last.error

    @_requires("break")
    async def test_engine_failure_is_an_engine_error_with_a_message(self, tmp_path: Path) -> None:
        case = self.make_case("break", tmp_path)
        failure: Failure | None = None
        try:
            await record_run(case.engine, case.spec)
        except EngineError as error:
            failure = error.failure
        assert failure, "the engine did not fail"
        assert failure.message

    @_requires("call")
    async def test_engine_emits_nothing_after_it_returned(self, tmp_path: Path) -> None:
        events = await self._record_behavior("call", tmp_path)
        count = len(events)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert len(events) == count

    @_requires("hang")
    async def test_silent_run_ends_when_cancelled(self, tmp_path: Path) -> None:
        case = self.make_case("hang", tmp_path)
        events: list[Event] = []
        has_emitted = anyio.Event()
        emit = _collect_into(events, has_emitted=has_emitted)
        with anyio.fail_after(STOP_TIMEOUT):
            async with anyio.create_task_group() as running:
                running.start_soon(case.engine.run, case.spec, emit)
                await has_emitted.wait()
                running.cancel_scope.cancel()
        count = len(events)
        await anyio.lowlevel.checkpoint()
        assert len(events) == count
        assert not self.find_leftovers()

    @_requires("call")
    async def test_run_can_be_cancelled_after_any_event(self, tmp_path: Path) -> None:
        count = len(await self._record_behavior("call", tmp_path))
        for stop_after in range(1, count + 1, max(1, count // _STOP_POINTS)):
            case = self.make_case("call", tmp_path)
            events: list[Event] = []
            with anyio.fail_after(STOP_TIMEOUT), anyio.CancelScope() as scope:
                await case.engine.run(case.spec, _collect_into(events, scope, stop_after))
            assert all(map(_is_account, events[stop_after:]))
            assert not self.find_leftovers()

    @_requires("call")
    async def test_concurrent_runs_do_not_mix(self, tmp_path: Path) -> None:
        case = self.make_case("call", tmp_path)
        streams: list[list[Event]] = [[] for _ in range(4)]
        async with anyio.create_task_group() as running:
            for number, events in enumerate(streams):
                spec = replace(case.spec, run=f"{number:032x}")
                running.start_soon(case.engine.run, spec, _collect_into(events))
        for events in streams:
            check_order(events)
            assert messages_from_events(events)[-1].text.strip()

    @_requires("call")
    async def test_session_continues_from_its_messages(self, tmp_path: Path) -> None:
        case = self.make_case("call", tmp_path)
        before = messages_from_events(await record_run(case.engine, case.spec))
        history = (Message(role="user", text=case.spec.prompt), *before)
        again = self.make_case("answer", tmp_path)
        events = await record_run(again.engine, replace(again.spec, history=history, resumes=True))
        check_order(events)
        assert messages_from_events(events)[-1].text.strip()
        returned = {event.call for event in events if isinstance(event, ToolReturned)}
        called = {event.call for event in events if isinstance(event, ToolCalled)}
        assert returned <= called, "a result of an earlier run was emitted again"

    @_requires("finalize")
    async def test_finalization_follows_its_call(self, tmp_path: Path) -> None:
        case = self.make_case("finalize", tmp_path)
        events = await record_run(case.engine, replace(case.spec, finalize=True))
        check_order(events)
        kinds = [type(event) for event in events]
        assert Finalized in kinds
        before = events[: kinds.index(Finalized)]
        assert [event for event in before if isinstance(event, ToolReturned) and event.name == FINALIZE_TOOL]

    @_requires("steer")
    async def test_steering_message_is_emitted_where_the_agent_receives_it(self, tmp_path: Path) -> None:
        case = self.make_case("steer", tmp_path)
        engine, run = case.engine, case.spec.run
        assert isinstance(engine, SupportsSteering)
        events: list[Event] = []
        has_emitted = anyio.Event()
        emit = _collect_into(events, has_emitted=has_emitted)
        async with anyio.create_task_group() as running:
            running.start_soon(engine.run, case.spec, emit)
            await has_emitted.wait()
            assert await engine.steer(run, "Be brief.") is None
        check_order(events)
        assert events.count(SteeringDelivered("Be brief.")) == 1
        answer = events[events.index(SteeringDelivered("Be brief.")) :]
        assert messages_from_events(answer)[-1].text.strip()
        assert await engine.steer(run, "Too late.")

    async def _record_behavior(self, behavior: EngineBehavior, folder: Path) -> list[Event]:
        case = self.make_case(behavior, folder)
        return await record_run(case.engine, case.spec)


def _collect_into(
    events: list[Event],
    scope: anyio.CancelScope | None = None,
    stop_after: int = -1,
    has_emitted: anyio.Event | None = None,
) -> Emit:
    async def emit(event: Event | Completion) -> None:
        if not isinstance(event, Completion):
            events.append(event)
            if has_emitted:
                has_emitted.set()
        if scope and len(events) == stop_after:
            scope.cancel()
        await anyio.lowlevel.checkpoint()

    return emit


def _is_account(event: Event) -> bool:
    """Return whether an event only accounts for what was cancelled."""
    match event:
        case MessageEnded(stop_reason="aborted") | Notice(code="usage_estimated") | ProcessUsageCounted():
            return True
    return False


def _message_ends(events: Sequence[Event]) -> list[MessageEnded]:
    return [event for event in events if isinstance(event, MessageEnded)]


def _split_messages(events: Sequence[Event]) -> list[list[Event]]:
    """Split events into assistant messages, each with its `message_ended` last; results belong to the next one."""
    messages: list[list[Event]] = [[]]
    for event in events:
        messages[-1].append(event)
        if isinstance(event, MessageEnded):
            messages.append([])
    rest = [event for event in messages.pop() if isinstance(event, Thinking | Text | ToolCalled)]
    assert not rest, f"blocks after the last message_ended: {rest}"
    return messages


def _check_message(message: list[Event]) -> None:
    *before, ending = message
    assert isinstance(ending, MessageEnded)
    calls = [event for event in before if isinstance(event, ToolCalled)]
    assert bool(calls) == (ending.stop_reason == "tool_use"), f"{ending} after {calls}"
    assert bool(ending.error) == (ending.stop_reason == "error"), f"{ending}"
    deltas = "".join(event.text for event in before if isinstance(event, TextDelta))
    texts = "".join(event.text for event in before if isinstance(event, Text))
    assert not deltas or ending.stop_reason == "error" or deltas == texts, "the deltas are not the text"


def _check_calls(events: Sequence[Event]) -> None:
    """Assert that each call has its own id and one result, between the end of its message and of the next."""
    open_calls: dict[str, str] = {}
    seen: set[str] = set()
    due: set[str] = set()
    for event in events:
        match event:
            case ToolCalled(call=call, name=name):
                assert call not in seen, f"the id {call} is used twice"
                seen.add(call)
                open_calls[call] = name
            case ToolReturned(call=call, name=name):
                assert call in due, f"a result of {call} before its message ended, or twice"
                assert open_calls.pop(call) == name
                due.discard(call)
            case MessageEnded():
                assert not due, f"a message ended while {due} had no result"
                due = set(open_calls)
    assert not due, f"no result for {due}"
