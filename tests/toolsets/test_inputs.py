"""Choices of a call for its tasks in `fanout` and `nested`: an output schema, a model and an effort."""

from __future__ import annotations

import time
from typing import Any

import pytest

from retinue.agents.agent import Agent
from retinue.engines.scripted import finalize, reply

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
SCOUT = Agent(name="scout", body="You scout.", tools=("read",))
LISTED = {"models": ["anthropic/*", "openai/gpt-*"]}
UNLISTED = "Ignored model {}: allowed are anthropic/*, openai/gpt-* (setting models)"
CHOICES = ["outputSchema", "model", "effort"]


def spawn_single(**choices):
    return "nested", {"agent": "scout", "task": "Count.", **choices}


def spawn_parallel(**choices):
    return "nested", {"mode": "parallel", "tasks": [{"agent": "scout", "task": "Count.", **choices}]}


def spawn_chain(**choices):
    return "nested", {"mode": "chain", "tasks": [{"agent": "scout", "task": "Count.", **choices}]}


def delegate(**choices):
    return "fanout", {"tasks": [{"name": "a", "profile": "scout", "prompt": "Count.", **choices}]}


every_call = pytest.mark.parametrize("make_call", [spawn_single, spawn_parallel, spawn_chain, delegate])


@pytest.fixture
def call(open_host):
    async def call_tool(made, *script, settings=None):
        """Return the result of a call and the specs that its engine received."""
        toolset, arguments = made
        async with open_host(*script, toolset=toolset, agents=[SCOUT], settings=settings or {}) as host:
            return await host.use(arguments, tool=host.tools()[0].name), host.specs

    return call_tool


def parts_of(result):
    return result.details.get("results") or result.details["windows"]


# -- output schemas --------------------------------------------------------------------------------


@every_call
async def test_result_of_an_output_schema_is_structured_in_the_details(call, make_call):
    result, _ = await call(make_call(outputSchema=SCHEMA), finalize({"total": 3}))
    assert [part["structured"] for part in parts_of(result)] == [{"total": 3}]
    is_list = make_call in {spawn_parallel, delegate}
    assert result.details["structured"] == ([{"total": 3}] if is_list else {"total": 3})


@every_call
async def test_call_without_an_output_schema_has_no_structured_field(call, make_call):
    result, _ = await call(make_call(), reply("three"))
    assert "structured" not in result.details
    assert not any("structured" in part for part in parts_of(result))


@every_call
async def test_output_schema_written_as_json_text_counts_as_the_object(call, make_call):
    _, (spec,) = await call(make_call(outputSchema='{"type": "integer"}'), finalize(3))
    assert spec.output_schema == {"type": "integer"}


@every_call
async def test_result_that_never_matches_is_null_beside_the_failure(call, make_call):
    result, _ = await call(make_call(outputSchema=SCHEMA), finalize({"total": "many"}))
    assert [part["structured"] for part in parts_of(result)] == [None]
    assert "$.total (type): 'many' is not of type 'integer'" in result.text


async def test_task_without_a_schema_is_null_in_the_list_of_values(call):
    tasks = [{"agent": "scout", "task": "Count.", "outputSchema": SCHEMA}, {"agent": "scout", "task": "Look."}]
    answers = {"Count.": [finalize({"total": 3})], "Look.": [reply("done")]}
    made = ("nested", {"mode": "parallel", "tasks": tasks})
    result, _ = await call(made, lambda spec: answers[spec.task])
    assert result.details["structured"] == [{"total": 3}, None]
    assert ["structured" in part for part in parts_of(result)] == [True, False]


async def test_last_step_of_a_chain_is_its_structured_value(call):
    steps = [{"agent": "scout", "task": "Look."}, {"agent": "scout", "task": "Count.", "outputSchema": SCHEMA}]
    made = ("nested", {"mode": "chain", "tasks": steps})
    result, _ = await call(made, lambda spec: [finalize({"total": 3}) if spec.output_schema else reply("seen")])
    assert (result.details["structured"], result.text) == ({"total": 3}, '{"total":3}')


async def test_stored_output_of_a_session_has_the_structured_value(fanout):
    async with fanout(finalize({"total": 3}), agents=[SCOUT]) as host:
        _, arguments = delegate(outputSchema=SCHEMA)
        (session,) = (await host.use(arguments, tool="delegate_to_subagents")).details["sessionIds"]
        result = await host.fetch("get_subagent_output", session)
    assert (result.text, result.details["structured"]) == ('{"total":3}', {"total": 3})


@pytest.mark.parametrize("toolset", ["single", "sticky"])
async def test_schema_of_the_agent_makes_results_of_every_toolset_structured(open_host, toolset):
    agent = Agent(name="scout", output_schema=SCHEMA)
    async with open_host(finalize({"total": 3}), toolset=toolset, agents=[agent]) as host:
        result = await host.use({"agent": "scout", "task": "Count."})
    assert result.details["structured"] == {"total": 3}


async def test_control_characters_are_removed_from_structured_values(call):
    result, _ = await call(spawn_single(outputSchema={"type": "object"}), finalize({"a\x1b[31m": "b\x07"}))
    assert result.details["structured"] == {"a": "b"}


NESTED: dict[str, Any] = {"type": "object"}
for _ in range(200):
    NESTED = {"type": "object", "properties": {"a": NESTED}}
BRANCHES = {
    "anyOf": [{"type": "object", "patternProperties": {f"^{n}+$": {"$ref": "#/$defs/a"}}} for n in range(900)]
}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "no"}, "is invalid at $.type (anyOf): 'no' is not valid under any of the given schemas"),
        (
            {"$ref": "https://example.org/s"},
            "'https://example.org/s' is outside the schema: move the definition to $defs",
        ),
        ({"title": "x" * 70_000}, "has 70012 bytes; at most 65536 are allowed"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, "refers to itself without end"),
        (NESTED, "has more than 1000 parts or 64 levels: make the schema smaller"),
        (
            {**BRANCHES, "$defs": {"a": {"$ref": "#"}}},
            "has more than 1000 parts or 64 levels: make the schema smaller",
        ),
        ({"pattern": "(a"}, "is not a regular expression"),
    ],
)
@pytest.mark.parametrize("make_call", [spawn_single, delegate])
async def test_unusable_schema_is_refused_in_under_a_second_of_work(call, make_call, schema, problem):
    start = time.process_time()
    result, specs = await call(make_call(outputSchema=schema))
    assert time.process_time() - start < 1
    assert problem in result.text
    assert "Nothing was started." in result.text
    assert specs == []


@pytest.mark.parametrize(("given", "noun"), [(["a"], "must be a JSON Schema"), ("{", "is not a JSON object")])
@every_call
async def test_schema_that_is_no_object_refuses_the_call(call, make_call, given, noun):
    result, specs = await call(make_call(outputSchema=given))
    assert f"outputSchema {noun}" in result.text
    assert specs == []


# -- model and effort ------------------------------------------------------------------------------


@pytest.mark.parametrize("toolset", ["nested", "fanout"])
@pytest.mark.parametrize(
    ("settings", "offered"), [({}, CHOICES[:1]), (LISTED, CHOICES), ({"models": []}, CHOICES[:1])]
)
async def test_model_and_effort_are_offered_where_the_user_lists_models(open_host, toolset, settings, offered):
    async with open_host(toolset=toolset, settings=settings) as host:
        schema = host.tools()[0].input_schema["properties"]
    task = schema["tasks"]["items"]["properties"]
    assert [name for name in task if name in CHOICES] == offered
    assert [name for name in schema if name in CHOICES] == (offered if toolset == "nested" else [])
    if settings == LISTED:
        assert task["model"]["description"].endswith("one of anthropic/*, openai/gpt-*")


@every_call
async def test_listed_model_and_effort_of_a_task_are_used(call, make_call):
    made = make_call(model="openai/gpt-6.1", effort="high")
    result, (spec,) = await call(made, reply("done"), settings=LISTED)
    assert (spec.model, spec.agent.model, spec.agent.thinking) == ("openai/gpt-6.1", "openai/gpt-6.1", "high")
    assert "Ignored" not in result.text


async def test_alias_of_claude_code_counts_as_a_model_of_anthropic(call):
    _, (spec,) = await call(spawn_single(model="haiku"), reply("done"), settings=LISTED)
    assert spec.model == "anthropic/haiku"


@every_call
@pytest.mark.parametrize("model", ["google/gemini", "gpt-6.1", "anthropicx/claude", "openai/o9"])
async def test_unlisted_model_is_ignored_and_named_in_the_answer(call, make_call, model):
    result, (spec,) = await call(make_call(model=model, effort="low"), reply("done"), settings=LISTED)
    assert (spec.model, spec.agent.thinking) == (None, "low")
    assert f"\n\n{UNLISTED.format(model)}" in result.text
    assert UNLISTED.format(model) in spec.notices


@every_call
async def test_model_and_effort_are_ignored_where_the_user_lists_no_models(call, make_call):
    result, (spec,) = await call(make_call(model="openai/gpt-6.1", effort="high"), reply("done"))
    assert (spec.model, spec.agent.thinking) == (None, None)
    notice = "Ignored model and effort: the setting models lists no model that a call may choose"
    assert result.text.endswith(f"\n\n{notice}")


async def test_chosen_model_wins_over_the_agent_and_the_settings(open_host):
    agent = Agent(name="scout", provider="google", model="gemini", thinking="low")
    settings = {**LISTED, "model": "openai/gpt-5", "effort": "max"}
    async with open_host(reply("done"), toolset="nested", agents=[agent], settings=settings) as host:
        _, arguments = spawn_single(model="anthropic/claude-opus-5-5", effort="off")
        await host.use(arguments, tool="spawn_subagent")
        (spec,) = host.specs
    assert (spec.model, spec.agent.provider, spec.agent.thinking) == ("anthropic/claude-opus-5-5", None, "off")


@every_call
async def test_unknown_effort_refuses_the_call(call, make_call):
    result, specs = await call(make_call(effort="extreme"), settings=LISTED)
    assert "the effort 'extreme': it must be one of off, minimal, low, medium, high, xhigh, max" in result.text
    assert specs == []


@every_call
async def test_choices_that_the_engine_does_not_apply_are_named_in_the_answer(call, make_call):
    made = make_call(model="openai/gpt-6.1", effort="high")
    result, _ = await call(made, reply("done"), settings=LISTED)
    assert result.text.endswith("The scripted engine did not apply effort high")
