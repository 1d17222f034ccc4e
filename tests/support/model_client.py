"""A client for the model server that knows nothing of it: the standard library's, in a thread of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from anyio import to_thread
from msgspec import Struct
from tests.support.model_server import ModelServer

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"


class Reply(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.content)

    @property
    def events(self) -> list[Any]:
        """What an event stream carried; its end mark as text."""
        data = [line[6:] for line in self.content.decode().split("\n") if line.startswith("data: ")]
        return [text if text == "[DONE]" else json.loads(text) for text in data]


async def post(server: ModelServer, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
    """Raises what the client does: `IncompleteRead` or `ConnectionError` where the reply breaks off."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await to_thread.run_sync(_post, server.url, path, content, headers or {}, abandon_on_cancel=True)


def _post(url: str, path: str, content: bytes, headers: Mapping[str, str]) -> Reply:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", path, content, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return Reply(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())
    finally:
        connection.close()


def user(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def asked(prompt: str, *, stream: bool = True, tools: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A request for chat completions."""
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    return {"model": "m", "stream": stream, "messages": user(prompt), "tools": offered, **more}


def said(reply: Reply) -> str:
    """The text of a streamed chat completion."""
    deltas = [event["choices"][0]["delta"] for event in reply.events if event != "[DONE]" and event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
