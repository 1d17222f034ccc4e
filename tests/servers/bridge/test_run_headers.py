"""Headers of the view in pi, in the words of the `fanout` toolset's own system."""

from tests.support.event_story import START, EventStory

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import RunEnded, ToolCalled
from retinue.servers.bridge.session_data import render_header, render_status
from retinue.tui.renderer import plain_text


def test_status_line_counts_runs_by_phase():
    events = EventStory()
    for run in ("one", "two", "three", "four"):
        events.start(run)
    events.queue("five")
    events.add("three", RunEnded(elapsed=1.0))
    events.add("four", RunEnded(failure=Failure(ErrorCode.ABORTED, "Stopped."), elapsed=1.0))
    assert plain_text(render_status(events.progress())) == "Sub-agents: 2 running, 1 queued, 1 done, 1 error"


def test_header_verbatim_always_names_the_profile_and_never_counts_in_the_singular():
    events = EventStory()
    events.start("writer", provider="acme", model="big", thinking="high")
    events.add("writer", ToolCalled("1", "ls", {}))
    (view,) = events.progress().runs.values()
    assert [plain_text(render_header(view, START + 3, verbatim=form)) for form in (False, True)] == [
        "⠋ writer (acme/big high) • 1 tool • 3s/600s",
        "⠋ writer • writer (acme/big high) • 1 tools • 3s/600s",
    ]
