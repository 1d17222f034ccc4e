"""The `grep` tool."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools import grep as module
from retinue.engines.tools.call_budget import CallBudget
from retinue.engines.tools.folder import SandboxedDirectory

NOTHING = ToolOutcome("No matches found")


@pytest.fixture
def poems(plant):
    plant(
        {
            "b/frost.txt": "Two roads diverged\nin a yellow wood\n",
            "a.md": "# Roads\nroads.\r\nnone\n",
            ".hidden/c.txt": "roads\n",
        }
    )


@pytest.mark.parametrize("pattern", ["x*", "$", "a|$"])
async def test_an_expression_that_matches_nothing_finds_each_line_once(plant, call, pattern):
    plant({"1.txt": "a", "2.txt": "a\n\nb\n", "3.txt": "", "4.txt": "\n"})
    assert (await call("grep", pattern=pattern, limit=9)).text == (
        "1.txt:1: a\n2.txt:1: a\n2.txt:2: \n2.txt:3: b\n4.txt:1: "
    )


async def test_matches_are_told_with_path_and_line_in_the_order_of_paths(poems, call):
    assert await call("grep", pattern="roads") == ToolOutcome(
        ".hidden/c.txt:1: roads\na.md:2: roads.\nb/frost.txt:1: Two roads diverged"
    )


async def test_the_options_narrow_and_widen(poems, call):
    assert await call("grep", pattern="ROADS", path="b", ignoreCase=True) == ToolOutcome(
        "b/frost.txt:1: Two roads diverged"
    )
    assert await call("grep", pattern="roads.", literal=True) == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="^roads", glob="*.{md,rst}") == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="roads", path="a.md") == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="a", glob="none/**") == NOTHING


async def test_context_lines_are_told_once_and_marked(plant, call):
    plant({"a.txt": "1\n2 x\n3\n4 x\n5\n6\n"})
    assert await call("grep", pattern="x", context=1) == ToolOutcome(
        "a.txt-1- 1\na.txt:2: 2 x\na.txt-3- 3\na.txt:4: 4 x\na.txt-5- 5"
    )


async def test_more_matches_than_the_limit_are_said(plant, call):
    plant({"a.txt": "x\n" * 3, "b.txt": "x\n"})
    assert await call("grep", pattern="x", limit=3) == ToolOutcome(
        "a.txt:1: x\na.txt:2: x\na.txt:3: x\n\n[3 matches limit reached. Use limit=6 for more, or refine pattern.]"
    )
    assert "limit" not in (await call("grep", pattern="x", limit=4)).text


async def test_long_lines_are_cut(plant, call):
    plant({"a.txt": "x" * 10_000_000})
    outcome = await call("grep", pattern="x")
    assert outcome.text == (
        f"a.txt:1: {'x' * 500}... [truncated]\n\n[Some lines truncated to 500 chars. Use read tool to see full lines.]"
    )


async def test_binary_files_are_passed_over_and_said_where_asked_for(plant, call):
    plant({"a.bin": b"needle\0", "b.txt": "needle"})
    assert await call("grep", pattern="needle") == ToolOutcome("b.txt:1: needle")
    assert await call("grep", pattern="needle", path="a.bin") == ToolOutcome(
        "No matches found\n\n[Binary file, 7 B, not shown.]"
    )


async def test_text_in_other_encodings_is_searched_and_said(plant, call):
    plant({"a.txt": "caf\xe9 needle\n".encode("latin-1")})
    assert await call("grep", pattern="needle") == ToolOutcome(
        "a.txt:1: caf\ufffd needle\n\n[a.txt: Not UTF-8: bytes that cannot be decoded are shown as \ufffd.]"
    )


@pytest.mark.parametrize("pattern", ["(", "*", "[z-a]", "(" * 500, "\\"])
async def test_a_pattern_that_is_none_is_said(call, pattern):
    outcome = await call("grep", pattern=pattern)
    assert outcome.is_error
    assert "Set literal to true" in outcome.text


@pytest.mark.parametrize("pattern", ["x" * 5000, "((((a{100}){100}){100}){100})", "a{99999999}"])
async def test_a_pattern_too_large_to_compile_is_refused(call, pattern):
    assert await call("grep", pattern=pattern) == ToolOutcome(
        "The pattern is too large. Search for a part of it.", is_error=True
    )


def test_a_pattern_that_would_take_forever_is_stopped_and_said(tree, plant):
    plant({"a.txt": "needle\n" + "a" * 60 + "b\n", "b.txt": "needle\n"})
    query = module.GrepQuery(
        pattern=module._compile_pattern("needle|(a|aa)+$", ignore_case=False, literal=False),
        linewise=False,
        glob=None,
        context=0,
        limit=10,
    )
    told = module._grep(SandboxedDirectory(tree), query, ".", CallBudget(seconds=0.2))
    assert told == (
        "a.txt:1: needle\n\n[Stopped: the pattern takes too long (over 0.2s). Results are incomplete; simplify it.]"
    )


def test_too_many_files_are_said(tree, plant):
    plant({f"{number}.txt": "x" for number in range(10)})
    query = module.GrepQuery(
        pattern=module._compile_pattern("x", ignore_case=False, literal=True),
        linewise=True,
        glob=None,
        context=0,
        limit=99,
    )
    told = module._grep(SandboxedDirectory(tree), query, ".", CallBudget(files=4))
    assert told.endswith("3.txt:1: x\n\n[Stopped after 4 entries. Results are incomplete; narrow the path.]")


PIECES = st.sampled_from(
    ["a", "b", " ", ".", "\\w", "\\d", "\\b", "\\S", "\\.", "[ab]", "a*", "b?", "(a|b)", "(?:ab)+", "^", "$", "x{2}"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=5).map("".join), st.text(st.sampled_from("ab x.\n"), max_size=20))
def test_what_is_called_linewise_matches_a_text_iff_it_matches_a_line(pattern, text):
    assert module._LINEWISE.fullmatch(pattern)
    compiled = module._compile_pattern(pattern, ignore_case=False, literal=False)
    by_line = any(compiled.search(line) for line in text.split("\n"))
    assert bool(compiled.search(text)) == by_line


@pytest.mark.parametrize("pattern", [r"\s", "[^a]", r"\n", "(?s).", r"\W", "a\nb", r"[\s]", "(?<!a)", r"\A"])
def test_what_can_match_across_lines_is_not_called_linewise(pattern):
    assert not module._LINEWISE.fullmatch(pattern)
