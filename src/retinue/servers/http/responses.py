"""How a request is answered: a value as JSON, a failure with its status, a file to keep."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from retinue.model.errors import ErrorCode, Failure
from retinue.output.untrusted_text import map_strings, replace_surrogates
from retinue.servers.asgi.asgi import HttpError, Send, respond, start_response
from retinue.servers.http.details import ErrorDetail, ErrorResponse

_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """The value as JSON; half characters, which no JSON can say, are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(map_strings(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)), replace_surrogates))


SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every answer; one of the same name wins over these."""

STATUS_CODES: Mapping[ErrorCode, int] = {
    ErrorCode.SESSION_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_AGENT: 404,
    ErrorCode.SESSION_BUSY: 409,
    ErrorCode.CONFLICT: 409,
    ErrorCode.DISABLED: 403,
    ErrorCode.AGENT_DISABLED: 403,
    ErrorCode.AGENT_UNTRUSTED: 403,
    ErrorCode.DEPTH_EXCEEDED: 403,
    ErrorCode.SPAWN_LIMIT: 429,
    ErrorCode.STORAGE: 503,
}
"""Of refusals; all others are 400."""

ERROR_CODES: Mapping[int, str] = {
    400: "invalid_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    503: "busy",
}


class FileDownload(Struct, frozen=True):
    """A file to keep, made while it is sent."""

    name: str
    kind: str
    chunks: AsyncGenerator[bytes, None]


async def send_value(send: Send, value: Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Answers with a value."""
    own = {"content-type": "application/json", **(headers or {})}
    await respond(send, status, encode_json(value), {**SECURITY_HEADERS, **own})


async def send_failure(send: Send, failure: Failure) -> None:
    """Answers that nothing was done, and why."""
    detail = ErrorDetail(code=failure.code, message=failure.message, reason=failure.reason)
    await send_value(send, ErrorResponse(error=detail), STATUS_CODES.get(failure.code, 400))


async def send_http_error(send: Send, error: HttpError) -> None:
    """Answers a request that goes no further."""
    detail = ErrorDetail(code=ERROR_CODES.get(error.status, "invalid_input"), message=str(error))
    await send_value(send, ErrorResponse(error=detail), error.status, error.headers)


async def send_file(send: Send, file: FileDownload) -> None:
    """Answers with a file, piece by piece. What cannot be read at all is refused in words, not with half a file."""
    disposition = f'attachment; filename="{file.name}"'
    async with aclosing(file.chunks) as chunks:
        chunk: bytes | None = await anext(chunks, b"")
        await start_response(
            send, 200, {**SECURITY_HEADERS, "content-type": file.kind, "content-disposition": disposition}
        )
        while chunk is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await anext(chunks, None)
    await send({"type": "http.response.body", "body": b""})
