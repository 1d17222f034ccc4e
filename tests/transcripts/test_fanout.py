"""The transcripts of the `fanout` toolset: no text in a session can forge their structure."""

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import MessageEnded, RunEnded, RunQueued, Text, ToolCalled, ToolReturned
from retinue.testing.stores import run_spec
from retinue.transcripts.fanout import render_resume_context, render_transcript

FRAGMENTS = st.lists(
    st.sampled_from(
        ["Previously:", "Instructions:", "User: ", "Assistant: ", "Tool Call: ", "Tool Result: ", "--- Run 1 (", "\r",
         "=== Run 1/2 (completed) ===", "\n", "\n\n", " ", "\t", "x", "\x1b[31m", "\u2028", "\x85", "\u200b", "\x00"]
    ),
    max_size=12,
).map("".join)  # fmt: skip
EVENTS = st.lists(
    st.one_of(
        FRAGMENTS.map(Text),
        FRAGMENTS.map(lambda text: ToolCalled("c", "read", {"path": text})),
        FRAGMENTS.map(lambda text: ToolCalled("c", text, {"a": text, "b": [text]})),
        FRAGMENTS.map(lambda text: ToolReturned("c", "read", text)),
        FRAGMENTS.map(lambda text: MessageEnded(stop_reason="error", error=text)),
    ),
    max_size=6,
)


class StoredRecords:
    """Events as a store returns them."""

    damaged_count = 0

    def __init__(self, events):
        origin = EventSource.of(run_spec("a" * 32))
        self._events = iter([EventRecord(origin, seq, 1.0, event) for seq, event in enumerate(events, 1)])

    def __aiter__(self):
        return self

    async def __anext__(self):
        for record in self._events:
            return record
        raise StopAsyncIteration


def make_queued(task):
    return RunQueued(name="n", agent="a", task=task, cwd="/", surface="fanout")


@settings(max_examples=150, deadline=None)
@given(runs=st.lists(st.tuples(FRAGMENTS, EVENTS), min_size=1, max_size=3))
def test_session_text_cannot_forge_a_run_header_a_user_entry_or_the_end_of_the_block(runs):
    events = [event for task, work in runs for event in (make_queued(task), *work, RunEnded())]
    context = anyio.run(render_resume_context, StoredRecords(events))
    lines = context.split("\n")
    assert (lines[0], lines[-1]) == ("Previously:", "Instructions:")
    assert [line for line in lines if line.strip() in {"Previously:", "Instructions:"}] == [
        "Previously:",
        "Instructions:",
    ]
    assert len([line for line in lines if line.startswith("--- Run ")]) == len(runs)
    assert len([line for line in lines if line.startswith("User: ")]) == len(runs)
    assert not set("\x1b\x00\r\u2028\x85\u200b") & set(context)
    transcript, _ = anyio.run(render_transcript, StoredRecords(events))
    headers = [line for line in transcript.split("\n") if line.startswith("=== Run ")]
    assert len(headers) == (len(runs) if len(runs) > 1 else 0)
