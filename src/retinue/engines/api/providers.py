"""The providers of the api engine: keys, base URLs, APIs and default models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from urllib.parse import urlsplit

from msgspec import Struct, structs

from retinue.engines.api.extra_providers import (
    EXTRA_PROVIDERS,
    EXTRA_WIRE,
    ExtraProvider,
    configured_extra_providers,
    find_extra_provider,
)
from retinue.engines.api.wire import Wire
from retinue.engines.base import EngineCapabilities, EngineError
from retinue.model.errors import ErrorCode, Failure
from retinue.model.providers import (
    CLAUDE_ALIASES,
    MODEL_FAMILIES,
    KnownModel,
    ProviderSettings,
    ProviderStatus,
    find_family,
)
from retinue.model.runs import Secret

AGENT_KEY = "RETINUE_AGENT_API_KEY"
"""The secret of a run whose agent brings a key of its own."""
CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "grep", "find", "ls", "write", "edit", "bash", "fetch_content"}),
    default_tools=("read", "grep", "find", "ls", "edit", "write", "bash", "fetch_content"),
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files", "gate"}),
    preferences=frozenset({"provider", "model", "thinking"}),
    resumes=True,
    finalizes=True,
    delegates=True,
    calls_servers=True,
    steers=True,
    calls_functions=True,
    reports_cost=True,
    confines=True,
    command_tools=frozenset({"bash"}),
)
FIRST_PROVIDERS = ("anthropic", "openai", "google", "openrouter")
"""The providers that are chosen first if several have a key."""
LOCAL_PROVIDER = "ollama"
"""The provider that is chosen last, with the first of its models, if its server answers."""


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of models."""

    name: str
    wire: str = "openai-chat"
    base_url: str
    base_url_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    """Variables of its key, the first that is set wins."""
    default_model: str | None = None
    aliases: Mapping[str, str] = {}
    """Short names of its models."""
    needs_key: bool = True
    names: tuple[str, ...] = ()
    """Other names by which models name the provider."""
    context_window: int | Mapping[str, int] | None = None
    """Tokens its models take, all or each by name, where the price lists do not know them."""

    def key(self, environ: Mapping[str, str]) -> str:
        return next((environ[name] for name in (AGENT_KEY, *self.key_variables) if environ.get(name)), "")

    def is_configured(self, environ: Mapping[str, str]) -> bool:
        if not self.base_url:
            return False
        if self.needs_key:
            return bool(self.key(environ))
        return self.base_url_variable is None or bool(environ.get(self.base_url_variable))

    def configured_by(self, environ: Mapping[str, str]) -> str | None:
        """Return the variable that makes the provider usable, else its own address; None if a variable is not set."""
        if not self.needs_key and self.base_url_variable is None:
            return self.base_url or None
        variables = self.key_variables if self.needs_key else (self.base_url_variable,)
        return next((name for name in variables if name and environ.get(name)), None)

    def with_settings(self, settings: ProviderSettings) -> Provider:
        """Return the provider with the user's settings; an address of the user's needs no variable."""
        has_address = settings.base_url is not None and not self.needs_key
        return structs.replace(
            self,
            wire=settings.wire or self.wire,
            base_url=settings.base_url or self.base_url,
            base_url_variable=None if has_address else self.base_url_variable,
            key_variables=(settings.key_variable,) if settings.key_variable else self.key_variables,
            needs_key=self.needs_key or settings.key_variable is not None,
            default_model=settings.default_model or self.default_model,
            context_window=settings.context_window or self.context_window,
        )

    def configured_window(self, model: str | None) -> int | None:
        """Return the context window of a model in the user's settings."""
        window = self.context_window
        return window.get(model or "") if isinstance(window, Mapping) else window

    def missing_reason(self) -> str:
        """Return what to set for a provider that cannot be used."""
        if not self.base_url:
            return f"set base_url in [providers.{self.name}] of your config.toml"
        return f"set {' or '.join(self.key_variables) or self.base_url_variable}"

    def endpoint_url(self, environ: Mapping[str, str]) -> str:
        """Return the base URL, from its variable or the provider's own."""
        url = (self.base_url_variable and environ.get(self.base_url_variable)) or self.base_url
        return _ollama_url(url) if self.name == "ollama" else url


def _ollama_url(host: str) -> str:
    """Return the base URL of `OLLAMA_HOST`, which may be a host, a host with a port, or a URL."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    place = rest.split("/", 1)[0].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - replaced, not listened on
    port = "" if ":" in place.rpartition("]")[2] else ":11434"
    return f"{scheme}://{place}{port}/v1"


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="anthropic",
            wire="anthropic",
            base_url="https://api.anthropic.com",
            base_url_variable="ANTHROPIC_BASE_URL",
            key_variables=("ANTHROPIC_API_KEY",),
            default_model="claude-sonnet-5-5",
            aliases={"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "haiku": "claude-haiku-5-5"},
        ),
        Provider(
            name="openai",
            wire="openai-responses",
            base_url="https://api.openai.com/v1",
            base_url_variable="OPENAI_BASE_URL",
            key_variables=("OPENAI_API_KEY",),
            default_model="gpt-6.1-terra",
        ),
        Provider(
            name="google",
            wire="gemini",
            base_url="https://generativelanguage.googleapis.com",
            base_url_variable="GOOGLE_GEMINI_BASE_URL",
            key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            default_model="gemini-3.8-flash",
            names=("gemini",),
        ),
        Provider(
            name="openrouter",
            base_url="https://openrouter.ai/api/v1",
            key_variables=("OPENROUTER_API_KEY",),
            default_model="~anthropic/claude-sonnet-latest",
        ),
        Provider(
            name="deepseek",
            base_url="https://api.deepseek.com/v1",
            key_variables=("DEEPSEEK_API_KEY",),
            default_model="deepseek-v4-pro",
        ),
        Provider(
            name="fireworks",
            base_url="https://api.fireworks.ai/inference/v1",
            key_variables=("FIREWORKS_API_KEY",),
            default_model="accounts/fireworks/models/glm-5p3",
        ),
        Provider(
            name="groq",
            base_url="https://api.groq.com/openai/v1",
            key_variables=("GROQ_API_KEY",),
            default_model="openai/gpt-oss-120b",
        ),
        Provider(
            name="mistral",
            base_url="https://api.mistral.ai/v1",
            key_variables=("MISTRAL_API_KEY",),
            default_model="mistral-medium-latest",
        ),
        Provider(
            name="together",
            base_url="https://api.together.xyz/v1",
            key_variables=("TOGETHER_API_KEY",),
            default_model="zai-org/GLM-5.3",
        ),
        Provider(
            name="xai",
            base_url="https://api.x.ai/v1",
            key_variables=("XAI_API_KEY",),
            default_model="grok-4.7",
            names=("x-ai", "grok"),
        ),
        Provider(
            name="ollama", base_url="http://127.0.0.1:11434/v1", base_url_variable="OLLAMA_HOST", needs_key=False
        ),
    )
}
"""The providers in the order in which one is chosen when several have a key."""


def configure_providers(settings: Mapping[str, ProviderSettings]) -> Mapping[str, Provider]:
    """Return the providers with the user's settings; those of the user's own are among the others, by name."""
    found = dict(PROVIDERS)
    for name in settings.keys() - PROVIDERS.keys():
        found[name] = Provider(name=name, base_url="", needs_key=False)
    order = sorted(found, key=_preference)
    return {name: found[name].with_settings(settings[name]) if name in settings else found[name] for name in order}


def _preference(provider: str) -> tuple[int, str]:
    """Return the sort key of a provider: those with a rank, then others by name, the local one last."""
    if provider == LOCAL_PROVIDER:
        return len(FIRST_PROVIDERS) + 1, provider
    if provider in FIRST_PROVIDERS:
        return FIRST_PROVIDERS.index(provider), provider
    return len(FIRST_PROVIDERS), provider


def _chat(provider: str) -> Wire:
    from retinue.engines.api.openai_chat import ChatWire

    return ChatWire(provider)


def _responses(_provider: str) -> Wire:
    from retinue.engines.api.openai_responses import ResponsesWire

    return ResponsesWire()


def _anthropic(_provider: str) -> Wire:
    from retinue.engines.api.anthropic import AnthropicWire

    return AnthropicWire()


def _gemini(_provider: str) -> Wire:
    from retinue.engines.api.gemini import GeminiWire

    return GeminiWire()


WIRES: Mapping[str, Callable[[str], Wire]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def remove_keys(
    environ: Mapping[str, str], secrets: Mapping[str, Secret], providers: Mapping[str, Provider] = PROVIDERS
) -> dict[str, str]:
    """Return the variables without the keys of all providers, the secrets and every other that contains one."""
    # A provider's usual variables hold keys also where the user's settings name another one.
    known = (*PROVIDERS.values(), *providers.values())
    names = {AGENT_KEY, *secrets, *(name for provider in known for name in provider.key_variables)}
    names.update(name for provider in EXTRA_PROVIDERS.values() for name in provider.secret_variables)
    values = {secret.reveal() for secret in secrets.values()} | {environ.get(name, "") for name in names}
    hidden = tuple(filter(None, values))
    return {
        name: value
        for name, value in environ.items()
        if name not in names and not any(secret in value for secret in hidden)
    }


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The provider and model of a run."""

    provider: Provider
    model: str
    base_url: str
    key: Secret
    notice: str | None = None
    """The sentence for a requested model that is not used."""
    arguments: Mapping[str, Secret] = {}
    """Of a provider that pydantic-ai calls: the arguments of its class there."""


def configured_providers(
    environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS
) -> Iterator[Provider]:
    """Yield the providers that can be used, the preferred one first."""
    return (provider for provider in providers.values() if provider.is_configured(environ))


def _find_default(environ: Mapping[str, str], providers: Mapping[str, Provider]) -> Provider | None:
    """Return the provider of a run that names none: the first that has a default model, else the first."""
    first: Provider | None = None
    for provider in configured_providers(environ, providers):
        if provider.default_model:
            return provider
        if provider.name != LOCAL_PROVIDER:
            first = first or provider
        elif first is None and (served := _list_served_models(provider, environ)):
            return structs.replace(provider, default_model=served[0])
    return first


def _list_served_models(provider: Provider, environ: Mapping[str, str]) -> Sequence[str] | None:
    """Return the models of a local server; None if it does not answer."""
    from retinue.engines.api.local_server import list_served_models

    url = provider.endpoint_url(environ)
    return list_served_models(url) if _is_http_url(url) else None


def _local_server_problem(local: Provider, environ: Mapping[str, str]) -> str | None:
    """Return why the local server cannot be used although it is configured; None if it can."""
    served, url = _list_served_models(local, environ), local.endpoint_url(environ)
    if served is None:
        return f"no server answers at {url} (OLLAMA_HOST): start it with `ollama serve`"
    return None if served else f"the server at {url} has no model: get one with `ollama pull`"


def not_configured_reason(environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS) -> str | None:
    """Return why no provider can be used and what to do; None if one can."""
    if _find_default(environ, providers):
        return None
    local = providers[LOCAL_PROVIDER]
    if local.is_configured(environ) and (problem := _local_server_problem(local, environ)):
        return problem
    keys = ", ".join(name for provider in providers.values() for name in provider.key_variables[:1])
    return f"no provider key is set. Set one of {keys}, or OLLAMA_HOST"


def describe_default(
    environ: Mapping[str, str], model: str | None = None, providers: Mapping[str, Provider] = PROVIDERS
) -> str:
    """Return the model that is used if a task names none, for `doctor` and the first line of a run.

    `model` is the user's setting.
    """
    is_extra = isinstance(_split_model(model, None, providers)[0], ExtraProvider)
    if not is_extra and _find_default(environ, providers) is None:
        return "models of a provider, in this process; needs only a key"
    try:
        choice = choose_model(model, None, environ, providers)
    except EngineError as error:
        return f"not usable as configured: {error.failure.message}"
    variable = choice.provider.configured_by(environ) or "its own login"
    return f"{choice.provider.name}/{choice.model} by {variable}, in this process"


def list_providers(
    environ: Mapping[str, str], model: str | None = None, providers: Mapping[str, Provider] = PROVIDERS
) -> tuple[ProviderStatus, ...]:
    """Return the providers in the order in which one is chosen; `model` is the user's setting."""
    try:
        chosen = choose_model(model, None, environ, providers).provider.name
    except EngineError:
        chosen = None
    ours = (_describe_provider(each, environ, is_chosen=each.name == chosen) for each in providers.values())
    others = (
        ProviderStatus(
            name=each.name,
            model=None,
            configured_by=each.configured_by(environ),
            missing=each.missing_reason(environ),
            is_chosen=each.name == chosen,
        )
        for each in configured_extra_providers(environ)
        if each.name not in providers
    )
    return (*ours, *others)


def _describe_provider(provider: Provider, environ: Mapping[str, str], *, is_chosen: bool) -> ProviderStatus:
    missing = None if provider.is_configured(environ) else provider.missing_reason()
    model = provider.default_model
    if provider.name == LOCAL_PROVIDER and missing is None:
        missing = _local_server_problem(provider, environ)
        model = model or next(iter(_list_served_models(provider, environ) or ()), None)
    return ProviderStatus(
        name=provider.name,
        model=_describe_default_model(provider, model),
        configured_by=provider.configured_by(environ),
        missing=missing,
        is_chosen=is_chosen,
    )


def find_model_problem(
    model: str | None, provider: str | None, environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS
) -> Failure | None:
    """Return why a run on this model could not start; None if it can."""
    try:
        choose_model(model, provider, environ, providers)
    except EngineError as error:
        return error.failure
    return None


def has_model(
    model: str, provider: str | None, environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS
) -> bool:
    """Return whether a run can have a model that it does not depend on.

    A name without a provider is sent to the default one. That has it if it serves models of such names, or if it may
    serve any: the user's own address, and providers of other companies' models.
    """
    if find_model_problem(model, provider, environ, providers):
        return False
    named, _ = _split_model(model, provider, providers)
    default = _find_default(environ, providers)
    if named or default is None or default.endpoint_url(environ) != _own_url(default):
        return True
    if family := find_family(model):
        return default.name in family
    return not any(default.name in names for names in MODEL_FAMILIES.values())


def _own_url(provider: Provider) -> str | None:
    known = PROVIDERS.get(provider.name)
    return known.base_url if known else None


def _describe_default_model(provider: Provider, model: str | None) -> KnownModel | None:
    from retinue.engines.api.pricing import describe_model

    return describe_model(provider.name, model, provider.configured_window(model)) if model else None


def list_models(
    provider: str, environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS
) -> tuple[KnownModel, ...] | None:
    """Return the known models of a provider, by name; None if there is no such provider.

    Those of a server that no price list has are asked from it, if it answers without a key.
    """
    from retinue.engines.api.pricing import list_known_models

    known = _find_provider(provider, providers) or find_extra_provider(provider)
    if known is None:
        return None
    listed = list_known_models(known.name)
    if listed or not isinstance(known, Provider) or known.needs_key or not known.is_configured(environ):
        return listed
    served = sorted(_list_served_models(known, environ) or ())
    return tuple(KnownModel(name=name, context_window=known.configured_window(name)) for name in served)


def provider_variables(
    models: Sequence[str | None],
    provider: str | None,
    environ: Mapping[str, str],
    providers: Mapping[str, Provider] = PROVIDERS,
) -> frozenset[str]:
    """Return the variables of the providers that a run on these models may use."""
    used: set[str] = set()
    for model in models:
        try:
            named, _ = _split_model(model, provider, providers)
            if isinstance(named, ExtraProvider):
                used.update(named.variables)
                continue
            chosen = [choose_model(model, provider, environ, providers).provider]
        except EngineError:
            # The run fails with the reason, for which it must see what is configured.
            chosen = list(configured_providers(environ, providers))
        for each in chosen:
            used.update((*each.key_variables, *filter(None, (each.base_url_variable,))))
    return frozenset(used)


def configured_variables(environ: Mapping[str, str], providers: Mapping[str, Provider] = PROVIDERS) -> frozenset[str]:
    """Return the variables of all providers that can be used; without those that give access to a whole cloud."""
    own = (
        (*each.key_variables, *filter(None, (each.base_url_variable,)))
        for each in configured_providers(environ, providers)
    )
    return frozenset().union(
        *own, *(each.variables for each in configured_extra_providers(environ) if each.required == ("api_key",))
    )


def choose_model(
    requested: str | None,
    provider: str | None,
    environ: Mapping[str, str],
    providers: Mapping[str, Provider] = PROVIDERS,
) -> ModelChoice:
    """Return the provider and model for a run; without a request the default of the first configured provider.

    Raises:
        EngineError: the provider is unknown or has no key, or no provider is configured.
    """
    named, model = _split_model(requested, provider, providers)
    if isinstance(named, ExtraProvider):
        return _make_extra_choice(named, model, environ)
    if named:
        return _make_choice(named, model, environ)
    default = _find_default(environ, providers)
    if default is None:
        raise _unusable(f"The api engine cannot be used: {not_configured_reason(environ, providers)}.", "no_provider")
    if model is None:
        return _make_choice(default, None, environ)
    if model in CLAUDE_ALIASES:
        anthropic = providers["anthropic"]
        if anthropic.is_configured(environ):
            return _make_choice(anthropic, model, environ)
        chosen = _make_choice(default, None, environ)
        return ModelChoice(
            provider=chosen.provider,
            model=chosen.model,
            base_url=chosen.base_url,
            key=chosen.key,
            notice=f"No Anthropic provider is configured for the model {model!r}; "
            f"{chosen.provider.name}/{chosen.model} is used instead.",
        )
    prefix, separator, _ = model.partition("/")
    if separator and "/" not in (default.default_model or "/"):
        raise _unknown_provider(prefix, providers)
    return _make_choice(default, model, environ)


def _split_model(
    requested: str | None, provider: str | None, providers: Mapping[str, Provider]
) -> tuple[Provider | ExtraProvider | None, str | None]:
    """Return the provider that is named, apart or in front of the model, and the model without it."""
    if requested:
        for separator in ("/", ":"):
            prefix, found, rest = requested.partition(separator)
            if found and rest and (known := _find_provider(prefix, providers) or find_extra_provider(prefix)):
                return known, rest
    if not provider:
        return None, requested
    if known := _find_provider(provider, providers) or find_extra_provider(provider):
        return known, requested
    raise _unknown_provider(provider, providers)


def _unknown_provider(provider: str, providers: Mapping[str, Provider]) -> EngineError:
    if known := _find_provider(provider, providers) or find_extra_provider(provider):
        return _unusable(f"Name a model of {known.name}, e.g. --model {known.name}/MODEL.", "no_model")
    near = get_close_matches(provider.casefold(), (*providers, *EXTRA_PROVIDERS), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return _unusable(f"Unknown provider {provider!r}.{hint} Providers: {', '.join(providers)}.", "unknown_provider")


def _find_provider(name: str, providers: Mapping[str, Provider]) -> Provider | None:
    folded = name.casefold()
    return providers.get(folded) or next((each for each in providers.values() if folded in each.names), None)


def _make_choice(provider: Provider, model: str | None, environ: Mapping[str, str]) -> ModelChoice:
    if not provider.is_configured(environ):
        raise _unusable(f"The provider {provider.name} is not configured: {provider.missing_reason()}.", "no_key")
    name = provider.aliases.get(model or "", model) or provider.default_model
    if name is None:
        raise _unusable(f"Name a model of {provider.name}, e.g. --model {provider.name}/llama3.3.", "no_model")
    url, key = provider.endpoint_url(environ), provider.key(environ)
    source = provider.base_url_variable or "base_url"
    if not _is_http_url(url):
        raise _unusable(f"{source}={url!r} is not an HTTP URL.", "invalid_base_url")
    if "?" in url or "#" in url:
        raise _unusable(f"The URL in {source} has a query or a fragment: leave it out.", "invalid_base_url")
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        variables = " or ".join(provider.key_variables)
        raise _unusable(
            f"The key in {variables} has leading or trailing spaces, or characters that keys do not have: copy the "
            "key again.",
            "invalid_key",
        )
    return ModelChoice(provider=provider, model=name, base_url=url, key=Secret(key))


def _make_extra_choice(extra: ExtraProvider, model: str | None, environ: Mapping[str, str]) -> ModelChoice:
    if (key := environ.get(AGENT_KEY)) and "api_key" in extra.arguments:
        environ = {**environ, extra.arguments["api_key"][0]: key}
    if missing := extra.missing_reason(environ):
        raise _unusable(f"The provider {extra.name} cannot be used: {missing}.", "no_key")
    if model is None:
        raise _unusable(f"Name a model of {extra.name}, e.g. --model {extra.name}/MODEL.", "no_model")
    arguments = {name: Secret(value) for name, value in extra.read_arguments(environ).items()}
    provider = Provider(name=extra.name, wire=EXTRA_WIRE, base_url="", key_variables=extra.variables)
    return ModelChoice(provider=provider, model=model, base_url="", key=Secret(""), arguments=arguments)


def _is_http_url(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number or too large, or a broken IPv6 address
        return False


def _unusable(message: str, reason: str) -> EngineError:
    return EngineError(Failure(ErrorCode.SPAWN_FAILED, message, reason))
