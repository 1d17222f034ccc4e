"""The conformance suite of session stores: `for check in CHECKS: await check(new_store)`.

Each check takes an empty store and raises `AssertionError` if the store breaks the protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    MessageEnded,
    PersistedEvent,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus, ExecutionReport, Usage
from retinue.model.runs import RunSpec
from retinue.model.tasks import Lineage
from retinue.sessions.store import (
    INTERRUPTED,
    RunOutcome,
    RunRecord,
    SearchField,
    SessionFilter,
    SessionState,
    SessionStore,
)

StoreCheck = Callable[[SessionStore], Awaitable[None]]


def run_spec(
    session: str,
    run: str | None = None,
    *,
    agent: str = "explorer",
    task: str = "Find the entry point",
    root: str = "root-1",
) -> RunSpec:
    """Return the spec of a run: the session's first, unless it has an id of its own."""
    return RunSpec(
        run=run or session,
        session=session,
        name=agent,
        toolset="single",
        agent=AgentProfile(name=agent),
        task=task,
        prompt=task,
        cwd="/",
        engine="scripted",
        lineage=Lineage(root=root, parent_call="call-1", depth=1),
        resumes=run is not None,
    )


class StoreRecorder:
    """Appends the events of one run to a record, a second apart."""

    def __init__(self, record: RunRecord, spec: RunSpec, *, time: float = 1000.0) -> None:
        self.events: list[EventRecord] = []
        self._record = record
        self._origin = EventSource.of(spec)
        self._spec = spec
        self._time = time

    def record(self, *events: PersistedEvent) -> None:
        for event in events:
            seq = len(self.events) + 1
            self.events.append(EventRecord(self._origin, seq, self._time + seq, event))
            self._record.append(self.events[-1])

    def record_start(self) -> None:
        self.record(RunQueued.of(self._spec), RunStarted())

    def record_end(self, text: str = "It is main.py", failure: Failure | None = None) -> None:
        answer = AnswerStatus.PARTIAL if failure else AnswerStatus.FINAL
        code = 1 if failure else 0
        self.record(RunEnded(text=text, answer=answer, failure=failure, exit_code=code, elapsed=2.0))


async def record_run(
    store: SessionStore, spec: RunSpec, *events_between: PersistedEvent, time: float = 1000.0
) -> list[EventRecord]:
    """Record a complete run and return its events."""
    record = await store.open_record(spec)
    recorder = StoreRecorder(record, spec, time=time)
    recorder.record_start()
    await record.sync()
    recorder.record(*events_between)
    recorder.record_end()
    await record.sync()
    await record.release()
    return recorder.events


async def read_all(store: SessionStore, session: str, run: str | None = None) -> list[EventRecord]:
    return [event_record async for event_record in store.events(session, run=run)]


async def claimed_ids_are_unique(store: SessionStore) -> None:
    session = store.claim()
    claimed = [session, store.claim(), *(store.claim(session) for _ in range(50))]
    assert all(len(one) == len(session) == 32 and int(one, 16) >= 0 for one in claimed)  # noqa: PLR2004
    assert len({one[:8] for one in claimed}) == len(claimed)


async def appended_events_are_read_back_in_order(store: SessionStore) -> None:
    session = store.claim()
    events_between = (
        Text("one\u2028two\x00three 🎈"),
        ToolCalled("c1", "grep", {"pattern": "main", "deep": [{"a": None}]}),
        ToolReturned("c1", "grep", "main.py:1", is_error=True),
        MessageEnded(stop_reason="stop", usage=Usage(input=3, cost=0.1)),
    )
    events = await record_run(store, run_spec(session), *events_between)
    assert await read_all(store, session) == events
    assert store.events(session).damaged_count == 0


async def text_without_json_form_does_not_lose_the_event(store: SessionStore) -> None:
    session = store.claim()
    await record_run(
        store, run_spec(session), Text("half a character: \ud83d."), ToolCalled("c", "x", {"\ud800": "\udfff"})
    )
    assert [type(event_record.event) for event_record in await read_all(store, session)] == [
        RunQueued,
        RunStarted,
        Text,
        ToolCalled,
        RunEnded,
    ]


async def events_are_ordered_by_writing_not_by_time(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    origin = EventSource.of(run_spec(session))
    events = [EventRecord(origin, seq, 1000.0 - seq, Text(str(seq))) for seq in range(1, 20)]
    for event_record in events:
        record.append(event_record)
    await record.release()
    assert await read_all(store, session) == events
    assert list(await store.tail(session, 3)) == events[-3:]


async def every_printed_form_of_an_id_finds_its_session(store: SessionStore) -> None:
    session = store.claim()
    assert await store.find(session) is None
    await record_run(store, run_spec(session))
    run = store.claim(session)
    await record_run(store, run_spec(session, run))
    for claimed in (session, run):
        forms = (claimed[:8], claimed[:16], claimed, str(UUID(claimed)), claimed.upper())
        assert [await store.find(form) for form in forms] == [session] * len(forms)
    wrong = session[:8] + ("0" if session[8] != "0" else "1")
    for unknown in (wrong, session[:7], "", "../../etc", "explorer", session + "0", store.claim()):
        assert await store.find(unknown) is None


async def session_has_one_run_at_a_time(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    StoreRecorder(record, run_spec(session)).record_start()
    assert await store.is_locked(session)
    failure = await _start_refusal(store, run_spec(session, store.claim(session)))
    assert failure.code == ErrorCode.SESSION_BUSY
    await record.release()
    assert not await store.is_locked(session)
    await record_run(store, run_spec(session, store.claim(session)))
    await record.release()


async def events_after_release_are_not_stored(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    recorder = StoreRecorder(record, run_spec(session))
    recorder.record_start()
    recorder.record_end()
    await record.release()
    recorder.record(Text("too late"))
    await record.sync()
    await record.release()
    assert await read_all(store, session) == recorder.events[:-1]


async def invalid_id_finds_nothing(store: SessionStore) -> None:
    for foreign in ("", "-", "..", "../../etc/passwd", "my session", "ab", "\ud800", "x" * 10_000):
        assert await store.find(foreign) is None
        assert await store.summary(foreign) is None
        assert await read_all(store, foreign) == []
        assert list(await store.tail(foreign, 5)) == []
        assert not await store.is_locked(foreign)


async def unknown_session_cannot_be_resumed(store: SessionStore) -> None:
    session = store.claim()
    failure = await _start_refusal(store, run_spec(session, store.claim(session)))
    assert failure.code == ErrorCode.SESSION_NOT_FOUND
    assert await store.summary(session) is None
    assert await read_all(store, session) == []
    assert list(await store.tail(session, 5)) == []
    assert not await store.is_locked(session)


async def summary_has_the_state_of_the_latest_run(store: SessionStore) -> None:
    session = store.claim()
    spec = run_spec(session)
    record = await store.open_record(spec)
    assert await store.summary(session) is None
    recorder = StoreRecorder(record, spec)
    recorder.record_start()
    assert await _session_state(store, session) == SessionState.RUNNING
    recorder.record(Text("I look around\nand find"))
    running = await store.summary(session)
    assert running is not None
    assert (running.preview, running.latest.failure, running.runs) == ("I look around", None, 1)
    recorder.record_end("\nIt is main.py\nbecause …")
    await record.release()
    done = await store.summary(session)
    assert done is not None
    assert (done.session, done.agent, done.task, done.root, done.depth) == (
        session,
        "explorer",
        "Find the entry point",
        "root-1",
        1,
    )
    assert (done.preview, done.updated, done.runs, done.damaged) == ("It is main.py", 1004.0, 1, 0)
    assert (done.latest.run, done.latest.state, done.latest.exit_code) == (session, SessionState.COMPLETED, 0)
    assert (done.latest.started, done.latest.ended, done.latest.elapsed) == (1002.0, 1004.0, 2.0)


async def queued_run_is_not_reported_as_running(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    queued = RunQueued(name="a", agent="a", task="t", cwd="/", surface="single")
    record.append(EventRecord(EventSource.of(run_spec(session)), 1, 5.0, queued))
    assert await _session_state(store, session) == SessionState.QUEUED
    await record.release()


async def failed_run_has_state_error_and_its_failure(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    recorder = StoreRecorder(record, run_spec(session))
    recorder.record_start()
    failure = Failure(ErrorCode.TIMEOUT, "Timed out after 600s.\nConsider resuming.")
    recorder.record_end("so far", failure)
    await record.release()
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.latest.state, summary.latest.failure, summary.latest.exit_code) == (
        SessionState.ERROR,
        failure,
        1,
    )
    assert summary.preview == "Timed out after 600s."


async def run_without_an_end_was_interrupted(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    StoreRecorder(record, run_spec(session)).record_start()
    await record.release()
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.latest.state, summary.latest.failure) == (SessionState.ERROR, INTERRUPTED)


async def later_runs_belong_to_their_session(store: SessionStore) -> None:
    session, run = store.claim(), ""
    events = await record_run(store, run_spec(session), Text("first"))
    for i in range(3):
        run = store.claim(session)
        events += await record_run(store, run_spec(session, run, task=f"Go on {i}"), Text(str(i)), time=2000.0 + i)
    assert await read_all(store, session) == events
    assert await read_all(store, session, run) == events[-4:]
    assert await read_all(store, session, session) == events[:4]
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.runs, summary.latest.run, summary.task) == (4, run, "Go on 2")


async def list_is_ordered_by_last_change(store: SessionStore) -> None:
    sessions = [store.claim() for _ in range(4)]
    for i, session in enumerate(sessions):
        await record_run(store, run_spec(session), time=1000.0 * (i + 1))
    await record_run(store, run_spec(sessions[1], store.claim(sessions[1])), time=9000.0)
    listed = await store.list()
    assert [summary.session for summary in listed] == [sessions[i] for i in (1, 3, 2, 0)]
    assert listed == [await store.summary(summary.session) for summary in listed]
    assert list(await store.list(SessionFilter(limit=2))) == list(listed)[:2]


async def list_is_filtered(store: SessionStore) -> None:
    first, second, third = (store.claim() for _ in range(3))
    await record_run(store, run_spec(first, agent="tester", root="other"), time=3000.0)
    await record_run(store, run_spec(second, task="Prüfe 100% ÄRGER_"), time=2000.0)
    record = await store.open_record(run_spec(third))
    StoreRecorder(record, run_spec(third)).record_start()

    async def list_ids(wanted: SessionFilter) -> Sequence[str]:
        found = await store.list(wanted)
        assert all(map(wanted.matches, found))
        return [summary.session for summary in found]

    assert await list_ids(SessionFilter(root="other")) == [first]
    assert await list_ids(SessionFilter(agent="explorer")) == [second, third]
    assert await list_ids(SessionFilter(state=SessionState.COMPLETED)) == [first, second]
    assert await list_ids(SessionFilter(state=SessionState.RUNNING, root="root-1")) == [third]
    assert await list_ids(SessionFilter(text="ärger_")) == [second]
    assert await list_ids(SessionFilter(text="MAIN.PY", agent="tester")) == [first]
    assert await list_ids(SessionFilter(text="_%")) == []
    assert await list_ids(SessionFilter(agent="explorer", limit=1)) == [second]
    assert await list_ids(SessionFilter(outcome=RunOutcome.COMPLETED)) == [first, second]
    assert await list_ids(SessionFilter(outcome=RunOutcome.FAILED)) == []
    (summary,) = await store.list(SessionFilter(agent="tester"))
    assert first in await list_ids(SessionFilter(since=summary.updated, model=summary.model, cwd=summary.cwd))
    earlier = await list_ids(SessionFilter(until=summary.updated))
    assert (first in earlier, second in earlier) == (False, True)
    assert await list_ids(SessionFilter(cwd="/nowhere")) == []
    assert await list_ids(SessionFilter(model="none")) == []
    elapsed = summary.latest.elapsed
    assert first in await list_ids(SessionFilter(min_elapsed=elapsed))
    assert await list_ids(SessionFilter(min_elapsed=1e6)) == []
    assert await list_ids(SessionFilter(min_cost=1e6)) == []
    await record.release()


async def search_finds_tasks_answers_and_tool_calls_of_all_runs(store: SessionStore) -> None:
    session, other = store.claim(), store.claim()
    call = ToolCalled("c1", "grep", {"pattern": "def Täst_1", "paths": ["src/mod8.py"]})
    output = ToolReturned("c1", "grep", 'a "quoted" NEAR* line\n  with an indented rest 🎈')
    await record_run(store, run_spec(session, task="First task"), call, output, Text("An early remark"))
    await record_run(store, run_spec(session, store.claim(session), task="Second task"), time=2000.0)
    await record_run(store, run_spec(other, agent="tester", root="other"), time=3000.0)

    async def search(text: str, **conditions: Any) -> Sequence[tuple[str, SearchField | None]]:
        found = await store.list(SessionFilter(text=text, **conditions))
        assert all(map(SessionFilter(text=text, **conditions).matches, found))
        return [(each.session, each.match.field if each.match else None) for each in found]

    task, answer, tool = SearchField.TASK, SearchField.ANSWER, SearchField.TOOL_OUTPUT
    assert await search("first TASK") == [(session, task)]
    assert await search("second task") == [(session, task)]
    assert await search("early remark") == [(session, answer)]
    assert await search("It is main") == [(other, answer), (session, answer)]
    assert await search("It is main", limit=1) == [(other, answer)]
    assert await search("It is main", agent="explorer") == [(session, answer)]
    assert await search("mod8.py") == [(session, SearchField.TOOL_CALL)]
    assert await search("DEF TÄST_") == [(session, SearchField.TOOL_CALL)]
    assert await search('"quoted" near* LINE with') == [(session, tool)]
    assert await search("rest 🎈") == [(session, tool)]
    for literal in ('"quoted" OR nothing', "quoted line", "ear* l", "task AND answer", "field:task", "x" * 100_000):
        assert await search(literal) == ([(session, tool)] if literal == "ear* l" else [])
    found = await store.conversations(SessionFilter(text="mod8"), max_sessions=9)
    assert [(each.root, [one.match.field if one.match else None for one in each.sessions]) for each in found] == [
        ("root-1", [SearchField.TOOL_CALL])
    ]
    (listed,) = await store.list(SessionFilter(agent="tester"))
    assert listed.match is None


async def list_continues_after_a_position(store: SessionStore) -> None:
    for i in range(5):
        await record_run(store, run_spec(store.claim()), time=1000.0 * (i // 2))
    every = list(await store.list())
    for i, last in enumerate(every):
        assert (
            list(await store.list(SessionFilter(limit=2, before=(last.updated, last.session))))
            == every[i + 1 : i + 3]
        )


async def sessions_are_grouped_by_root_conversation(store: SessionStore) -> None:
    for i, (root, agent) in enumerate([("a", "x"), ("b", "y"), ("a", "y"), ("c", "x"), ("a", "x")]):
        await record_run(store, run_spec(store.claim(), agent=agent, root=root), time=1000.0 * i)

    async def list_conversations(wanted: SessionFilter, most: int = 9) -> Sequence[tuple[str, int, list[float]]]:
        found = await store.conversations(wanted, max_sessions=most)
        return [(each.root, each.count, [one.latest.started for one in each.sessions]) for each in found]

    a, b, c = ("a", 3, [4002.0, 2002.0, 2.0]), ("b", 1, [1002.0]), ("c", 1, [3002.0])
    assert await list_conversations(SessionFilter()) == [a, c, b]
    assert await list_conversations(SessionFilter(limit=1, before=(4003.0, "a"))) == [c]
    assert await list_conversations(SessionFilter(agent="y"), most=2) == [("a", 3, [2002.0, 4002.0]), b]


async def tail_returns_the_last_events_in_order(store: SessionStore) -> None:
    session = store.claim()
    events = await record_run(store, run_spec(session), *(Text(f"{i} " * 50) for i in range(300)))
    for count in (1, 2, 100, 303, 1000):
        assert list(await store.tail(session, count)) == events[-count:]
    assert list(await store.tail(session, 0)) == []


async def recovery_does_not_end_live_runs(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    recorder = StoreRecorder(record, run_spec(session))
    recorder.record_start()
    assert list(await store.recover()) == []
    assert await _session_state(store, session) == SessionState.RUNNING
    recorder.record_end()
    await record.release()
    assert await read_all(store, session) == recorder.events
    assert list(await store.recover()) == []


async def summary_names_the_model_that_answered(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    recorder = StoreRecorder(record, run_spec(session))
    recorder.record_start()
    recorder.record(
        RunEnded(text="done", usage=Usage(input=5, turns=1), actual=ExecutionReport(model="second-choice"))
    )
    await record.release()
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.model, summary.latest.usage) == ("second-choice", Usage(input=5, turns=1))


CHECKS: tuple[StoreCheck, ...] = (
    claimed_ids_are_unique,
    appended_events_are_read_back_in_order,
    text_without_json_form_does_not_lose_the_event,
    events_are_ordered_by_writing_not_by_time,
    every_printed_form_of_an_id_finds_its_session,
    session_has_one_run_at_a_time,
    events_after_release_are_not_stored,
    invalid_id_finds_nothing,
    unknown_session_cannot_be_resumed,
    summary_has_the_state_of_the_latest_run,
    queued_run_is_not_reported_as_running,
    failed_run_has_state_error_and_its_failure,
    run_without_an_end_was_interrupted,
    later_runs_belong_to_their_session,
    list_is_ordered_by_last_change,
    list_is_filtered,
    search_finds_tasks_answers_and_tool_calls_of_all_runs,
    list_continues_after_a_position,
    sessions_are_grouped_by_root_conversation,
    tail_returns_the_last_events_in_order,
    recovery_does_not_end_live_runs,
    summary_names_the_model_that_answered,
)


async def _start_refusal(store: SessionStore, spec: RunSpec) -> Failure:
    try:
        await store.open_record(spec)
    except RefusedError as refusal:
        return refusal.failure
    raise AssertionError("the run was started")


async def _session_state(store: SessionStore, session: str) -> SessionState | None:
    summary = await store.summary(session)
    return summary.latest.state if summary else None
