"""The server: connections on loopback, each request answered as its script says, all of it gone with the block."""

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

from retinue.testing.model_server.answer import Answer, answer_of
from retinue.testing.model_server.chat import CHAT
from retinue.testing.model_server.exchange import Exchange, Heard, UnreadableError
from retinue.testing.model_server.messages import MESSAGES
from retinue.testing.model_server.request import Api, BadRequestError, Request, read_request
from retinue.testing.model_server.responses import RESPONSES
from retinue.testing.model_server.script import Script, Step, step_for

HOST = "127.0.0.1"
MAX_CONNECTIONS = 256
KEPT_REQUESTS = 1000
"""The requests remembered; older ones are forgotten."""
KEYS = {"authorization", "x-api-key"}
"""Headers that are not written down."""
MODELS = ("scripted-1", "scripted-2")
SPELLINGS = {Api.CHAT: CHAT, Api.RESPONSES: RESPONSES, Api.MESSAGES: MESSAGES}
GONE = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ModelServer(anyio.AsyncContextManagerMixin):
    """A scripted model, up while its block runs.

    A script in the prompt wins. Else `script` is played: steps that begin anew with each user message, or a function
    that looks at the request and says the step; what it raises ends the block. Without any script the model repeats
    the end of the prompt.
    """

    def __init__(self, script: Script | None = None, *, port: int = 0, log: Path | None = None) -> None:
        """`port` 0 takes any that is free; `log` is a folder that gets every request as a file."""
        self.script = script
        """May be changed while it is up."""
        self._port = port
        self._log = log
        self._requests: deque[Request] = deque(maxlen=KEPT_REQUESTS)
        self._answered = 0
        self._connections = 0
        self._failures: Counter[bytes] = Counter()

    @property
    def url(self) -> str:
        """Where it is. For an OpenAI client `/v1` is added to it, for an Anthropic one nothing."""
        return f"http://{HOST}:{self._port}"

    @property
    def requests(self) -> list[Request]:
        """What the model was asked, oldest first."""
        return list(self._requests)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        if self._log is not None:
            await anyio.Path(self._log).mkdir(parents=True, exist_ok=True)
        async with (
            await anyio.create_tcp_listener(local_host=HOST, local_port=self._port) as listener,
            anyio.create_task_group() as tasks,
        ):
            self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - of a socket, not of a query
            tasks.start_soon(listener.serve, self._connection)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def _connection(self, stream: SocketStream) -> None:
        exchange = Exchange(stream)
        self._connections += 1
        try:
            async with stream:
                await self._converse(exchange)
        except GONE:
            return
        finally:
            self._connections -= 1

    async def _converse(self, exchange: Exchange) -> None:
        if self._connections > MAX_CONNECTIONS:
            await _refuse(
                exchange, HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} connections are open already."
            )
            return
        closing = False
        while not closing:
            try:
                heard = await exchange.hear()
            except UnreadableError as why:
                await _refuse(exchange, why.status, str(why))
                return
            closing = heard.headers.get("connection", "").lower() == "close"
            await self._respond(exchange, heard)

    async def _respond(self, exchange: Exchange, heard: Heard) -> None:
        path = heard.path.partition("?")[0]
        if heard.method == "POST" and path.endswith(tuple(Api)):
            await self._model(exchange, heard)
        elif heard.method == "POST" and path.endswith("/count_tokens"):
            await exchange.reply(HTTPStatus.OK, {"input_tokens": max(1, len(heard.body) // 4)})
        elif heard.method == "GET" and path.endswith("/models"):
            await exchange.reply(HTTPStatus.OK, {"object": "list", "data": [{"id": name} for name in MODELS]})
        elif heard.method in {"GET", "HEAD"} and path == "/":
            await exchange.reply(HTTPStatus.OK, {})
        else:
            sentence = f"There is no {heard.method} {path[:200]} here; there are {', '.join(Api)} and /models."
            await _refuse(exchange, HTTPStatus.NOT_FOUND, sentence)

    async def _model(self, exchange: Exchange, heard: Heard) -> None:
        try:
            request = read_request(heard.path, heard.headers, heard.body)
            self._requests.append(request)
            self._answered += 1
            number = self._answered
            await self._write_down(request, number)
            step = step_for(request, self.script)
        except BadRequestError as why:
            await _refuse(exchange, HTTPStatus.BAD_REQUEST, str(why))
            return
        if not await self._failed(exchange, request, step):
            await anyio.sleep(step.delay)
            await _play(exchange, request, step, answer_of(step, request, number))

    async def _failed(self, exchange: Exchange, request: Request, step: Step) -> bool:
        """Fails as often as the step says for one and the same place of a conversation."""
        if (fail := step.fail) is None:
            return False
        place = msgspec.json.encode([step, request.prompt, len(request.messages)])
        if 0 <= fail.times <= self._failures[place]:
            return False
        self._failures[place] += 1
        error = SPELLINGS[request.api].error(fail.status, fail.message or f"scripted {fail.status}")
        await exchange.reply(fail.status, error, fail.headers)
        return True

    async def _write_down(self, request: Request, number: int) -> None:
        if self._log is not None:
            path = anyio.Path(self._log) / f"request-{number:05d}.json"
            public = {name: value for name, value in request.headers.items() if name not in KEYS}
            written = msgspec.json.encode(replace(request, headers=public))
            await path.write_bytes(msgspec.json.format(written, indent=1))


async def _refuse(exchange: Exchange, status: HTTPStatus, sentence: str) -> None:
    await exchange.reply(status, CHAT.error(status, sentence))


async def _play(exchange: Exchange, request: Request, step: Step, answer: Answer) -> None:
    spelling = SPELLINGS[request.api]
    if not request.stream:
        if step.hang:
            await exchange.gone()
            return
        await exchange.reply(HTTPStatus.OK, spelling.whole(answer), half=step.cut)
        if step.cut:
            await exchange.drop()
        return
    await exchange.begin_events()
    for event in spelling.stream(answer):
        if event.is_word and step.tps:
            await anyio.sleep(1 / step.tps)
        await exchange.send_event(event)
        if step.hang:
            await exchange.gone()
            return
        if step.cut and (event.is_word or not answer.text):
            await exchange.drop()
            return
    await exchange.end_events()
