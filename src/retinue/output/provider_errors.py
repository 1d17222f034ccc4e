"""Classify the error messages of model providers, for retry and fallback."""

from __future__ import annotations

import re
from collections.abc import Mapping

RATE_LIMIT = "rate_limit"
QUOTA = "quota"
AUTH = "auth"
MODEL_UNAVAILABLE = "model_unavailable"
NETWORK = "network"
OVERLOADED = "overloaded"
CONTEXT_OVERFLOW = "context_overflow"
SERVER_ERROR = "server_error"
BAD_REQUEST = "bad_request"
REFUSED = "refused"
TOOL = "tool"
OTHER = "other"

TRANSIENT = frozenset({RATE_LIMIT, OVERLOADED, SERVER_ERROR, NETWORK})
MODEL_SPECIFIC = TRANSIENT | {QUOTA, AUTH, MODEL_UNAVAILABLE}
"""Errors that another model, or another provider's, may not have."""

MAX_READ_CHARS = 16 * 1024
"""Characters of a message that are read: its start names the problem."""

REASON_PATTERNS: tuple[tuple[str, str], ...] = (
    (RATE_LIMIT, "per minute|per_minute|perminute|per second|please retry in|throttl"),
    (QUOTA, "quota|billing|credit balance|insufficient credit|insufficient balance|insufficient funds"),
    (QUOTA, "payment required|out of credits|spending limit|usage limit|you've hit your"),
    (RATE_LIMIT, "rate limit|rate_limit|rate-limit|ratelimit|too many requests|resource_exhausted"),
    (CONTEXT_OVERFLOW, "context_length|context length|context window|context_window|context size|context limit"),
    (CONTEXT_OVERFLOW, "maximum context|maximum prompt length|prompt is too long|prompt too long|input is too long"),
    (CONTEXT_OVERFLOW, "input token count|too many tokens|token limit exceeded|request_too_large|request too large"),
    (CONTEXT_OVERFLOW, "reduce the length of the|entity too large|exceeds the maximum number of tokens"),
    (REFUSED, "content_filter|the model refused|blocked the prompt|stopped the answer"),
    (AUTH, "authentication|unauthorized|unauthorised|unauthenticated|forbidden|permission_denied|permission_error"),
    (AUTH, "permission denied|api key|api_key|apikey|x-api-key|invalid_grant|invalid token|token expired"),
    (AUTH, "token has expired|expired token|not logged in|please run /login|failed to authenticate"),
    (AUTH, "organization has been disabled"),
    (
        MODEL_UNAVAILABLE,
        "model_not_found|model not found|unknown model|no such model|invalid model|unsupported model",
    ),
    (MODEL_UNAVAILABLE, "not_found_error|is not found for api version|no endpoints found|decommissioned"),
    (MODEL_UNAVAILABLE, "failed to load model|access to the model|access to model|provider unavailable"),
    (MODEL_UNAVAILABLE, "issue with the selected model|ambiguous across providers"),
    (OVERLOADED, "overloaded|over capacity|at capacity|no capacity|capacity exceeded|high demand|currently loading"),
    (OVERLOADED, "service unavailable|service_unavailable|temporarily unavailable|cold start"),
    (NETWORK, "econnreset|econnrefused|econnaborted|etimedout|enotfound|eai_again|epipe|ehostunreach|enetunreach"),
    (NETWORK, "connection reset|connection refused|connection aborted|connection closed|connection error"),
    (NETWORK, "connection lost|connection terminated|socket hang up|socket closed|other side closed|broken pipe"),
    (NETWORK, "unable to connect|connection was closed"),
    (NETWORK, "fetch failed|network error|network is unreachable|name resolution|name or service not known"),
    (NETWORK, "getaddrinfo|certificate verify|self-signed certificate|self signed certificate|tls handshake"),
    (NETWORK, "unexpected eof|incomplete chunked read|premature close|stream ended without|stream disconnected"),
    (NETWORK, "timed out|timeout|terminated"),
    (SERVER_ERROR, "internal server error|internal_server_error|internal error|internal_error|api_error"),
    (SERVER_ERROR, "server error|server_error|server had an error|bad gateway|stream error|upstream|provider error"),
    (SERVER_ERROR, "empty response|unexpected error|an error occurred while processing your request"),
    (SERVER_ERROR, "malformed chunk|malformed_function_call"),
)
"""The first match counts: a quota error is also a 429, and throttling also mentions too many tokens."""

SERVICE_REASONS = frozenset({NETWORK, OVERLOADED, SERVER_ERROR})
"""Not the reason if the status says that the request itself is wrong, whatever text it quotes."""

STATUS_REASONS: Mapping[str, str] = {
    "400": BAD_REQUEST,
    "401": AUTH,
    "402": QUOTA,
    "403": AUTH,
    "404": MODEL_UNAVAILABLE,
    "408": NETWORK,
    "409": SERVER_ERROR,
    "413": CONTEXT_OVERFLOW,
    "422": BAD_REQUEST,
    "425": SERVER_ERROR,
    "429": RATE_LIMIT,
    "500": SERVER_ERROR,
    "502": SERVER_ERROR,
    "503": OVERLOADED,
    "504": SERVER_ERROR,
    "520": SERVER_ERROR,
    "522": NETWORK,
    "524": NETWORK,
    "529": OVERLOADED,
}

_TOOL_FAILED = r"\b[\w.-]{1,64} failed \(exit \d"
_NO_SUCH_MODEL = r"\bmodel\b[^\n]{0,120}?\b(?:not found|does not exist|not available|not supported|is disabled)"
_STATUS = r"(?:^|[\[(]|(?:status|code|error|http)(?:code)?\W{1,4}(?:[\d.]{1,3} )?)([45]\d\d)\b"


def classify_error(text: str | None) -> str:
    """Return the reason of a provider's error message; `other` if it is unknown."""
    message = (text or "")[:MAX_READ_CHARS].lower().strip()
    if re.search(_TOOL_FAILED, message):
        return TOOL
    by_status = next(
        (STATUS_REASONS[status] for status in re.findall(_STATUS, message) if status in STATUS_REASONS), OTHER
    )
    for reason, words in REASON_PATTERNS:
        if by_status == BAD_REQUEST and reason in SERVICE_REASONS:
            continue
        if any(word in message for word in words.split("|")):
            return reason
    return MODEL_UNAVAILABLE if re.search(_NO_SUCH_MODEL, message) else by_status


def is_transient(reason: str | None) -> bool:
    """Return whether the same run may succeed if it is retried."""
    return reason in TRANSIENT


def wants_other_model(reason: str | None) -> bool:
    """Return whether another model may succeed: not if the request was wrong or too long, or a tool failed."""
    return reason in MODEL_SPECIFIC
