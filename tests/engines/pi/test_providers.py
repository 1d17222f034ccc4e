"""Environment variables of a run on pi: those of the providers it may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.config.run_environment import build_child_environment
from retinue.engines.pi.installation import ENVIRONMENT
from retinue.engines.pi.providers import PROVIDERS, provider_variables

KEYS = {
    "ANTHROPIC_API_KEY": "anthropic",
    "OPENAI_API_KEY": "openai",
    "GROQ_API_KEY": "groq",
    "FOO": "of a custom provider",
    "FOO_HEADER": "of a custom provider",
}
CLOUDS = {
    "AWS_ACCESS_KEY_ID": "aws",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "AWS_SESSION_TOKEN": "aws",
    "AZURE_OPENAI_API_KEY": "azure",
    "AZURE_CLIENT_SECRET": "no provider of pi's",
    "CLOUDFLARE_API_KEY": "cloudflare",
    "CLOUDFLARE_API_TOKEN": "no provider of pi's",
    "GOOGLE_APPLICATION_CREDENTIALS": "vertex",
    "GOOGLE_CLOUD_PROJECT": "vertex",
    "GOOGLE_CLOUD_LOCATION": "vertex",
    "DEPLOY_TOKEN": "no provider's",
}
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
VERTEX = {"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"}
CUSTOM = {
    "local": {"baseUrl": "http://127.0.0.1:1", "apiKey": "no-key", "models": [{"id": "scripted-1"}]},
    "foo": {"apiKey": "$FOO", "headers": {"x-foo": "Bearer ${FOO_HEADER}$$HOME"}},
}


@pytest.fixture
def list_variables(tmp_path: Path):
    """Return a function that lists the variables a run gets, of those set here."""

    def names(
        *models: str | None,
        provider: str | None = None,
        environ: dict[str, str] | None = None,
        models_json: str | None = None,
        **files: Any,
    ) -> set[str]:
        environ = {**(KEYS | CLOUDS if environ is None else environ), "PI_CODING_AGENT_DIR": str(tmp_path)}
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        (tmp_path / "models.json").write_text(models_json or json.dumps({"providers": CUSTOM}))
        needed = ENVIRONMENT | provider_variables(models, provider, environ)
        return build_child_environment(environ, needed).keys() - {"PI_CODING_AGENT_DIR"}

    return names


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("local/scripted-1", set()),
        ("LOCAL/scripted-1", set()),
        ("scripted-1:high", set()),
        ("foo/bar", {"FOO", "FOO_HEADER"}),
        ("anthropic/claude-opus-4-8", {"ANTHROPIC_API_KEY"}),
        ("sonnet", {"ANTHROPIC_API_KEY"}),
        ("claude-opus-4-8:high", {"ANTHROPIC_API_KEY"}),
        ("openai/gpt-5.5", {"OPENAI_API_KEY"}),
        ("amazon-bedrock/us.anthropic.claude-opus-4-6-v1", AWS),
        ("google-vertex/gemini-3.1-pro-preview", VERTEX),
        ("azure/gpt-5.4", {"AZURE_OPENAI_API_KEY"}),
        ("azure-openai-responses/gpt-5.4", {"AZURE_OPENAI_API_KEY"}),
        ("cloudflare-workers-ai/@cf/x", {"CLOUDFLARE_API_KEY"}),
    ],
)
def test_run_gets_the_variables_of_its_models_provider_only(list_variables, model, names):
    assert list_variables(model) == names


def test_run_gets_the_variables_of_the_agents_provider_only(list_variables):
    assert list_variables("gpt-oss-120b", provider="groq") == {"GROQ_API_KEY"}
    assert list_variables("claude", provider="amazon-bedrock") == AWS
    assert list_variables("scripted-1", provider="local") == set()
    assert list_variables("m", provider="of-an-extension") == set()


def test_run_gets_the_variables_of_every_fallback_model(list_variables):
    assert list_variables("local/scripted-1", "openai/gpt-5.5", "foo/bar") == {"OPENAI_API_KEY", "FOO", "FOO_HEADER"}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"defaultProvider": "local"}, set()),
        ({"defaultProvider": "openai"}, {"OPENAI_API_KEY"}),
        ({"defaultProvider": "amazon-bedrock"}, AWS),
        ({"enabledModels": ["groq/*"]}, {"GROQ_API_KEY"}),
        # pi picks the first configured provider of its own list, also if its default has no key.
        ({}, AWS),
        ({"defaultProvider": "mistral"}, AWS),
        ({"defaultProvider": ["openai"], "enabledModels": {"a": 1}}, AWS),
    ],
)
def test_run_without_a_model_gets_the_variables_of_pis_default_provider(list_variables, settings, names):
    assert list_variables(None, settings=settings) == names


def test_a_login_counts_as_configured(list_variables):
    assert list_variables(None, settings={"defaultProvider": "mistral"}, auth={"mistral": {"type": "oauth"}}) == set()


def test_auth_json_may_name_a_variable(list_variables):
    assert list_variables("mistral/devstral", auth={"mistral": {"type": "api_key", "key": "${FOO}"}}) == {"FOO"}


@pytest.mark.parametrize("model", ["gpt-5.5", "meta-llama/llama-4", "mistral/devstral", "of-an-extension/m"])
def test_run_of_unknown_provider_gets_every_key_but_no_cloud_credentials(list_variables, model):
    assert list_variables(model) == {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY", "FOO", "FOO_HEADER"}


def test_cloud_that_is_named_gets_its_variables_even_if_a_file_has_the_credentials(list_variables):
    environ = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l", "OPENAI_API_KEY": "k"}
    assert list_variables("google-vertex/gemini", environ=environ) == {
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
    }


def test_models_json_with_comments_and_trailing_commas_is_read(list_variables):
    text = '\ufeff{"providers": {"foo": {"apiKey": "$FOO", // the "key"\n "baseUrl": "http://x",},},}'
    assert list_variables("foo/bar", models_json=text) == {"FOO"}


@pytest.mark.parametrize("apikey", ["FOO", "$FOO"])
def test_api_key_names_a_variable_with_or_without_a_dollar(list_variables, apikey):
    assert list_variables("foo/bar", models_json=json.dumps({"providers": {"foo": {"apiKey": apikey}}})) == {"FOO"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"providers": []}', '{"providers": {"local": [1]}}', "\0" * 9])
def test_unreadable_models_json_gives_no_cloud_credentials(list_variables, text):
    assert not list_variables("local/scripted-1", models_json=text) & CLOUDS.keys()


def test_every_provider_has_variables_or_a_login_only():
    assert [name for name, provider in PROVIDERS.items() if not provider.variables] == ["openai-codex"]
