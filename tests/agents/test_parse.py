"""Headers of agent files: plain lines, YAML, hostile YAML and broken YAML."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.agents import parse as header
from retinue.agents.parse import AgentFileError, AgentHeader, parse_header, read_lines, split_frontmatter

PIECES = st.sampled_from(
    [*"abN01 :#-'\"\\,[]{}&*!|>%@`?=~\t\n", ": ", " #", "- ", "\n  ", "é", "\u00a0", "\u2028", "🚀"]
)
ODD = st.lists(PIECES, max_size=8).map("".join)
WORDS = ["read", "a:b", "it's", "x#y", "[1]", '"quoted"', "'a'", "-", "#", ":", "é", "🚀", "~", "end:", " ", "`"]
PROSE = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
KEYS = st.sampled_from(["name", "tools", "x-y", "_a", "N1"])
PAIRS = st.tuples(KEYS, st.sampled_from([":", ": ", ":  "]), PROSE | ODD).map("".join)
OTHERS = st.sampled_from(["", "  ", "# a comment: here", "---", "...", "%YAML 1.1", "\ufeff"])
LINES = PAIRS | PAIRS | PAIRS | OTHERS | ODD


@settings(max_examples=600, deadline=None)
@given(st.lists(LINES, max_size=3).map("\n".join))
def test_plain_header_parser_agrees_with_yaml(source):
    pairs = header._parse_plain_lines(source)
    if pairs is None:
        return
    assert pairs == header._parse_yaml(source, 1)
    assert dict(reversed([(key, value) for key, _, value in pairs])) == _first_wins(source)


def _first_wins(source: str) -> dict[str, str]:
    """Return an independent reading by PyYAML's nodes, every scalar as text."""
    node = yaml.compose(source, Loader=yaml.BaseLoader)
    return {} if node is None else dict(reversed([(key.value, value.value) for key, value in node.value]))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200) | ODD)
def test_any_header_is_parsed_or_refused_without_other_errors(source):
    try:
        found = parse_header(source)
    except AgentFileError:
        return
    assert isinstance(found, AgentHeader)


def test_yaml_scalars_stay_strings():
    found = parse_header("a: 3000\nb: no\nc: 2024-01-02\nd: [1, null, 0x1F]\ne: {f: true}\n")
    assert found.values == {
        "a": "3000",
        "b": "no",
        "c": "2024-01-02",
        "d": ("1", "null", "0x1F"),
        "e": {"f": "true"},
    }


def test_header_line_numbers_count_from_the_top_of_the_file():
    document = split_frontmatter("\n\n---\n# note\nname: x\ntools:\n  - read\n---\nbody")
    assert document.header.lines == {"name": 5, "tools": 6}


def test_horizontal_rule_at_the_top_is_no_header():
    assert split_frontmatter("---\n\nBe brief.\n").body == "---\n\nBe brief."


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("source", "reason", "line"),
    [
        (BOMB, "YAML anchors and aliases (& and *) are not allowed; quote the value", 1),
        ("name: x\nb: *a\n", "YAML anchors and aliases (& and *) are not allowed; quote the value", 2),
        (
            "name: !!python/object/apply:os.system [id]\n",
            "YAML tags (python/object/apply:os.system) are not allowed",
            1,
        ),
        ("name: x\na: " + "[" * 40 + "]" * 40, "the header is nested too deeply (at most 16)", 2),
        ("".join(f"key{i}: [a]\n" for i in range(1000)), "the header has too many entries (at most 1000)", 334),
        ("? [a, b]\n: c\n", "a key is a list or a mapping", 1),
        ("name: x\n...\n---\nname: y\n", "the header holds more than one YAML document", 3),
    ],
)
def test_hostile_yaml_is_refused_with_its_line(source, reason, line):
    with pytest.raises(AgentFileError) as refused:
        parse_header(source)
    assert (refused.value.reason, refused.value.line) == (reason, line)


@pytest.mark.parametrize("keys", [100_000, 4_000])
@pytest.mark.parametrize("value", ["'v\n'", "v"])
def test_header_of_endless_keys_is_refused_quickly(keys, value):
    source = "---\n" + "".join(f"key{i}: {value}\n" for i in range(keys)) + "---\n"
    started = time.process_time()
    with pytest.raises(AgentFileError, match=r"too large|too many"):
        split_frontmatter(source)
    assert time.process_time() - started < 2


def test_broken_yaml_is_read_line_by_line():
    source = """\
name: "colons"
description: Use this when: things break
  and go on: here
tools:
  - read
  - 'grep'
# a comment
deny: [a, "b"]
notes: |
  first: line
    second
folded: >-
  one
  two

  three
quoted: "say \\"hi\\"\\n: done"  # aside
issue: closes #12 # really
"""
    assert [(key, value) for key, _, value in read_lines(source)] == [
        ("name", "colons"),
        ("description", "Use this when: things break and go on: here"),
        ("tools", ("read", "grep")),
        ("deny", ("a", "b")),
        ("notes", "first: line\n  second"),
        ("folded", "one two\nthree"),
        ("quoted", 'say "hi"\n: done'),
        ("issue", "closes #12"),
    ]


def test_quoted_keys_are_read_in_broken_yaml():
    found = parse_header("name: x\ndescription: a: b\n\"tools\": read\n'readonly' : true\n")
    assert found.values == {"name": "x", "description": "a: b", "tools": "read", "readonly": "true"}


def test_unclosed_header_with_restrictions_is_refused():
    with pytest.raises(AgentFileError, match="the header is not closed"):
        split_frontmatter("---\n\n# mine\ndisallowed-tools: bash\n\nBe brief.\n")


def test_unclosed_example_in_broken_yaml_hides_no_keys():
    found = parse_header("name: x\ndescription: see: <example>\ntools: read\n")
    assert found.values["tools"] == "read"


def test_dialogue_inside_an_example_is_no_key():
    found = parse_header("name: x\ndescription: see: <example>\ntools: all of them\n</example>\ntools: read\n")
    assert found.values["tools"] == "read"


@pytest.mark.parametrize("unit", ["<example>", "a: b: c\n", "key: |\n", "- ", "'", "\\"])
def test_reading_broken_yaml_takes_linear_time(unit):
    def cost(size: int) -> float:
        source = "name: a: b\n" + unit * (size // len(unit))
        times = []
        for _ in range(3):
            started = time.process_time()
            list(read_lines(source))
            times.append(time.process_time() - started)
        return min(times)

    assert cost(64 * 1024) < 8 * cost(16 * 1024) + 0.05
