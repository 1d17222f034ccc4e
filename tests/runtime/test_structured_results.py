"""Results with an output schema, on the scripted engine and on the api engine with every provider API."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from tests.engines.api.conftest import MODELS, environment
from tests.support.model_server import ModelServer, ScriptedCall, ScriptedTurn
from tests.support.output_schema import BAD, GOOD, SCHEMA
from tests.support.retinue_factory import stage

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import ScriptedEngine, finalize, reply
from retinue.model.errors import ErrorCode
from retinue.model.tasks import Task
from retinue.sessions.memory import MemoryStore

VIOLATION = "$.files[0] (required): 'path' is a required property"
SCOUT = Agent(name="scout", body="You scout.", tools=("read",))


class Finding(msgspec.Struct):
    path: str


class Findings(msgspec.Struct):
    files: list[Finding]
    total: int


@dataclass
class FindingsData:
    files: list[dict[str, str]]
    total: int


class FindingsModel(pydantic.BaseModel):
    files: list[dict[str, str]]
    total: int

    @pydantic.field_validator("total")
    @classmethod
    def check_total(cls, total: int) -> int:
        if total > 100:
            raise ValueError("more than a hundred")
        if total < 0:
            raise RuntimeError("no total")
        return total


@asynccontextmanager
async def open_scripted(home, results):
    """Open a Retinue whose attempts finalize with these results, one each; a text is a reply without finalizing."""
    scripts = [
        [reply(each) if isinstance(each, str) else finalize(each["result"], error=each.get("error"))]
        for each in results
    ]
    async with stage(home, ScriptedEngine.from_scripts(*scripts).script_for, agents=[SCOUT]) as retinue:
        yield retinue


def open_api(model):
    @asynccontextmanager
    async def open_with(home, results):
        turns = [
            ScriptedTurn(text=each)
            if isinstance(each, str)
            else ScriptedTurn(
                tools=(
                    ScriptedCall(
                        tool="subagent_finalize",
                        args={"status": "ERROR" if each.get("error") else "SUCCESS", **each},
                    ),
                )
            )
            for each in results
        ]
        remaining = iter(turns)
        async with ModelServer(lambda _: next(remaining)) as server:
            environ = {"HOME": str(home), **environment(server.url)}
            options: dict[str, Any] = {"cwd": home, "environ": environ, "engine": "api", "store": MemoryStore()}
            async with Retinue(**options, agents=[SCOUT], settings={"model": model}) as retinue:
                yield retinue

    return open_with


ENGINES = {"scripted": open_scripted, **{f"api-{name}": open_api(model) for name, model in MODELS.items()}}


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def open_retinue(request):
    return request.param


async def run(open_retinue, home, results, **options):
    async with open_retinue(home, results) as retinue:
        return await retinue.run("scout", "List the files.", **{"output": SCHEMA, **options})


async def test_result_that_matches_is_the_structured_value(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, [{"result": GOOD}])
    assert (result.failure, result.structured) == (None, GOOD)
    assert msgspec.json.decode(result.text) == GOOD


async def test_violation_is_corrected_in_the_same_session(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, [{"result": BAD}, {"result": GOOD}])
    assert (result.failure, result.structured) == (None, GOOD)


async def test_violations_beyond_the_retries_fail_with_the_last_payload(open_retinue, tmp_path):
    results = [{"result": BAD}, {"result": {"total": 1}}, {"result": BAD}, {"result": GOOD}]
    result = await run(open_retinue, tmp_path, results)
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.NOT_FINALIZED, "schema")
    assert VIOLATION in result.failure.message
    assert msgspec.json.decode(str(result.failure.detail["payload"])) == BAD
    assert result.structured is None


async def test_violation_in_the_last_turn_of_the_budget_keeps_the_payload(tmp_path):
    model = next(iter(MODELS.values()))
    results = [{"result": GOOD["files"]}, {"result": BAD}, {"result": GOOD}]
    result = await run(open_api(model), tmp_path, results, max_turns=2)
    assert result.failure is not None
    assert (result.failure.code, result.structured) == (ErrorCode.BUDGET, None)
    assert result.failure.message.endswith("it was kept in the details of this failure.")
    assert VIOLATION in str(result.failure.detail["violations"])
    assert msgspec.json.decode(str(result.failure.detail["payload"])) == BAD


async def test_answer_without_finalization_is_reminded_and_counts_as_a_correction(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, ["Here is my answer.", {"result": BAD}, {"result": GOOD}])
    assert (result.failure, result.structured) == (None, GOOD)
    result = await run(open_retinue, tmp_path, ["One.", {"result": BAD}, {"result": BAD}, {"result": GOOD}])
    assert result.failure is not None
    assert result.failure.reason == "schema"


async def test_result_beside_an_error_is_not_validated(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, [{"result": {"files": "unknown"}, "error": "No access."}])
    assert (result.failure, result.structured) == (None, None)
    assert result.finalized is not None
    assert (result.finalized.status, result.finalized.error) == ("ERROR", "No access.")


async def test_result_given_as_json_text_counts_as_its_value(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, [{"result": '{"files": [], "total": 0}'}])
    assert (result.failure, result.structured) == (None, {"files": [], "total": 0})


async def test_text_result_of_a_text_schema_is_the_structured_value(open_retinue, tmp_path):
    result = await run(open_retinue, tmp_path, [{"result": "yes"}], output={"enum": ["yes", "no"]})
    assert (result.text, result.structured) == ("yes", "yes")


@pytest.mark.parametrize("kind", [Findings, FindingsData, FindingsModel])
async def test_requested_type_is_the_type_of_the_structured_value(kind, tmp_path):
    result = await run(open_scripted, tmp_path, [{"result": GOOD}], output=kind)
    assert result.failure is None
    assert isinstance(result.structured, kind)
    assert result.structured.total == 1


async def test_value_that_only_the_type_rejects_fails_the_result(tmp_path):
    result = await run(open_scripted, tmp_path, [{"result": {**GOOD, "total": 101}}], output=FindingsModel)
    assert result.failure is not None
    assert (result.failure.reason, result.structured) == ("schema", None)
    assert "more than a hundred" in result.failure.message


async def test_rule_of_the_type_that_raises_any_error_fails_the_result(tmp_path):
    result = await run(open_scripted, tmp_path, [{"result": {**GOOD, "total": -1}}], output=FindingsModel)
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.NOT_FINALIZED, "schema")
    assert "FindingsModel: RuntimeError: no total" in result.failure.message


async def test_type_without_schema_raises(tmp_path):
    async with open_scripted(tmp_path, []) as retinue:
        with pytest.raises(TypeError):
            await retinue.run("scout", "Look.", output=type(lambda: 1))


async def test_schema_of_the_task_wins_over_that_of_the_agent(tmp_path):
    agent = Agent(name="scout", output_schema={"type": "string"})
    async with stage(tmp_path, finalize({"a": 1}), agents=[agent]) as retinue:
        by_task, by_agent = await retinue.delegate(
            [Task(agent="scout", prompt="Look.", output_schema={"type": "object"}), ("scout", "Look.")]
        )
    assert by_task.structured == {"a": 1}
    assert by_agent.failure is not None
    assert by_agent.failure.reason == "schema"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "no"}, "The output schema is invalid at $.type (anyOf): "),
        ({"$ref": "https://example.org/"}, "The output schema is invalid at $ ($ref): "),
        ({"title": "x" * 70_000}, "The output schema has 70012 bytes; at most 65536 are allowed"),
    ],
)
async def test_unusable_schema_refuses_the_task(schema, problem, tmp_path):
    result = await run(open_scripted, tmp_path, [], output=schema)
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.INVALID_INPUT, "output_schema")
    assert result.failure.message.startswith(problem)
    assert not result.was_started


async def test_engine_without_a_model_refuses_a_schema(tmp_path):
    async with Retinue(cwd=tmp_path, environ={"HOME": str(tmp_path)}, engine="offline") as retinue:
        result = await retinue.run("explorer", "Look.", output=SCHEMA)
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "output_schema")


async def test_secrets_in_a_structured_result_are_redacted(tmp_path):
    secret = "sk-ant-api03-" + "a1B2" * 22
    result = await run(open_scripted, tmp_path, [{"result": {"key": secret}}], output={"type": "object"})
    assert result.failure is None
    assert secret not in str(result.structured)
