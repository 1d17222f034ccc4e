"""Tests of the editors for JSON and TOML: entries are added and removed, everything else stays."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.hosts.config_editors import JsonEditor, TomlEditor, UnsupportedConfigError

JSON = JsonEditor("servers", "retinue")
TOML = TomlEditor("servers", "retinue")
ENTRY: dict[str, Any] = {"command": "/a b/retinue", "args": ["mcp", 'with "quotes" and \\'], "timeout": 3}

words = st.sampled_from(["servers", "retinue", "a", "b\n", '"', "{", ",", "é\u2028"]) | st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)
inner = st.dictionaries(words, values, max_size=3)
documents = st.dictionaries(words, values, max_size=3) | inner.map(lambda found: {"x": 1, "servers": found, "y": [2]})
spellings = st.sampled_from([{"indent": None}, {"indent": 2}, {"indent": "\t"}, {"indent": 0}])


@settings(max_examples=150, deadline=None)
@given(documents, spellings, st.booleans())
def test_json_entry_is_added_and_removed_and_nothing_else_changes(document, spelling, crlf):
    text = json.dumps(document, ensure_ascii=False, **spelling)
    text = text.replace("\n", "\r\n") if crlf else text
    if not isinstance(document.get("servers", {}), dict):
        with pytest.raises(UnsupportedConfigError):
            JSON.with_entry(text, ENTRY)
        return
    changed = JSON.with_entry(text, ENTRY)
    assert json.loads(changed) == {**document, "servers": {**document.get("servers", {}), "retinue": ENTRY}}
    assert JSON.with_entry(changed, ENTRY) == changed
    before = {name: value for name, value in document.get("servers", {}).items() if name != "retinue"}
    assert json.loads(JSON.without_entry(changed)) == {**document, "servers": before}


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '{\n  "servers": {\n    "retinue": {\n      "a": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "servers": {\n    "retinue": {\n      "a": 1\n    }\n  }\n}'),
        ('{"x": 1}\n', '{"x": 1, "servers": {"retinue": {"a": 1}}}\n'),
        ('{"servers": {"o": 1}}', '{"servers": {"o": 1, "retinue": {"a": 1}}}'),
        (
            '{\n\t"servers": {\n\t\t"o": 1\n\t}\n}\n',
            '{\n\t"servers": {\n\t\t"o": 1,\n\t\t"retinue": {\n\t\t\t"a": 1\n\t\t}\n\t}\n}\n',
        ),
        (
            '\ufeff{\n  "x": 1.50e3\n}',
            '\ufeff{\n  "x": 1.50e3,\n  "servers": {\n    "retinue": {\n      "a": 1\n    }\n  }\n}',
        ),
    ],
)
def test_json_entry_has_the_formatting_of_the_file(text, after):
    assert JSON.with_entry(text, {"a": 1}) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (
            '{\n  // mine, "servers": {\n  "servers": {\n    "o": 1, // of o\n  },\n}\n',
            '{\n  // mine, "servers": {\n  "servers": {\n    "o": 1,\n    "retinue": {\n      "a": 1\n    }, // of o\n  },\n}\n',
        ),
        (
            '{\n  "servers": {\n    // none yet\n  }\n}',
            '{\n  "servers": {\n    // none yet\n    "retinue": {\n      "a": 1\n    }\n  }\n}',
        ),
        (
            '{"servers": {"o": "// no, */ comment", /* "retinue": {} */}}',
            '{"servers": {"o": "// no, */ comment", "retinue": {"a": 1}, /* "retinue": {} */}}',
        ),
    ],
)
def test_json_comments_and_trailing_commas_stay(text, after):
    assert JSON.with_entry(text, {"a": 1}) == after
    assert JSON.find_entry(after) == {"a": 1}
    assert JSON.without_entry(after).split() == text.split()


def test_json_comments_around_the_entry_stay_when_it_is_removed():
    text = '{"servers": {\n  "a": 1, // of a\n  // of ours\n  "retinue": {}, // gone?\n  "b": 2\n}}'
    assert JSON.without_entry(text) == '{"servers": {\n  "a": 1 // of a\n  // of ours\n  , // gone?\n  "b": 2\n}}'
    first = '{"servers": {\n  "retinue": {}, // of ours, alas\n  "b": 2,\n}}'
    assert JSON.without_entry(first) == '{"servers": {\n   // of ours, alas\n  "b": 2,\n}}'
    alone = '{"servers": {\n  "retinue": {}, // of ours, alas\n}}'
    assert JSON.without_entry(alone) == '{"servers": { // of ours, alas\n}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {} // mine }',
        '{"servers": {},,}',
        '{"servers": {"o": ,}}',
        '{"servers": /* {} }',
        "[]",
        '{"servers": {}, "servers": {"o": 1}}',
        '{"servers": {"retinue": {}, "retinue": {}}}',
        '{"servers": []}',
        "[" * 100_000,
    ],
)
def test_json_that_is_invalid_or_has_a_key_twice_is_refused(text):
    with pytest.raises(UnsupportedConfigError):
        JSON.with_entry(text, ENTRY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1\n",
        "# mine\n[servers.other]\nx = 1 # note\n\n# of the next\n[z]\ny = '''\n[servers.no]\n'''\n",
        "[servers]\n\n[servers.other.env]\nA = 'b'",
        "a = 1\r\n[servers.o]\r\nb = 2\r\n",
    ],
)
def test_toml_comments_and_order_stay(text):
    changed = TOML.with_entry(text, ENTRY)
    assert changed.startswith(text.rstrip())
    assert tomllib.loads(changed)["servers"]["retinue"] == ENTRY
    assert TOML.find_entry(changed) == ENTRY
    assert TOML.with_entry(changed, {"a": 1}) == TOML.with_entry(text, {"a": 1})
    assert TOML.without_entry(changed).rstrip() == text.rstrip()


def test_toml_tables_around_the_entry_stay_with_their_comments():
    text = "[servers.retinue]\na = 1\n# ours\n[servers.'x']\nb = 2\n"
    ours = '[a]\n\n[ servers . "retinue" ] # here\ncommand = "x"\n\n[servers.retinue.env]\nA = "b"\n\n# of z\n[z]\nc = 1\n'
    assert TOML.without_entry(ours) == "[a]\n\n\n# of z\n[z]\nc = 1\n"
    assert TOML.without_entry(text) == "# ours\n[servers.'x']\nb = 2\n"


def test_toml_comments_after_the_entry_stay_when_it_is_removed_or_replaced():
    text = "a = 1\n\n[servers.retinue]\ncommand = 'x'\n\n# later\n"
    assert TOML.without_entry(text) == "a = 1\n\n\n# later\n"
    assert TOML.with_entry(text, {"b": 2}) == "a = 1\n\n\n# later\n\n[servers.retinue]\nb = 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "servers = {other = {}}\n",
        "servers = 3\n",
        "servers.retinue.command = 'x'\n",
        "x = '''\n[servers.retinue]\n'''\n[servers]\nretinue = {a = 1}\n",
        "a = \n",
    ],
)
def test_toml_that_cannot_be_changed_safely_is_refused(text):
    with pytest.raises(UnsupportedConfigError):
        TOML.with_entry(text, ENTRY)
