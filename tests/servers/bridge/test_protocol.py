"""The messages of the bridge: their documentation, invalid lines and encoding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from retinue.ipc.messages import (
    BridgeMessage,
    BridgeRequest,
    CancelRequest,
    RefusalMessage,
    ToolResultReply,
    decode_request,
    encode_line,
)

PAGE = Path(__file__).parents[3] / "docs" / "hosts.md"
FIELD = re.compile(r"`(\w+)\??`")


def test_hosts_page_has_every_bridge_message_with_its_fields():
    page = PAGE.read_text(encoding="utf-8").partition("## Write an extension for another host")[2]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", page, re.MULTILINE)
    # "`id`, `tools`: a list of `name`; `policy?`": names behind a colon are those of the field before it.
    names = [{name for part in cell.split(";") for name in FIELD.findall(part.partition(":")[0])} for _, cell in rows]
    assert list(zip((type_ for type_, _ in rows), names, strict=True)) == [
        (struct.__struct_config__.tag, {field.encode_name for field in structs.fields(struct)})
        for struct in (*get_args(BridgeRequest), *get_args(BridgeMessage))
    ]


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
