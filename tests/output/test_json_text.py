"""JSON that any terminal can show: the same value, without live control characters."""

import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.model.agents import AgentProfile
from retinue.model.event_codec import EventRecord, EventSource, from_line, to_line, to_subagent_line
from retinue.model.events import RunEnded, Text
from retinue.model.json_text import escape_json
from retinue.model.runs import RunSpec
from retinue.model.tasks import Lineage
from retinue.output.json_text import encode_json
from retinue.output.untrusted_text import strip_control_characters

UNSAFE = {
    "DEL": "\x7f",
    "next line": "\x85",
    "CSI": "\x9b31m",
    "OSC": "\x9d0;title\x9c",
    "escape": "\x1b[31m",
    "null": "\0",
    "bidi override": "\u202e",
    "bidi isolate": "\u2066",
    "zero-width space": "\u200b",
    "joiner": "\u200d",
    "line separator": "\u2028",
    "byte order mark": "\ufeff",
    "variation selector": "\ufe0f",
    "tag": "\U000e0041",
    "language tag": "\U000e0001",
    "late variation selector": "\U000e0101",
}
ORDINARY = "naïve 漢字 \U0001f600 «x» \t\n"
SOURCE = EventSource.of(
    RunSpec(
        run="r" * 8, session="s" * 8, name="n", toolset="single", agent=AgentProfile(name="a"), task="t", prompt="t",
        cwd="/", engine="e", lineage=Lineage(root="r", parent_call="c"),
    )
)  # fmt: skip


def is_shown_raw(encoded: bytes) -> bool:
    return any(
        character in encoded.decode() for text in UNSAFE.values() for character in text if ord(character) > 126
    )


@pytest.mark.parametrize("unsafe", UNSAFE.values(), ids=UNSAFE)
def test_unsafe_character_is_escaped_in_json_and_parses_to_the_same_value(unsafe):
    value = {f"key {unsafe}": [ORDINARY + unsafe, {"deep": unsafe}]}
    encoded = encode_json(value)
    assert (is_shown_raw(encoded), msgspec.json.decode(encoded)) == (False, value)


def test_tag_characters_are_written_as_surrogate_pairs():
    assert encode_json("a\U000e0041\x9b") == rb'"a\udb40\udc41\u009b"'


def test_ordinary_text_is_not_escaped():
    assert encode_json("naïve 漢字 \U0001f600") == '"naïve 漢字 \U0001f600"'.encode()
    plain = b'{"a":"b\\n"}'
    assert escape_json(plain) is plain


def test_lone_surrogate_becomes_a_replacement_character():
    assert encode_json({"a": "\udcff\x9b", "raw": msgspec.Raw(b"[1]")}) == '{"a":"\ufffd\\u009b","raw":[1]}'.encode()


@pytest.mark.parametrize("unsafe", UNSAFE.values(), ids=UNSAFE)
def test_lines_of_events_have_no_unsafe_characters(unsafe):
    record = EventRecord(SOURCE, 1, 1.0, Text(f"before {unsafe} after"))
    ended = EventRecord(SOURCE, 2, 1.0, RunEnded(text=unsafe))
    assert from_line(to_line(record)) == record
    assert not is_shown_raw(to_line(record) + (to_subagent_line(ended) or b""))


@given(st.text())
def test_any_text_survives_escaping(text):
    assert msgspec.json.decode(encode_json(text)) == text


def test_every_character_that_is_made_visible_in_text_is_escaped_in_json():
    every = [chr(code) for code in range(127, sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    hidden = [character for character in every if strip_control_characters(f"a{character}b") != f"a{character}b"]
    assert len(hidden) > 500
    assert not set(hidden) & set(escape_json(msgspec.json.encode("".join(hidden))).decode())
