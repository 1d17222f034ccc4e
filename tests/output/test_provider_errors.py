"""Classification of real error messages of providers and network stacks."""

import pytest

from retinue.output.provider_errors import (
    REASON_PATTERNS,
    STATUS_REASONS,
    classify_error,
    is_transient,
    wants_other_model,
)

TEXTS = [
    # OpenAI and what speaks its language
    ("rate_limit", "429 Rate limit reached for gpt-4o in organization org-x on requests per min (RPM): Limit 3, Used 3."),
    ("quota", "429 You exceeded your current quota, please check your plan and billing details."),
    ("quota", '{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}'),
    ("auth", "401 Incorrect API key provided: sk-x. You can find your API key at https://platform.openai.com."),
    ("model_unavailable", "404 The model `gpt-9` does not exist or you do not have access to it."),
    ("context_overflow", "400 This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens."),
    ("server_error", "500 The server had an error while processing your request. Sorry about that!"),
    ("overloaded", "503 The engine is currently overloaded, please try again later"),
    ("context_overflow", "Your input exceeds the context window of this model. Please adjust your input and try again."),
    ("model_unavailable", 'model "llama9" not found, try pulling it first'),
    ("model_unavailable", "404 No endpoints found for mistralai/nothing."),
    ("quota", "402 Insufficient credits. Add more using https://openrouter.ai/credits"),
    # Anthropic
    ("rate_limit", '429 {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit"}}'),
    ("overloaded", 'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
    ("auth", '401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'),
    ("auth", '403 {"error":{"type":"permission_error","message":"Your API key does not have permission"}}'),
    ("refused", "The provider stopped the answer: content_filter."),
    ("refused", "The model refused: I cannot help with that."),
    ("refused", "The provider blocked the prompt: PROHIBITED_CONTENT."),
    ("server_error", "The provider sent a malformed chunk: {oops"),
    ("context_overflow", "prompt is too long: 210430 tokens > 200000 maximum"),
    ("context_overflow", "input length and `max_tokens` exceed context limit: 199211 + 21333 > 200000"),
    ("model_unavailable", '404 {"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}'),
    ("quota", "Your credit balance is too low to access the Anthropic API."),
    ("server_error", '500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}'),
    ("quota", "Claude AI usage limit reached|1794811775"),
    ("auth", "Invalid API key · Please run /login"),
    # Claude Code, in its own words
    ("quota", "429 rate_limit_error: You've hit your session limit · resets 3pm"),
    ("quota", "You've hit your weekly limit · resets Mon 9am"),
    ("quota", "You've hit your Opus limit · resets 3pm"),
    ("quota", "You've hit your team's shared budget. Switch to another model to continue."),
    ("auth", "Failed to authenticate. API Error: something from a gateway"),
    ("auth", "Your organization has been disabled"),
    ("model_unavailable", "There's an issue with the selected model (opus-9). It may not exist or you may not have access to it."),
    ("network", "Unable to connect to API (ConnectionRefused)"),
    ("network", "Unable to connect to API: SSL certificate verification failed (UNABLE_TO_VERIFY_LEAF_SIGNATURE)."),
    ("network", "API Error: The socket connection was closed unexpectedly."),
    # Gemini, Bedrock
    ("rate_limit", "[429 Too Many Requests] Resource has been exhausted (e.g. check tier). RESOURCE_EXHAUSTED"),
    ("rate_limit", "You exceeded your current quota. Quota exceeded for metric: requests. Please retry in 31.2s."),
    ("context_overflow", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    ("overloaded", "[503 Service Unavailable] The model is overloaded. Please try again later."),
    ("model_unavailable", "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent."),
    ("auth", "API key not valid. Please pass a valid API key."),
    ("rate_limit", "ThrottlingException: Too many tokens, please wait before trying again."),
    # pi, and the network beneath
    ("server_error", "500: {…}"),
    ("network", "terminated"),
    ("network", "fetch failed"),
    ("network", "read ECONNRESET"),
    ("network", "connect ECONNREFUSED 127.0.0.1:8931"),
    ("network", "getaddrinfo ENOTFOUND api.example.com"),
    ("network", "socket hang up"),
    ("network", "Request timed out."),
    ("network", "peer closed connection without sending complete message body (incomplete chunked read)"),
    ("network", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate"),
    ("network", "[Errno -3] Temporary failure in name resolution"),
    ("network", "stream ended without finish_reason"),
    ("server_error", "502 Bad Gateway"),
    ("server_error", "HTTP/1.1 504"),
    ("overloaded", "Request failed with status code 503"),
    ("auth", "No API key found for nokey."),
    ("auth", "Error code: 401"),
    # neither
    ("tool", "bash failed (exit 1): curl: (6) rate limit exceeded"),
    ("bad_request", "400 messages.0.content: field required"),
    ("bad_request", "400 Bad Request: 'timeout' must be a number"),
    ("bad_request", '400 {"type":"error","error":{"type":"api_error","message":"invalid request"}}'),
    ("bad_request", "Error code: 422 - upstream validation failed"),
    ("rate_limit", "400 rate limit reached"),
    ("auth", "400 API key not valid. Please pass a valid API key."),
    ("model_unavailable", "400 The model 'x' does not exist"),
    ("other", "the model wrote 500 lines"),
    ("other", ""),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "text"), TEXTS)
def test_error_message_is_classified_by_reason(reason, text):
    assert classify_error(text) == reason


def test_empty_error_message_has_reason_other():
    assert classify_error(None) == "other"


@pytest.mark.parametrize(
    ("reason", "transient", "other_model"),
    [
        ("rate_limit", True, True),
        ("overloaded", True, True),
        ("server_error", True, True),
        ("network", True, True),
        ("quota", False, True),
        ("auth", False, True),
        ("model_unavailable", False, True),
        ("context_overflow", False, False),
        ("bad_request", False, False),
        ("tool", False, False),
        ("other", False, False),
        ("length", False, False),
        (None, False, False),
    ],
)
def test_reason_decides_retry_and_fallback(reason, transient, other_model):
    assert (is_transient(reason), wants_other_model(reason)) == (transient, other_model)


def test_reason_tables_have_known_reasons_and_lower_case_patterns():
    known = {reason for reason, _ in TEXTS}
    assert {reason for reason, _ in REASON_PATTERNS} | set(STATUS_REASONS.values()) <= known
    assert all(words == words.lower() for _, words in REASON_PATTERNS)


def test_huge_error_message_is_read_in_part():
    assert classify_error("x" * 10_000_000 + "rate limit") == "other"
