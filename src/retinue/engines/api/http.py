"""Requests to providers over HTTP: streams, and errors that state what to do next."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta, ReplyStarted
from retinue.engines.api.openai_chat import describe_error
from retinue.engines.api.pricing import PriceList
from retinue.engines.api.retries import (
    RequestFailedError,
    make_connection_error,
    make_status_error,
    reply_with_retries,
)
from retinue.engines.api.wire import (
    DEFAULT_MAX_TOKENS,
    JsonObject,
    ModelOptions,
    StreamReader,
    TruncatedStreamError,
    Wire,
    get_object,
)
from retinue.model.events import Notice
from retinue.model.results import Usage
from retinue.model.runs import Secret

if TYPE_CHECKING:
    import httpx2

NO_TLS_MARKS = ("WRONG_VERSION_NUMBER", "TLS/SSL connection has been closed")
NO_TLS_HINT = (
    "(The server does not speak TLS on this port: check the port, or begin the base URL with http:// if the "
    "server is yours.)"
)
MAX_EVENT_BYTES = 16 * 2**20
MAX_REPLY_BYTES = 64 * 2**20
"""Bytes of one streamed reply; an endless stream ends here."""
MAX_ERROR_BYTES = 64 * 2**10
MAX_ERROR_CHARS = 500
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")
IMAGES_REFUSED = re.compile(
    r"4\d\d: .*(?:image|vision|multimodal|modalit|must be a string)", re.IGNORECASE | re.DOTALL
)
"""Errors of models and servers that take text only."""
EFFORT_REFUSED = re.compile(r"4(?:00|22): .*(?:reasoning|thinking|effort)", re.IGNORECASE | re.DOTALL)
"""Errors of models that do not think, or do not know the level."""


LIMIT_REFUSED = re.compile(r"4\d\d: .*max_?(?:output_?|completion_?)?tokens", re.IGNORECASE | re.DOTALL)
"""Errors of models that write less than the output limit of a request allows."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a model is reached, and by which API."""

    provider: str
    wire: Wire
    base_url: str
    key: Secret
    headers: dict[str, str] = {}


class ApiModel:
    """A model behind a provider's API."""

    def __init__(
        self, client: httpx2.AsyncClient, endpoint: Endpoint, options: ModelOptions, prices: PriceList
    ) -> None:
        self.name = f"{endpoint.provider}/{options.model}"
        self._client = client
        self._prices = prices
        self._endpoint = endpoint
        self._options = options

    @property
    def max_output_tokens(self) -> int:
        return self._options.max_output_tokens or DEFAULT_MAX_TOKENS

    async def find_prices(self, input_tokens: int) -> tuple[float, float]:
        return await self._prices.find_token_prices(self._endpoint.provider, self._options.model, input_tokens)

    async def add_cost(self, usage: Usage) -> Usage:
        return await self._prices.add_cost(usage, self._endpoint.provider, self._options.model)

    async def reply(self, request: ModelRequest, on_event: OnDelta) -> ModelReply:
        """Return the next message; a provider's failure is a reply with stop reason `error`."""
        reply = await self._send(request, on_event)
        if self._options.effort and reply.stop_reason == "error" and EFFORT_REFUSED.match(reply.error or ""):
            message = (
                f"{self.name} does not support effort {self._options.effort}; the provider's default is used: "
                f"{reply.error}"
            )
            self._options = msgspec.structs.replace(self._options, effort=None)
            await on_event(Notice("not_applied", message, preference="thinking"))
            reply = await self._send(request, on_event)
        if self._refuses_images(request, reply):
            self._options = msgspec.structs.replace(self._options, images=False)
            await on_event(
                Notice("not_applied", f"{self.name} does not accept images; the images were left out: {reply.error}")
            )
            reply = await self._send(request, on_event)
        if self._refuses_limit(request, reply):
            self._options = msgspec.structs.replace(self._options, sends_budget_limits=False)
            await on_event(Notice("not_applied", f"{self.name} refuses the output limit of a budget: {reply.error}"))
            reply = await self._send(request, on_event)
        return reply

    async def _send(self, request: ModelRequest, on_event: OnDelta) -> ModelReply:
        options = self._options
        if request.max_output_tokens is not None and options.sends_budget_limits:
            options = msgspec.structs.replace(options, max_output_tokens=request.max_output_tokens)
        body = msgspec.json.encode(self._endpoint.wire.encode(request, options))
        return await reply_with_retries(self._endpoint.provider, partial(self._stream_reply, body), on_event)

    def _refuses_images(self, request: ModelRequest, reply: ModelReply) -> bool:
        """Return whether the request has images, and the provider refused them."""
        if reply.stop_reason != "error" or not IMAGES_REFUSED.match(reply.error or ""):
            return False
        return self._options.images and any(message.images for message in request.messages)

    def _refuses_limit(self, request: ModelRequest, reply: ModelReply) -> bool:
        """Return whether the request has the output limit of a budget, and the provider refused it."""
        if reply.stop_reason != "error" or not LIMIT_REFUSED.match(reply.error or ""):
            return False
        return self._options.sends_budget_limits and request.max_output_tokens is not None

    async def _stream_reply(self, body: bytes, on_delta: OnDelta) -> ModelReply:
        """Send one request and return its reply.

        Raises:
            RequestFailedError: the request failed, or its connection was lost.
            ProviderStreamError: the stream reports an error or ended early.
        """
        import httpx2

        endpoint = self._endpoint
        try:
            return await self._read_reply(body, on_delta)
        except httpx2.TimeoutException as error:
            raise RequestFailedError(f"The provider timed out ({type(error).__name__})", retryable=True) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise RequestFailedError(f"Invalid base URL {endpoint.base_url!r}: {error}", retryable=False) from error
        except httpx2.TransportError as error:
            detail = str(error) or type(error).__name__
            if isinstance(error, httpx2.ConnectError):
                detail = f"{endpoint.base_url} cannot be reached: {detail}"
                if endpoint.base_url.startswith("https:") and (
                    not str(error) or any(mark in detail for mark in NO_TLS_MARKS)
                ):
                    raise RequestFailedError(f"Connection error: {detail} {NO_TLS_HINT}", retryable=False) from error
            raise make_connection_error(detail) from error

    async def _read_reply(self, body: bytes, on_delta: OnDelta) -> ModelReply:
        events, reader = EventParser(), self._endpoint.wire.reader()
        # Sent apart from `stream()`, whose frame holds the headers as long as the reply lasts.
        async with aclosing(await self._client.send(self._build_request(body), stream=True)) as response:
            await _check_response(response)
            self._prices.start_loading()
            await on_delta(ReplyStarted(lambda: reader.usage))
            with _explain_document(response):
                async with aclosing(response.aiter_raw()) as chunks:
                    async for chunk in chunks:
                        await _pass_on_deltas(events.feed(chunk), reader, on_delta)
                        del chunk  # else it is held while the next one is awaited
                        # A chunk without deltas must not keep the loop from timeouts and signals.
                        await anyio.lowlevel.checkpoint()
                await _pass_on_deltas(events.finish(), reader, on_delta)
                reply = reader.finish()
        model = f"{self._endpoint.provider}/{reply.model}" if reply.model else None
        return msgspec.structs.replace(reply, model=model, usage=await self.add_cost(reply.usage))

    def _build_request(self, body: bytes) -> httpx2.Request:
        endpoint = self._endpoint
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            **endpoint.headers,
            **endpoint.wire.headers(endpoint.key.reveal()),
        }
        url = f"{endpoint.base_url.rstrip('/')}/{endpoint.wire.path(self._options.model)}"
        return self._client.build_request("POST", url, content=body, headers=headers)


@contextmanager
def _explain_document(response: httpx2.Response) -> Iterator[None]:
    """Fail at once if a server sent one JSON document in place of a stream: it would do so again.

    Raises:
        RequestFailedError: the response is such a document.
    """
    try:
        yield
    except (TruncatedStreamError, MalformedEventError) as error:
        kind = response.headers.get("content-type", "")
        if "text/event-stream" in kind:
            raise
        raise RequestFailedError(
            f"The provider answered with one document ({kind}) instead of an event stream. (Check the base URL "
            f"{response.url}: the server must support streaming.)",
            retryable=False,
        ) from error


async def _pass_on_deltas(events: list[JsonObject], reader: StreamReader, on_delta: OnDelta) -> None:
    for event in events:
        for delta in reader.read(event):
            await on_delta(delta)


class MalformedEventError(RequestFailedError):
    """Raised if an event of a stream is not JSON."""


class EventParser:
    """Parser for server-sent events that carry JSON objects; comments and other fields are left out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._received = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[JsonObject]:
        """Return the events that the chunk completes.

        Raises:
            RequestFailedError: an event is malformed, or the stream is too large.
        """
        self._received += len(chunk)
        if self._received > MAX_REPLY_BYTES:
            raise RequestFailedError(f"The reply is larger than {MAX_REPLY_BYTES >> 20} MiB", retryable=False)
        lines = self._take_lines(chunk)
        if len(self._rest) > MAX_EVENT_BYTES:
            raise RequestFailedError("An event of the stream is too large", retryable=False)
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _take_lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that the chunk completes; a long line is not searched again with each of its chunks."""
        searched = max(len(self._rest) - 1, 0)  # the last byte may be a carriage return that waits for what follows
        self._rest += chunk
        if not _LINE_END.search(self._rest, searched):
            return []
        *lines, rest = _LINE_END.split(bytes(self._rest))
        self._rest = bytearray(rest)
        return lines

    def finish(self) -> list[JsonObject]:
        """Return the event that the end of the stream completes, if any."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [event for line in (rest.rstrip(b"\r"), b"") if (event := self._take_line(line)) is not None]

    def _take_line(self, line: bytes) -> JsonObject | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            whole = b"\n".join(self._data)
            self._data.clear()
            return None if whole.strip() == b"[DONE]" else _decode_event(whole)
        elif line.startswith(b"{"):  # some servers answer a failed stream with a plain JSON object
            return _decode_event(line)
        return None


def _decode_event(text: bytes) -> JsonObject:
    try:
        event = _decode_json(text)
    except (msgspec.DecodeError, RecursionError) as error:
        shown = text[:MAX_ERROR_CHARS].decode(errors="replace")
        raise MalformedEventError(f"The provider sent a malformed chunk: {shown}", retryable=True) from error
    return get_object(event)


def _decode_json(text: bytes) -> object:
    """Return the value of a JSON text; invalid UTF-8 is replaced, as the event stream format requires."""
    try:
        return msgspec.json.decode(text)
    except UnicodeDecodeError:
        return msgspec.json.decode(text.decode(errors="replace"))


async def _check_response(response: httpx2.Response) -> None:
    """Check that a response is a stream.

    Raises:
        RequestFailedError: it is an error or another document.
    """
    if response.status_code != HTTPStatus.OK:
        raise await _status_error(response)
    if encoding := response.headers.get("content-encoding", "").replace("identity", ""):
        # A small compressed reply can become a huge one.
        problem = f"The provider sent a compressed reply ({encoding}) that was not requested"
        raise RequestFailedError(problem, retryable=False)
    kind = response.headers.get("content-type", "")
    if "text/event-stream" not in kind and "json" not in kind:
        problem = _unexpected_content(kind, await _read_start(response))
        raise RequestFailedError(f"{problem} (Check the base URL {response.url}.)", retryable=False)


async def _status_error(response: httpx2.Response) -> RequestFailedError:
    """Return the error of an HTTP status, with the provider's own message."""
    start, status = await _read_start(response), response.status_code
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST and "location" in response.headers:
        target = response.headers["location"][:MAX_ERROR_CHARS]
        detail = f"The provider redirects to {target}, which is not followed (Check the base URL {response.url}.)"
        return make_status_error(status, detail, None)
    try:
        content = _decode_json(start)
        detail = describe_error(get_object(content).get("error") or content)
    except (msgspec.DecodeError, RecursionError):
        detail = _unexpected_content(response.headers.get("content-type", ""), start)
    retry_after = _parse_retry_after(response.headers.get("retry-after"), response.headers.get("retry-after-ms"))
    return make_status_error(status, detail[:MAX_ERROR_CHARS], retry_after)


async def _read_start(response: httpx2.Response) -> bytes:
    start = b""
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            start += chunk
            if len(start) >= MAX_ERROR_BYTES:
                break
    return start[:MAX_ERROR_BYTES]


def _unexpected_content(kind: str, start: bytes) -> str:
    text = " ".join(re.sub(r"<[^>]*>", " ", start.decode(errors="replace")).split())
    if "json" in kind:
        return f"The provider answered with invalid JSON: {text[:MAX_ERROR_CHARS]}"
    return f"The provider answered with {kind or 'no content type'} instead of JSON: {text[:MAX_ERROR_CHARS]}"


def _parse_retry_after(seconds: str | None, milliseconds: str | None) -> float | None:
    try:
        if milliseconds:
            wait = float(milliseconds) / 1000
            return max(wait, 0.0) if math.isfinite(wait) else None
        if seconds and seconds.isascii() and seconds.replace(".", "", 1).isdigit():
            return float(seconds)
        if seconds:
            return _seconds_until(seconds)
    except (ValueError, TypeError):
        return None
    return None


def _seconds_until(date: str) -> float:
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    return max((parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds(), 0.0)
