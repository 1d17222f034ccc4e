"""Refusals in Python: results with a failure and without a session; only programming errors raise."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.retinue_factory import stage

from retinue.agents.agent import Agent
from retinue.engines.scripted import RunCallback, reply
from retinue.model.errors import ErrorCode
from retinue.model.tasks import Task

CONFLICT = Agent(name="both", tools=("read",), denied_tools=("bash",))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"agent": "nobody"}, ErrorCode.UNKNOWN_AGENT),
        ({"engine": "warp"}, ErrorCode.UNKNOWN_ENGINE),
        ({"task": ""}, ErrorCode.INVALID_INPUT),
        ({"task": "a\0b"}, ErrorCode.INVALID_INPUT),
        ({"task": "\ud800"}, ErrorCode.INVALID_INPUT),
        ({"task": "x" * (2**20 + 1)}, ErrorCode.INVALID_INPUT),
        ({"timeout": 0}, ErrorCode.INVALID_INPUT),
        ({"cwd": "nowhere"}, ErrorCode.INVALID_INPUT),
        ({"session": "0123456789abcdef"}, ErrorCode.SESSION_NOT_FOUND),
        ({"session": "no id"}, ErrorCode.SESSION_NOT_FOUND),
        ({"enabled": False}, ErrorCode.DISABLED),
        ({"agent": "both"}, ErrorCode.CONFLICT),
        ({"max_cost": 1.0}, ErrorCode.UNSUPPORTED),
    ],
)
async def test_refused_run_is_a_result_with_its_reason_and_without_a_session(scratch_home, asked, code):
    options = {"store": None, "state": scratch_home / "state", "agents": [CONFLICT]}
    async with stage(scratch_home, reply("ok"), **options) as retinue, retinue.events() as watcher:
        agent, task = asked.pop("agent", "explorer"), asked.pop("task", "Look")
        result = await retinue.run(agent, task, **asked)
        assert result.failure
        assert result.failure.code is code
        assert (result.was_started, result.run, result.session, result.text) == (False, "", "", "")
        assert (result.agent, result.exit_code) == (agent, 1)
        assert (list(await retinue.sessions()), list(watcher.drain())) == ([], [])
    assert not (scratch_home / "state" / "sessions").exists()


async def test_run_beyond_max_depth_returns_a_refused_result(scratch_home):
    from retinue.client import Retinue

    environ = {"HOME": str(scratch_home), "PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1"}
    async with Retinue(cwd=scratch_home, engine="offline", environ=environ) as retinue:
        result = await retinue.run("explorer", "Look")
    assert result.failure
    assert result.failure.code is ErrorCode.DEPTH_EXCEEDED


async def test_run_of_a_busy_session_returns_a_refused_result(scratch_home):
    go_on = anyio.Event()
    async with (
        stage(scratch_home, RunCallback(go_on.wait), reply("ok")) as retinue,
        retinue.events() as events,
        anyio.create_task_group() as group,
    ):
        group.start_soon(retinue.run, "explorer", "Look")
        session = (await anext(events)).origin.session
        result = await retinue.run("explorer", "Go on", session=session)
        go_on.set()
    assert result.failure
    assert result.failure.code is ErrorCode.SESSION_BUSY


async def test_a_refused_call_of_many_tasks_has_a_result_for_each(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        results = await retinue.delegate([("explorer", f"Look {number}") for number in range(17)])
        chained = await retinue.chain([("explorer", "Look"), ("nobody", "Look")])
    assert [result.failure and result.failure.code for result in results] == [ErrorCode.INVALID_INPUT] * 17
    assert [result.spec.task for result in results] == [f"Look {number}" for number in range(17)]
    assert [result.failure and result.failure.code for result in chained] == [ErrorCode.UNKNOWN_AGENT]


async def test_a_secret_in_a_refused_task_is_masked(scratch_home):
    key = f"sk-ant-api03-{'k' * 90}"
    async with stage(scratch_home, reply("ok")) as retinue:
        result = await retinue.run(key, f"Use {key}", enabled=False)
        unknown = await retinue.run(key, f"Use {key}")
    assert key not in repr(result)
    assert key not in repr(unknown)


@pytest.mark.parametrize("settings", [{"enabled": False}, {}], ids=["disabled", "unknown agent"])
async def test_refused_result_reports_its_limits_and_that_nothing_is_stored(scratch_home, settings: dict[str, Any]):
    async with stage(scratch_home, reply("ok")) as retinue:
        result = await retinue.run("nobody", "Look", timeout=7, **settings)
    assert (result.was_started, result.actual.saved, result.actual.limits.timeout) == (False, False, 7)


@pytest.mark.parametrize("task", [None, 5, b"Look", ["Look"]])
async def test_a_task_of_a_wrong_type_raises(scratch_home, task):
    async with stage(scratch_home, reply("ok")) as retinue:
        with pytest.raises(TypeError, match="A task has a field of the wrong type: Expected"):
            await retinue.run("explorer", task)
        with pytest.raises(TypeError, match="A task has a field of the wrong type: Expected"):
            await retinue.delegate([Task(agent="explorer", prompt=task)])


@pytest.mark.parametrize("task", [None, "explorer", ("explorer",), {"agent": "explorer", "prompt": "x"}])
async def test_task_that_is_neither_a_task_nor_a_pair_raises(scratch_home, task: Any):
    async with stage(scratch_home, reply("ok")) as retinue:
        with pytest.raises(TypeError, match=r"A task is a Task or \(agent, prompt\), not"):
            await retinue.delegate([task])


@pytest.mark.parametrize("settings", [{"timout": 5}, {"max_turns": "many"}, {"timeout_": 1}])
async def test_a_setting_that_does_not_exist_or_cannot_have_its_value_raises(scratch_home, settings: dict[str, Any]):
    async with stage(scratch_home, reply("ok")) as retinue:
        with pytest.raises(ValueError, match=next(iter(settings))):
            await retinue.run("explorer", "Look", **settings)


async def test_model_that_the_user_does_not_list_raises_or_refuses_its_task(scratch_home):
    named = 'The model "openai/gpt-5" is not among those that a call may choose: anthropic/*'
    tasks = [Task(agent="explorer", prompt="Look", model=each) for each in ("openai/gpt-5", "anthropic/claude")]
    async with stage(scratch_home, reply("ok"), settings={"models": ["anthropic/*"]}) as retinue:
        with pytest.raises(ValueError, match=named.replace("*", r"\*")):
            await retinue.run("explorer", "Look", model="openai/gpt-5")
        refused, completed = await retinue.delegate(tasks)
    assert refused.failure is not None
    assert refused.failure.message.startswith(named)
    assert (refused.failure.code, refused.failure.reason) == (ErrorCode.INVALID_INPUT, "models")
    assert (refused.was_started, completed.failure, completed.spec.model) == (False, None, "anthropic/claude")


async def test_programs_choose_any_model_where_the_user_lists_none(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        result = await retinue.run("explorer", "Look", model="any/model", effort="high")
    assert (result.spec.model, result.spec.agent.thinking) == ("any/model", "high")


async def test_no_task_at_all_raises(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        with pytest.raises(ValueError, match="No task given"):
            await retinue.delegate([])
        with pytest.raises(ValueError, match="No task given"):
            await retinue.chain([])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sandbox": "tight"}, "sandbox = 'tight': expected one of off, workspace, strict"),
        ({"timeout": 0.1}, "timeout = 0.1 is out of range"),
    ],
)
def test_refused_setting_of_a_program_names_no_value_that_is_used_instead(settings, message):
    from retinue.client import Retinue

    with pytest.raises(ValueError, match=next(iter(settings))) as caught:
        Retinue(settings=settings)
    assert str(caught.value) == message
