"""The installed Claude Code: capabilities, path and login.

All of it is read without starting Claude Code or importing the SDK.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from retinue.config.directories import claude_folder, home_folder
from retinue.engines.base import EngineCapabilities, engine_error
from retinue.model.errors import ErrorCode
from retinue.support.processes import find_program
from retinue.support.safe_files import FileTooLargeError, read_regular_file

CLAUDE_VARIABLE = "RETINUE_CLAUDE"
"""Path of the executable, if it is not the one bundled with the SDK."""

SDK_MODULE = "claude_agent_sdk"

LOGIN_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)
"""Variables of which each is enough to reach a provider."""

ENVIRONMENT = frozenset({
    "ANTHROPIC_BETAS", "ANTHROPIC_CUSTOM_*", "ANTHROPIC_DEFAULT_*", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE", "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CONFIG_DIR", CLAUDE_VARIABLE,
})  # fmt: skip
"""Variables that a Claude Code process needs, whichever its provider."""

ANTHROPIC = frozenset({
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CONFIG_DIR",
    "ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_IDENTITY_TOKEN*", "ANTHROPIC_ORGANIZATION_ID", "ANTHROPIC_PROFILE",
    "ANTHROPIC_SCOPE", "ANTHROPIC_SERVICE_ACCOUNT_ID", "ANTHROPIC_UNIX_SOCKET", "ANTHROPIC_WORKSPACE_ID",
    "CLAUDE_CODE_OAUTH_TOKEN",
})  # fmt: skip
CLOUDS = {
    "CLAUDE_CODE_USE_BEDROCK": frozenset(
        {
            "ANTHROPIC_BEDROCK_*",
            "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION",
            "AWS_*",
            "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
            "CLAUDE_CODE_USE_BEDROCK",
        }
    ),
    "CLAUDE_CODE_USE_FOUNDRY": frozenset(
        {"ANTHROPIC_FOUNDRY_*", "AZURE_*", "CLAUDE_CODE_SKIP_FOUNDRY_AUTH", "CLAUDE_CODE_USE_FOUNDRY"}
    ),
    "CLAUDE_CODE_USE_VERTEX": frozenset(
        {
            "ANTHROPIC_VERTEX_*",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            "CLAUDE_CODE_USE_VERTEX",
            "CLOUD_ML_REGION",
            "GCLOUD_PROJECT",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_PROJECT",
            "VERTEX_REGION_*",
        }
    ),
}
"""The variables that switch Claude Code to a cloud, each with the variables of the cloud's provider."""
TRUE = frozenset({"1", "true", "yes", "on"})
"""Values that Claude Code reads as true."""

CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "write", "edit", "bash", "grep", "find", "ls", "web_search", "fetch_content"}),
    # No `tool_patterns`: beside `Bash(git:*)` Claude Code allows every command it considers read-only.
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files", "gate"}),
    preferences=frozenset({"model", "thinking"}),
    resumes=True,
    resumes_natively=True,
    finalizes=True,
    delegates=True,
    calls_servers=True,
    steers=True,
    reports_cost=True,
    confines=True,
    runs_program=True,
    environment=ENVIRONMENT,
)

MAX_STATE_BYTES = 64 << 20
"""Size above which `.claude.json`, which grows with every project, is not read."""


CLAUDE_MODELS = ("claude", "sonnet", "opus", "haiku", "best")
"""Starts of the names of models that Claude Code takes, its aliases included."""


def provider_variables(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the variables Claude Code needs for its provider: the clouds that are switched on, else Anthropic."""
    clouds = [names for switch, names in CLOUDS.items() if environ.get(switch, "").strip().lower() in TRUE]
    return frozenset().union(*clouds) if clouds else ANTHROPIC


def has_model(model: str, provider: str | None, environ: Mapping[str, str]) -> bool:
    """Return whether Claude Code takes a model: one of Claude's, or any behind a gateway of the user's."""
    if environ.get("ANTHROPIC_BASE_URL"):
        return True
    return (provider or "anthropic") == "anthropic" and model.rpartition("/")[2].lower().startswith(CLAUDE_MODELS)


def find_claude(environ: Mapping[str, str]) -> str | None:
    """Return the program: the configured one, else the SDK's own, which is tested with it, else the one on PATH."""
    if named := environ.get(CLAUDE_VARIABLE):
        return find_program(named, environ.get("PATH"))
    return _find_bundled() or find_program("claude", environ.get("PATH"))


def require_claude(environ: Mapping[str, str]) -> str:
    """Return the program.

    Raises:
        EngineError: the program or the SDK is missing.
    """
    program = find_claude(environ)
    if why := no_program_reason(environ):
        raise engine_error(f"The claude engine cannot be used: {why}", code=ErrorCode.SPAWN_FAILED)
    assert program is not None
    return program


def not_installed_reason(environ: Mapping[str, str]) -> str | None:
    """Return why Claude Code cannot be used and what to do, or None if it can."""
    if why := no_program_reason(environ):
        return why
    if not _has_login(environ):
        return (
            "Claude Code has no login: no key in the environment, and none of its own in "
            f"{claude_folder(environ)}. Start `{find_claude(environ)}` and use /login, or set ANTHROPIC_API_KEY."
        )
    return None


def no_program_reason(environ: Mapping[str, str]) -> str | None:
    """Return why no Claude Code program is found, login aside, and what to do; None if one is."""
    if importlib.util.find_spec(SDK_MODULE) is None:
        return "the Claude Agent SDK is not installed. Install it with `pip install claude-agent-sdk`."
    if find_claude(environ):
        return None
    if named := environ.get(CLAUDE_VARIABLE):
        return (
            f"program {named} not found ({CLAUDE_VARIABLE}). Set it to an existing program, or unset "
            f"{CLAUDE_VARIABLE}."
        )
    return (
        "the Claude Agent SDK includes no `claude` program, and none is on the PATH. Install it with "
        f"`npm install -g @anthropic-ai/claude-code`, or set {CLAUDE_VARIABLE} to its path."
    )


def _find_bundled() -> str | None:
    spec = importlib.util.find_spec(SDK_MODULE)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "_bundled" / ("claude.exe" if os.name == "nt" else "claude")
    return str(program) if os.access(program, os.X_OK) else None


def _has_login(environ: Mapping[str, str]) -> bool:
    if any(environ.get(key) for key in LOGIN_VARIABLES) or _contains_word(
        claude_folder(environ) / ".credentials.json", b"{"
    ):
        return True
    # On macOS the login is in the keychain; this file names the account.
    folder = claude_folder(environ) if environ.get("CLAUDE_CONFIG_DIR") else home_folder(environ)
    return _contains_word(folder / ".claude.json", b'"oauthAccount"')


def _contains_word(path: Path, word: bytes) -> bool:
    try:
        return word in read_regular_file(path, MAX_STATE_BYTES)
    except (OSError, FileTooLargeError, ValueError):
        return False
