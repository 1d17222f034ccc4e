"""Delegated tasks that count as the task of an ancestor, and those that count as a part of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.runtime.validation import is_same_task

LONG = "Read every file below src and report each place where an error is caught and then ignored"


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ("Find the bus", "Find the bus"),
        ("Find the bus", "Find the bus please"),
        ("Find the bus", "Please, find the BUS!"),
        ("Find the bus", '"Find the bus"'),
        ("Find the bus", "The bus: find it"),
        ("Find the bus in src/bus.py", "Please find the bus in `src/bus.py` now"),
        ("Fix bugs", "Fix all the bugs now"),
        ("Fix all bugs", "Fix all bugs (2)"),
        ("Fix all bugs", "Fix all bugs (attempt 2)"),
        ("Fix all bugs", "Fix all bugs `again`"),
        (LONG, LONG.replace("each place", "every place")),
        (LONG, f"You are a subagent. Your task, word for word: {LONG} Start with src/app.py and use 4 steps. " * 2),
        ("???", "???"),
    ],
)
def test_task_with_few_changes_is_the_same_task(given, new):
    assert is_same_task(given, new)


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ("Fix bugs", "Fix bugs in parser.py"),
        ("Fix bugs", "Fix bugs in src/parser"),
        ("Fix bugs", "Fix bugs in parse_header"),
        ("Fix bugs", "Fix bugs in parseHeader"),
        ("Fix bugs", "Fix bugs in parse()"),
        ("Fix bugs", "Fix bugs on lines 10 to 20"),
        ("Fix bugs", 'Fix bugs that say "no such table"'),
        ("Fix bugs", "Look for tests"),
        ("Find the bus", "Find the bus and then write down everything that passengers wrote about it last year"),
        (LONG, "Read src/app.py and report each place where an error is caught and then ignored"),
        ("???", "Look"),
    ],
)
def test_a_part_of_a_task_and_another_task_are_not_the_same_task(given, new):
    assert not is_same_task(given, new)


WORDS = st.lists(
    st.sampled_from(["find", "the", "bus", "in", "this", "old", "city", "and", "say", "where", "it", "stops"]),
    min_size=1,
)
FILLERS = st.lists(st.sampled_from(["please", "now", "kindly", "just", "so"]), max_size=5)


@given(WORDS, FILLERS, st.randoms())
def test_reordered_task_with_up_to_five_fillers_is_the_same_task(words, fillers, chance):
    changed = [*words, *fillers]
    chance.shuffle(changed)
    assert is_same_task(" ".join(words), " ".join(changed).upper())


@given(
    st.lists(st.sampled_from(["find", "the", "bus", "in", "this", "old", "city"]), min_size=1, max_size=11), FILLERS
)
def test_a_short_task_that_names_a_file_is_a_part_of_it(words, fillers):
    assert not is_same_task(" ".join(words), " ".join([*words, "in", "parser.py", *fillers]))


@given(st.text(max_size=60))
def test_every_task_is_the_same_as_itself(task):
    assert is_same_task(task, task)


@given(WORDS, st.integers(min_value=1, max_value=30))
def test_a_task_much_longer_than_its_ancestor_is_another_task(words, more):
    task = " ".join(words[:11])
    longer = f"{task} {' '.join(['further'] * (len(words) + 5 + more))}"
    assert not is_same_task(task, longer)


@given(st.text(min_size=1, max_size=200), st.text(max_size=200))
def test_any_two_texts_can_be_compared(given, new):
    assert is_same_task(given, new) in {True, False}
