"""The wire form of events."""

import msgspec
import pytest

from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord, EventSource, from_line, to_line
from retinue.model.events import EngineSessionStarted, RunEnded, RunStarted, Text, ToolCalled

ORIGIN = EventSource(run="a" * 32, session="b" * 32, root="root-1", parent_tool_use_id="call-1", depth=1)


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(),
        Text("U+2028 \u2028 stays inside one line"),
        ToolCalled("c1", "grep", {"pattern": "x", "nested": {"deep": [1, 2]}}),
        RunEnded(text="done", failure=Failure(ErrorCode.LOOP, "m"), exit_code=1),
        EngineSessionStarted("the engine's own"),
        Text(',"type":"text" inside a text'),
    ],
)
async def test_event_round_trips_through_its_json_line(event):
    stamped = EventRecord(ORIGIN, 7, 12.5, event)
    line = to_line(stamped)
    assert line.count(b"\n") == 1
    assert from_line(line) == stamped


async def test_a_line_is_read_whatever_the_order_of_its_keys():
    stamped = EventRecord(ORIGIN, 7, 12.5, Text("hello"))
    shuffled = dict(reversed(msgspec.json.decode(to_line(stamped)).items()))
    assert from_line(msgspec.json.encode(shuffled)) == stamped


async def test_a_line_of_another_version_is_not_read():
    line = to_line(EventRecord(ORIGIN, 7, 12.5, Text("hello"))).replace(b'"v":1', b'"v":2')
    with pytest.raises(msgspec.ValidationError, match="version 2"):
        from_line(line)


async def test_unknown_fields_of_a_later_version_are_ignored():
    stamped = EventRecord(ORIGIN, 7, 12.5, Text("hello"))
    line = to_line(stamped).replace(b'"v":1', b'"v":1,"new":{"type":"x"}')
    assert from_line(line) == stamped
