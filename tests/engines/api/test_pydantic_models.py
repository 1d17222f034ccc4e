"""Models of pydantic-ai on the api engine, played by its function model: no network."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai import exceptions
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import infer_provider_class
from tests.engines.api.conftest import open_engine

from retinue.composition import available_engines
from retinue.engines.agent_loop import ModelOutput
from retinue.engines.agent_loop import ModelRequest as LoopRequest
from retinue.engines.api.extra_providers import EXTRA_PROVIDERS
from retinue.engines.api.pricing import PriceList
from retinue.engines.api.providers import (
    PROVIDERS,
    choose_model,
    describe_default,
    list_providers,
    provider_variables,
    remove_keys,
)
from retinue.engines.api.pydantic_models import PydanticModel, encode_messages, to_request_error
from retinue.engines.api.wire import ModelOptions
from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.toolbox import ToolSchema
from retinue.model.errors import Failure
from retinue.model.events import (
    Event,
    MessageEnded,
    Notice,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import ImageBlock, Message, RunSpec, ToolUse
from retinue.output.provider_errors import classify_error
from retinue.runtime.executor import LocalExecutor
from retinue.testing.engines import EngineBehavior, EngineCase, EngineSuite, make_run_spec

# On trio, pydantic-ai leaves its own generators of a cancelled stream to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in.*StreamedResponse:pytest.PytestUnraisableExceptionWarning"
)
MODEL = "cerebras/scripted-1"
KEYS = {"CEREBRAS_API_KEY": "csk-test"}


class Turn(Struct, frozen=True):
    """One reply of the model."""

    thinking: str = ""
    text: str = ""
    tool: str = ""
    args: str = "{}"
    hangs: bool = False
    delay: float = 0.0
    error: Exception | None = None


class FunctionScript:
    """Turns that a function model plays, and the requests it received."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self.requests: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def play(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.requests.append((messages, info))
        turn = self._turns[min(sum(isinstance(each, ModelResponse) for each in messages), len(self._turns) - 1)]
        await anyio.sleep(turn.delay)
        if turn.error and len(self.requests) == 1:
            raise turn.error
        if turn.thinking:
            yield {0: DeltaThinkingPart(content=turn.thinking, signature="signed")}
        for word in turn.text.split(" "):
            yield f"{word} "
        if turn.hangs:
            await anyio.sleep_forever()
        if turn.tool:
            yield {1: DeltaToolCall(name=turn.tool, json_args=turn.args, tool_call_id=f"c{len(self.requests)}")}

    def model(self, *_: object, thinks: bool = True) -> FunctionModel:
        profile = ModelProfile(supports_thinking=thinks)
        return FunctionModel(stream_function=self.play, model_name="scripted-1", profile=profile)


READ = Turn(text="I look.", tool="read", args='{"path": "x"}')
REFUSED = exceptions.ModelHTTPError(401, "scripted-1", {"message": "no such key"})
FINALIZE = Turn(tool="subagent_finalize", args='{"status": "SUCCESS", "result": "The result."}')
SCRIPTS: dict[EngineBehavior, list[Turn]] = {
    "answer": [Turn(text="An answer in words.")],
    "call": [READ, Turn(text="Done.")],
    "fail": [Turn(error=REFUSED)],
    "hang": [READ, Turn(text="never", hangs=True)],
    "break": [],
    "finalize": [READ, FINALIZE],
    "steer": [READ, Turn(text="Done.", delay=0.2), Turn(text="Steered.")],
}


class ExecutedEngine:
    """The api engine in an executor of its own, for one run."""

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        self._spec = spec
        async with LocalExecutor(available_engines(spec.environment)) as self._executor:
            await self._executor.execute(spec, emit)

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._executor.steer(self._spec, text)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestFunctionModel(EngineSuite):
    supported = frozenset({"steer"})
    reports_completion = True

    @pytest.fixture(autouse=True)
    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        script = SCRIPTS[behavior]
        # The one place where pydantic-ai would reach for a provider.
        self._patch.setattr("pydantic_ai.models.infer_model", FunctionScript(script).model)
        keys = KEYS if script else {}
        spec = make_run_spec(folder, engine="api", model=MODEL, environment=keys, finalize=behavior == "finalize")
        return EngineCase(ExecutedEngine(), spec)


async def run_turns(
    turns: Sequence[Turn], folder: Path, patch: pytest.MonkeyPatch, **changes: Any
) -> tuple[list[Event], FunctionScript]:
    """Run a task on a function model and return its events and the requests."""
    script, events = FunctionScript(turns), list[Event]()
    patch.setattr("pydantic_ai.models.infer_model", script.model)

    async def emit(event: Event | Completion) -> None:
        if not isinstance(event, Completion):
            events.append(event)

    async with open_engine() as engine:
        await engine.run(make_run_spec(folder, model=MODEL, engine="api", environment=KEYS, **changes), emit)
    return events, script


async def test_reply_is_streamed_with_thinking_calls_and_usage(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("hello\n")
    turns = [Turn(thinking="Let me see.", text="I look.", tool="read", args='{"path": "x"}'), Turn(text="It is.")]
    events, script = await run_turns(turns, tmp_path, monkeypatch, system_prompt="You are a scout.")
    assert [event for event in events if not isinstance(event, MessageEnded)] == [
        ThinkingDelta("Let me see."),
        TextDelta("I "),
        TextDelta("look. "),
        Thinking("Let me see."),
        Text("I look. "),
        ToolCalled("c1", "read", {"path": "x"}),
        ToolReturned("c1", "read", "hello"),
        TextDelta("It "),
        TextDelta("is. "),
        Text("It is. "),
    ]
    ends = [event for event in events if isinstance(event, MessageEnded)]
    assert [(end.stop_reason, end.model, end.usage.turns) for end in ends] == [
        ("tool_use", MODEL, 1),
        ("stop", MODEL, 1),
    ]
    assert all(end.usage.output for end in ends)
    (_, info), (messages, _) = script.requests
    assert (info.instructions, info.model_settings) == ("You are a scout.", {"max_retries": 0})
    assert {tool.name for tool in info.function_tools} == {"read", "grep", "find", "ls"}
    # The whole reply goes back as it came, with the signature of its thinking.
    assert isinstance(messages[1], ModelResponse)
    assert [part.part_kind for part in messages[1].parts] == ["thinking", "text", "tool-call"]
    assert "signature='signed'" in repr(messages[1].parts[0])


async def test_invalid_arguments_are_reported_to_the_model(tmp_path, monkeypatch):
    turns = [Turn(text="I look.", tool="read", args='{"path": '), Turn(text="Sorry.")]
    events, script = await run_turns(turns, tmp_path, monkeypatch)
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert (returned.is_error, "Input data was truncated" in returned.text) == (True, True)
    assert events[-1] == replace(events[-1], stop_reason="stop")
    result = script.requests[1][0][-1].parts[0]
    assert isinstance(result, ToolReturnPart)
    assert (result.tool_name, result.tool_call_id, result.outcome) == ("read", "c1", "failed")


async def test_transient_failure_is_retried_and_noted(tmp_path, monkeypatch):
    busy = exceptions.ModelHTTPError(503, "scripted-1", {"message": "busy"}, headers={"retry-after": "0"})
    events, script = await run_turns([Turn(text="Done.", error=busy)], tmp_path, monkeypatch)
    assert [event.code for event in events if isinstance(event, Notice)] == ["provider_retry"]
    assert (len(script.requests), Text("Done. ") in events) == (2, True)


async def test_options_of_a_request_become_settings():
    script = FunctionScript([Turn(text="Done.")])
    tools = (ToolSchema(name="read", description="Read a file.", schema={"type": "object"}),)
    request = LoopRequest("", [Message(role="user", text="Go.")], tools, allow_calls=False, max_output_tokens=99)
    async with anyio.create_task_group() as group:
        options = ModelOptions(model="scripted-1", effort="high")
        model = PydanticModel(script.model(), "cerebras", options, PriceList(group))
        reply = await model.reply(request, lambda _: anyio.lowlevel.checkpoint())
    (_, info) = script.requests[0]
    assert reply.content == (Text("Done. "),)
    assert info.model_settings == {"max_retries": 0, "tool_choice": "none", "max_tokens": 99}
    assert info.model_request_parameters.thinking == "high"


async def test_effort_of_a_model_without_thinking_is_reported_once():
    script, events = FunctionScript([Turn(text="Done.")]), list[ModelOutput]()
    request = LoopRequest("", [Message(role="user", text="Go.")])

    async def on_delta(event: ModelOutput) -> None:
        events.append(event)

    async with anyio.create_task_group() as group:
        options = ModelOptions(model="scripted-1", effort="high")
        model = PydanticModel(script.model(thinks=False), "cerebras", options, PriceList(group))
        await model.reply(request, on_delta)
        await model.reply(request, on_delta)
    message = "cerebras/scripted-1 takes no effort high; its own default is used."
    assert [each for each in events if isinstance(each, Notice)] == [
        Notice("not_applied", message, preference="thinking")
    ]


@pytest.mark.parametrize(
    ("error", "message", "retryable", "reason"),
    [
        (REFUSED, "401: no such key", False, "auth"),
        (exceptions.ModelHTTPError(429, "m", {"message": "slow"}, retry_after=7.0), "429: slow", True, "rate_limit"),
        (exceptions.ModelHTTPError(404, "m", {"message": "gone"}), "404: gone", False, "model_unavailable"),
        (exceptions.ModelTimeoutError("m", "late"), "The provider timed out: late", True, "network"),
        (exceptions.ModelConnectionError("m", "reset"), "Connection error: reset", True, "network"),
        (exceptions.ModelOverloadedError("m", "overloaded"), "overloaded", True, "overloaded"),
        (
            exceptions.ModelContextWindowExceededError("m", "prompt is too long"),
            "prompt is too long",
            False,
            "context_overflow",
        ),
        (exceptions.UnexpectedModelBehavior("odd"), "The provider sent a malformed reply: odd", True, "other"),
        (exceptions.UserError("bad"), "The request could not be made: bad", False, "other"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_have_our_failure_codes(error, message, retryable, reason):
    found = to_request_error(error)
    assert (str(found), found.retryable, classify_error(str(found))) == (message, retryable, reason)
    assert found.retry_after == getattr(error, "retry_after", None)


def test_history_becomes_requests_and_responses():
    image = ImageBlock("image/png", base64.b64encode(b"png").decode())
    encoded = encode_messages(
        [
            Message(role="user", text="Look."),
            Message(role="assistant", text="I look.", calls=(ToolUse("c1", "read", {"path": "x"}),)),
            Message(role="tool", text="a file", call="c1", images=(image,)),
            Message(role="user", text="And now?"),
        ]
    )
    assert [type(each) for each in encoded] == [ModelRequest, ModelResponse, ModelRequest]
    assert [[part.part_kind for part in each.parts] for each in encoded] == [
        ["user-prompt"],
        ["text", "tool-call"],
        ["tool-return", "user-prompt"],
    ]
    result = encoded[2].parts[0]
    assert isinstance(result, ToolReturnPart)
    assert result.content == ["a file", BinaryContent(b"png", media_type="image/png")]


# -- the choice of a provider ----------------------------------------------------------------------

BEARER = ("bedrock", "x", ["api_key", "region_name"])
AWS = {"AWS_PROFILE": "work", "AWS_REGION": "eu-central-1"}


@pytest.mark.parametrize(
    ("model", "environ", "chosen"),
    [
        (MODEL, KEYS, ("cerebras", "scripted-1", ["api_key"])),
        ("bedrock/eu.anthropic.claude", AWS, ("bedrock", "eu.anthropic.claude", ["profile_name", "region_name"])),
        ("bedrock/x", {**AWS, "AWS_ACCESS_KEY_ID": "id-1", "AWS_BEARER_TOKEN_BEDROCK": "token-1"}, BEARER),
        ("bedrock:x:0", {"OPENROUTER_API_KEY": "or-test"}, ("bedrock", "x:0", [])),
        ("google-vertex/gemini-4", {"GOOGLE_CLOUD_PROJECT": "my-project"}, ("google-cloud", "gemini-4", ["project"])),
        ("gateway/openai:gpt-5", {"PAIG_API_KEY": "paig-test"}, ("gateway", "openai:gpt-5", ["api_key"])),
        ("cohere/command", {"RETINUE_AGENT_API_KEY": "own-test"}, ("cohere", "command", ["api_key"])),
    ],
)
def test_provider_of_pydantic_ai_is_chosen_by_its_name(model, environ, chosen):
    choice = choose_model(model, None, environ)
    assert (choice.provider.name, choice.model, sorted(choice.arguments)) == chosen
    assert not any(value in repr(choice) for value in environ.values())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("cerebras/x", "The provider cerebras cannot be used: set CEREBRAS_API_KEY."),
        ("azure/x", "The provider azure cannot be used: set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT."),
    ],
)
def test_missing_settings_of_a_provider_are_named(model, message):
    with pytest.raises(EngineError) as refused:
        choose_model(model, None, {"OPENAI_API_KEY": "sk-1"})
    assert refused.value.failure.message == message


def test_missing_extra_is_refused_with_the_command_that_installs_it(monkeypatch):
    # An entry of None makes the import system report the module as missing.
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(EngineError) as refused:
        choose_model(MODEL, None, KEYS)
    assert refused.value.failure.message == (
        "The provider cerebras cannot be used: pip install 'retinue[providers]'."
    )
    (listed,) = [each for each in list_providers(KEYS) if each.name == "cerebras"]
    assert listed.missing == "pip install 'retinue[providers]'"


async def test_missing_package_of_a_provider_names_its_own_extra(tmp_path):
    spec = make_run_spec(tmp_path, model=MODEL, engine="api", environment=KEYS)
    async with open_engine() as engine:
        with pytest.raises(EngineError) as failed:
            await engine.run(spec, lambda event: anyio.lowlevel.checkpoint())
    message = failed.value.failure.message
    assert message.startswith("The provider cerebras needs a package that is not installed. `pip install 'retinue[")
    assert "Please install the `openai` package" in message


def test_names_are_those_of_pydantic_ai():
    """Every provider of chat models there is one of ours or in the table."""
    not_chat = {"elevenlabs", "sentence-transformers", "voyageai", "openai-decisions", "google-decisions"}
    judges, retired = {"system-one", "typesafe"}, {"github"}
    logins = {"openai-chatgpt", "openai-codex"}
    other_wires = {"openai-chat", "openai-responses"}
    source = Path(sys.modules[infer_provider_class.__module__].__file__ or "").read_text()
    cases = source.split("def infer_provider_class", 1)[1].split("def infer_provider(", 1)[0]
    named = {
        name.strip(" '")
        for line in cases.splitlines()
        if line.strip().startswith("case '")
        for name in line.strip().removeprefix("case ").removesuffix(":").split("|")
    }
    assert named - not_chat - judges - retired - logins - other_wires - PROVIDERS.keys() == EXTRA_PROVIDERS.keys() - {
        "gateway"
    }


def test_run_gets_the_variables_of_its_extra_provider_and_its_commands_no_secret():
    environ = {
        **AWS,
        "AWS_SECRET_ACCESS_KEY": "canary",
        "OTHER": "has canary",
        "HF_TOKEN": "hf-test",
        "OPENAI_API_KEY": "sk-test",
    }
    variables = provider_variables(("bedrock/x",), None, environ)
    assert variables == set(EXTRA_PROVIDERS["bedrock"].variables)
    assert remove_keys(environ, {}) == AWS


def test_configured_providers_of_pydantic_ai_are_listed_and_described():
    rows = {each.name: (each.configured_by, each.missing, each.is_chosen) for each in list_providers(KEYS, MODEL)}
    assert rows["cerebras"] == ("CEREBRAS_API_KEY", None, True)
    assert "bedrock" not in rows
    assert describe_default(KEYS, MODEL) == "cerebras/scripted-1 by CEREBRAS_API_KEY, in this process"
    assert describe_default({}, "bedrock/x") == "bedrock/x by its own login, in this process"


def test_status_is_json():
    assert msgspec.json.encode(list_providers(KEYS))
