"""Globs and ignore files match what git and fnmatch match, in linear time."""

import random
import re
import shutil
import subprocess
import time
from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.tools.file_search import (
    _is_ignored,
    compile_glob,
    expand_braces,
    parse_ignore_file,
    translate_glob,
)

NAMES = st.text(st.sampled_from("ab.-"), min_size=1, max_size=4).filter(lambda name: name.strip("."))
SEGMENTS = st.lists(st.sampled_from(["a", "b", ".", "-", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=4).map(
    "".join
)


def is_ignored_by(text: str, path: str) -> bool:
    """Return whether git would leave a file out: it, or a folder on the way to it, is ignored."""
    rules = parse_ignore_file(text)
    parts = path.split("/")
    return rules is not None and any(
        _is_ignored(((0, rules),), parts[:end], is_dir=end < len(parts)) for end in range(1, len(parts) + 1)
    )


PARTS = ["**", "*", "a", "b", "?", "[ab]", "[!a]*", "a*", "*b", "*.*", "[a-b]?", "-", "**", "**b"]


def make_rule(dice: random.Random) -> str:
    parts = "/".join(dice.choice(PARTS) for _ in range(dice.randint(1, 4)))
    return dice.choice(["", "", "!"]) + dice.choice(["", "", "/"]) + parts + dice.choice(["", "", "/"])


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("git"), reason="no git to compare with")
def test_ignore_files_match_what_git_ignores(tmp_path):
    dice = random.Random(7)
    names = ["a", "b", "ab", "a.b", "-", "b-a"]
    generated = {"/".join(dice.choice(names) for _ in range(dice.randint(1, 4))) for _ in range(60)}
    paths = sorted(path for path in generated if not any(other.startswith(f"{path}/") for other in generated))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for _ in range(60):
        rules = "\n".join(make_rule(dice) for _ in range(dice.randint(1, 3)))
        (tmp_path / ".gitignore").write_text(rules)
        command = ["git", "-C", tmp_path, "check-ignore", "--stdin"]
        listed = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=False)
        assert [path for path in paths if is_ignored_by(rules, path)] == listed.stdout.split(), rules


def test_nearest_ignore_file_with_a_matching_rule_decides():
    above, own = parse_ignore_file("*.log\n"), parse_ignore_file("!keep.log\n")
    assert above
    assert own
    levels = ((1, own), (0, above))
    assert _is_ignored(levels, ("sub", "other.log"), is_dir=False)
    assert not _is_ignored(levels, ("sub", "keep.log"), is_dir=False)


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("# comment", "# comment", False),
        ("\\#a", "#a", True),
        ("\\!a", "!a", True),
        ("a   ", "a", True),
        ("a\\ ", "a ", True),
        ("a[", "a[", False),
        ("a[]]", "a]", True),
        ("[z-a]b", "zb", False),
        ("[a\\]b]c", "]c", True),
        ("a?c", "a/c", False),
        ("", "a", False),
        ("/", "a", False),
        ("é*", "tété", False),
        ("é*", "éa", True),
    ],
)
def test_ignore_line_escapes_brackets_and_anchors(line, path, expected):
    assert is_ignored_by(line, path) is expected


async def test_search_respects_nested_ignore_files_and_exclude(write_files, call):
    write_files(
        {
            ".git/info/exclude": "private\n",
            ".gitignore": "*.log\n/build/\n",
            "private": "x",
            "a.log": "x",
            "build/out.txt": "x",
            "sub/build/in.txt": "x",
            "sub/.gitignore": "!keep.log\n*.tmp\n",
            "sub/keep.log": "x",
            "sub/b.tmp": "x",
            "c.tmp": "x",
        }
    )
    assert (await call("find", pattern="*.*")).text.split("\n") == [
        ".gitignore",
        "c.tmp",
        "sub/.gitignore",
        "sub/build/in.txt",
        "sub/keep.log",
    ]
    assert "private" not in (await call("grep", pattern="x")).text


async def test_search_respects_ignore_files_of_the_repository_above(tree, write_files, call):
    (tree.parent / ".git").mkdir()
    (tree.parent / ".gitignore").write_text("tree/a.txt\nb.txt\n")
    (tree.parent.parent / ".gitignore").write_text("c.txt\n")
    write_files({"a.txt": "", "b.txt": "", "c.txt": ""})
    assert (await call("find", pattern="*.txt")).text == "c.txt"


async def test_outside_a_repository_ignore_files_above_the_working_directory_do_not_apply(tree, write_files, call):
    (tree.parent / ".gitignore").write_text("a.txt\n")
    write_files({"a.txt": "", "sub/b.txt": "", ".gitignore": "b.txt\n"})
    assert (await call("find", pattern="*.txt")).text == "a.txt"
    assert (await call("find", pattern="*.txt", path="sub")).text == "No files found matching pattern"


@pytest.mark.parametrize("odd", [b"\xff\xfe[", b"\0" * 10, b"[" * 60_000, b"*" * 60_000, b"[\\]" * 60 + b"\n"])
async def test_malformed_ignore_file_does_not_break_a_search(write_files, call, odd):
    write_files({".gitignore": odd, "a.txt": "x"})
    assert (await call("find", pattern="*.txt")).text in ("a.txt", "No files found matching pattern")


@settings(max_examples=300, deadline=None)
@given(SEGMENTS, NAMES)
def test_name_pattern_matches_what_fnmatch_matches(pattern, name):
    assert bool(compile_glob(pattern).fullmatch(name)) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a{b,c}d", ["abd", "acd"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a}", ["{a}"]),
        ("\\{a,b}", ["\\{a,b}"]),
        ("a{b", ["a{b"]),
        ("a},{b,c}", ["a},b", "a},c"]),
    ],
)
def test_braces_expand_to_alternatives(pattern, expected):
    assert expand_braces(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    ["{a,b}" * 30, "{" * 200 + "a,b" + "}" * 200, "{a,b,{c,d}}" * 20, "{a,b}" * 5000, "{a," * 5000, "{a," * 170],
)
def test_hostile_braces_are_refused_or_expanded_at_once(pattern):
    with suppress(ValueError):
        assert len(expand_braces(pattern)) <= 64


@pytest.mark.parametrize("pattern", ["*a" * 30 + "*b", "**/a/" * 30 + "b", "?*" * 40 + "c", "[ab]*" * 40 + "c"])
def test_hostile_glob_fails_in_linear_time(pattern):
    compiled = re.compile(translate_glob(pattern))
    path = "/".join(["a" * 250] * 8)
    started = time.process_time()
    assert not compiled.fullmatch(path)
    assert not compiled.fullmatch("a/" * 400)
    assert time.process_time() - started < 1.0
