"""Requests reserve what they may spend: a budget is kept whatever the order in which requests come, end or are cancelled."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from retinue.guards.budget import Budget
from retinue.guards.reservations import ANSWER_MARGIN, MIN_OUTPUT, PendingRequest
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import Usage
from retinue.model.runs import Limits, RequestGrant, RequestSize


def size(tokens: int = 1000, output: int = 4000, **changes: Any) -> RequestSize:
    return RequestSize(**{"input": tokens, "least_input": tokens, "output": output, **changes})


def make_request(budget: Budget, wanted: RequestSize | None) -> PendingRequest:
    return PendingRequest(budget, wanted, lambda: None)


def failure_reason(request: PendingRequest) -> str | None:
    return request.decision.reason if isinstance(request.decision, Failure) else None


# -- one run ---------------------------------------------------------------------------------------


def test_request_that_fits_twice_gets_its_whole_output():
    budget = Budget(Limits(max_tokens=20_000))
    assert make_request(budget, size()).decision == RequestGrant()


def test_output_is_shrunk_so_that_a_last_request_still_fits():
    budget = Budget(Limits(max_tokens=8_000))
    # Two inputs of 1,000, a reply that is part of the second one, and a last answer.
    assert make_request(budget, size()).decision == RequestGrant(output=(8_000 - 2_000 - MIN_OUTPUT) // 2)


def test_last_request_gets_all_that_is_left():
    budget = Budget(Limits(max_tokens=3_000))
    granted = RequestGrant(output=2_000, last_reason="0 of 3000 tokens are spent.")
    assert make_request(budget, size()).decision == granted


def test_request_that_cannot_fit_fails_and_the_message_names_the_need():
    budget = Budget(Limits(max_tokens=3_000))
    budget.add(Usage(input=2_000))
    decision = make_request(budget, size()).decision
    assert decision == Failure(
        ErrorCode.BUDGET,
        "Budget of tokens too small (2000 of 3000 spent, the next request needs 1512) before a final answer; the "
        "run was stopped and its partial output was kept. Resume the session, or raise max_tokens.",
        reason="max_tokens",
    )


def test_request_that_fits_only_without_the_last_results_is_the_last_one():
    budget = Budget(Limits(max_tokens=3_000))
    granted = RequestGrant(output=2_000, last_reason="The last results do not fit.", leaves_out_results=True)
    request = make_request(budget, size(2_900, least_input=1_000))
    assert request.decision == granted
    assert budget.reserved.amount("tokens") == 3_000


def test_money_limits_the_output_at_its_price():
    budget = Budget(Limits(max_cost=0.04))
    granted = make_request(budget, size(input_price=0.000_005, output_price=0.000_01)).decision
    # A reply is paid twice: when it is written, and as part of the last request.
    assert granted == RequestGrant(output=int((0.04 - 2 * 0.005 - MIN_OUTPUT * 0.000_01) / 0.000_015))


def test_free_and_unpriced_requests_are_not_limited_by_money():
    budget = Budget(Limits(max_cost=0.000_001))
    assert make_request(budget, size()).decision == RequestGrant()


def test_last_turn_is_known_before_its_request():
    budget = Budget(Limits(max_turns=2))
    first = make_request(budget, None).decision
    budget.add(Usage(turns=1))
    last = make_request(budget, None).decision
    assert (first, last) == (RequestGrant(), RequestGrant(last_reason="Turn 2 of 2 is the last one."))


# -- several runs ----------------------------------------------------------------------------------


def conversation(**limits: Any) -> tuple[Budget, list[Budget]]:
    top = Budget(Limits())
    return top, [Budget(Limits(**limits), top) for _ in range(4)]


def test_request_waits_for_the_refund_of_another_run():
    _, (one, *others) = conversation(max_conversation_tokens=20_000)
    first, second, third, _ = (make_request(run, size(output=8_000)) for run in (one, *others))
    assert [first.decision, second.decision, third.decision] == [RequestGrant(), RequestGrant(), None]
    one.add(Usage(input=1_000, output=400))
    first.close()
    assert third.decision == RequestGrant()


def test_turns_of_a_conversation_are_reserved():
    _, (one, other, *_) = conversation(max_conversation_turns=1)
    first, second = make_request(one, size()), make_request(other, size())
    assert second.decision is None
    one.add(Usage(turns=1))
    first.close()
    assert failure_reason(second) == "max_conversation_turns"


def test_cancelled_request_gives_back_its_part_and_leaves_the_queue():
    top, (one, other, third, _) = conversation(max_conversation_tokens=20_000)
    requests = [make_request(run, size(output=12_000)) for run in (one, other, third)]
    requests[1].close()
    requests[0].close()
    assert isinstance(requests[2].decision, RequestGrant)
    requests[2].close()
    assert (top.reserved.requests, top.reserved.amount("tokens"), len(top.queue)) == (0, 0, 0)


def test_rounding_errors_of_prices_are_not_left_when_the_last_request_ends():
    top, (one, other, third, _) = conversation()
    priced = [make_request(run, size(0, output, output_price=0.000_015)) for run, output in ((one, 2), (other, 1))]
    for request in (*priced, make_request(third, None)):
        request.close()
    assert (top.reserved.requests, top.reserved.amount("cost")) == (0, 0.0)


def test_request_does_not_overtake_one_that_waits_for_the_same_budget():
    _, (one, other, third, _) = conversation(max_conversation_tokens=20_000)
    make_request(one, size(output=5_000))
    waiting, small = make_request(other, size(12_000)), make_request(third, size(100, 100))
    assert (waiting.decision, small.decision) == (None, None)


def test_request_of_another_part_of_the_tree_does_not_wait():
    top = Budget(Limits())
    narrow, wide = Budget(Limits(max_tokens=6_000), top), Budget(Limits(max_tokens=60_000), top)
    requests = [
        make_request(Budget(Limits(), parent), size(output=3_000)) for parent in (narrow, narrow, narrow, wide)
    ]
    shrunk = RequestGrant(output=1_744)
    assert [request.decision for request in requests] == [shrunk, shrunk, None, RequestGrant()]


def test_requests_of_unknown_size_are_sent_one_after_the_other():
    _, runs = conversation(max_conversation_tokens=1_500)
    requests = [make_request(run, None) for run in runs]
    assert [request.decision for request in requests] == [RequestGrant(), None, None, None]
    for run, request in zip(runs[:2], requests[:2], strict=True):
        run.add(Usage(output=1_000))
        request.close()
    assert [failure_reason(request) for request in requests] == [None, None, *["max_conversation_tokens"] * 2]


def test_child_runs_leave_room_for_the_answer_of_their_parent():
    parent = Budget(Limits(max_tokens=6_000), Budget(Limits()))
    request = make_request(parent, size())
    parent.add(Usage(input=900, output=100))
    request.close()
    child = make_request(Budget(Limits(), parent), size())
    assert child.decision == RequestGrant(
        output=6_000 - 1_000 - (1_000 + ANSWER_MARGIN + MIN_OUTPUT) - 1_000,
        last_reason="1000 of 6000 tokens are spent.",
    )
    refused = make_request(Budget(Limits(), parent), size(4_000)).decision
    assert isinstance(refused, Failure)
    assert (
        "(1000 of 6000 spent, the next request needs 4512 and the answers of the runs above 1812)" in refused.message
    )


# -- every order -----------------------------------------------------------------------------------


class Step(Struct, frozen=True):
    """One step of a schedule: a run sends a request, or the request it has ends."""

    run: int
    ends: str
    """`answered` or `cancelled`."""
    input: int
    output: int
    used: float
    """The part of the granted output that is used."""
    is_sized: bool


STEPS = st.lists(
    st.builds(
        Step,
        run=st.integers(0, 5),
        ends=st.sampled_from(["answered", "answered", "cancelled"]),
        input=st.integers(0, 3_000),
        output=st.integers(1, 6_000),
        used=st.floats(0, 1),
        is_sized=st.booleans(),
    ),
    max_size=40,
)
LIMITS = st.builds(
    lambda tokens, cost, turns, own: [
        Limits(
            max_conversation_tokens=tokens, max_conversation_cost=cost, max_conversation_turns=turns, max_tokens=each
        )
        for each in own
    ],
    st.none() | st.integers(1, 20_000),
    st.none() | st.floats(0.001, 0.2),
    st.none() | st.integers(1, 12),
    st.lists(st.none() | st.integers(1, 20_000), min_size=6, max_size=6),
)
PRICES = {"input_price": 0.000_003, "output_price": 0.000_015}
MAX_UNSIZED = Usage(input=3_000, output=6_000, cost=0.1, turns=1)


class Schedule:
    """Runs of one tree, two of them with child runs, that send and end requests in a given order."""

    def __init__(self, limits: list[Limits]) -> None:
        self.top = Budget(Limits())
        first, second = Budget(limits[0], self.top), Budget(limits[1], self.top)
        below = Budget(limits[2], first)
        self.runs = [
            first,
            second,
            below,
            Budget(limits[3], first),
            Budget(limits[4], below),
            Budget(limits[5], second),
        ]
        self.requests: dict[int, tuple[PendingRequest, Step]] = {}

    def play(self, step: Step) -> None:
        if step.run not in self.requests:
            sized = RequestSize(input=step.input, least_input=step.input // 2, output=step.output, **PRICES)
            request = make_request(self.runs[step.run], sized if step.is_sized else None)
            self.requests[step.run] = request, step
        else:
            self.end(step.run, step.ends)
        self.check()

    def end(self, run: int, how: str) -> None:
        request, step = self.requests.pop(run)
        if isinstance(request.decision, RequestGrant) and how == "answered":
            self.runs[run].add(self.usage_of(request, request.decision, step))
        request.close()

    def usage_of(self, request: PendingRequest, grant: RequestGrant, step: Step) -> Usage:
        output = int((grant.output or step.output) * step.used)
        tokens = request.size.input if request.size else step.input
        cost = tokens * PRICES["input_price"] + output * PRICES["output_price"]
        return Usage(input=tokens, output=output, cost=cost, turns=1)

    def check(self) -> None:
        for run in self.runs:
            for limit in run.limits:
                assert limit.spent <= limit.limit + getattr(MAX_UNSIZED, limit.kind) + 1e-9
                assert limit.reserved >= 0
        waiting = [request for request, _ in self.requests.values() if request.decision is None]
        if waiting:  # for a request in flight, which ends without waiting for any other
            assert any(isinstance(request.decision, RequestGrant) for request, _ in self.requests.values())


@settings(deadline=None)
@given(LIMITS, STEPS)
def test_budgets_are_exceeded_by_one_request_at_most_and_everything_is_given_back(limits, steps):
    schedule = Schedule(limits)
    for step in steps:
        schedule.play(step)
    while schedule.requests:
        schedule.end(next(iter(schedule.requests)), "answered")
        schedule.check()
    reserved = [budget.reserved for budget in (schedule.top, *schedule.runs)]
    found = [(each.requests, each.amount("tokens"), each.amount("cost")) for each in reserved]
    assert found == [(0, 0, 0.0)] * 7
    assert len(schedule.top.queue) == 0


@settings(deadline=None)
@given(LIMITS, STEPS)
def test_budgets_are_never_exceeded_by_requests_of_known_size(limits, steps):
    schedule = Schedule(limits)
    for step in steps:
        schedule.play(Step(step.run, step.ends, step.input, step.output, step.used, is_sized=True))
        for run in schedule.runs:
            assert all(limit.spent <= limit.limit + 1e-9 for limit in run.limits)
