"""The hosts of pi's providers, which a run in a `strict` sandbox reaches: those of its own provider only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.model.sandbox import host_of_url

_AMAZON = ("*.amazonaws.com",)
_CLOUDFLARE = ("api.cloudflare.com", "gateway.ai.cloudflare.com")
_OPENCODE = ("opencode.ai",)
_QWEN = ("*.maas.aliyuncs.com",)
_XIAOMI = ("*.xiaomimimo.com",)
_AZURE = ("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com")

PROVIDER_HOSTS: Mapping[str, tuple[str, ...]] = {
    "amazon-bedrock": _AMAZON,
    "ant-ling": ("api.ant-ling.com",),
    # The second and third refresh a login.
    "anthropic": ("api.anthropic.com", "platform.claude.com", "console.anthropic.com"),
    "openai": ("api.openai.com",),
    "azure": _AZURE,
    "azure-openai-responses": _AZURE,
    "openai-codex": ("chatgpt.com", "auth.openai.com"),
    "radius": ("radius.pi.dev",),
    "nvidia": ("integrate.api.nvidia.com",),
    "deepseek": ("api.deepseek.com",),
    "google": ("generativelanguage.googleapis.com",),
    "google-vertex": ("*.googleapis.com",),
    "github-copilot": ("*.githubcopilot.com", "api.github.com", "github.com"),
    "openrouter": ("openrouter.ai",),
    "vercel-ai-gateway": ("ai-gateway.vercel.sh",),
    "xai": ("api.x.ai",),
    "groq": ("api.groq.com",),
    "cerebras": ("api.cerebras.ai",),
    "zai": ("api.z.ai",),
    "zai-coding-cn": ("open.bigmodel.cn",),
    "mistral": ("api.mistral.ai",),
    "minimax": ("api.minimax.io",),
    "minimax-cn": ("api.minimaxi.com",),
    "moonshotai": ("api.moonshot.ai",),
    "moonshotai-cn": ("api.moonshot.cn",),
    "huggingface": ("router.huggingface.co",),
    "fireworks": ("api.fireworks.ai",),
    "together": ("api.together.ai", "api.together.xyz"),
    "baseten": ("inference.baseten.co",),
    "opencode": _OPENCODE,
    "opencode-go": _OPENCODE,
    "kimi-coding": ("api.kimi.com",),
    "meta": ("api.meta.ai",),
    "cloudflare-workers-ai": _CLOUDFLARE,
    "cloudflare-ai-gateway": _CLOUDFLARE,
    "qwen-token-plan": _QWEN,
    "qwen-token-plan-cn": _QWEN,
    "qwen-token-plan-individual": _QWEN,
    "xiaomi": _XIAOMI,
    "xiaomi-token-plan-cn": _XIAOMI,
    "xiaomi-token-plan-ams": _XIAOMI,
    "xiaomi-token-plan-sgp": _XIAOMI,
    "typesafe": ("api.typesafe.ai",),
}
"""The hosts in pi 1.5's own list of models, and those at which it refreshes logins."""


def list_hosts(provider: str, entry: Any, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts of a provider: those of its entry in `models.json` and of its variables, else pi's own."""
    found = [*_find_urls(entry), *_find_variable_urls(provider, environ)]
    hosts = [host for url in found if (host := host_of_url(url))]
    yield from hosts
    if not hosts:
        yield from PROVIDER_HOSTS.get(provider, ())


def _find_urls(entry: Any) -> Iterator[str]:
    """Yield the addresses of an entry and of its models."""
    if not isinstance(entry, dict):
        return
    if isinstance(url := entry.get("baseUrl"), str):
        yield url
    for model in entry.get("models") or ():
        yield from _find_urls(model)


def _find_variable_urls(provider: str, environ: Mapping[str, str]) -> Iterator[str]:
    name = "LLAMA" if provider == "llama.cpp" else provider.upper().replace("-", "_")
    if url := environ.get(f"{name}_BASE_URL"):
        yield url
