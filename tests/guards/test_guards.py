"""Each guard alone: a pure judge of events, with time as an argument."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.guards.budget import Budget, BudgetGuard
from retinue.guards.guard_set import create_guards
from retinue.guards.loop import LOOP_FAILURE, LoopGuard, call_signature
from retinue.guards.output import OutputGuard
from retinue.guards.timeout import IdleGuard, TimeoutGuard
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import MessageEnded, OutputBytesCounted, Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.results import Usage
from retinue.model.runs import NO_DEADLINE, Limits


def called(number: int, name: str = "grep", **args) -> ToolCalled:
    return ToolCalled(f"c{number}", name, args)


# -- timeout ---------------------------------------------------------------------------------------


def test_a_run_without_tool_calls_ends_at_the_timeout_plus_grace():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=100.0)
    assert guard.deadline == 730.0


def test_without_grace_the_timeout_is_hard():
    guard = TimeoutGuard(Limits(timeout=900, grace=0, ceiling=900), start=0.0)
    guard.observe(called(1), now=899.0)
    assert guard.deadline == 900.0


def test_tool_call_before_the_timeout_adds_no_time():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    guard.observe(called(1), now=590.0)
    assert guard.deadline == 630.0


def test_each_tool_call_after_the_timeout_adds_the_grace_again():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    guard.observe(called(1), now=625.0)
    assert guard.deadline == 655.0
    guard.observe(called(2), now=650.0)
    assert guard.deadline == 680.0


def test_endless_tool_calls_end_at_the_ceiling():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    now = 600.0
    while now < guard.deadline:
        guard.observe(called(1), now)
        now += 29.0
    assert guard.deadline == 2400.0
    assert guard.expire() == Failure(
        ErrorCode.TIMEOUT,
        "Timed out after 600s. Consider resuming with a longer timeout. The run took 2400s.",
        reason="ceiling",
        detail={"timeout": 600, "elapsed": 2400},
    )


def test_text_adds_no_time():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    guard.observe(Text("still talking"), now=625.0)
    assert guard.deadline == 630.0


def test_extension_moves_the_timeout_and_the_ceiling():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=1000), start=100.0)
    guard.extend(120.0)
    assert (guard.deadline, guard.timeout) == (850.0, 720.0)
    guard.observe(called(1), now=900.0)
    assert guard.deadline == 930.0
    guard.observe(called(2), now=1200.0)
    assert guard.deadline == 1220.0
    assert guard.expire() == Failure(
        ErrorCode.TIMEOUT,
        "Timed out after 720s. Consider resuming with a longer timeout. The run took 1120s.",
        reason="ceiling",
        detail={"timeout": 720, "elapsed": 1120},
    )


def test_extension_without_grace_moves_the_hard_timeout():
    guard = TimeoutGuard(Limits(timeout=900, grace=0, ceiling=900), start=0.0)
    guard.observe(called(1), now=899.0)
    guard.extend(60.0)
    assert guard.deadline == 960.0


def test_extension_after_the_timeout_counts_from_the_last_tool_call():
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    guard.observe(called(1), now=700.0)
    assert guard.deadline == 730.0
    guard.extend(60.0)
    assert (guard.deadline, guard.timeout) == (790.0, 760.0)


@given(st.lists(st.floats(0.1, 1000), max_size=5), st.lists(st.floats(0, 5000), max_size=5))
def test_extension_moves_the_deadline_by_its_seconds(extensions, calls):
    guard = TimeoutGuard(Limits(timeout=600, grace=30, ceiling=2400), start=0.0)
    for now in sorted(calls):
        guard.observe(called(1), now)
    for seconds in extensions:
        before = guard.deadline
        guard.extend(seconds)
        assert guard.deadline == pytest.approx(before + seconds)


# -- idle ------------------------------------------------------------------------------------------


def test_idle_counts_from_the_last_event():
    guard = IdleGuard(180.0, start=0.0)
    guard.observe(TextDelta("x"), now=100.0)
    assert guard.deadline == 280.0


def test_idle_pauses_while_a_tool_runs():
    guard = IdleGuard(180.0, start=0.0)
    guard.observe(called(1), now=10.0)
    guard.observe(called(2), now=11.0)
    guard.observe(ToolReturned("c1", "grep"), now=12.0)
    assert guard.deadline == NO_DEADLINE
    guard.observe(ToolReturned("c2", "grep"), now=500.0)
    assert guard.deadline == 680.0


def test_bytes_without_events_do_not_reset_the_idle_timeout():
    watch = create_guards(Limits(timeout=900, grace=0, ceiling=900, idle_timeout=180), start=0.0)
    watch.observe(OutputBytesCounted(raw=10), now=100.0)
    assert watch.deadline == 180.0
    watch.observe(TextDelta("x"), now=100.0)
    assert watch.deadline == 280.0


# -- loop ------------------------------------------------------------------------------------------


def loop_guard(*, same: int = 0, pairs: int = 0, pattern: int = 0) -> LoopGuard:
    return LoopGuard(Limits(loop_count=same, pair_count=pairs, pattern_count=pattern))


def test_the_fifth_identical_call_in_a_row_is_a_loop():
    guard = loop_guard(same=5, pairs=20)
    verdicts = [guard.observe(called(i, pattern="x"), now=0.0) for i in range(5)]
    assert verdicts == [None, None, None, None, LOOP_FAILURE]
    assert LOOP_FAILURE.message == "Loop detected: sub-agent is repeating the same tool calls"


def test_a_different_call_starts_the_count_again():
    guard = loop_guard(same=3, pairs=0)
    names = ["a", "a", "b", "a", "a"]
    assert [guard.observe(called(i, name=n), 0.0) for i, n in enumerate(names)] == [None] * 5


def test_calls_that_differ_deep_inside_are_different():
    guard = loop_guard(same=2, pairs=0)
    for i in range(4):
        assert guard.observe(ToolCalled(f"c{i}", "edit", {"path": "a", "edits": [{"new": i}]}), 0.0) is None


def test_the_order_of_keys_does_not_hide_a_loop():
    guard = loop_guard(same=2, pairs=0)
    guard.observe(ToolCalled("c1", "edit", {"a": {"x": 1, "y": 2}, "b": 3}), 0.0)
    assert guard.observe(ToolCalled("c2", "edit", {"b": 3, "a": {"y": 2, "x": 1}}), 0.0) == LOOP_FAILURE


def alternate(guard: LoopGuard, pairs: int, results) -> list[Failure | None]:
    verdicts = []
    for i in range(2 * pairs):
        name = "ab"[i % 2]
        verdicts.append(guard.observe(called(i, name=name), 0.0))
        verdicts.append(guard.observe(ToolReturned(f"c{i}", name, results(i)), 0.0))
    return [verdict for verdict in verdicts if verdict]


def test_two_calls_in_turn_with_unchanged_results_are_a_loop():
    assert alternate(loop_guard(same=5, pairs=20), 20, lambda i: f"same {i % 2}") == [LOOP_FAILURE]


def test_polling_with_changing_results_is_not_a_loop():
    assert alternate(loop_guard(same=5, pairs=20), 100, lambda i: f"{i // 2} percent") == []


def test_zero_switches_a_rule_off():
    guard = loop_guard(same=0, pairs=0)
    assert [guard.observe(called(i), 0.0) for i in range(100)] == [None] * 100
    assert alternate(loop_guard(same=0, pairs=0), 100, lambda i: "same") == []


def test_calls_with_too_deep_arguments_equal_no_other_call():
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"in": deep}
    guard = loop_guard(same=2, pairs=2)
    assert [guard.observe(ToolCalled(f"c{i}", "t", deep), 0.0) for i in range(5)] == [None] * 5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [reversed_keys(item) for item in value]
    return value


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
def test_a_signature_does_not_depend_on_the_order_of_keys_at_any_depth(args):
    assert call_signature("t", args) == call_signature("t", reversed_keys(args))


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3), json_values, json_values)
def test_signatures_are_equal_exactly_when_the_arguments_are(args, one, other):
    as_json = [json.dumps(value, sort_keys=True) for value in (one, other)]
    same = call_signature("t", {**args, "k": [one]}) == call_signature("t", {**args, "k": [other]})
    assert same == (as_json[0] == as_json[1])


# -- budget ----------------------------------------------------------------------------------------


def turn(stop="tool_use", **usage) -> MessageEnded:
    return MessageEnded(stop_reason=stop, usage=Usage(**usage))


def test_the_last_allowed_turn_must_be_the_answer():
    guard = BudgetGuard(Budget(Limits(max_turns=2)))
    assert guard.observe(turn(), 0.0) is None
    failure = guard.observe(turn(), 0.0)
    assert failure and (failure.code, failure.reason) == (ErrorCode.BUDGET, "max_turns")


def test_an_answer_within_the_last_turn_is_kept():
    guard = BudgetGuard(Budget(Limits(max_turns=2, max_tokens=10)))
    assert guard.observe(turn(), 0.0) is None
    assert guard.observe(turn("stop", output=1000), 0.0) is None


def test_a_message_that_finalizes_within_the_last_turn_is_kept_and_the_next_one_is_not():
    guard = BudgetGuard(Budget(Limits(max_turns=1)))
    finalize = ToolCalled("1", "subagent_finalize", {"status": "SUCCESS", "result": "x"})
    assert [guard.observe(event, 0.0) for event in (finalize, turn())] == [None, None]
    failure = guard.observe(turn(), 0.0)
    assert failure and failure.reason == "max_turns"


@pytest.mark.parametrize(
    ("limits", "usage", "reason"),
    [
        (Limits(max_tokens=100), {"input": 60, "output": 41}, "max_tokens"),
        (Limits(max_cost=0.5), {"cost": 0.51}, "max_cost"),
    ],
)
def test_tokens_and_money_are_summed_over_messages(limits, usage, reason):
    failure = BudgetGuard(Budget(limits)).observe(turn(**usage), 0.0)
    assert failure and failure.reason == reason
    assert "Resume the session, or raise " + reason in failure.message


# -- output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (
            OutputBytesCounted(stdout=11),
            "Subagent child output exceeded stdout hard limit (10 bytes) and was stopped.",
        ),
        (
            OutputBytesCounted(stderr=21),
            "Subagent child output exceeded stderr hard limit (20 bytes) and was stopped.",
        ),
        (
            OutputBytesCounted(raw=31),
            "Subagent child output exceeded raw output hard limit (30 bytes) and was stopped.",
        ),
    ],
)
def test_each_stream_has_its_own_limit(count, message):
    guard = OutputGuard(Limits(stdout_bytes=10, stderr_bytes=20, raw_bytes=30))
    failure = guard.observe(count, 0.0)
    assert failure and failure.message == message


def test_deltas_count_as_raw_output_only():
    guard = OutputGuard(Limits(stdout_bytes=10, raw_bytes=30))
    assert [guard.observe(TextDelta("x" * 10), 0.0) for _ in range(3)] == [None] * 3
    assert guard.observe(TextDelta("x"), 0.0) is not None


def test_an_engine_that_counts_bytes_is_not_counted_twice():
    guard = OutputGuard(Limits(stdout_bytes=10))
    assert guard.observe(OutputBytesCounted(stdout=9), 0.0) is None
    assert guard.observe(Text("x" * 100), 0.0) is None


# -- all of them -----------------------------------------------------------------------------------


def test_earliest_deadline_counts_and_its_guard_fails_the_run():
    watch = create_guards(Limits(timeout=900, grace=0, ceiling=900, idle_timeout=180), start=0.0)
    assert watch.deadline == 180.0
    assert watch.expire().code is ErrorCode.IDLE_TIMEOUT
    watch.observe(called(1), now=10.0)
    assert watch.deadline == 900.0
    assert watch.expire().code is ErrorCode.TIMEOUT


def test_usage_of_child_runs_counts_once_for_each_ancestor():
    top = Budget(Limits(max_tokens=100))
    middle = Budget(Limits(), top)
    guards = [BudgetGuard(purse) for purse in (top, middle, Budget(Limits(), middle))]
    found = [guard.observe(turn(input=40, stop="tool_use"), 0.0) for guard in guards]
    assert [failure and failure.reason for failure in found] == [None, None, "max_tokens"]
    assert (top.own_usage.tokens, top.child_usage.tokens, middle.child_usage.tokens) == (40, 80, 40)
    assert top.exceeded_failure()


def test_the_turns_of_a_run_are_its_own():
    top = Budget(Limits(max_turns=2))
    below = BudgetGuard(Budget(Limits(), top))
    assert [below.observe(turn(stop="tool_use"), 0.0) for _ in range(3)] == [None] * 3
    assert top.exceeded_failure() is None


def test_budgets_of_a_conversation_count_for_the_topmost():
    conversation = Budget(Limits())
    bounded = Limits(max_conversation_tokens=100)
    earlier, run = Budget(bounded, conversation), Budget(bounded, conversation)
    below = Budget(bounded, run)
    earlier.add(Usage(input=60))
    assert BudgetGuard(below).observe(turn(input=40), 0.0) is None
    failure = BudgetGuard(below).observe(turn(input=1), 0.0)
    assert failure and failure.reason == "max_conversation_tokens"
    assert [bool(purse.exceeded_failure()) for purse in (conversation, earlier, run)] == [False, True, True]


def test_conversation_limit_of_a_run_applies_to_its_child_runs():
    run = Budget(Limits(max_conversation_tokens=100), Budget(Limits()))
    failure = BudgetGuard(Budget(Limits(), run)).observe(turn(input=101), 0.0)
    assert failure and failure.reason == "max_conversation_tokens"


@given(st.floats(0, 1e6), st.integers(1, 86400))
def test_extended_timeout_is_exact_at_any_start_time(start, seconds):
    assert create_guards(Limits(timeout=900), start).extend(seconds) == 900 + seconds
