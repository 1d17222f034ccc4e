"""Things that came of one another, drawn as a tree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.tui.layout import MAX_GUIDE_WIDTH, build_tree


def drawn(*pairs: tuple[str, str | None]) -> list[str]:
    return [f"{branch.guide}{branch.item[0]}" for branch in build_tree(pairs, lambda one: one[0], lambda one: one[1])]


def test_each_stands_below_what_it_came_of():
    found = drawn(("a", None), ("b", None), ("c", "a"), ("d", "c"), ("e", "a"), ("f", "c"), ("g", "e"))
    assert found == ["a", "├ c", "│ ├ d", "│ └ f", "└ e", "  └ g", "b"]


def test_what_came_of_something_unknown_or_of_itself_stands_at_the_top():
    assert drawn(("a", "gone"), ("b", "a"), ("self", "self"), ("x", "y"), ("y", "x")) == [
        "a",
        "└ b",
        "self",
        "x",
        "y",
    ]


def test_what_is_too_deep_to_be_drawn_says_how_deep_it_is():
    deep = drawn(("0", None), *((str(number), str(number - 1)) for number in range(1, 64)))
    assert deep[12] == f"{'  ' * 11}└ 12"
    assert deep[13] == f"…14 {' ' * (MAX_GUIDE_WIDTH - 6)}└ 13"
    assert deep[63] == f"…64 {' ' * (MAX_GUIDE_WIDTH - 6)}└ 63"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30, unique_by=lambda pair: pair[0]))
@settings(max_examples=200, deadline=None)
def test_everyone_is_drawn_once_and_below_its_parent(pairs):
    tree = build_tree(pairs, lambda one: str(one[0]), lambda one: str(one[1]))
    assert sorted(branch.item for branch in tree) == sorted(pairs)
    above: list[int] = []
    for branch in tree:
        del above[branch.level - 1 :]
        assert branch.level == 1 or above[-1] == branch.item[1]
        above.append(branch.item[0])
