"""Budgets of runs on the api engine: requests are reserved, the last one asks for the answer, parallel runs wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
import pytest
from tests.engines.api.conftest import LOOK, MODELS, open_retinue
from tests.support.model_server import RawAnswer, ScriptedError, ScriptedTurn

from retinue.client import Retinue
from retinue.engines.api.pricing import compute_cost
from retinue.engines.api.wire import DEFAULT_MAX_TOKENS
from retinue.guards.reservations import MIN_OUTPUT
from retinue.model.errors import ErrorCode
from retinue.model.events import RunEnded, TextDelta
from retinue.model.results import AnswerStatus, RunResult, Usage
from retinue.model.tasks import Plan, Task

ANSWER = ScriptedTurn(text="It says hello.")
ABOUT_1000_TOKENS = ScriptedTurn(text="word " * 700)


def output_limit(body: Mapping[str, Any]) -> int | None:
    """Return the output limit in a request of any API."""
    fields = {**body, **body.get("generationConfig", {})}
    found: list[int] = [
        fields[name] for name in ("max_tokens", "max_output_tokens", "maxOutputTokens") if name in fields
    ]
    return found[0] if found else None


def codes(results: tuple[RunResult, ...]) -> list[ErrorCode | None]:
    return [result.failure.code if result.failure else None for result in results]


def reserved_requests(retinue: Retinue) -> int:
    conversations = retinue._orchestrator.budgets._conversations
    return sum(each.budget.reserved.requests + len(each.budget.queue) for each in conversations.values())


async def test_last_turn_is_asked_for_an_answer_without_tools(model, scratch_home):
    async with open_retinue([LOOK, LOOK], scratch_home, model, max_turns=2) as (retinue, server):
        result = await retinue.run("reader", "Go.")
        last = server.requests[-1]
    assert (result.failure, result.text, result.usage.turns) == (None, "I will look.", 2)
    assert "Turn 2 of 2 is the last one." in last.messages[-1].text
    assert "asked for its final answer early. Turn 2 of 2 is the last one." in result.actual.notices[-1]


async def test_parallel_runs_keep_the_budget_of_their_conversation(model, scratch_home):
    script = [ABOUT_1000_TOKENS]
    async with open_retinue(script, scratch_home, model, max_conversation_tokens=1500) as (retinue, server):
        results = await retinue.delegate([("plain", "Go.")] * 4)
        assert len(server.requests) == 1
        assert reserved_requests(retinue) == 0
    assert sorted(map(str, codes(results))) == ["None", "budget", "budget", "budget"]
    assert 900 < sum(result.usage.tokens for result in results) <= 1500


async def test_budget_ends_runs_of_a_server_that_states_no_usage(scratch_home):
    chunk = {
        "choices": [{"delta": {"content": "word " * 700}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": -9},
    }
    body = f"data: {msgspec.json.encode(chunk).decode()}\n\n"
    script = [ScriptedTurn(raw=RawAnswer(body=body))]
    async with open_retinue(script, scratch_home, MODELS["openai-chat"], max_conversation_tokens=3000) as (
        retinue,
        _,
    ):
        results = await retinue.delegate([("plain", "Go.")] * 4)
    assert set(codes(results)) == {None, ErrorCode.BUDGET}
    notices = [notice for result in results if not result.failure for notice in result.actual.notices]
    assert any("states no usage: its tokens are estimated for the budget" in notice for notice in notices)
    assert sum(result.usage.tokens for result in results) <= 3000


async def test_waiting_runs_share_a_budget_that_is_large_enough_for_all(model, scratch_home):
    script = [ABOUT_1000_TOKENS]
    async with open_retinue(script, scratch_home, model, max_conversation_tokens=7000) as (retinue, _):
        results = await retinue.delegate([("plain", "Go.")] * 4)
    assert codes(results) == [None] * 4


async def test_output_limit_is_sent_where_the_budget_is_smaller_than_the_default(model, scratch_home):
    async with open_retinue([LOOK, ANSWER], scratch_home, model) as (retinue, server):
        await retinue.run("reader", "Go.", max_tokens=10_000)
        await retinue.run("reader", "Go.", max_tokens=1_000_000)
        limits = [output_limit(request.body) for request in server.requests]
    default = DEFAULT_MAX_TOKENS if model == MODELS["anthropic"] else None
    assert [MIN_OUTPUT < (limit or 0) < 5_000 for limit in limits[:2]] == [True, True]
    assert limits[2:] == [default, default]


async def test_answer_is_kept_when_the_tokens_run_out(model, scratch_home):
    async with open_retinue([LOOK] * 20, scratch_home, model) as (retinue, server):
        result = await retinue.run("reader", "Go.", max_tokens=4000, looping_tool_count=0)
        last = server.requests[-1]
    assert (result.failure, result.answer, result.text) == (None, AnswerStatus.FINAL, "I will look.")
    assert result.usage.tokens <= 4000
    assert "tokens are spent. Give your final answer now" in last.messages[-1].text


async def test_result_that_does_not_fit_is_left_out_of_the_last_request(model, scratch_home):
    async with open_retinue([LOOK, ANSWER], scratch_home, model) as (retinue, server):
        (scratch_home / "a.txt").write_text("word " * 6000)
        result = await retinue.run("reader", "Go.", max_tokens=8000)
        last = server.requests[-1]
    assert (result.failure, result.text) == (None, "I will look.")
    assert "[Left out: the result does not fit" in last.messages[-2].text
    assert result.usage.tokens <= 8000


async def test_money_is_reserved_at_the_price_of_the_model(scratch_home):
    name = "claude-sonnet-4-5"
    price = compute_cost(Usage(input=1500), "anthropic", name) or 0.0
    async with open_retinue([LOOK] * 20, scratch_home, f"anthropic/{name}") as (retinue, server):
        limit = price + 0.03
        result = await retinue.run("reader", "Go.", max_cost=limit, looping_tool_count=0)
        limits = [output_limit(request.body) or 0 for request in server.requests]
    assert (result.failure, result.text) == (None, "I will look.")
    assert 0 < (result.usage.cost or 0.0) <= limit
    assert max(limits) < 2000  # 0.03 dollars are 2,000 tokens of output


async def test_child_runs_leave_nothing_reserved_and_the_budget_is_kept(model, scratch_home):
    def script(request: Any) -> ScriptedTurn:
        if "Part" in request.messages[-1].text and request.messages[-1].role == "user":
            return ABOUT_1000_TOKENS
        if request.messages[-1].role == "user":
            parts = [{"agent": "plain", "task": f"Part {number}"} for number in range(4)]
            return ScriptedTurn(tool="spawn_subagent", args={"mode": "parallel", "tasks": parts})
        return ANSWER

    async with open_retinue(script, scratch_home, model) as (retinue, _):
        call = retinue.call("nested", max_conversation_tokens=24_000, max_concurrency=1)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Go."),)), call)
        assert reserved_requests(retinue) == 0
    assert (result.failure, result.text) == (None, "It says hello.")
    assert result.usage.tokens + result.actual.nested_usage.tokens <= 24_000


async def test_cancelled_run_gives_back_its_request(model, scratch_home):
    with anyio.CancelScope() as scope:

        def cancel_calls(_: Any) -> ScriptedTurn:
            scope.cancel()
            return ScriptedTurn(text="One two", hang=True)

        async with open_retinue(cancel_calls, scratch_home, model, max_conversation_tokens=9000) as (retinue, _):
            try:
                await retinue.delegate([("plain", "Go.")] * 4)
            finally:
                assert reserved_requests(retinue) == 0
    assert scope.cancelled_caught


async def test_tokens_of_a_request_cancelled_in_mid_stream_are_counted(model, scratch_home):
    results = []
    async with (
        open_retinue([ScriptedTurn(text="word " * 400, tps=50)], scratch_home, model) as (retinue, _),
        retinue.events() as watcher,
        anyio.create_task_group() as group,
    ):

        async def run() -> None:
            results.append(await retinue.run("plain", "Go."))

        group.start_soon(run)
        async for record in watcher:
            if isinstance(record.event, TextDelta):
                retinue.stop(record.origin.run)
            elif isinstance(record.event, RunEnded):
                break
        (conversation,) = retinue._orchestrator.budgets._conversations.values()
    (result,) = results
    assert result.failure
    assert result.failure.code is ErrorCode.ABORTED
    assert (result.answer, result.usage.turns) == (AnswerStatus.PARTIAL, 1)
    assert result.usage.input > 0
    assert conversation.budget.total_usage == result.usage
    estimated = [notice for notice in result.actual.notices if "cancelled before its usage was stated" in notice]
    states_it_at_the_end = {MODELS["openai-chat"], MODELS["openai-responses"]}
    assert bool(estimated) is (model in states_it_at_the_end)


async def test_failed_request_gives_back_its_part(model, scratch_home):
    turn = ScriptedTurn(fail=ScriptedError(status=400, times=-1))
    async with open_retinue([turn], scratch_home, model, max_conversation_tokens=9000) as (retinue, _):
        results = await retinue.delegate([("plain", "Go.")] * 4)
        assert reserved_requests(retinue) == 0
    assert codes(results) == [ErrorCode.PROVIDER] * 4


@pytest.mark.parametrize("limit", ["max_tokens", "max_conversation_tokens"])
async def test_request_that_can_never_fit_is_not_sent(limit, scratch_home):
    async with open_retinue([ANSWER], scratch_home, MODELS["openai-chat"], **{limit: 500}) as (retinue, server):
        result = await retinue.run("reader", "Go.")
        assert server.requests == []
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.BUDGET, limit)
    assert "0 of 500 spent, the next request needs" in result.failure.message


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 4000. This model supports at most 2048 completion tokens.",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 2048]",
        "`max_completion_tokens` must be less than or equal to `2048`",
        "Unable to submit request because it has a maxOutputTokens value of 4000",
    ],
)
async def test_model_that_refuses_the_output_limit_of_a_budget_is_asked_without_it(message, scratch_home):
    def script(request: Any) -> ScriptedTurn:
        if output_limit(request.body) is None:
            return ANSWER
        return ScriptedTurn(fail=ScriptedError(status=400, times=-1, message=message))

    async with open_retinue(script, scratch_home, MODELS["openai-chat"]) as (retinue, server):
        result = await retinue.run("plain", "Go.", max_tokens=10_000)
    assert (result.failure, result.text, len(server.requests)) == (None, "It says hello.", 2)
    assert "refuses the output limit of a budget" in result.actual.notices[0]


async def test_request_that_is_retried_is_reserved_once(model, scratch_home):
    turn = ScriptedTurn(text="Ok.", fail=ScriptedError(status=429, times=2, headers={"retry-after": "0"}))
    async with open_retinue([turn], scratch_home, model, max_conversation_tokens=9000) as (retinue, server):
        result = await retinue.run("plain", "Go.")
        assert reserved_requests(retinue) == 0
    assert (result.failure, result.usage.turns, len(server.requests)) == (None, 1, 3)
