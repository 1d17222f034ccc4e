"""CallProgress: events folded into the state that live views show."""

from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    AttemptStarted,
    MessageEnded,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Usage
from retinue.model.runs import ToolUse
from retinue.runtime.progress import CallProgress, NoticeItem, RunState, RunView, TextItem, ToolCallItem

QUEUED = RunQueued(
    name="scout", agent="explorer", task="find it", cwd="/w", surface="fanout", engine="pi", timeout=600.0
)


def progress_of(*events, run="a" * 32) -> CallProgress:
    origin = EventSource(run=run, session="s" * 32, root="r", parent_tool_use_id="c", parent_run="p", depth=2)
    progress = CallProgress()
    for number, event in enumerate(events):
        progress = progress.apply(EventRecord(origin, number + 1, 100.0 + number, event))
    return progress


def test_run_view_follows_a_run_from_acceptance_to_end():
    progress = progress_of(
        QUEUED,
        RunStarted(),
        AttemptStarted(1, "first"),
        TextDelta("I wi"),
        Text("I will look."),
        ToolCalled("c1", "read", {"path": "x"}),
        MessageEnded(stop_reason="tool_use", model="m1", usage=Usage(input=10, output=2)),
        ToolReturned("c1", "read", "content"),
        Notice("provider_retry", "retrying"),
        Text("Found."),
        MessageEnded(stop_reason="stop", usage=Usage(input=20, output=3, cost=0.5)),
        RunEnded(text="Found.", elapsed=7.5, usage=Usage(input=30, output=5, cost=0.5, turns=2)),
    )
    assert progress.runs["a" * 32] == RunView(
        run="a" * 32,
        session="s" * 32,
        name="scout",
        agent="explorer",
        engine="pi",
        model="m1",
        task="find it",
        parent_run="p",
        depth=2,
        phase=RunState.DONE,
        queued=100.0,
        started=101.0,
        elapsed=7.5,
        timeout=600.0,
        tools=1,
        turns=2,
        stop_reason="stop",
        usage=Usage(input=30, output=5, cost=0.5, turns=2),
        chars=45,
        items=(
            TextItem("I will look."),
            ToolCallItem("c1", "read", {"path": "x"}, "content"),
            NoticeItem("provider_retry", "retrying"),
            TextItem("Found."),
        ),
    )


def test_streamed_text_is_partial_until_the_whole_text_arrives():
    assert progress_of(QUEUED, TextDelta("hel"), TextDelta("lo")).runs["a" * 32].partial == "hello"
    assert progress_of(QUEUED, TextDelta("hello"), Text("hello")).runs["a" * 32].partial == ""


def test_failed_run_has_phase_error_and_its_failure():
    failure = Failure(ErrorCode.TIMEOUT, "Timed out")
    view = progress_of(QUEUED, RunStarted(), RunEnded(failure=failure, elapsed=630.0)).runs["a" * 32]
    assert (view.phase, view.failure, view.elapsed) == (RunState.ERROR, failure, 630.0)


def test_runs_are_counted_by_phase():
    progress = CallProgress()
    for run, events in (("a", (QUEUED,)), ("b", (QUEUED, RunStarted())), ("c", (QUEUED, RunEnded()))):
        for event in events:
            origin = EventSource(run=run, session=run, root="r", parent_tool_use_id="c")
            progress = progress.apply(EventRecord(origin, 1, 0.0, event))
    assert [progress.count(phase) for phase in RunState] == [1, 1, 1, 0]


def test_elapsed_time_of_all_runs_ends_with_the_last_run():
    running = progress_of(QUEUED, RunStarted())
    (view,) = running.runs.values()
    assert running.measure_elapsed(view.queued + 30) == 30
    ended = progress_of(QUEUED, RunStarted(), RunEnded(elapsed=7.5))
    assert ended.measure_elapsed(view.queued + 900) == (view.started or 0.0) - view.queued + 7.5


def test_display_items_are_texts_and_tool_calls_in_order():
    view = progress_of(QUEUED, Text("a"), ToolCalled("c", "ls", {}), Notice("n", "x"), Text("b")).runs["a" * 32]
    assert view.display_items() == ("a", ToolUse("c", "ls", {}), "b")


def test_items_of_a_run_are_bounded_in_number():
    view = progress_of(QUEUED, *[Text(str(i)) for i in range(700)]).runs["a" * 32]
    assert (len(view.items), view.items[-1]) == (500, TextItem("699"))


def test_items_of_a_run_are_bounded_in_characters():
    steps = [
        event
        for i in range(50)
        for event in (ToolCalled(f"c{i}", "read", {}), ToolReturned(f"c{i}", "read", "x" * 50_000))
    ]
    view = progress_of(QUEUED, *steps).runs["a" * 32]
    assert (len(view.items), view.tools) == (20, 50)
    huge = progress_of(QUEUED, Text("x" * 10**7)).runs["a" * 32]
    assert [len(item.text) for item in huge.items if isinstance(item, TextItem)] == [2**20]
