"""The responses of the API: a value as JSON, an error with its status, a file made while it is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response, StreamingResponse

from retinue.model.errors import ErrorCode, RefusedError
from retinue.output.json_text import encode_json
from retinue.servers.asgi.request_checks import HttpError, Receive, Scope, Send
from retinue.servers.http.schemas import ErrorDetail, ErrorResponse

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
"""Default headers of every response."""

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
"""Statuses of refused calls; every other code is 400."""

ERROR_CODES: Mapping[int, str] = {
    400: "invalid_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "conflict",
    503: "busy",
}
INTERNAL_ERROR_MESSAGE = "Internal error of the server; the runs continue. The server's own output has the details."


class JsonResponse(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def make_error_response(error: Exception) -> JsonResponse:
    """Return the response to a request that raised: what was wrong with it, or an internal error."""
    match error:
        case HttpError(status=status, headers=headers):
            detail = ErrorDetail(code=ERROR_CODES.get(status, "invalid_input"), message=str(error))
        case RefusedError(failure=failure):
            status, headers = STATUS_CODES.get(failure.code, 400), {}
            detail = ErrorDetail(code=failure.code, message=failure.message, reason=failure.reason)
        case _:
            status, headers = 500, {}
            detail = ErrorDetail(code="internal", message=INTERNAL_ERROR_MESSAGE)
    return JsonResponse(ErrorResponse(error=detail), status, headers)


class FileDownload(StreamingResponse):
    """A file made while it is sent."""

    def __init__(self, name: str, kind: str, chunks: AsyncGenerator[bytes, None]) -> None:
        headers = {"content-type": kind, "content-disposition": f'attachment; filename="{name}"'}
        super().__init__(chunks, headers=headers)
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._chunks):
            # Read before the response starts: a file that cannot be read at all is an error, not half a file.
            first = await anext(self._chunks, b"")
            async with aclosing(_prepend(first, self._chunks)) as self.body_iterator:
                await super().__call__(scope, receive, send)


async def _prepend(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for chunk in rest:
        yield chunk
