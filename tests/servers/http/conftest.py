"""Fixtures: a server in this process, and a client that calls its ASGI application without a socket.

Every JSON response is validated against the OpenAPI document of the server.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import jsonschema
import pytest
from msgspec import Struct
from tests.cli.conftest import ProcessStarter
from tests.support.retinue_factory import stage

from retinue.client import Retinue
from retinue.engines.scripted import Script, Step
from retinue.model.runs import RunSpec
from retinue.servers.asgi.request_checks import AllowedHosts
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.serving import ServerParts, open_server

PORT = 8477
HOST = f"127.0.0.1:{PORT}"
BASE = "/api/v1"
PATIENCE = 20.0
JSON = {"content-type": "application/json"}


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        code: str = self.json["error"]["code"]
        return code


class Message(Struct, frozen=True):
    """One message of the stream."""

    event: str
    data: Any
    id: str | None = None


class Stream:
    """The messages a watcher has received."""

    def __init__(self) -> None:
        self._send, self._pieces = anyio.create_memory_object_stream[bytes](math.inf)
        self._rest = b""
        self._ready: list[Message] = []
        self.raw = b""
        self.gone, self.over = anyio.Event(), anyio.Event()

    async def feed(self, piece: bytes) -> None:
        self.raw += piece
        await self._send.send(piece)

    async def next(self) -> Message:
        """Return the next message; pings are skipped."""
        with anyio.fail_after(PATIENCE):
            while not self._ready:
                *blocks, self._rest = (self._rest + await self._pieces.receive()).split(b"\n\n")
                self._ready += [message for block in blocks if (message := _message(block))]
        return self._ready.pop(0)

    async def until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """Return the messages up to the first that matches."""
        found = []
        while True:
            found.append(await self.next())
            if wanted(found[-1]):
                return found

    def close(self) -> None:
        self._send.close()
        self._pieces.close()


def _message(block: bytes) -> Message | None:
    fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":") and line)
    if "data" not in fields:
        return None
    return Message(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))


class Client:
    """A client with the token."""

    def __init__(self, server: ServerParts, retinue: Retinue) -> None:
        self.server = server
        self.retinue = retinue
        self.token = server.authenticator.token_file.read_text().strip()
        self.headers = {"host": HOST, "authorization": f"Bearer {self.token}"}
        self._document: Any = None

    @property
    def hub(self) -> EventFeed:
        return self.server.feed

    async def get(self, path: str, **headers: str | None) -> Answer:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str | None) -> Answer:
        written = json.dumps({} if body is None else body).encode()
        return await self.ask("POST", path, written, **{"content_type": "application/json", **headers})

    async def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str | None) -> Answer:
        """Send a request. A path without a leading slash is below the API base; a header that is None is not sent."""
        sent: list[Any] = []
        chunks = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return chunks.pop() if chunks else await anyio.sleep_forever()

        async def send(message: Any) -> None:
            sent.append(message)

        with anyio.fail_after(PATIENCE):
            await self.server.app(self._scope(method, path, headers), receive, send)
        received = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        answer = Answer(sent[0]["status"], received, b"".join(each["body"] for each in sent[1:]))
        await self._check(method, path, answer)
        return answer

    @asynccontextmanager
    async def watch(self, query: str = "", **headers: str | None) -> AsyncIterator[Stream]:
        """Watch the event stream within the block."""
        stream = Stream()
        begun = anyio.Event()
        chunks = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if chunks:
                return chunks.pop()
            await stream.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
                begun.set()
            else:
                await stream.feed(message["body"])

        async def answered() -> None:
            await self.server.app(self._scope("GET", f"events{query}", headers), receive, send)
            stream.over.set()

        async with anyio.create_task_group() as group:
            group.start_soon(answered)
            with anyio.fail_after(PATIENCE):
                await begun.wait()
            yield stream
            stream.gone.set()
        stream.close()

    def _scope(self, method: str, path: str, headers: Mapping[str, str | None]) -> dict[str, Any]:
        whole = urlsplit(path if path.startswith("/") else f"{BASE}/{path}")
        own: dict[str, str | None] = {**self.headers, **{_name(name): value for name, value in headers.items()}}
        return {
            "type": "http",
            "method": method,
            "path": unquote(whole.path),
            "query_string": whole.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in own.items() if value is not None],
        }

    async def _check(self, method: str, path: str, answer: Answer) -> None:
        if answer.headers.get("content-type") != "application/json" or "openapi" in path:
            return
        if self._document is None:
            self._document = json.loads((await self.get("openapi.json", host=HOST, **_as(self.token))).body)
        check(self._document, method, path, answer)


def _as(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "origin": f"http://{HOST}"}


def _name(name: str) -> str:
    return name.replace("_", "-")


def check(document: Any, method: str, path: str, answer: Answer) -> None:
    """Validate a response against the OpenAPI document."""
    whole = (path if path.startswith("/") else f"{BASE}/{path}").partition("?")[0]
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), whole) and method.lower() in operations:
            responses = operations[method.lower()]["responses"]
            schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
            validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
            validator.validate(answer.json)
            return


Serve = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the working directory of the agents."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def serve(place: Path, tmp_path: Path) -> Serve:
    """Return `serve(*script, …)`, which opens a client of a server whose agents follow the script."""

    @asynccontextmanager
    async def serving(*script: Step | Callable[[RunSpec], Script], **options: Any) -> AsyncIterator[Client]:
        options = {"state": tmp_path / "state", "store": None, **options}
        async with (
            stage(place, *script, **options) as retinue,
            open_server(retinue, AllowedHosts(PORT), PORT, f"http://{HOST}") as server,
        ):
            yield Client(server, retinue)

    return serving


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessStarter]:
    monkeypatch.chdir(tmp_path)
    started = ProcessStarter(tmp_path)
    yield started
    started.end()
