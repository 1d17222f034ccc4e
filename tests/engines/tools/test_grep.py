"""The `grep` tool, with and without ripgrep."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools.base import CallBudget, SandboxedDirectory
from retinue.engines.tools.grep import GrepQuery, search_files

NOTHING = ToolOutcome("No matches found")


@pytest.fixture
def poems(write_files):
    write_files(
        {
            "b/frost.txt": "Two roads diverged\nin a yellow wood\n",
            "a.md": "# Roads\nroads.\r\nnone\n",
            ".hidden/c.txt": "roads\n",
        }
    )


@pytest.mark.parametrize("pattern", ["x*", "$", "a|$"])
async def test_pattern_that_matches_the_empty_string_finds_each_line_once(write_files, call, pattern):
    write_files({"1.txt": "a", "2.txt": "a\n\nb\n", "3.txt": "", "4.txt": "\n"})
    assert (await call("grep", pattern=pattern, limit=9)).text == (
        "1.txt:1: a\n2.txt:1: a\n2.txt:2: \n2.txt:3: b\n4.txt:1: "
    )


async def test_grep_prints_path_and_line_in_the_order_of_paths(poems, call):
    assert await call("grep", pattern="roads") == ToolOutcome(
        ".hidden/c.txt:1: roads\na.md:2: roads.\nb/frost.txt:1: Two roads diverged"
    )


async def test_grep_options_narrow_and_widen_the_search(poems, call):
    assert await call("grep", pattern="ROADS", path="b", ignoreCase=True) == ToolOutcome(
        "b/frost.txt:1: Two roads diverged"
    )
    assert await call("grep", pattern="roads.", literal=True) == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="^roads", glob="*.{md,rst}") == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="roads", path="a.md") == ToolOutcome("a.md:2: roads.")
    assert await call("grep", pattern="a", glob="none/**") == NOTHING


async def test_context_lines_are_printed_once_with_dashes(write_files, call):
    write_files({"a.txt": "1\n2 x\n3\n4 x\n5\n6\n"})
    assert await call("grep", pattern="x", context=1) == ToolOutcome(
        "a.txt-1- 1\na.txt:2: 2 x\na.txt-3- 3\na.txt:4: 4 x\na.txt-5- 5"
    )


async def test_grep_reports_when_the_match_limit_is_reached(write_files, call):
    write_files({"a.txt": "x\n" * 3, "b.txt": "x\n"})
    assert await call("grep", pattern="x", limit=3) == ToolOutcome(
        "a.txt:1: x\na.txt:2: x\na.txt:3: x\n\n[3 matches limit reached. Use limit=6 for more, or refine pattern.]"
    )
    assert "limit" not in (await call("grep", pattern="x", limit=4)).text


async def test_grep_cuts_long_lines(write_files, call):
    write_files({"a.txt": "x" * 10_000_000})
    outcome = await call("grep", pattern="x")
    assert outcome.text == (
        f"a.txt:1: {'x' * 500}... [truncated]\n\n[Some lines truncated to 500 chars. Use read tool to see full lines.]"
    )


async def test_grep_skips_binary_files_and_reports_one_given_by_path(write_files, call):
    write_files({"a.bin": b"needle\0", "b.txt": "needle"})
    assert await call("grep", pattern="needle") == ToolOutcome("b.txt:1: needle")
    assert await call("grep", pattern="needle", path="a.bin") == ToolOutcome(
        "No matches found\n\n[Binary file, 7 B, not shown.]"
    )


async def test_grep_searches_other_encodings_and_reports_them(write_files, call):
    write_files({"a.txt": "caf\xe9 needle\n".encode("latin-1")})
    assert await call("grep", pattern="needle") == ToolOutcome(
        "a.txt:1: caf\ufffd needle\n\n[a.txt: Not UTF-8: bytes that cannot be decoded are shown as \ufffd.]"
    )


@pytest.mark.parametrize("pattern", ["(", "*", "[z-a]", "(" * 500, "\\"])
async def test_invalid_pattern_is_an_error_with_a_hint(call, pattern):
    outcome = await call("grep", pattern=pattern)
    assert outcome.is_error
    assert "Set literal to true" in outcome.text


@pytest.mark.parametrize("pattern", ["x" * 5000, "((((a{100}){100}){100}){100})", "a{99999999}"])
async def test_pattern_too_large_to_compile_is_refused(call, pattern):
    assert await call("grep", pattern=pattern) == ToolOutcome(
        "The pattern is too large. Search for a part of the pattern.", is_error=True
    )


def test_slow_pattern_is_stopped_and_reported(tree, write_files):
    write_files({"a.txt": "needle\n" + "a" * 60 + "b\n", "b.txt": "needle\n"})
    query = GrepQuery(pattern="needle|(a|aa)+$", limit=10)
    text = search_files(SandboxedDirectory(tree), query, ".", CallBudget(seconds=0.2))
    assert text == (
        "a.txt:1: needle\n\n[Stopped: the pattern takes too long (over 0.2s). Results are incomplete; simplify it.]"
    )


def test_grep_reports_when_the_file_limit_is_reached(tree, write_files):
    write_files({f"{number}.txt": "x" for number in range(10)})
    query = GrepQuery(pattern="x", literal=True)
    text = search_files(SandboxedDirectory(tree), query, ".", CallBudget(files=4))
    assert text.endswith("3.txt:1: x\n\n[Stopped after 4 entries. Results are incomplete; narrow the path.]")


PIECES = st.sampled_from(
    ["a", "b", " ", ".", "\\w", "\\d", "\\b", "\\S", "\\.", "[ab]", "a*", "b?", "(a|b)", "(?:ab)+", "^", "$", "x{2}"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=5).map("".join), st.text(st.sampled_from("ab x.\n"), max_size=20))
def test_portable_pattern_matches_a_text_if_and_only_if_it_matches_a_line(pattern, text):
    query = GrepQuery(pattern=pattern)
    assert query.is_portable
    compiled = query.compile()
    by_line = any(compiled.search(line) for line in text.split("\n"))
    assert bool(compiled.search(text)) == by_line


@pytest.mark.parametrize(
    "pattern", [r"\s", "[^a]", r"\n", "(?s).", r"\W", "a\nb", r"[\s]", "(?<!a)", r"\A", r"\<", "[a&&b]", "[a--b]"]
)
def test_pattern_that_can_match_across_lines_is_not_portable(pattern):
    assert not GrepQuery(pattern=pattern).is_portable


async def test_grep_skips_files_over_16_megabytes(write_files, call):
    write_files({"huge.txt": "needle\n" * 2_500_000, "small.txt": "needle\n"})
    assert await call("grep", pattern="needle") == ToolOutcome("small.txt:1: needle")


async def test_ripgrep_reads_neither_its_own_configuration_nor_other_ignore_files(write_files, call, monkeypatch):
    folder = write_files(
        {".ignore": "a.txt\n", ".rgignore": "a.txt\n", "a.txt": "needle", ".rgrc": "--glob=!a.txt\n"}
    )
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(folder / ".rgrc"))
    assert await call("grep", pattern="needle") == ToolOutcome("a.txt:1: needle")


async def test_broken_ripgrep_is_replaced_by_the_plain_search(tree, write_files):
    write_files({"a.txt": "needle", "sub/b.txt": "needle"})
    for program in (sys.executable, "/nonexistent/rg"):
        text = search_files(SandboxedDirectory(tree, program), GrepQuery(pattern="needle"), ".", CallBudget())
        assert text == "a.txt:1: needle\nsub/b.txt:1: needle"
