"""The model server: scripts, scripted failures and malformed requests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection, IncompleteRead

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint
from tests.support.model_client import CHAT, MESSAGES, RESPONSES, asked, post, said, user
from tests.support.model_server import ApiKind, ChatRequest, ModelServer, ScriptedError, ScriptedTurn, script64
from tests.support.model_server.exchange import MAX_BODY_BYTES
from tests.support.model_server.server import MAX_CONNECTIONS
from tests.support.retinue_factory import VIRTUAL_TIME


async def test_script_in_the_prompt_is_played_by_the_position_in_the_conversation():
    script = script64([{"tool": "read", "args": {"path": "a"}}, ScriptedTurn(text="Done.")])
    conversation = [*user(f"Do. {script}"), {"role": "assistant"}, {"role": "tool", "content": "x"}]
    async with ModelServer([ScriptedTurn(text="not this")]) as server:
        first = await post(server, CHAT, asked(f"Do. {script}", tools=("read",)))
        second = await post(server, CHAT, {"stream": True, "messages": conversation})
        third = await post(server, CHAT, {"stream": True, "messages": [*conversation, {"role": "assistant"}]})
    assert first.events[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert said(second) == "Done."
    assert said(third) == "END OF SCRIPT (step 2)"


async def test_last_script_of_a_message_and_of_a_conversation_is_played():
    one, two, three = (script64([ScriptedTurn(text=text)]) for text in ("one", "two", "three"))
    async with ModelServer() as server:
        merged = await post(server, CHAT, asked(f"{one} {two}"))
        later = await post(server, CHAT, {"stream": True, "messages": user(one, two, three)})
    assert (said(merged), said(later)) == ("two", "three")


async def test_script_of_the_server_restarts_with_each_user_message():
    conversation = [*user("a"), {"role": "assistant"}, {"role": "assistant"}, *user("b"), {"role": "assistant"}]
    async with ModelServer([ScriptedTurn(text="first"), ScriptedTurn(text="second")]) as server:
        assert said(await post(server, CHAT, {"stream": True, "messages": conversation[:1]})) == "first"
        assert said(await post(server, CHAT, {"stream": True, "messages": conversation})) == "second"


async def test_function_returns_the_step_for_a_request():
    def decide(request: ChatRequest) -> ScriptedTurn:
        return ScriptedTurn(text=f"{request.model} was asked {request.prompt}")

    async with ModelServer(decide) as server:
        assert said(await post(server, CHAT, asked("why"))) == "m was asked why"


async def test_model_without_a_script_repeats_the_prompt():
    async with ModelServer() as server:
        assert said(await post(server, CHAT, asked("Hello there."))) == "ECHO: Hello there."


async def test_tool_that_is_not_offered_is_called_only_with_force():
    async with ModelServer() as server:
        side = await post(server, CHAT, asked(script64([{"tool": "bash"}]), stream=False))
        forced = script64([{"tools": [{"tool": "bash", "force": True}]}])
        made_up = await post(server, CHAT, asked(forced, stream=False))
    assert side.value["choices"][0]["message"] == {"role": "assistant", "content": "[not offered: bash]"}
    assert made_up.value["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"


async def test_requests_are_stored_unchanged():
    body = asked("Hi", tools=("read", "bash"), reasoning_effort="low")
    async with ModelServer() as server:
        await post(server, CHAT + "?beta=true", body, {"X-Trace": "7"})
        (request,) = server.requests
    assert request.headers["x-trace"] == "7"
    assert request == ChatRequest(
        path="/v1/chat/completions?beta=true",
        api=ApiKind.CHAT,
        model="m",
        stream=True,
        tools=("read", "bash"),
        system="",
        messages=request.messages,
        reasoning="low",
        headers=request.headers,
        body=body,
    )


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_step_fails_as_often_as_scripted_and_then_succeeds(path):
    step = ScriptedTurn(
        text="fine", fail=ScriptedError(status=429, times=2, headers={"retry-after": "3"}, message="slow down")
    )
    body = {"model": "m", "messages": user("a"), "input": "a"}
    async with ModelServer([step]) as server:
        replies = [await post(server, path, body) for _ in range(3)]
        other = await post(server, path, {**body, "messages": user("b"), "input": "b"})
    assert [reply.status for reply in replies] == [429, 429, 200]
    assert replies[0].headers["retry-after"] == "3"
    assert replies[0].value["error"]["message"] == "slow down"
    assert other.status == 429


async def test_step_with_unlimited_failures_always_fails():
    async with ModelServer([ScriptedTurn(fail=ScriptedError(times=-1))]) as server:
        assert {(await post(server, CHAT, asked("a"))).status for _ in range(5)} == {500}


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_step_drops_the_connection_in_the_middle(stream):
    async with ModelServer([ScriptedTurn(text="one two three", cut=True)]) as server:
        with pytest.raises((IncompleteRead, ConnectionError)) as broken:
            await post(server, CHAT, asked("Go.", stream=stream))
    if isinstance(broken.value, IncompleteRead) and stream:
        assert b"one" in broken.value.partial
        assert b"two" not in broken.value.partial


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_model_ends_with_the_block(anyio_backend, stream):
    ends = []

    async def ask(server: ModelServer) -> None:
        try:
            await post(server, CHAT, asked("Go.", stream=stream))
        except (IncompleteRead, ConnectionError) as error:
            ends.append(error)

    arrived = anyio.Event()

    def hang(request: ChatRequest) -> ScriptedTurn:
        arrived.set()
        return ScriptedTurn(text="never", hang=True)

    async with anyio.create_task_group() as tasks, ModelServer(hang) as server:
        tasks.start_soon(ask, server)
        await arrived.wait()
        assert ends == []
    assert len(ends) == 1


@VIRTUAL_TIME
async def test_delay_and_pace_of_a_step_are_respected():
    async with ModelServer([ScriptedTurn(text="one two three", delay=600, tps=0.01)]) as server:
        started = anyio.current_time()
        assert said(await post(server, CHAT, asked("Go."))) == "one two three"
        assert anyio.current_time() - started == pytest.approx(600 + 3 * 100)


BAD = {
    "no json": (CHAT, b"hello", 400, "The body is no JSON object"),
    "no object": (CHAT, b"[]", 400, "The body is no JSON object"),
    "no messages": (CHAT, b"{}", 400, "The body is not what /chat/completions takes: KeyError('messages')."),
    "strange messages": (MESSAGES, b'{"messages": [1]}', 400, "The body is not what /messages takes"),
    "strange input": (RESPONSES, b'{"input": 3}', 400, "The body is not what /responses takes"),
    "broken script": (
        CHAT,
        json.dumps(asked("SCRIPT64:bm8=")).encode(),
        400,
        "The script in the prompt cannot be read",
    ),
    "odd script": (
        CHAT,
        json.dumps(asked("SCRIPT64:abcde")).encode(),
        400,
        "The script in the prompt cannot be read",
    ),
    "unknown path": ("/v1/embeddings", b"{}", 404, "There is no POST /v1/embeddings here"),
}


@pytest.mark.parametrize("case", BAD)
async def test_malformed_request_gets_an_error_message(case):
    path, body, status, sentence = BAD[case]
    async with ModelServer() as server:
        reply = await post(server, path, body)
    assert reply.status == status
    assert reply.value["error"]["message"].startswith(sentence)


RAW = {
    "no request line": (b"hello\r\n\r\n", b" 400 ", b"no HTTP request line"),
    "no end of the head": (b"x" * 70_000, b" 400 ", b"no end of its head"),
    "no size": (b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", b" 400 ", b"is no size of a body"),
    "negative size": (b"POST /v1/messages HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b" 413 ", b"A body may have"),
    "too large": (
        b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b" 413 ",
        b"A body may have",
    ),
    "bad chunk": (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b" 400 ", b"is no size of a body"),
}


async def raw(server: ModelServer, sent: bytes) -> bytes:
    """Return the reply until the server closes the connection."""
    received = b""
    async with await anyio.connect_tcp(*address(server)) as stream:
        await stream.send(sent)
        try:
            while True:
                received += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return received


def address(server: ModelServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


@pytest.mark.parametrize("case", RAW)
async def test_invalid_http_gets_a_reply_and_a_closed_connection(case):
    sent, status, sentence = RAW[case]
    async with ModelServer() as server:
        with anyio.fail_after(5):
            received = await raw(server, sent)
    assert status in received.split(b"\r\n")[0]
    assert sentence in received


async def test_chunked_body_and_expect_continue_are_supported():
    body = json.dumps(asked("Hi", stream=False)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n"
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n%x;x=y\r\n%s\r\n0\r\n\r\n"
    async with ModelServer() as server:
        received = await raw(server, head + chunks % (9, body[:9], len(body) - 9, body[9:]))
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"ECHO: Hi" in received


async def test_connection_serves_several_requests():
    def several(url: str) -> list[int]:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
        statuses = []
        for method, path in (
            ("HEAD", "/"),
            ("POST", CHAT),
            ("GET", "/v1/models"),
            ("POST", MESSAGES + "/count_tokens"),
        ):
            connection.request(method, path, json.dumps(asked("Hi")).encode())
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()
        return statuses

    async with ModelServer() as server:
        assert await to_thread.run_sync(several, server.url) == [200, 200, 200, 200]


async def test_connections_beyond_the_limit_get_an_error():
    async with ModelServer() as server:
        held = [socket.create_connection(address(server)) for _ in range(MAX_CONNECTIONS)]
        try:
            assert (await post(server, CHAT, asked("Hi"))).status == 503
        finally:
            for connection in held:
                connection.close()
        with anyio.fail_after(5):
            while (await post(server, CHAT, asked("Hi"))).status != 200:
                await checkpoint()


@pytest.mark.process
def test_model_server_runs_as_a_program(tmp_path):
    command = [sys.executable, "-m", "tests.support.model_server", "--log", str(tmp_path / "log")]
    script = ["--script", '[{"text": "Hello."}]']
    with subprocess.Popen([*command, *script], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        connection = HTTPConnection(line.split("http://")[1].split()[0], timeout=10)
        connection.request("POST", CHAT, json.dumps(asked("Hi", stream=False)), {"Authorization": "Bearer key"})
        assert b"Hello." in connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    (written,) = (tmp_path / "log").iterdir()
    assert json.loads(written.read_text())["body"] == asked("Hi", stream=False)
    assert "Bearer" not in written.read_text()
