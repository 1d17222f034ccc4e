"""How a request is answered: a value as JSON, a failure with its status, a file to keep."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from msgspec import Struct

from retinue.frontends.http.encoding import encoded
from retinue.frontends.http.outcomes import Fault, Refusal
from retinue.frontends.web.asgi import Denied, Send, begin, respond
from retinue.types import Code, Failure

ALWAYS: Mapping[str, str] = {
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

STATUS: Mapping[Code, int] = {
    Code.SESSION_NOT_FOUND: 404,
    Code.UNKNOWN_AGENT: 404,
    Code.SESSION_BUSY: 409,
    Code.CONFLICT: 409,
    Code.DISABLED: 403,
    Code.AGENT_DISABLED: 403,
    Code.AGENT_UNTRUSTED: 403,
    Code.DEPTH_EXCEEDED: 403,
    Code.SPAWN_LIMIT: 429,
    Code.STORAGE: 503,
}
"""Of refusals; all others are 400."""

DENIALS: Mapping[int, str] = {
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


class Download(Struct, frozen=True):
    """A file to keep, made while it is sent."""

    name: str
    kind: str
    chunks: AsyncGenerator[bytes, None]


async def answer(send: Send, value: Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Answers with a value."""
    own = {"content-type": "application/json", **(headers or {})}
    await respond(send, status, encoded(value), {**ALWAYS, **own})


async def refuse(send: Send, failure: Failure) -> None:
    """Answers that nothing was done, and why."""
    fault = Fault(code=failure.code, message=failure.message, reason=failure.reason)
    await answer(send, Refusal(error=fault), STATUS.get(failure.code, 400))


async def deny(send: Send, denied: Denied) -> None:
    """Answers a request that goes no further."""
    fault = Fault(code=DENIALS.get(denied.status, "invalid_input"), message=str(denied))
    await answer(send, Refusal(error=fault), denied.status, denied.headers)


async def download(send: Send, file: Download) -> None:
    """Answers with a file, piece by piece. What cannot be read at all is refused in words, not with half a file."""
    disposition = f'attachment; filename="{file.name}"'
    async with aclosing(file.chunks) as chunks:
        chunk: bytes | None = await anext(chunks, b"")
        await begin(send, 200, {**ALWAYS, "content-type": file.kind, "content-disposition": disposition})
        while chunk is not None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            chunk = await anext(chunks, None)
    await send({"type": "http.response.body", "body": b""})
