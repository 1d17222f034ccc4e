"""Retries of a request for a reply, until a first part of it has arrived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from retinue.engines.agent_loop import ModelOutput, ModelReply, OnDelta, ReplyStarted
from retinue.engines.api.wire import ProviderStreamError
from retinue.model.events import Notice
from retinue.output.untrusted_text import strip_control_characters

MAX_TRIES = 3
"""Requests for one reply, the first included, while nothing of it has arrived."""
RETRY_DELAY = 1.0
"""Seconds before the first retry; doubled for the next, give or take a quarter."""
MAX_RETRY_AFTER = 60.0
"""Seconds a provider may ask to wait; if it asks for more, the request fails at once."""
UNTRUSTED_HINT = "(Behind a proxy that inspects TLS, set SSL_CERT_FILE to a file with its certificates.)"
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


class RequestFailedError(Exception):
    """Raised if a request has no reply; the message starts with the HTTP status where there is one."""

    def __init__(self, message: str, *, retryable: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


def make_status_error(status: int, detail: str, retry_after: float | None) -> RequestFailedError:
    """Return the error of an HTTP status; `detail` is the provider's own message, which may start with it, too."""
    message = detail if detail.startswith(f"{status}:") else f"{status}: {detail}"
    return RequestFailedError(message, retryable=status in RETRYABLE_STATUSES, retry_after=retry_after)


def make_connection_error(detail: str) -> RequestFailedError:
    """Return the error of a connection that failed or broke; another request may have one."""
    if "CERTIFICATE_VERIFY_FAILED" in detail:
        return RequestFailedError(f"Connection error: {detail} {UNTRUSTED_HINT}", retryable=False)
    return RequestFailedError(f"Connection error: {detail}", retryable=True)


async def reply_with_retries(
    provider: str, request: Callable[[OnDelta], Awaitable[ModelReply]], on_delta: OnDelta
) -> ModelReply:
    """Return the reply of the first request that succeeds, or one with the error of the last.

    `request` raises `RequestFailedError` or `ProviderStreamError`; it is not repeated once it has passed on a delta.
    """
    tries = 0
    while True:
        tries += 1
        has_output = False

        async def pass_on(event: ModelOutput) -> None:
            nonlocal has_output
            has_output = has_output or not isinstance(event, ReplyStarted)
            await on_delta(event)

        try:
            return await request(pass_on)
        except (RequestFailedError, ProviderStreamError) as error:
            message = str(error)
            wait = _retry_wait(error, tries)
            if wait is None or has_output:
                return ModelReply(stop_reason="error", error=strip_control_characters(message))
        await on_delta(_retry_notice(provider, wait, tries, message))
        await anyio.sleep(wait)


def _retry_wait(error: Exception, tries: int) -> float | None:
    """Return the seconds to wait before the next request; None if the error is final."""
    import random

    if tries >= MAX_TRIES:
        return None
    if not isinstance(error, RequestFailedError):
        return RETRY_DELAY
    if not error.retryable or (error.retry_after or 0.0) > MAX_RETRY_AFTER:
        return None
    # Runs that were refused together must not all come back together.
    if error.retry_after is not None:
        return random.uniform(1.0, 1.1) * error.retry_after  # noqa: S311 - jitter, not a secret
    delay: float = RETRY_DELAY * 2 ** (tries - 1)
    return random.uniform(0.75, 1.25) * delay  # noqa: S311 - likewise


def _retry_notice(provider: str, wait: float, tries: int, message: str) -> Notice:
    shown = f"{provider} is called again in {wait:.1f}s ({tries} of {MAX_TRIES - 1}) after: {message}"
    return Notice("provider_retry", shown)
