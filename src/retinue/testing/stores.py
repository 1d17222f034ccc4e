"""What every store of sessions must pass: `for check in CHECKS: await check(a_fresh_store)`.

Each check takes a store that holds nothing yet and raises `AssertionError` where it breaks its promise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
from retinue.sessions.store import INTERRUPTED, RunRecord, SessionFilter, SessionState, SessionStore

StoreCheck = Callable[[SessionStore], Awaitable[None]]


def run_spec(
    session: str,
    run: str | None = None,
    *,
    agent: str = "explorer",
    task: str = "Find the entry point",
    root: str = "root-1",
) -> RunSpec:
    """A run of a session; its first, unless it has an id of its own."""
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
    """Stamps and appends the events of one run, a second apart."""

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
    """Records a whole run that completes; returns its events."""
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
    return [stamped async for stamped in store.events(session, run=run)]


async def claims_are_ids_that_nothing_else_has(store: SessionStore) -> None:
    session = store.claim()
    claimed = [session, store.claim(), *(store.claim(session) for _ in range(50))]
    assert all(len(one) == len(session) == 32 and int(one, 16) >= 0 for one in claimed)  # noqa: PLR2004
    assert len({one[:8] for one in claimed}) == len(claimed)


async def what_is_appended_is_read_back_in_order(store: SessionStore) -> None:
    session = store.claim()
    said = (
        Text("one\u2028two\x00three 🎈"),
        ToolCalled("c1", "grep", {"pattern": "main", "deep": [{"a": None}]}),
        ToolReturned("c1", "grep", "main.py:1", is_error=True),
        MessageEnded(stop_reason="stop", usage=Usage(input=3, cost=0.1)),
    )
    events = await record_run(store, run_spec(session), *said)
    assert await read_all(store, session) == events
    assert store.events(session).damaged_count == 0


async def what_cannot_be_written_in_json_does_not_lose_the_event(store: SessionStore) -> None:
    session = store.claim()
    await record_run(
        store, run_spec(session), Text("half a character: \ud83d."), ToolCalled("c", "x", {"\ud800": "\udfff"})
    )
    assert [type(stamped.event) for stamped in await read_all(store, session)] == [
        RunQueued,
        RunStarted,
        Text,
        ToolCalled,
        RunEnded,
    ]


async def order_is_that_of_writing_whatever_the_clock_says(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    origin = EventSource.of(run_spec(session))
    events = [EventRecord(origin, seq, 1000.0 - seq, Text(str(seq))) for seq in range(1, 20)]
    for stamped in events:
        record.append(stamped)
    await record.release()
    assert await read_all(store, session) == events
    assert list(await store.tail(session, 3)) == events[-3:]


async def every_shown_form_of_an_id_finds_its_session(store: SessionStore) -> None:
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


async def a_session_carries_out_one_run_at_a_time(store: SessionStore) -> None:
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


async def what_comes_after_the_release_is_not_stored(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    tape = StoreRecorder(record, run_spec(session))
    tape.record_start()
    tape.record_end()
    await record.release()
    tape.record(Text("too late"))
    await record.sync()
    await record.release()
    assert await read_all(store, session) == tape.events[:-1]


async def what_is_no_id_names_nothing(store: SessionStore) -> None:
    for foreign in ("", "-", "..", "../../etc/passwd", "my session", "ab", "\ud800", "x" * 10_000):
        assert await store.find(foreign) is None
        assert await store.summary(foreign) is None
        assert await read_all(store, foreign) == []
        assert list(await store.tail(foreign, 5)) == []
        assert not await store.is_locked(foreign)


async def an_unknown_session_cannot_be_continued(store: SessionStore) -> None:
    session = store.claim()
    failure = await _start_refusal(store, run_spec(session, store.claim(session)))
    assert failure.code == ErrorCode.SESSION_NOT_FOUND
    assert await store.summary(session) is None
    assert await read_all(store, session) == []
    assert list(await store.tail(session, 5)) == []
    assert not await store.is_locked(session)


async def a_summary_tells_how_far_a_session_has_come(store: SessionStore) -> None:
    session = store.claim()
    spec = run_spec(session)
    record = await store.open_record(spec)
    assert await store.summary(session) is None
    tape = StoreRecorder(record, spec)
    tape.record_start()
    assert await _session_state(store, session) == SessionState.RUNNING
    tape.record(Text("I look around\nand find"))
    running = await store.summary(session)
    assert running is not None
    assert (running.preview, running.latest.failure, running.runs) == ("I look around", None, 1)
    tape.record_end("\nIt is main.py\nbecause …")
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


async def a_queued_run_is_told_from_a_running_one(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    queued = RunQueued(name="a", agent="a", task="t", cwd="/", surface="single")
    record.append(EventRecord(EventSource.of(run_spec(session)), 1, 5.0, queued))
    assert await _session_state(store, session) == SessionState.QUEUED
    await record.release()


async def a_failed_run_is_an_error_with_its_reason(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    tape = StoreRecorder(record, run_spec(session))
    tape.record_start()
    failure = Failure(ErrorCode.TIMEOUT, "Timed out after 600s.\nConsider resuming.")
    tape.record_end("so far", failure)
    await record.release()
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.latest.state, summary.latest.failure, summary.latest.exit_code) == (
        SessionState.ERROR,
        failure,
        1,
    )
    assert summary.preview == "Timed out after 600s."


async def a_run_left_without_an_end_was_interrupted(store: SessionStore) -> None:
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


async def a_list_shows_the_last_changed_first(store: SessionStore) -> None:
    sessions = [store.claim() for _ in range(4)]
    for i, session in enumerate(sessions):
        await record_run(store, run_spec(session), time=1000.0 * (i + 1))
    await record_run(store, run_spec(sessions[1], store.claim(sessions[1])), time=9000.0)
    listed = await store.list()
    assert [summary.session for summary in listed] == [sessions[i] for i in (1, 3, 2, 0)]
    assert listed == [await store.summary(summary.session) for summary in listed]
    assert list(await store.list(SessionFilter(limit=2))) == list(listed)[:2]


async def a_list_can_be_narrowed_down(store: SessionStore) -> None:
    first, second, third = (store.claim() for _ in range(3))
    await record_run(store, run_spec(first, agent="tester", root="other"), time=3000.0)
    await record_run(store, run_spec(second, task="Prüfe 100% ÄRGER_"), time=2000.0)
    record = await store.open_record(run_spec(third))
    StoreRecorder(record, run_spec(third)).record_start()

    async def narrowed(wanted: SessionFilter) -> Sequence[str]:
        found = await store.list(wanted)
        assert all(map(wanted.matches, found))
        return [summary.session for summary in found]

    assert await narrowed(SessionFilter(root="other")) == [first]
    assert await narrowed(SessionFilter(agent="explorer")) == [second, third]
    assert await narrowed(SessionFilter(state=SessionState.COMPLETED)) == [first, second]
    assert await narrowed(SessionFilter(state=SessionState.RUNNING, root="root-1")) == [third]
    assert await narrowed(SessionFilter(text="ärger_")) == [second]
    assert await narrowed(SessionFilter(text="MAIN.PY", agent="tester")) == [first]
    assert await narrowed(SessionFilter(text="_%")) == []
    assert await narrowed(SessionFilter(agent="explorer", limit=1)) == [second]
    await record.release()


async def a_list_goes_on_where_the_last_ended(store: SessionStore) -> None:
    for i in range(5):
        await record_run(store, run_spec(store.claim()), time=1000.0 * (i // 2))
    every = list(await store.list())
    for i, last in enumerate(every):
        assert (
            list(await store.list(SessionFilter(limit=2, before=(last.updated, last.session))))
            == every[i + 1 : i + 3]
        )


async def sessions_stand_under_their_root_conversation(store: SessionStore) -> None:
    for i, (root, agent) in enumerate([("a", "x"), ("b", "y"), ("a", "y"), ("c", "x"), ("a", "x")]):
        await record_run(store, run_spec(store.claim(), agent=agent, root=root), time=1000.0 * i)

    async def list_conversations(wanted: SessionFilter, most: int = 9) -> Sequence[tuple[str, int, list[float]]]:
        found = await store.conversations(wanted, max_sessions=most)
        return [(each.root, each.count, [one.latest.started for one in each.sessions]) for each in found]

    a, b, c = ("a", 3, [4002.0, 2002.0, 2.0]), ("b", 1, [1002.0]), ("c", 1, [3002.0])
    assert await list_conversations(SessionFilter()) == [a, c, b]
    assert await list_conversations(SessionFilter(limit=1, before=(4003.0, "a"))) == [c]
    assert await list_conversations(SessionFilter(agent="y"), most=2) == [("a", 3, [2002.0, 4002.0]), b]


async def a_tail_is_the_end_in_order(store: SessionStore) -> None:
    session = store.claim()
    events = await record_run(store, run_spec(session), *(Text(f"{i} " * 50) for i in range(300)))
    for count in (1, 2, 100, 303, 1000):
        assert list(await store.tail(session, count)) == events[-count:]
    assert list(await store.tail(session, 0)) == []


async def recovering_leaves_live_runs_alone(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    tape = StoreRecorder(record, run_spec(session))
    tape.record_start()
    assert list(await store.recover()) == []
    assert await _session_state(store, session) == SessionState.RUNNING
    tape.record_end()
    await record.release()
    assert await read_all(store, session) == tape.events
    assert list(await store.recover()) == []


async def a_summary_names_the_model_that_answered(store: SessionStore) -> None:
    session = store.claim()
    record = await store.open_record(run_spec(session))
    tape = StoreRecorder(record, run_spec(session))
    tape.record_start()
    tape.record(RunEnded(text="done", usage=Usage(input=5, turns=1), actual=ExecutionReport(model="second-choice")))
    await record.release()
    summary = await store.summary(session)
    assert summary is not None
    assert (summary.model, summary.latest.usage) == ("second-choice", Usage(input=5, turns=1))


CHECKS: tuple[StoreCheck, ...] = (
    claims_are_ids_that_nothing_else_has,
    what_is_appended_is_read_back_in_order,
    what_cannot_be_written_in_json_does_not_lose_the_event,
    order_is_that_of_writing_whatever_the_clock_says,
    every_shown_form_of_an_id_finds_its_session,
    a_session_carries_out_one_run_at_a_time,
    what_comes_after_the_release_is_not_stored,
    what_is_no_id_names_nothing,
    an_unknown_session_cannot_be_continued,
    a_summary_tells_how_far_a_session_has_come,
    a_queued_run_is_told_from_a_running_one,
    a_failed_run_is_an_error_with_its_reason,
    a_run_left_without_an_end_was_interrupted,
    later_runs_belong_to_their_session,
    a_list_shows_the_last_changed_first,
    a_list_can_be_narrowed_down,
    a_list_goes_on_where_the_last_ended,
    sessions_stand_under_their_root_conversation,
    a_tail_is_the_end_in_order,
    recovering_leaves_live_runs_alone,
    a_summary_names_the_model_that_answered,
)


async def _start_refusal(store: SessionStore, spec: RunSpec) -> Failure:
    try:
        await store.open_record(spec)
    except RefusedError as refusal:
        return refusal.failure
    raise AssertionError("the run was begun")


async def _session_state(store: SessionStore, session: str) -> SessionState | None:
    summary = await store.summary(session)
    return summary.latest.state if summary else None
