"""The model server: connections on loopback and scripted replies, for the duration of a block."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Self

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from msgspec.structs import replace
from tests.support.model_server.answer import ModelTurn, build_turn
from tests.support.model_server.chat import CHAT
from tests.support.model_server.exchange import HttpConnection, HttpRequest, UnreadableError
from tests.support.model_server.gemini import GEMINI
from tests.support.model_server.messages import MESSAGES
from tests.support.model_server.request import ApiKind, BadRequestError, ChatRequest, read_request
from tests.support.model_server.responses import RESPONSES
from tests.support.model_server.script import Script, ScriptedTurn, step_for

HOST = "127.0.0.1"
MAX_CONNECTIONS = 256
MAX_STORED_REQUESTS = 1000
"""Requests that are stored; older ones are dropped."""
SECRET_HEADERS = {"authorization", "x-api-key", "x-goog-api-key"}
"""Headers that are not logged."""
MODELS = ("scripted-1", "scripted-2")
API_DIALECTS = {ApiKind.CHAT: CHAT, ApiKind.RESPONSES: RESPONSES, ApiKind.MESSAGES: MESSAGES, ApiKind.GEMINI: GEMINI}
DISCONNECT_ERRORS = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ModelServer(anyio.AsyncContextManagerMixin):
    """A scripted model that runs for the duration of its block.

    A script in the prompt wins. Else `script` is played: steps that begin anew with each user message, or a function
    that looks at the request and says the step; what it raises ends the block. Without any script the model repeats
    the end of the prompt.
    """

    def __init__(self, script: Script | None = None, *, port: int = 0, log: Path | None = None) -> None:
        """Configure the server: `port` 0 is any free port, `log` a folder that gets every request as a file."""
        self.script = script
        """The script; may be changed while the server runs."""
        self._port = port
        self._log = log
        self._requests: deque[ChatRequest] = deque(maxlen=MAX_STORED_REQUESTS)
        self._answered = 0
        self._connections = 0
        self._failures: Counter[bytes] = Counter()

    @property
    def url(self) -> str:
        """The base URL. OpenAI clients append `/v1`, Anthropic clients nothing."""
        return f"http://{HOST}:{self._port}"

    @property
    def requests(self) -> list[ChatRequest]:
        """The requests to the model, oldest first."""
        return list(self._requests)

    @property
    def open_connections(self) -> int:
        return self._connections

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._log is not None:
            await anyio.Path(self._log).mkdir(parents=True, exist_ok=True)
        async with (
            await anyio.create_tcp_listener(local_host=HOST, local_port=self._port) as listener,
            anyio.create_task_group() as tasks,
        ):
            self._port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, self._serve_connection)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def _serve_connection(self, stream: SocketStream) -> None:
        exchange = HttpConnection(stream)
        self._connections += 1
        try:
            async with stream:
                await self._serve_requests(exchange)
        except DISCONNECT_ERRORS:
            return
        finally:
            self._connections -= 1

    async def _serve_requests(self, exchange: HttpConnection) -> None:
        if self._connections > MAX_CONNECTIONS:
            await _refuse(
                exchange, HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} connections are open already."
            )
            return
        closing = False
        while not closing:
            try:
                request = await exchange.read_request()
            except UnreadableError as why:
                await _refuse(exchange, why.status, str(why))
                return
            closing = request.headers.get("connection", "").lower() == "close"
            await self._respond(exchange, request)

    async def _respond(self, exchange: HttpConnection, request: HttpRequest) -> None:
        path = request.path.partition("?")[0]
        if request.method == "POST" and path.endswith(tuple(ApiKind)):
            await self._answer_model_request(exchange, request)
        elif request.method == "POST" and path.endswith("/count_tokens"):
            await exchange.reply(HTTPStatus.OK, {"input_tokens": max(1, len(request.body) // 4)})
        elif request.method == "GET" and path.endswith("/models"):
            await exchange.reply(HTTPStatus.OK, {"object": "list", "data": [{"id": name} for name in MODELS]})
        elif request.method in {"GET", "HEAD"} and path == "/":
            await exchange.reply(HTTPStatus.OK, {})
        else:
            sentence = f"There is no {request.method} {path[:200]} here; there are {', '.join(ApiKind)} and /models."
            await _refuse(exchange, HTTPStatus.NOT_FOUND, sentence)

    async def _answer_model_request(self, exchange: HttpConnection, http_request: HttpRequest) -> None:
        try:
            request = read_request(http_request.path, http_request.headers, http_request.body)
            self._requests.append(request)
            self._answered += 1
            number = self._answered
            await self._log_request(request, number)
            step = step_for(request, self.script)
        except BadRequestError as why:
            await _refuse(exchange, HTTPStatus.BAD_REQUEST, str(why))
            return
        if not await self._fail_if_scripted(exchange, request, step):
            await anyio.sleep(step.delay)
            if step.raw:
                await exchange.send_raw(
                    step.raw.status, step.raw.content_type, step.raw.body.encode(), endless=step.raw.endless
                )
                return
            await _send_turn(exchange, request, step, build_turn(step, request, number))

    async def _fail_if_scripted(self, exchange: HttpConnection, request: ChatRequest, step: ScriptedTurn) -> bool:
        """Fail as often as the step requires at one position of a conversation."""
        if (fail := step.fail) is None:
            return False
        place = msgspec.json.encode([step, request.prompt, len(request.messages)])
        if 0 <= fail.times <= self._failures[place]:
            return False
        self._failures[place] += 1
        error = API_DIALECTS[request.api].error(fail.status, fail.message or f"scripted {fail.status}")
        await exchange.reply(fail.status, error, fail.headers)
        return True

    async def _log_request(self, request: ChatRequest, number: int) -> None:
        if self._log is not None:
            path = anyio.Path(self._log) / f"request-{number:05d}.json"
            public = {name: value for name, value in request.headers.items() if name not in SECRET_HEADERS}
            written = msgspec.json.encode(replace(request, headers=public))
            await path.write_bytes(msgspec.json.format(written, indent=1))


async def _refuse(exchange: HttpConnection, status: HTTPStatus, sentence: str) -> None:
    await exchange.reply(status, CHAT.error(status, sentence))


async def _send_turn(exchange: HttpConnection, request: ChatRequest, step: ScriptedTurn, answer: ModelTurn) -> None:
    dialect = API_DIALECTS[request.api]
    if not request.stream:
        if step.hang:
            await exchange.wait_closed()
            return
        await exchange.reply(HTTPStatus.OK, dialect.whole(answer), half=step.cut)
        if step.cut:
            await exchange.drop()
        return
    await exchange.start_events()
    for event in dialect.stream(answer):
        if event.is_word and step.tps:
            await anyio.sleep(1 / step.tps)
        await exchange.send_event(event)
        if step.hang:
            await exchange.wait_closed()
            return
        if step.cut and (event.is_word or not answer.text):
            await exchange.drop()
            return
    await exchange.end_events()
