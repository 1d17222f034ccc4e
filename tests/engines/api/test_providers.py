"""The choice of provider, model, key and base URL of a run on the api engine."""

from __future__ import annotations

import anyio
import pytest
from msgspec import structs

from retinue.engines.api.engine import find_window
from retinue.engines.api.pricing import PriceList
from retinue.engines.api.providers import (
    PROVIDERS,
    WIRES,
    choose_model,
    configure_providers,
    describe_default,
    has_model,
    list_providers,
    not_configured_reason,
    provider_variables,
    remove_keys,
)
from retinue.engines.base import EngineError
from retinue.engines.compaction import ContextWindow
from retinue.model.providers import ProviderSettings
from retinue.model.results import Usage

ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-ant-1"}
OPENAI = {"OPENAI_API_KEY": "sk-1"}


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        (OPENAI, "openai/gpt-6.1-terra"),
        ({**OPENAI, **ANTHROPIC}, "anthropic/claude-sonnet-5-5"),
        ({"GOOGLE_API_KEY": "g"}, "google/gemini-3.8-flash"),
        ({"GROQ_API_KEY": "g", "OPENROUTER_API_KEY": "o"}, "openrouter/~anthropic/claude-sonnet-latest"),
        ({"XAI_API_KEY": "x", "DEEPSEEK_API_KEY": "d"}, "deepseek/deepseek-v4-pro"),
        ({"OLLAMA_HOST": "127.0.0.1", "MISTRAL_API_KEY": "m"}, "mistral/mistral-medium-latest"),
    ],
    ids=["one key", "anthropic first", "second variable", "openrouter before others", "alphabetical", "ollama last"],
)
def test_default_model_is_that_of_the_first_configured_provider(environ, chosen):
    choice = choose_model(None, None, environ)
    assert f"{choice.provider.name}/{choice.model}" == chosen


@pytest.mark.parametrize(
    ("model", "provider", "chosen"),
    [
        ("openai/gpt-5", None, ("openai", "gpt-5")),
        ("openai:gpt-5", None, ("openai", "gpt-5")),
        ("gpt-5", "openai", ("openai", "gpt-5")),
        ("gpt-5", None, ("anthropic", "gpt-5")),
        ("opus", None, ("anthropic", "claude-opus-5-5")),
        ("anthropic/haiku", None, ("anthropic", "claude-haiku-5-5")),
        ("Gemini/gemini-4-argon", None, ("google", "gemini-4-argon")),
        ("ollama/qwen3:4b", None, ("ollama", "qwen3:4b")),
    ],
)
def test_model_may_name_its_provider(model, provider, chosen):
    environ = {**OPENAI, **ANTHROPIC, "GEMINI_API_KEY": "g", "OLLAMA_HOST": "localhost"}
    choice = choose_model(model, provider, environ)
    assert (choice.provider.name, choice.model, choice.notice) == (*chosen, None)


@pytest.mark.parametrize(
    ("model", "environ", "expected"),
    [
        ("gemini-3-pro", OPENAI, False),
        ("claude-sonnet-4-6", OPENAI, False),
        ("sonnet", OPENAI, False),
        ("fast", OPENAI, False),
        ("gpt-5.4", OPENAI, True),
        ("gpt-5.4", ANTHROPIC, False),
        ("sonnet", ANTHROPIC, True),
        ("anthropic/claude-sonnet-4", OPENAI, False),
        ("gemini-3-pro", {**OPENAI, "OPENAI_BASE_URL": "http://127.0.0.1:4000/v1"}, True),
        ("llama-3.3-70b-versatile", {"GROQ_API_KEY": "g"}, True),
        ("gemini-3-pro", {"GROQ_API_KEY": "g"}, False),
    ],
)
def test_default_provider_has_the_models_of_its_family_and_a_gateway_has_any(model, environ, expected):
    assert has_model(model, None, environ) is expected


def test_alias_of_claude_files_without_anthropic_uses_the_default_with_a_notice():
    choice = choose_model("sonnet", None, OPENAI)
    assert (choice.provider.name, choice.model) == ("openai", "gpt-6.1-terra")
    assert choice.notice == (
        "No Anthropic provider is configured for the model 'sonnet'; openai/gpt-6.1-terra is used instead."
    )


@pytest.mark.parametrize(
    ("model", "provider", "environ", "message"),
    [
        (None, None, {}, "The api engine cannot be used: no provider key is set. Set one of "),
        ("x", "antropic", OPENAI, "Unknown provider 'antropic'. Did you mean 'anthropic'?"),
        ("anthropic/x", None, OPENAI, "The provider anthropic is not configured: set ANTHROPIC_API_KEY."),
        ("ollama/x", None, OPENAI, "The provider ollama is not configured: set OLLAMA_HOST."),
        (None, "ollama", {"OLLAMA_HOST": "h"}, "Name a model of ollama, e.g. --model ollama/llama3.3."),
        (None, None, {**OPENAI, "OPENAI_BASE_URL": "ftp://x"}, "OPENAI_BASE_URL='ftp://x' is not an HTTP URL."),
        (None, None, {**OPENAI, "OPENAI_BASE_URL": "http://h:99999"}, "OPENAI_BASE_URL='http://h:99999' is not an"),
        (None, None, {**OPENAI, "OPENAI_BASE_URL": " http://h "}, "OPENAI_BASE_URL=' http://h ' is not an HTTP URL."),
        (None, None, {**OPENAI, "OPENAI_BASE_URL": "http://h/\x1b"}, "OPENAI_BASE_URL='http://h/\\x1b' is not an"),
        (None, None, {**OPENAI, "OPENAI_BASE_URL": "http://h/?k=1"}, "The URL in OPENAI_BASE_URL has a query or"),
        ("openai/", None, OPENAI, "Name a model of openai, e.g. --model openai/MODEL."),
        (None, None, {"OPENAI_API_KEY": "sk-\u00e9"}, "The key in OPENAI_API_KEY has leading or trailing spaces, or"),
        (None, None, {"OPENAI_API_KEY": "sk-1\n"}, "The key in OPENAI_API_KEY has leading or trailing spaces, or"),
        ("antropic/x", None, OPENAI, "Unknown provider 'antropic'. Did you mean 'anthropic'?"),
        ("bedrok/x", None, OPENAI, "Unknown provider 'bedrok'. Did you mean 'bedrock'?"),
    ],
)
def test_unusable_choice_is_refused_with_the_next_step(model, provider, environ, message):
    with pytest.raises(EngineError) as refused:
        choose_model(model, provider, environ)
    assert refused.value.failure.message.startswith(message)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        ("https://models.example", "https://models.example:11434/v1"),
        ("http://[::1]:99/", "http://[::1]:99/v1"),
    ],
)
def test_ollama_host_is_a_host_or_a_url(host, url):
    assert choose_model("ollama/x", None, {"OLLAMA_HOST": host}).base_url == url


def test_run_gets_the_variables_of_its_providers_only():
    environ = {**OPENAI, **ANTHROPIC, "GROQ_API_KEY": "g"}
    assert provider_variables((None, "groq/x"), None, environ) == {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "GROQ_API_KEY",
    }


def test_default_is_described_with_the_variable_of_its_key():
    assert describe_default(OPENAI) == "openai/gpt-6.1-terra by OPENAI_API_KEY, in this process"
    assert not_configured_reason(OPENAI) is None


def test_key_is_not_shown():
    assert "sk-1" not in repr(choose_model(None, None, OPENAI))


def test_every_provider_has_a_wire():
    assert {provider.wire for provider in PROVIDERS.values()} == WIRES.keys()


@pytest.mark.parametrize(
    "environ", [{"OLLAMA_HOST": "127.0.0.1:9"}, {**OPENAI, "OPENAI_BASE_URL": "notaurl"}], ids=["no model", "bad URL"]
)
def test_run_that_cannot_choose_a_model_sees_what_is_configured(environ):
    assert environ.keys() <= provider_variables((None,), None, environ)


VLLM = ProviderSettings(base_url="http://127.0.0.1:8000/v1", default_model="qwen3", context_window=40_000)


def test_provider_of_the_user_without_a_key_variable_needs_no_key():
    providers = configure_providers({"vllm": VLLM})
    choice = choose_model("vllm/qwen3-coder", None, {}, providers)
    assert (choice.provider.wire, choice.base_url) == ("openai-chat", "http://127.0.0.1:8000/v1")
    assert (choice.model, choice.key.reveal()) == ("qwen3-coder", "")
    assert describe_default({}, None, providers) == "vllm/qwen3 by http://127.0.0.1:8000/v1, in this process"


def test_providers_of_the_user_are_among_the_others_by_name():
    providers = configure_providers({"vllm": VLLM})
    assert choose_model(None, None, OPENAI, providers).provider.name == "openai"
    found = list_providers({}, None, providers)
    assert [each.name for each in found][-3:] == ["vllm", "xai", "ollama"]
    status = found[-3]
    assert (status.name, status.is_chosen, status.model and status.model.context_window) == ("vllm", True, 40_000)


def test_key_variable_of_a_provider_is_required_used_and_hidden_from_commands():
    providers = configure_providers({"lab": ProviderSettings(base_url="https://lab.example/v1", key_variable="LAB")})
    with pytest.raises(EngineError, match="The provider lab is not configured: set LAB"):
        choose_model("lab/m", None, {}, providers)
    environ = {"LAB": "lab-key-1", "PATH": "/bin"}
    assert choose_model("lab/m", None, environ, providers).key.reveal() == "lab-key-1"
    assert provider_variables(["lab/m"], None, environ, providers) == {"LAB"}
    assert remove_keys(environ, {}, providers) == {"PATH": "/bin"}


def test_settings_of_a_known_provider_change_what_they_name():
    changed = ProviderSettings(base_url="https://proxy.example/v1", wire="openai-chat", default_model="gpt-x")
    choice = choose_model(None, None, OPENAI, configure_providers({"openai": changed}))
    assert (choice.provider.wire, choice.base_url) == ("openai-chat", "https://proxy.example/v1")
    assert (choice.model, choice.key.reveal()) == ("gpt-x", "sk-1")


def test_context_window_of_the_settings_is_for_all_models_or_for_the_named_ones():
    named = ProviderSettings(base_url="http://127.0.0.1:1/v1", context_window={"qwen3": 64_000})
    providers = configure_providers({"all": VLLM, "named": named})
    assert [
        providers[name].configured_window(model) for name in ("all", "named") for model in ("qwen3", "other")
    ] == [40_000, 40_000, 64_000, None]


@pytest.mark.parametrize(
    ("model", "tokens", "window"),
    [
        ("anthropic/claude-sonnet-4-5", 20_000, ContextWindow(200_000)),
        ("vllm/qwen3", 20_000, ContextWindow(40_000)),
        ("ollama/unheard-of", 20_000, ContextWindow(32_000, is_assumed=True)),
        ("ollama/unheard-of", 10_000, None),
        ("vllm/qwen3", 10_000, ContextWindow(40_000)),
    ],
)
async def test_window_comes_from_the_price_list_then_the_settings_then_an_assumption(model, tokens, window):
    environ = {"ANTHROPIC_API_KEY": "k", "OLLAMA_HOST": "127.0.0.1"}
    own = structs.replace(VLLM, context_window={"qwen3": 40_000, "claude-sonnet-4-5": 1})
    choice = choose_model(model, None, environ, configure_providers({"vllm": own, "anthropic": own}))
    async with anyio.create_task_group() as group:
        assert await find_window(PriceList(group), choice, tokens) == window


def test_provider_of_the_user_without_an_address_cannot_be_used():
    providers = configure_providers({"lab": ProviderSettings(default_model="m")})
    with pytest.raises(EngineError, match=r"lab is not configured: set base_url in \[providers.lab\] of your config"):
        choose_model("lab/m", None, {}, providers)


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("openai/gpt-4o", Usage(input=1000), 0.0025),
        ("openai/gpt-4o", Usage(), None),
        ("ollama/x", Usage(), 0.0),
    ],
)
async def test_cost_is_unknown_if_the_provider_gave_no_counts(model, usage, cost):
    provider, _, name = model.partition("/")
    async with anyio.create_task_group() as group:
        assert (await PriceList(group).add_cost(usage, provider, name)).cost == cost
