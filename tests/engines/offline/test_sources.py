"""Definitions of many languages, and what files say of themselves."""

import pytest

from retinue.engines.offline.sources import SourceFile, classify_path, find_symbols, opening_sentence, topic_of


def defined(lines, path="x.py", first=1):
    return find_symbols(SourceFile(path, lines, first))


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("def parse(text):", "def", "parse"),
        ("    async def run(self):", "def", "run"),
        ("class LoopGuard(Base):", "class", "LoopGuard"),
        ("MAX_SIZE: int = 5", "constant", "MAX_SIZE"),
        ("export default async function load(x) {", "function", "load"),
        ("export const limit = 5;", "constant", "limit"),
        ("export interface Options {", "interface", "Options"),
        ("func (s *Server) Serve() error {", "func", "Serve"),
        ("type Config struct {", "type", "Config"),
        ("pub(crate) fn walk<P>(path: P) {", "fn", "walk"),
        ("pub trait Engine {", "trait", "Engine"),
        ("public final class Main {", "class", "Main"),
    ],
)
def test_definitions_are_known_by_their_first_line(line, kind, name):
    (symbol,) = defined([line])
    assert (symbol.kind, symbol.name) == (kind, name)


@pytest.mark.parametrize("line", ["x = 5", "return classify(x)", "# def old():", "self.LIMIT == 3", "define(x)", ""])
def test_other_lines_define_nothing(line):
    assert defined([line]) == []


BOILING = '''"""Boils water, safely."""


class Kettle(
    Base,
):
    """A vessel. It whistles."""

    def boil(self, water):
        if water:
            return water

        return None


def empty():
    pass
'''
SOURCE = BOILING.split("\n")


def test_a_definition_knows_its_end_and_its_summary():
    assert [(found.name, found.line, found.end, found.note) for found in defined(SOURCE)] == [
        ("Kettle", 4, 13, "A vessel. It whistles."),
        ("boil", 9, 13, ""),
        ("empty", 16, 17, ""),
    ]


def test_numbers_go_on_from_where_a_part_begins():
    assert defined(["def a(): pass"], first=40)[0].line == 40


def test_a_comment_before_a_definition_is_its_summary():
    lines = ["/**", " * Loads the thing.", " * @param x", " */", "export function load(x) {", "  return x;", "}"]
    (found,) = defined(lines)
    assert (found.note, found.end) == ("Loads the thing.", 7)


def test_headings_have_the_prose_beneath_them():
    lines = ["# Title", "", "Words here.", "## Next ##", "```", "code", "```"]
    assert [(found.name, found.line, found.note) for found in defined(lines, "x.md")] == [
        ("Title", 1, "Words here."),
        ("Next", 4, "code"),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (SOURCE, "Boils water, safely."),
        (["#!/usr/bin/env python", "# Runs the server", "import x"], "Runs the server"),
        (["// Package walk walks trees.", "package walk"], "Package walk walks trees."),
        (["import x", "y = 1"], ""),
    ],
)
def test_a_file_says_what_it_is_at_its_top(lines, said):
    assert opening_sentence(SourceFile("x.py", lines)) == said


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/app/loop.py", "source"),
        ("tests/test_loop.py", "tests"),
        ("src/loop.spec.ts", "tests"),
        ("pkg/walk_test.go", "tests"),
        ("conftest.py", "tests"),
        ("docs/guide.html", "docs"),
        ("README.md", "docs"),
        ("pyproject.toml", "config"),
        ("requirements/dev.txt", "config"),
        ("package-lock.json", "noise"),
        ("node_modules/a/index.js", "noise"),
        ("src/contest.py", "source"),
    ],
)
def test_a_path_says_what_a_file_is_for(path, kind):
    assert classify_path(path) == kind


@pytest.mark.parametrize(
    "path", ["src/loop.py", "tests/test_loop.py", "src/loop.spec.ts", "loop_test.go", "a/loop.d.ts"]
)
def test_a_test_has_the_topic_of_its_source(path):
    assert topic_of(path) == "loop"
