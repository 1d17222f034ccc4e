"""The todo list of an agent, folded from its calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.runtime.progress import TodoList

THREE = TodoList((False, False, False))


def texts(count):
    return [{"text": f"item {number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("tool", "args", "counts"),
    [
        ("write_todos", {"mode": "replace", "todos": texts(2)}, (0, 2)),
        ("write_todos", {"todos": texts(4)}, (0, 4)),
        ("write_todos", {"mode": "append", "todos": texts(2)}, (1, 5)),
        ("write_todos", {"mode": "insert", "index": 0, "todos": texts(1)}, (1, 4)),
        ("write_todos", {"mode": "insert", "index": 9, "todos": texts(1)}, (1, 3)),
        (
            "write_todos",
            {"todos": [{"text": "a", "status": "completed"}, {"text": "b", "status": "pending"}]},
            (1, 2),
        ),
        ("write_todos", {"todos": []}, (0, 0)),
        ("write_todos", {"todos": "all of them"}, (1, 3)),
        ("edit_todos", {"action": "complete", "indices": [1, 2]}, (3, 3)),
        ("edit_todos", {"action": "complete", "indices": [0, 0]}, (1, 3)),
        ("edit_todos", {"action": "abandon", "indices": [1]}, (2, 3)),
        ("edit_todos", {"action": "start", "indices": [0]}, (0, 3)),
        ("edit_todos", {"action": "complete", "indices": [1, 7]}, (1, 3)),
        ("edit_todos", {"action": "complete"}, (1, 3)),
        ("edit_todos", {"action": "burn", "indices": [1]}, (1, 3)),
    ],
)
def test_todo_call_changes_the_counts(tool, args, counts):
    before = TodoList((True, False, False))
    after = before.apply_call(tool, args)
    assert (after.completed_count, after.total) == counts


def test_todo_list_is_open_while_one_item_is_open():
    assert THREE.has_open_items
    assert not TodoList().has_open_items
    assert not THREE.apply_call("edit_todos", {"action": "complete", "indices": [0, 1, 2]}).has_open_items


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=4)
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["write_todos", "edit_todos"]),
    st.dictionaries(st.sampled_from(["mode", "todos", "index", "action", "indices"]), JSON | st.just("append")),
)
def test_todo_counts_stay_in_bounds_for_any_arguments(tool, args):
    after = THREE.apply_call(tool, args)
    assert 0 <= after.completed_count <= after.total <= 1_000
