"""Trees of items with parents."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.tui.tree import MAX_GUIDE_WIDTH, build_tree


def draw_tree(*pairs: tuple[str, str | None]) -> list[str]:
    return [f"{node.guide}{node.item[0]}" for node in build_tree(pairs, lambda pair: pair[0], lambda pair: pair[1])]


def test_items_are_drawn_below_their_parents():
    found = draw_tree(("a", None), ("b", None), ("c", "a"), ("d", "c"), ("e", "a"), ("f", "c"), ("g", "e"))
    assert found == ["a", "├ c", "│ ├ d", "│ └ f", "└ e", "  └ g", "b"]


def test_items_with_unknown_or_cyclic_parents_are_at_the_top():
    assert draw_tree(("a", "gone"), ("b", "a"), ("self", "self"), ("x", "y"), ("y", "x")) == [
        "a",
        "└ b",
        "self",
        "x",
        "y",
    ]


def test_item_too_deep_for_a_guide_shows_its_level():
    deep = draw_tree(("0", None), *((str(number), str(number - 1)) for number in range(1, 64)))
    assert deep[12] == f"{'  ' * 11}└ 12"
    assert deep[13] == f"…14 {' ' * (MAX_GUIDE_WIDTH - 6)}└ 13"
    assert deep[63] == f"…64 {' ' * (MAX_GUIDE_WIDTH - 6)}└ 63"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30, unique_by=lambda pair: pair[0]))
@settings(max_examples=200, deadline=None)
def test_every_item_is_in_the_tree_once_and_below_its_parent(pairs):
    tree = build_tree(pairs, lambda pair: str(pair[0]), lambda pair: str(pair[1]))
    assert sorted(node.item for node in tree) == sorted(pairs)
    above: list[int] = []
    for node in tree:
        del above[node.level - 1 :]
        assert node.level == 1 or above[-1] == node.item[1]
        above.append(node.item[0])
