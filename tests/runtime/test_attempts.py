"""Attempts of a run: retry, model fallback, finalize correction, and when none of them is allowed."""

import anyio
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME, scripted, stage

from retinue import Agent
from retinue.engines.agent_loop import ModelReply, run_agent_loop
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import HangStep, ScriptedEngine, WaitStep, call, fail, finalize, reply
from retinue.engines.toolbox import AgentToolbox
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import AttemptStarted, MessageEnded, ModelChanged, Text, ToolCalled
from retinue.model.results import AnswerStatus, Attempt, Usage
from retinue.model.tasks import Plan, Task
from retinue.runtime.attempts import FINALIZE_REMINDER

pytestmark = VIRTUAL_TIME

AGENT = Agent(name="worker", body="Work.", tools=("read", "bash"), model="big", fallback_models=("medium", "small"))
OVERLOADED = "529 overloaded_error: Overloaded"


async def run(home, *scripts, agent=AGENT, **settings):
    """Return the result, specs and events of a run whose attempts play these scripts."""
    specs = []
    engine = ScriptedEngine.from_scripts(*scripts)

    def note_spec(spec):
        specs.append(spec)
        return engine.script_for(spec)

    async with stage(home, engines=scripted(ScriptedEngine(note_spec)), agents=[agent]) as retinue:
        result = await retinue.run("worker", "do it", allow_write=True, **settings)
        events = [s.event async for s in retinue.history(result.spec.session)]
    return result, specs, events


def plain(agent=AGENT):
    return Agent(name=agent.name, body=agent.body, tools=agent.tools, model=agent.model)


async def test_transient_provider_error_is_retried_once(scratch_home):
    result, _, events = await run(scratch_home, [fail(OVERLOADED)], [reply("second try")], agent=plain())
    assert (result.failure, result.text) == (None, "second try")
    assert [a.reason for a in result.actual.attempts] == ["first", "retry"]
    assert result.actual.attempts[0].failure and result.actual.attempts[0].failure.code is ErrorCode.PROVIDER
    assert [e for e in events if isinstance(e, AttemptStarted)] == [
        AttemptStarted(1, "first", "big"),
        AttemptStarted(2, "retry", "big"),
    ]
    assert 0.75 <= result.elapsed <= 1.25


async def test_finalize_correction_that_fails_at_the_provider_is_retried_unchanged(scratch_home):
    prompts = []
    engine = ScriptedEngine.from_scripts([reply("no finalization")], [fail(OVERLOADED)], [finalize("final")])

    def note_spec(spec):
        prompts.append(spec.prompt)
        return engine.script_for(spec)

    async with stage(scratch_home, note_spec) as retinue:
        plan = Plan(tasks=(Task(agent="explorer", prompt="do it"),))
        (result,) = await retinue.run_plan(plan, retinue.call("single", finalize=True))
    assert prompts == ["do it", FINALIZE_REMINDER, FINALIZE_REMINDER]
    assert result.finalized


async def test_run_makes_at_most_two_attempts(scratch_home):
    scripts = [[fail(OVERLOADED)]] * 3
    result, specs, _ = await run(scratch_home, *scripts, agent=plain())
    assert len(specs) == 2
    assert result.failure and result.failure.reason == "overloaded"


@pytest.mark.parametrize("error", ["400 prompt is too long: 210000 tokens > 200000 maximum", "invalid request"])
async def test_permanent_provider_errors_are_not_retried(scratch_home, error):
    result, specs, _ = await run(scratch_home, [fail(error)], [reply("never")], agent=plain())
    assert len(specs) == 1
    assert result.failure and result.failure.code is ErrorCode.PROVIDER


async def test_fallback_model_takes_over_and_the_result_names_it(scratch_home):
    result, specs, events = await run(scratch_home, [fail("429 rate limit exceeded")], [reply("from medium")])
    assert [spec.model for spec in specs] == ["big", "medium"]
    assert (result.failure, result.actual.declared_model, result.actual.model) == (None, "big", "medium")
    assert ModelChanged("big", "medium", "rate_limit") in events
    assert result.actual.attempts[1] == Attempt(2, "fallback", "medium")


async def test_every_fallback_model_gets_its_turn(scratch_home):
    scripts = [[fail("429 rate limit")], [fail("model_not_found: medium")], [reply("small did it")]]
    result, specs, _ = await run(scratch_home, *scripts)
    assert [spec.model for spec in specs] == ["big", "medium", "small"]
    assert result.text == "small did it"


@pytest.mark.parametrize(
    ("agent", "advice"),
    [
        (AGENT, "Try again later, or give the agent fallback_models other than medium, small."),
        (plain(), "Try again later, or give the agent fallback_models."),
    ],
    ids=["has some", "has none"],
)
async def test_failure_hint_suggests_fallback_models_only_if_the_agent_has_none(scratch_home, agent, advice):
    result, _, _ = await run(scratch_home, *[[fail(OVERLOADED)]] * 3, agent=agent, retry_attempts=1)
    assert result.failure
    assert result.failure.message.endswith(f"The answer is empty; the session has the tool calls. {advice}")
    assert len(result.actual.attempts) == 1 + len(agent.fallback_models)


@pytest.mark.parametrize(
    ("model", "provider", "fallback_models", "tried"),
    [
        ("big", None, ("big", "small"), ["big", "small"]),
        ("big", "local", ("local/big", "big", "small", "local/small"), ["big", "small"]),
        ("local/big", "local", ("big",), ["local/big"]),
        ("big", "local", ("other/big",), ["big", "other/big"]),
    ],
)
async def test_fallback_models_that_were_tried_are_skipped(scratch_home, model, provider, fallback_models, tried):
    agent = Agent(
        name="worker", body="Work.", model=model, provider=provider, fallback_models=fallback_models, tools=("read",)
    )
    result, specs, events = await run(scratch_home, *[[fail("402 billing")]] * 5, agent=agent)
    assert result.failure
    assert [spec.model for spec in specs] == tried
    assert [event.after for event in events if isinstance(event, ModelChanged)] == tried[1:]


async def test_bad_request_is_not_sent_to_another_model(scratch_home):
    result, specs, _ = await run(
        scratch_home, [fail("400 Bad Request: 'timeout' must be a number")], [reply("never")]
    )
    assert result.failure == Failure(
        ErrorCode.PROVIDER,
        "The model provider failed: 400 Bad Request: 'timeout' must be a number\n"
        "The answer is empty; the session has the tool calls. The provider does not accept this request: the same "
        "request will fail again. Check the task, its files, and the agent's model and settings.",
        "bad_request",
    )
    assert [spec.model for spec in specs] == ["big"]


async def test_context_overflow_burns_no_fallback(scratch_home):
    error = "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000"
    result, specs, _ = await run(scratch_home, [fail(error)], [reply("never")])
    assert len(specs) == 1
    assert result.failure and result.failure.reason == "context_overflow"


@pytest.mark.parametrize(
    ("error", "reason", "models"),
    [
        ("429 rate limit exceeded", "rate_limit", ["big", "medium"]),
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_overflow", ["big"]),
    ],
)
async def test_agent_loop_uses_the_same_fallback_models(scratch_home, error, reason, models):
    class Provider:
        def __init__(self, spec):
            self.name = spec.model

        async def reply(self, request, say):
            if self.name == "big":
                return ModelReply(stop_reason="error", error=error)
            return ModelReply(content=(Text(f"from {self.name}"),))

    class Engine:
        async def run(self, spec, emit):
            await run_agent_loop(Provider(spec), spec, AgentToolbox(), emit)

    capabilities = EngineCapabilities(tools=frozenset({"read", "bash"}), preferences=frozenset({"model"}))
    kind = EngineInfo(name="scripted", capabilities=capabilities, make=Engine, not_installed_reason=lambda: None)
    async with stage(scratch_home, engines={"scripted": kind}, agents=[AGENT]) as retinue:
        result = await retinue.run("worker", "do it", allow_write=True)
        events = [record.event async for record in retinue.history(result.session)]
    assert [attempt.model for attempt in result.actual.attempts] == models
    first = result.actual.attempts[0].failure
    assert first and first.reason == reason
    changes = [event for event in events if isinstance(event, ModelChanged)]
    assert changes == [ModelChanged("big", after, reason) for after in models[1:]]
    assert (result.failure is None) == (len(models) > 1)


async def test_run_that_wrote_is_never_restarted_from_scratch(scratch_home):
    script = [call("bash", command="rm x"), fail(OVERLOADED)]
    result, specs, _ = await run(scratch_home, script, [reply("never")])
    assert len(specs) == 1
    assert result.failure and result.failure.code is ErrorCode.PROVIDER


async def test_after_read_only_tools_a_retry_starts_afresh(scratch_home):
    result, specs, _ = await run(
        scratch_home, [call("read", path="x"), fail(OVERLOADED)], [reply("ok")], agent=plain()
    )
    assert (result.failure, len(specs), specs[1].prompt) == (None, 2, "do it")


async def test_timeout_covers_all_attempts(scratch_home):
    scripts = [[WaitStep(600), fail(OVERLOADED)], [HangStep()]]
    result, _, _ = await run(scratch_home, *scripts, agent=plain(), idle_timeout=0)
    assert result.failure and result.failure.code is ErrorCode.TIMEOUT
    assert result.elapsed == 900


async def test_usage_is_summed_over_attempts(scratch_home):
    used = Usage(input=10, output=5, cost=0.5, turns=1)
    scripts = [[reply("cut", usage=used, stop_reason="length"), fail(OVERLOADED)], [reply("ok", usage=used)]]
    result, _, _ = await run(scratch_home, *scripts, agent=plain())
    assert result.usage == Usage(input=20, output=10, cost=1.0, turns=2)


async def test_failed_run_keeps_the_best_text_of_its_attempts(scratch_home):
    scripts = [[reply("almost", stop_reason="length"), fail(OVERLOADED)], [fail(OVERLOADED)]]
    result, _, _ = await run(scratch_home, *scripts, agent=plain())
    assert (result.text, result.answer) == ("almost", AnswerStatus.PARTIAL)


# -- finalization ----------------------------------------------------------------------------------


async def finalizing(home, *scripts):
    engine = ScriptedEngine.from_scripts(*scripts)
    specs = []

    def note_spec(spec):
        specs.append(spec)
        return engine.script_for(spec)

    async with stage(home, engines=scripted(ScriptedEngine(note_spec))) as retinue:
        plan = Plan(tasks=(Task(agent="explorer", prompt="do it"),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested", finalize=True))
        return result, specs


async def test_a_missing_finalization_is_corrected_in_the_same_session(scratch_home):
    result, specs = await finalizing(scratch_home, [reply("just text")], [finalize("the result")])
    assert (result.failure, result.text) == (None, "the result")
    assert specs[1].system_prompt == specs[0].system_prompt
    assert "subagent_finalize" in specs[1].prompt
    assert [message.text for message in specs[1].history] == ["do it", "just text"]


async def test_after_two_corrections_the_run_fails_with_the_text_it_has(scratch_home):
    result, specs = await finalizing(scratch_home, *[[reply("just text")]] * 4)
    assert len(specs) == 3
    assert result.failure and result.failure.code is ErrorCode.NOT_FINALIZED
    assert result.text == "just text"


# -- guards over attempts --------------------------------------------------------------------------


async def test_tool_of_an_ended_attempt_does_not_stop_the_idle_timeout(scratch_home):
    scripts = [[ToolCalled("c", "read", {}), fail(OVERLOADED)], [HangStep()]]
    result, _, _ = await run(scratch_home, *scripts, agent=plain(), idle_timeout=10, timeout=600)
    assert result.failure and result.failure.code is ErrorCode.IDLE_TIMEOUT


async def test_repeated_calls_of_the_next_attempt_are_not_a_loop(scratch_home):
    calls = [call("read", path="x")] * 3
    result, _, _ = await run(scratch_home, [*calls, fail(OVERLOADED)], [*calls, reply("ok")], agent=plain())
    assert result.failure is None


async def test_stopping_during_the_pause_before_a_retry_is_an_abort(scratch_home):
    async with (
        stage(scratch_home, fail(OVERLOADED), agents=[plain()]) as retinue,
        retinue.events() as events,
        anyio.create_task_group() as group,
    ):

        async def stop() -> None:
            async for record in events:
                if isinstance(record.event, MessageEnded):
                    await anyio.sleep(0.5)
                    retinue.stop_all()
                    return

        group.start_soon(stop)
        result = await retinue.run("worker", "x")
    assert result.failure and (result.failure.code, result.exit_code) == (ErrorCode.ABORTED, 130)
