"""Providers that pydantic-ai calls for us, with the extra `providers`: their variables, and what each is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from msgspec import Struct

INSTALL_HINT = "pip install 'retinue[providers]'"
EXTRA_WIRE = "pydantic-ai"
"""The wire of these providers."""
SECRET_ARGUMENTS = frozenset({"api_key", "token", "aws_access_key_id", "aws_secret_access_key", "aws_session_token"})
"""Arguments whose variables no command of an agent sees."""
AWS_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "api_key": ("AWS_BEARER_TOKEN_BEDROCK",),
    "aws_access_key_id": ("AWS_ACCESS_KEY_ID",),
    "aws_secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "aws_session_token": ("AWS_SESSION_TOKEN",),
    "profile_name": ("AWS_PROFILE",),
    "region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}

AWS_LOGINS = (("api_key",), ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), ("profile_name",))


class ExtraProvider(Struct, frozen=True, kw_only=True):
    """A provider of models that pydantic-ai calls."""

    name: str
    """As pydantic-ai spells it."""
    arguments: Mapping[str, tuple[str, ...]]
    """The arguments of its class there, and the variables of each; the first that is set wins."""
    required: tuple[str, ...] = ("api_key",)
    """Arguments without which it cannot be used."""
    logins: tuple[tuple[str, ...], ...] = ()
    """Groups of arguments that exclude each other; the first that is set wins."""
    names: tuple[str, ...] = ()
    """Other names by which models name the provider."""

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for names in self.arguments.values() for name in names)

    @property
    def secret_variables(self) -> tuple[str, ...]:
        return tuple(
            name for argument, names in self.arguments.items() if argument in SECRET_ARGUMENTS for name in names
        )

    def read_arguments(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the arguments whose variables are set."""
        found = {
            argument: next((environ[name] for name in names if environ.get(name)), "")
            for argument, names in self.arguments.items()
        }
        login = next((group for group in self.logins if found[group[0]]), ())
        others = {argument for group in self.logins for argument in group if group != login}
        return {argument: value for argument, value in found.items() if value and argument not in others}

    def missing_reason(self, environ: Mapping[str, str]) -> str | None:
        """Return what to set or install for a provider that cannot be used; None if it can."""
        if not is_installed():
            return INSTALL_HINT
        absent = [name for name in self.required if not any(environ.get(each) for each in self.arguments[name])]
        return f"set {' and '.join(self.arguments[name][0] for name in absent)}" if absent else None

    def configured_by(self, environ: Mapping[str, str]) -> str | None:
        """Return the first variable of its own that is set; None if it uses a login of its own, if any."""
        return next((name for name in self.variables if environ.get(name)), None)


def _with_key(name: str, *variables: str, **more: tuple[str, ...]) -> ExtraProvider:
    """Return a provider that needs a key, in `NAME_API_KEY` unless variables are named."""
    key = variables or (f"{name.replace('-', '_').upper()}_API_KEY",)
    return ExtraProvider(name=name, arguments={"api_key": key, **more}, required=("api_key", *more))


def _azure(name: str) -> ExtraProvider:
    arguments = {
        "api_key": ("AZURE_OPENAI_API_KEY",),
        "azure_endpoint": ("AZURE_OPENAI_ENDPOINT",),
        "api_version": ("OPENAI_API_VERSION",),
    }
    return ExtraProvider(name=name, arguments=arguments, required=("api_key", "azure_endpoint"))


EXTRA_PROVIDERS: Mapping[str, ExtraProvider] = {
    provider.name: provider
    for provider in (
        _with_key("alibaba", "ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
        _azure("azure"),
        _azure("azure-responses"),
        ExtraProvider(name="bedrock", arguments=AWS_ARGUMENTS, logins=AWS_LOGINS, required=()),
        ExtraProvider(name="bedrock-mantle", arguments=AWS_ARGUMENTS, logins=AWS_LOGINS, required=()),
        _with_key("cerebras"),
        _with_key("cohere", "CO_API_KEY", "COHERE_API_KEY"),
        _with_key("crusoe"),
        _with_key("gateway", "PYDANTIC_AI_GATEWAY_API_KEY", "PAIG_API_KEY"),
        _with_key("github-copilot", "GITHUB_COPILOT_API_KEY", "GITHUB_COPILOT_API_TOKEN", "COPILOT_GITHUB_TOKEN"),
        ExtraProvider(
            name="google-cloud",
            arguments={
                "credentials": ("GOOGLE_APPLICATION_CREDENTIALS",),
                "project": ("GOOGLE_CLOUD_PROJECT",),
                "location": ("GOOGLE_CLOUD_LOCATION",),
            },
            required=("project",),
            names=("google-vertex", "vertex"),
        ),
        _with_key("heroku", "HEROKU_INFERENCE_KEY"),
        _with_key("huggingface", "HF_TOKEN"),
        _with_key("litellm", api_base=("LITELLM_API_BASE",)),
        _with_key("meta"),
        _with_key("moonshotai"),
        _with_key("nebius"),
        _with_key("ovhcloud"),
        _with_key("sambanova"),
        ExtraProvider(
            name="snowflake",
            arguments={"account": ("SNOWFLAKE_ACCOUNT",), "token": ("SNOWFLAKE_TOKEN",)},
            required=("account", "token"),
        ),
        _with_key("vercel", "VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        ExtraProvider(
            name="vllm",
            arguments={"api_key": ("VLLM_API_KEY",), "base_url": ("VLLM_BASE_URL",)},
            required=("base_url",),
        ),
        _with_key("zai"),
    )
}
"""The providers of chat models in pydantic-ai 2.68 that none of our own wires reaches, by name."""


def is_installed() -> bool:
    return find_spec("pydantic_ai") is not None


def describe_other_providers() -> str:
    """Return which providers there are with pydantic-ai, and how a model of one is named."""
    names = ", ".join(EXTRA_PROVIDERS)
    needed = "" if is_installed() else f" with `{INSTALL_HINT}`"
    return f"Other providers{needed}, as --model bedrock/MODEL and so on: {names}."


def find_extra_provider(name: str) -> ExtraProvider | None:
    folded = name.casefold()
    return EXTRA_PROVIDERS.get(folded) or next(
        (each for each in EXTRA_PROVIDERS.values() if folded in each.names), None
    )


def configured_extra_providers(environ: Mapping[str, str]) -> Iterator[ExtraProvider]:
    """Yield the providers of which a secret is set, or everything that they need."""
    for each in EXTRA_PROVIDERS.values():
        needed = [any(environ.get(name) for name in each.arguments[argument]) for argument in each.required]
        if any(environ.get(name) for name in each.secret_variables) and all(needed):
            yield each
