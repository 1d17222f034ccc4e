"""What a task is about: the words, names and paths in it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.offline.terms import extend_question, parse_question, split_identifier, stem_pattern


def words(text):
    return [term.word for term in parse_question(text).terms]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Where is loop detection implemented?", ["loop", "detection"]),
        ("Which settings exist?", ["settings"]),
        ("Review the LSP tool error handling and report risks only", ["LSP", "tool", "error"]),
        ("How do tests cover session recovery?", ["session", "recovery"]),
        ("What does parse_line do with torn tails?", ["parse_line", "torn", "tails", "parse", "line"]),
        ('Find "no final message" in the code', ["no final message"]),
        ("Explain `LoopGuard`", ["LoopGuard"]),
        ("Find the code", ["Find", "code"]),
        ("request/response locks", ["request", "response", "locks"]),
        ("", []),
    ],
)
def test_the_words_that_say_what_it_is_about_are_kept(task, expected):
    assert words(task) == expected


def test_paths_are_told_from_words():
    asked = parse_question("Review src/app/main.py and README.md, e.g. the parser.")
    assert asked.paths == ("src/app/main.py", "README.md")
    assert words("Review src/app/main.py") == []


@pytest.mark.parametrize(
    ("task", "about"),
    [
        ("How do tests cover it?", {"tests"}),
        ("What does the documentation say?", {"docs"}),
        ("Where is the latest contest?", set()),
    ],
)
def test_tests_and_documents_are_asked_for_by_name(task, about):
    assert parse_question(task).about == about


@pytest.mark.parametrize(
    "family",
    [
        ("implement", "implemented", "implementation", "implements", "implementing"),
        ("detect", "detects", "detection", "detected", "detecting", "detector"),
        ("retry", "retries", "retried"),
        ("carry", "carries", "carried"),
        ("configure", "configuration", "configured"),
        ("cancel", "cancelled", "cancels", "cancelling"),
        ("handle", "handler", "handled", "handling"),
        ("recover", "recovery", "recovered"),
        ("class", "classes"),
        ("validate", "validation", "validator"),
    ],
)
def test_a_word_finds_its_family(family):
    for word in family:
        assert all(re.match(stem_pattern(word), other) for other in family), (word, stem_pattern(word))


@pytest.mark.parametrize(
    ("word", "other"), [("setting", "set"), ("session", "sess"), ("status", "stat"), ("pi", "pipe")]
)
def test_a_word_does_not_find_a_shorter_or_a_longer_one(word, other):
    assert not re.match(stem_pattern(word), other)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("abdegilmnorstyzES019_é"), min_size=1, max_size=12))
def test_a_stem_always_finds_its_own_word(word):
    assert re.match(stem_pattern(word), word, re.IGNORECASE)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_question_with_usable_terms(text):
    asked = parse_question(text)
    assert len(asked.terms) <= 5
    for term in asked.terms:
        re.compile(term.pattern)


def test_names_are_taken_apart():
    assert split_identifier("HTTPServer2_loopGuard-x.py") == ["http", "server", "2", "loop", "guard", "x", "py"]


def test_a_question_that_says_little_takes_up_what_was_said_before():
    before = ["Where is loop detection implemented?"]
    go_on = extend_question(parse_question("Go on and look at the tests"), before)
    assert [(term.word, term.weight) for term in go_on.terms][-2:] == [("loop", 0.5), ("detection", 0.5)]
    clear = parse_question("Where are sessions stored?")
    assert extend_question(clear, before) == clear
