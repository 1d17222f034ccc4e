"""The wire form of events."""

import pytest

from retinue.events import Origin, RunEnded, RunStarted, Stamped, Text, ToolCalled, from_line, to_line
from retinue.types import Code, Failure

ORIGIN = Origin(run="a" * 32, session="b" * 32, root="root-1", parent_tool_use_id="call-1", depth=1)


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(),
        Text("U+2028 \u2028 stays inside one line"),
        ToolCalled("c1", "grep", {"pattern": "x", "nested": {"deep": [1, 2]}}),
        RunEnded(text="done", failure=Failure(Code.LOOP, "m"), exit_code=1),
    ],
)
async def test_an_event_survives_its_wire_form(event):
    stamped = Stamped(ORIGIN, 7, 12.5, event)
    line = to_line(stamped)
    assert line.count(b"\n") == 1
    assert from_line(line) == stamped
