"""The protocol of the bridge: what its page says of it, and what it makes of odd lines."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.ipc import messages
from retinue.ipc.messages import (
    BridgeRequest,
    CancelRequest,
    RefusalMessage,
    ToolResultReply,
    decode_request,
    encode_line,
)

PAGE = Path(__file__).parents[3] / "docs" / "hosts.md"


def test_its_page_has_the_tables_of_its_module():
    assert messages.__doc__
    rows = [line for line in messages.__doc__.splitlines() if line.startswith("|")]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(rows) == 16
    assert [row for row in rows if row not in page] == []


@settings(max_examples=200, deadline=None)
@given(st.text() | st.sampled_from(["{}", "null", '{"type":"call","id":1}', '{"type":"tools","id":"x","cwd":3}']))
def test_any_line_is_understood_or_refused(line):
    assert isinstance(decode_request(line), BridgeRequest | RefusalMessage)


def test_fields_that_mean_nothing_are_ignored():
    assert decode_request('{"type":"cancel","id":"1","later":[1]}') == CancelRequest(id="1")


def test_what_is_no_text_is_said_with_broken_characters():
    assert (
        encode_line(ToolResultReply(id="1", result={"path": "a\udcffb"}))
        == '{"type":"result","id":"1","result":{"path":"a\ufffdb"}}\n'.encode()
    )
