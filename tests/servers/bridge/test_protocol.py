"""The messages of the bridge: their documentation, invalid lines and encoding."""

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


def test_hosts_page_has_the_message_tables_of_the_module():
    assert messages.__doc__
    rows = [line for line in messages.__doc__.splitlines() if line.startswith("|")]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(rows) == 16
    assert [row for row in rows if row not in page] == []


@settings(max_examples=200, deadline=None)
@given(st.text() | st.sampled_from(["{}", "null", '{"type":"call","id":1}', '{"type":"tools","id":"x","cwd":3}']))
def test_any_line_is_decoded_or_refused(line):
    assert isinstance(decode_request(line), BridgeRequest | RefusalMessage)


def test_unknown_fields_of_a_request_are_ignored():
    assert decode_request('{"type":"cancel","id":"1","later":[1]}') == CancelRequest(id="1")


def test_lone_surrogate_is_encoded_as_replacement_character():
    assert (
        encode_line(ToolResultReply(id="1", result={"path": "a\udcffb"}))
        == '{"type":"result","id":"1","result":{"path":"a\ufffdb"}}\n'.encode()
    )
