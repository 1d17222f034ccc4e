"""The line format: arbitrary text survives, and damage stays in its own record."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord, EventSource, to_line
from retinue.model.events import RunEnded, RunStarted, Text, ToolCalled, ToolReturned
from retinue.sessions.segments import NewerVersion, RecordDecoder, SegmentHeader, parse_segment_header

SESSION = "a" * 32
ORIGIN = EventSource(run=SESSION, session=SESSION, root="root-1", parent_tool_use_id="call-1")

any_text = st.text(st.characters(), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
some_events = st.one_of(
    any_text.map(Text),
    st.builds(ToolCalled, any_text, any_text, st.dictionaries(any_text, json_values, max_size=3)),
    st.builds(ToolReturned, any_text, any_text, any_text, st.booleans()),
    any_text.map(lambda text: RunEnded(text=text, failure=Failure(ErrorCode.ENGINE, text))),
)


def make_record(event, seq=1, origin=ORIGIN):
    return EventRecord(origin, seq, 12.5, event)


@settings(max_examples=150, deadline=None)
@given(some_events)
def test_any_event_survives_encoding_as_one_line(event):
    line = to_line(make_record(event))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    decoder = RecordDecoder(SESSION)
    (read,) = decoder.decode_events(line)
    assert decoder.damaged_count == 0
    assert type(read.event) is type(event)
    assert to_line(read) == line


def test_lone_surrogates_are_replaced_and_other_text_is_kept():
    (read,) = RecordDecoder(SESSION).decode_events(to_line(make_record(Text("a\ud83db\u2028c"))))
    assert read.event == Text("a?b\u2028c")


def test_arguments_without_json_form_are_stored_as_their_repr():
    (read,) = RecordDecoder(SESSION).decode_events(
        to_line(make_record(ToolCalled("c", "x", {"at": 1 + 2j, "ok": [1, {"y": None}]})))
    )
    assert read.event == ToolCalled("c", "x", {"at": "(1+2j)", "ok": [1, {"y": None}]})


def test_too_deeply_nested_arguments_are_cut():
    nested: dict[str, object] = {}
    for _ in range(5000):
        nested = {"x": nested}
    (read,) = RecordDecoder(SESSION).decode_events(to_line(make_record(ToolCalled("c", "x", nested))))
    assert isinstance(read.event, ToolCalled)
    assert "…" in json.dumps(read.event.args, ensure_ascii=False)


def test_fused_records_are_both_decoded():
    first, second = make_record(Text("one"), 1), make_record(Text("two"), 2)
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(to_line(first)[:-1] + to_line(second)[:-1])) == [first, second]
    assert decoder.damaged_count == 0


def test_record_after_a_torn_one_is_decoded_and_the_torn_one_counted():
    whole = make_record(Text("whole"), 2)
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(to_line(make_record(Text("torn")))[:40] + to_line(whole)[:-1])) == [whole]
    assert decoder.damaged_count == 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_garbage_is_counted_and_never_raises(garbage):
    line = garbage.replace(b"\n", b" ")
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(line)) == []
    assert decoder.damaged_count == (1 if line.strip() else 0)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 7), st.data())
def test_flipped_bit_damages_at_most_its_own_record(bit, data):
    line = bytearray(to_line(make_record(Text("the answer is 42")))[:-1])
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= 1 << bit
    decoder = RecordDecoder(SESSION)
    read = list(decoder.decode_events(bytes(line)))
    assert len(read) + decoder.damaged_count >= 1
    assert all(one.origin.session == SESSION for one in read)


def test_record_of_another_session_counts_as_damage():
    stray = EventSource(run="b" * 32, session="b" * 32, root="r", parent_tool_use_id="c")
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(to_line(make_record(Text("stray"), origin=stray)))) == []
    assert decoder.damaged_count == 1


def test_record_of_another_version_counts_as_damage():
    line = to_line(make_record(RunStarted())).replace(b'{"v":1,', b'{"v":2,')
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(line)) == []
    assert decoder.damaged_count == 1


def test_segment_header_names_its_session_and_part():
    head = SegmentHeader(id=SESSION, part=3, created=1.5, first=2)
    line = head.to_line()
    assert json.loads(line) == {"v": 1, "type": "session", "id": SESSION, "part": 3, "created": 1.5, "first": 2}
    assert parse_segment_header(line) == head
    assert parse_segment_header(line.replace(b'"v":1', b'"v":7')) == NewerVersion(7)
    assert parse_segment_header(to_line(make_record(RunStarted()))) is None
    assert parse_segment_header(b"\x00\xff") is None
    decoder = RecordDecoder(SESSION)
    assert list(decoder.decode_events(line)) == []
    assert decoder.damaged_count == 0
