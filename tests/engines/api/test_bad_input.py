"""What providers send that no document describes: each fails with its reason and the next step, or is repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import msgspec
import pytest
from tests.engines.api.conftest import MODELS, environment, open_provider
from tests.engines.api.test_engine import of_type
from tests.support.model_server import RawAnswer, ScriptedCall, ScriptedError, ScriptedTurn

from retinue.engines.agent_loop import INVALID_CALLS_ERROR
from retinue.engines.api.retries import MAX_TRIES
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Event, MessageEnded, Notice, Text, ToolCalled, ToolReturned
from retinue.output.answer import PROVIDER_ADVICE, AnswerCollector

ANSWER = ScriptedTurn(text="It says hello.")
NO_WAIT = {"retry-after": "0"}


def find_failure(events: list[Event]) -> Failure:
    """Return the failure of a run with these events."""
    collector = AnswerCollector()
    for event in events:
        collector.observe(event)
    failure = collector.find_failure()
    assert failure is not None
    return failure


def stream(*events: Any) -> ScriptedTurn:
    """Return a turn of these server-sent events."""
    lines = [event if isinstance(event, str) else msgspec.json.encode(event).decode() for event in events]
    return ScriptedTurn(raw=RawAnswer(body="".join(f"data: {line}\n\n" for line in lines)))


def in_order(*turns):
    remaining = iter(turns)
    return lambda _: next(remaining)


@pytest.mark.parametrize(
    ("status", "reasons", "tries"),
    [
        (400, "bad_request", 1),
        (401, "auth", 1),
        (402, "quota", 1),
        (403, "auth", 1),
        (404, "model_unavailable", 1),
        (408, "network", MAX_TRIES),
        (409, "server_error", MAX_TRIES),
        (413, "context_overflow", 1),
        (422, "bad_request", 1),
        (429, "rate_limit", MAX_TRIES),
        (500, "server_error", MAX_TRIES),
        (502, "server_error", MAX_TRIES),
        (503, "overloaded server_error", MAX_TRIES),
        (504, "server_error network", MAX_TRIES),
        (529, "overloaded", MAX_TRIES),
    ],
)
async def test_status_is_a_failure_with_its_reason_and_the_next_step(model, tmp_path, status, reasons, tries):
    """The error types of a provider may name the reason more closely than its status."""
    fail = ScriptedError(status=status, times=-1, headers=NO_WAIT, message="not this time")
    async with open_provider([ScriptedTurn(fail=fail)], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == tries
    assert failure.code is ErrorCode.PROVIDER
    assert failure.reason
    assert failure.reason in reasons.split()
    assert f"{status}: " in failure.message
    assert "not this time" in failure.message
    assert failure.message.endswith(PROVIDER_ADVICE[failure.reason].format(models="fallback_models"))


async def test_page_in_place_of_an_answer_names_the_base_url(model, tmp_path):
    page = "<html><head><title>Sign in</title></head><body>Welcome to the hotel</body></html>"
    turn = ScriptedTurn(raw=RawAnswer(body=page, content_type="text/html"))
    async with open_provider([turn], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == 1
        assert f"(Check the base URL {provider.server.url}/" in failure.message
    assert "The provider answered with text/html instead of JSON: Sign in Welcome to the hotel" in failure.message


async def test_page_of_a_gateway_is_retried_and_quoted_as_text(model, tmp_path, monkeypatch):
    page = "<html><h1>502 Bad Gateway</h1><p>nginx</p></html>"
    monkeypatch.setattr("retinue.engines.api.retries.RETRY_DELAY", 0.0)
    bad = ScriptedTurn(raw=RawAnswer(body=page, content_type="text/html", status=502))
    async with open_provider(in_order(bad, ANSWER), tmp_path) as provider:
        events = await provider.run(model)
    (notice,) = of_type(events, Notice)
    assert "after: 502: The provider answered with text/html instead of JSON: 502 Bad Gateway nginx" in notice.message
    assert of_type(events, Text) == [Text("It says hello.")]


async def test_malformed_chunk_is_retried_then_fails_as_a_server_error(model, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.engines.api.retries.RETRY_DELAY", 0.0)
    async with open_provider(lambda _: stream('{"choices": [oops'), tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == MAX_TRIES
    assert failure.reason == "server_error"
    assert 'The provider sent a malformed chunk: {"choices": [oops' in failure.message


@pytest.mark.parametrize("body", ['{"id": "x", "object": "reply"}', '{\n  "id": "x",\n  "object": "reply"\n}\n'])
async def test_document_in_place_of_a_stream_fails_at_once(model, tmp_path, body):
    turn = ScriptedTurn(raw=RawAnswer(body=body, content_type="application/json"))
    async with open_provider(lambda _: turn, tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == 1
    assert "The provider answered with one document (application/json) instead of an event stream" in failure.message
    assert "the server must support streaming" in failure.message


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["http", "closed"])
async def test_base_url_with_https_of_a_server_without_tls_names_what_to_check(tmp_path, answer):
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    async with (
        await asyncio.start_server(respond, "127.0.0.1", 0) as server,
        open_provider([ANSWER], tmp_path) as provider,
    ):
        port = server.sockets[0].getsockname()[1]
        events = await provider.run(MODELS["anthropic"], environment=environment(f"https://127.0.0.1:{port}"))
    assert "begin the base URL with http://" in find_failure(events).message


async def test_redirect_fails_with_its_target_and_is_not_followed(model, tmp_path):
    fail = ScriptedError(status=307, headers={"location": "http://127.0.0.1:1/elsewhere"}, times=-1)
    async with open_provider([ScriptedTurn(fail=fail)], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == 1
    assert "307: The provider redirects to http://127.0.0.1:1/elsewhere, which is not followed" in failure.message
    assert "(Check the base URL http" in failure.message


@pytest.mark.parametrize(
    ("limit", "body", "message"),
    [
        ("MAX_REPLY_BYTES", ": keep-alive\n\n", "The reply is larger than"),
        ("MAX_EVENT_BYTES", "x" * 1000, "An event of the stream is too large"),
    ],
)
async def test_endless_stream_is_ended(model, tmp_path, monkeypatch, limit, body, message):
    monkeypatch.setattr(f"retinue.engines.api.http.{limit}", 2**16)
    turn = ScriptedTurn(raw=RawAnswer(body=body, endless=True))
    async with open_provider([turn], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
        assert len(provider.server.requests) == 1
    assert message in failure.message


async def test_stream_that_falls_silent_fails_as_a_lost_connection(model, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.engines.api.connections.READ_TIMEOUT", 0.05)
    async with open_provider([ScriptedTurn(text="One two three", hang=True)], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
    assert failure.reason == "network"
    assert "The provider timed out (ReadTimeout)" in failure.message


async def test_stream_that_is_cut_fails_as_a_lost_connection(model, tmp_path):
    async with open_provider([ScriptedTurn(text="One two three", cut=True)], tmp_path) as provider:
        failure = find_failure(await provider.run(model))
    assert failure.reason == "network"
    assert "The partial answer was kept." in failure.message


async def test_cancelled_run_leaves_no_connection_and_no_task(model, tmp_path):
    async with open_provider([ScriptedTurn(text="One two three", hang=True)], tmp_path) as provider:
        tasks = asyncio.all_tasks()
        started = anyio.Event()

        def script(_):
            started.set()
            return ScriptedTurn(text="One two three", hang=True)

        provider.server.script = script
        async with anyio.create_task_group() as group:
            group.start_soon(provider.run, model)
            await started.wait()
            await anyio.wait_all_tasks_blocked()
            assert provider.server.open_connections == 1
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            while provider.server.open_connections:
                await anyio.wait_all_tasks_blocked()
        assert asyncio.all_tasks() <= tasks


def call_arguments(api: str, *arguments: str) -> ScriptedTurn:
    """Return a turn with calls of `ls` that all have one id, with these arguments."""
    match api:
        case "openai-chat":
            calls = [
                {"index": number, "id": "c", "function": {"name": "ls", "arguments": text}}
                for number, text in enumerate(arguments)
            ]
            return stream(
                {"model": "m", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]},
                {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
                "[DONE]",
            )
        case "openai-responses":
            items = [
                {"type": "function_call", "id": "fc", "call_id": "c", "name": "ls", "arguments": text}
                for text in arguments
            ]
            done = [
                {"type": "response.output_item.done", "output_index": number, "item": item}
                for number, item in enumerate(items)
            ]
            return stream(*done, {"type": "response.completed", "response": {"model": "m", "usage": {}}})
        case _:
            blocks = [
                event
                for number, text in enumerate(arguments)
                for event in (
                    {
                        "type": "content_block_start",
                        "index": number,
                        "content_block": {"type": "tool_use", "id": "c", "name": "ls", "input": {}},
                    },
                    {
                        "type": "content_block_delta",
                        "index": number,
                        "delta": {"type": "input_json_delta", "partial_json": text},
                    },
                    {"type": "content_block_stop", "index": number},
                )
            ]
            return stream(
                {"type": "message_start", "message": {"model": "m", "usage": {}}},
                *blocks,
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
                {"type": "message_stop"},
            )


APIS = ["openai-chat", "openai-responses", "anthropic"]
"""The APIs in which a model writes ids and arguments as text."""


@pytest.mark.parametrize("api", APIS)
async def test_broken_arguments_are_reported_to_the_model(api, tmp_path):
    async with open_provider(in_order(call_arguments(api, '{"path": '), ANSWER), tmp_path) as provider:
        events = await provider.run(MODELS[api])
        body = msgspec.json.encode(provider.server.requests[1].body).decode()
    (returned,) = of_type(events, ToolReturned)
    assert returned.is_error
    assert returned.text.startswith("The arguments of ls are not valid JSON: ")
    assert returned.text.endswith(': {"path": ')
    assert '"arguments":"{\\"path\\": "' not in body
    assert of_type(events, Text) == [Text("It says hello.")]


@pytest.mark.parametrize("api", APIS)
async def test_third_message_with_broken_arguments_in_a_row_fails_the_run(api, tmp_path):
    async with open_provider(lambda _: call_arguments(api, "{'path': 1}"), tmp_path) as provider:
        events = await provider.run(MODELS[api])
        assert len(provider.server.requests) == 3
    assert of_type(events, MessageEnded)[-1].error == INVALID_CALLS_ERROR
    assert find_failure(events).code is ErrorCode.PROVIDER


@pytest.mark.parametrize("api", APIS)
async def test_repeated_call_ids_are_made_unique_in_the_next_request(api, tmp_path):
    async with open_provider(in_order(call_arguments(api, "{}", "{}"), ANSWER), tmp_path) as provider:
        events = await provider.run(MODELS[api])
        body = msgspec.json.encode(provider.server.requests[1].body).decode()
    assert [event.call for event in of_type(events, ToolCalled)] == ["c", "c_2"]
    assert [event.call for event in of_type(events, ToolReturned)] == ["c", "c_2"]
    assert (body.count('"c"'), body.count('"c_2"')) == (2, 2)


REFUSALS = {
    "openai-chat": [
        stream({"choices": [{"index": 0, "delta": {"content": "No"}, "finish_reason": "content_filter"}]}),
        stream({"choices": [{"index": 0, "delta": {"refusal": "I cannot."}, "finish_reason": "stop"}]}),
    ],
    "openai-responses": [
        stream(
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
        ),
        stream(
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]},
            },
            {"type": "response.completed", "response": {}},
        ),
    ],
    "anthropic": [
        stream({"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {}}, {"type": "message_stop"})
    ],
    "gemini": [
        stream({"candidates": [{"finishReason": "SAFETY"}]}),
        stream({"candidates": [{"finishReason": "RECITATION"}]}),
        stream({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}),
    ],
}


@pytest.mark.parametrize(("api", "turn"), [(api, turn) for api, turns in REFUSALS.items() for turn in turns])
async def test_refusals_and_filters_fail_with_advice_and_are_not_repeated(api, turn, tmp_path):
    async with open_provider([turn], tmp_path) as provider:
        failure = find_failure(await provider.run(MODELS[api]))
        assert len(provider.server.requests) == 1
    assert (failure.code, failure.reason) == (ErrorCode.PROVIDER, "refused")
    assert failure.message.endswith("Rephrase the task, or use another model.")


async def test_invalid_call_of_gemini_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.engines.api.retries.RETRY_DELAY", 0.0)
    bad = stream({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})
    async with open_provider(in_order(bad, ANSWER), tmp_path) as provider:
        events = await provider.run(MODELS["gemini"])
    assert [event.code for event in of_type(events, Notice)] == ["provider_retry"]
    assert of_type(events, Text) == [Text("It says hello.")]


async def test_result_of_ten_megabytes_is_bounded_before_it_is_sent(model, tmp_path):
    (tmp_path / "big.txt").write_bytes(b"x" * 99 + b"\n" + b"y" * 10_000_000)
    turn = ScriptedTurn(tools=(ScriptedCall(tool="read", args={"path": "big.txt"}), ScriptedCall(tool="ls")))
    async with open_provider([turn, ANSWER], tmp_path) as provider:
        events = await provider.run(model)
        assert len(msgspec.json.encode(provider.server.requests[1].body)) < 100_000
    assert len(of_type(events, ToolReturned)[0].text) < 60_000


async def test_result_of_a_function_of_ten_megabytes_is_bounded(tmp_path):
    async def dump() -> str:
        """Return a huge text."""
        return "x" * 10_000_000

    async with open_provider([ScriptedTurn(tool="dump"), ANSWER], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"], functions=(dump,))
    (returned,) = of_type(events, ToolReturned)
    assert len(returned.text) < 60_000
    assert returned.text.endswith("Ask for a smaller part to see the remainder.]")


async def test_wait_that_a_provider_asks_for_is_lengthened_by_chance(tmp_path, monkeypatch):
    waits: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        waits.append((low, high))
        return high

    monkeypatch.setattr("random.uniform", draw)
    fail = ScriptedError(status=429, times=1, headers={"retry-after-ms": "10"})
    async with open_provider([msgspec.structs.replace(ANSWER, fail=fail)], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"])
    assert waits == [(1.0, 1.1)]
    assert "again in 0.0s" in of_type(events, Notice)[0].message
