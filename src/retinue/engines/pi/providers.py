"""The environment variables each of pi's providers needs, and the providers a run may use.

A child sees the variables of its own provider only. The table lists pi's built-in providers in the order in which pi
itself picks one when nothing names a model; `models.json` and `auth.json` name further variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.config.directories import pi_folder
from retinue.engines.pi.provider_hosts import list_hosts
from retinue.model.providers import find_family
from retinue.support.cache import compile_pattern
from retinue.support.safe_files import FileTooLargeError, read_regular_file

FILE_BYTES = 4 << 20


class Provider(Struct, frozen=True):
    """The environment variables of one of pi's built-in providers."""

    variables: tuple[str, ...]
    """Passed to a run that uses the provider; `X_*` means all with this prefix."""
    configured_by: tuple[tuple[str, ...], ...] = ()
    """Sets of variables, each sufficient to use the provider; empty: any of its variables."""
    is_cloud: bool = False
    """True if the variables also give access to other services of a cloud."""

    @property
    def sufficient(self) -> tuple[tuple[str, ...], ...]:
        return self.configured_by or tuple((name,) for name in self.variables)


def _key(*names: str) -> Provider:
    return Provider(names)


_AWS = Provider(
    ("AWS_*",),
    (
        ("AWS_PROFILE",),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_BEARER_TOKEN_BEDROCK",),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
        ("AWS_WEB_IDENTITY_TOKEN_FILE",),
    ),
    is_cloud=True,
)
_ANTHROPIC = Provider(
    ("ANTHROPIC_*",),
    (
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_OAUTH_TOKEN",),
        ("ANTHROPIC_AUTH_TOKEN",),
        ("ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID", "ANTHROPIC_IDENTITY_TOKEN_FILE"),
    ),
)
_AZURE = Provider(("AZURE_OPENAI_*",), (("AZURE_OPENAI_API_KEY",),), is_cloud=True)
_VERTEX = Provider(
    ("GOOGLE_CLOUD_*", "GOOGLE_APPLICATION_CREDENTIALS", "GCLOUD_PROJECT"),
    (
        ("GOOGLE_CLOUD_API_KEY",),
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_LOCATION", "GCLOUD_PROJECT"),
    ),
    is_cloud=True,
)
_CLOUDFLARE = Provider(
    ("CLOUDFLARE_API_KEY", "CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_GATEWAY_ID"),
    (("CLOUDFLARE_API_KEY",),),
    is_cloud=True,
)

PROVIDERS: Mapping[str, Provider] = {
    "amazon-bedrock": _AWS,
    "ant-ling": _key("ANT_LING_API_KEY"),
    "anthropic": _ANTHROPIC,
    "openai": _key("OPENAI_API_KEY"),
    "azure": _AZURE,
    "azure-openai-responses": _AZURE,
    "openai-codex": _key(),
    "radius": _key("RADIUS_API_KEY"),
    "nvidia": _key("NVIDIA_API_KEY"),
    "deepseek": _key("DEEPSEEK_API_KEY"),
    "google": _key("GEMINI_API_KEY"),
    "google-vertex": _VERTEX,
    "github-copilot": _key("COPILOT_GITHUB_TOKEN"),
    "openrouter": _key("OPENROUTER_API_KEY"),
    "vercel-ai-gateway": _key("AI_GATEWAY_API_KEY"),
    "xai": _key("XAI_API_KEY"),
    "groq": _key("GROQ_API_KEY"),
    "cerebras": _key("CEREBRAS_API_KEY"),
    "zai": _key("ZAI_API_KEY"),
    "zai-coding-cn": _key("ZAI_CODING_CN_API_KEY"),
    "mistral": _key("MISTRAL_API_KEY"),
    "minimax": _key("MINIMAX_API_KEY"),
    "minimax-cn": _key("MINIMAX_CN_API_KEY"),
    "moonshotai": _key("MOONSHOT_API_KEY"),
    "moonshotai-cn": _key("MOONSHOT_API_KEY"),
    "huggingface": _key("HF_TOKEN"),
    "fireworks": _key("FIREWORKS_API_KEY"),
    "together": _key("TOGETHER_API_KEY"),
    "baseten": _key("BASETEN_API_KEY"),
    "opencode": _key("OPENCODE_API_KEY"),
    "opencode-go": _key("OPENCODE_API_KEY"),
    "kimi-coding": _key("KIMI_API_KEY"),
    "meta": _key("META_API_KEY"),
    "cloudflare-workers-ai": _CLOUDFLARE,
    "cloudflare-ai-gateway": _CLOUDFLARE,
    "qwen-token-plan": _key("QWEN_TOKEN_PLAN_API_KEY"),
    "qwen-token-plan-cn": _key("QWEN_TOKEN_PLAN_CN_API_KEY"),
    "qwen-token-plan-individual": _key("QWEN_TOKEN_PLAN_API_KEY"),
    "xiaomi": _key("XIAOMI_API_KEY"),
    "xiaomi-token-plan-cn": _key("XIAOMI_TOKEN_PLAN_CN_API_KEY"),
    "xiaomi-token-plan-ams": _key("XIAOMI_TOKEN_PLAN_AMS_API_KEY"),
    "xiaomi-token-plan-sgp": _key("XIAOMI_TOKEN_PLAN_SGP_API_KEY"),
    "llama.cpp": Provider(("LLAMA_API_KEY", "LLAMA_BASE_URL"), (("LLAMA_BASE_URL",),)),
    "typesafe": _key("TYPESAFE_API_KEY"),
}

_CLAUDE_MODEL = r"(?i)(?:claude|sonnet|opus|haiku)\b.*"
_REFERENCE = r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*)|[$!])"
"""Reference to a variable in `models.json` and `auth.json`; `$$` and `$!` are a dollar and an exclamation mark."""
_COMMENTS = r'("(?:\\.|[^"\\])*")|//[^\n]*+'
_TRAILING_COMMAS = r'("(?:\\.|[^"\\])*")|,(\s*+[}\]])'


def provider_variables(
    models: Sequence[str | None], provider: str | None, environ: Mapping[str, str]
) -> frozenset[str]:
    """Return the variables a run on these models may need to reach its providers; `X_*` means a prefix.

    `models` are those of the run's attempts, None for pi's default; `provider` is named by its agent.
    """
    configuration = PiConfiguration(environ)
    return frozenset(name for model in models for name in _variables(model, provider, configuration))


def has_model(model: str, provider: str | None, environ: Mapping[str, str]) -> bool:
    """Return whether a provider of the model is configured."""
    configuration = PiConfiguration(environ)
    named = [provider] if provider else configuration.providers_named_by(model)
    if not named:
        named = [*find_family(model)]
    return any(map(configuration.is_configured, named))


def configured_variables(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the variables of all configured providers; those of a cloud only if pi uses it by default."""
    configuration = PiConfiguration(environ)
    used = [each for each in PROVIDERS if not _is_cloud(each) and configuration.is_configured(each)]
    used += (*configuration.custom_providers(), *configuration.default_providers())
    return frozenset().union(*map(configuration.variables_of, used))


def _variables(model: str | None, provider: str | None, configuration: PiConfiguration) -> Iterator[str]:
    if model and provider:
        yield from configuration.variables_of(provider)
        return
    named = configuration.providers_named_by(model) if model else configuration.default_providers()
    for each in named:
        yield from configuration.variables_of(each)
    if not any(_is_cloud(each) or configuration.is_configured(each) for each in named):
        yield from configuration.variables_without_cloud()


class PiConfiguration:
    """The providers that pi's files and the environment configure."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        folder = pi_folder(environ)
        self._environ = environ
        self._settings = read_object(folder / "settings.json")
        self._logins = _by_lower_name(read_object(folder / "auth.json"))
        self._custom = _by_lower_name(read_object(folder / "models.json").get("providers"))

    def variables_of(self, provider: str) -> set[str]:
        """Return the variables of one provider: pi's own, and those that pi's files name for it."""
        provider = provider.lower()
        names = set(PROVIDERS[provider].variables) if provider in PROVIDERS else set()
        for entry in (self._custom.get(provider), self._logins.get(provider)):
            names.update(_references(entry))
            key = entry.get("apiKey") if isinstance(entry, dict) else None
            if isinstance(key, str) and self._environ.get(key):  # versions before 0.87 need no dollar
                names.add(key)
        return names

    def variables_without_cloud(self) -> set[str]:
        """Return the variables of all providers but those of clouds."""
        named = {name for each in PROVIDERS.values() if not each.is_cloud for name in each.variables}
        return named.union(*map(self.variables_of, self._custom.keys() - PROVIDERS.keys()))

    def is_configured(self, provider: str) -> bool:
        provider = provider.lower()
        if provider in self._custom or provider in self._logins:
            return True
        sufficient = PROVIDERS[provider].sufficient if provider in PROVIDERS else ()
        return any(all(self._environ.get(name) for name in names) for names in sufficient)

    def custom_providers(self) -> tuple[str, ...]:
        """Return the providers of pi's `models.json`."""
        return tuple(self._custom)

    def providers_named_by(self, model: str) -> list[str]:
        """Return the providers named by a model: `provider/model`, or those that declare it."""
        known = (*PROVIDERS, *self._custom, *self._logins)
        prefixes = [each for each in known if model.lower().startswith(f"{each}/")]
        if prefixes:
            return [max(prefixes, key=len)]
        names = {model, model.rpartition(":")[0]}  # without the suffix of a thinking level
        declaring = [provider for provider, entry in self._custom.items() if names & _declared_models(entry)]
        is_claude = compile_pattern(_CLAUDE_MODEL).fullmatch(model) and self.is_configured("anthropic")
        return declaring or (["anthropic"] if is_claude else [])

    def providers_of_run(self, model: str | None, provider: str | None) -> tuple[str, ...]:
        """Return the providers that a run on this model may use; empty if any of them."""
        if model and provider:
            return (provider.lower(),)
        return tuple(self.providers_named_by(model) if model else self.default_providers())

    def hosts_of(self, providers: Iterable[str]) -> tuple[str, ...]:
        """Return the hosts of the providers, those of all configured ones if none is named."""
        names = tuple(providers) or tuple(filter(self.is_configured, (*PROVIDERS, *self._custom)))
        found = (list_hosts(name, self._custom.get(name), self._environ) for name in names)
        return tuple(dict.fromkeys(host for hosts in found for host in hosts))

    def default_providers(self) -> list[str]:
        """Return the providers from which pi chooses if no model is named."""
        chosen = [self._settings.get("defaultProvider")]
        enabled = self._settings.get("enabledModels")
        if isinstance(enabled, list) and enabled and isinstance(enabled[0], str):
            chosen += self.providers_named_by(enabled[0])
        named = [each for each in chosen if isinstance(each, str) and self.is_configured(each)]
        automatic = next(filter(self.is_configured, PROVIDERS), None)
        return named or ([automatic] if automatic else list(self._custom))


def _is_cloud(provider: str) -> bool:
    return provider in PROVIDERS and PROVIDERS[provider].is_cloud


def _by_lower_name(value: Any) -> dict[str, Any]:
    return {name.lower(): entry for name, entry in value.items()} if isinstance(value, dict) else {}


def _references(value: Any) -> Iterator[str]:
    """Yield the variables referenced in a configuration value."""
    if isinstance(value, str):
        for braced, bare in re.findall(_REFERENCE, value):
            if braced or bare:
                yield braced or bare
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _references(member)


def _declared_models(entry: Any) -> set[str]:
    models = entry.get("models") if isinstance(entry, dict) else None
    found = (model.get("id") for model in models or () if isinstance(model, dict))
    return {name for name in found if isinstance(name, str)}


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in one of pi's files, comments and trailing commas allowed; empty if unreadable."""
    try:
        text = read_regular_file(path, FILE_BYTES).decode("utf-8-sig")
        text = compile_pattern(_COMMENTS).sub(lambda found: found[1] or "", text)
        text = compile_pattern(_TRAILING_COMMAS).sub(lambda found: found[1] or found[2], text)
        value = msgspec.json.decode(text)
    except (OSError, FileTooLargeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
