"""Detection of Claude Code and its login without starting it, with the next step if it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from retinue.composition import available_engines
from retinue.config.run_environment import build_child_environment
from retinue.engines.claude.installation import CLAUDE_VARIABLE, LOGIN_VARIABLES, find_claude, not_installed_reason


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment without a login and with a program that is never started."""
    program = tmp_path / "claude"
    program.write_text("#!/bin/false\n")
    program.chmod(0o755)
    return {"HOME": str(tmp_path), "PATH": "", CLAUDE_VARIABLE: str(program)}


def test_program_named_by_the_variable_is_used(environ):
    assert find_claude(environ) == environ[CLAUDE_VARIABLE]
    assert find_claude({**environ, CLAUDE_VARIABLE: "/no/such/claude"}) is None


def test_missing_sdk_is_reported_with_the_install_command(environ, monkeypatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    assert not_installed_reason({**environ, "ANTHROPIC_API_KEY": "k"}) == (
        "the Claude Agent SDK is not installed. Install it with `pip install claude-agent-sdk`."
    )


def test_missing_program_is_named(environ):
    said = not_installed_reason({**environ, CLAUDE_VARIABLE: "/no/such/claude", "ANTHROPIC_API_KEY": "k"})
    assert said == (
        "program /no/such/claude not found (RETINUE_CLAUDE). Set it to an existing program, or unset RETINUE_CLAUDE."
    )


def test_missing_login_is_reported_with_the_login_command(environ):
    assert not_installed_reason(environ) == (
        "Claude Code has no login: no key in the environment, and none of its own in "
        f"{environ['HOME']}/.claude. Start `{environ[CLAUDE_VARIABLE]}` and use /login, or set ANTHROPIC_API_KEY."
    )


@pytest.mark.parametrize("key", LOGIN_VARIABLES)
def test_key_or_cloud_counts_as_login(environ, key):
    assert not_installed_reason({**environ, key: "1"}) is None
    assert not_installed_reason({**environ, key: ""}) is not None


@pytest.mark.parametrize(
    ("folder", "variable"), [(".claude", {}), ("elsewhere", {"CLAUDE_CONFIG_DIR": "~/elsewhere"})]
)
def test_own_login_of_claude_code_counts_as_login(environ, tmp_path, folder, variable):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / ".credentials.json").write_text('{"claudeAiOauth": {}}')
    assert not_installed_reason({**environ, **variable}) is None


def test_keychain_login_is_recognized_by_its_account(environ, tmp_path):
    (tmp_path / ".claude.json").write_text('{"projects": {}}')
    assert not_installed_reason(environ) is not None
    (tmp_path / ".claude.json").write_text('{"oauthAccount": {"emailAddress": "a@example.org"}}')
    assert not_installed_reason(environ) is None


def test_auto_prefers_pi_then_claude_then_api(environ):
    kinds = available_engines({**environ, "ANTHROPIC_API_KEY": "k"})
    usable = [kind.name for kind in kinds.values() if kind.automatic and kind.not_installed_reason() is None]
    assert list(kinds)[:2] == ["pi", "claude"]
    assert usable == ["claude", "api", "offline"]


AROUND = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_SSE_PORT": "2",
    "GITHUB_TOKEN": "3",
    "ANTHROPIC_API_KEY": "4",
    "ANTHROPIC_BASE_URL": "5",
    "ANTHROPIC_BEDROCK_BASE_URL": "6",
    "ANTHROPIC_FOUNDRY_API_KEY": "7",
    "ANTHROPIC_VERTEX_PROJECT_ID": "8",
    "AWS_REGION": "9",
    "AWS_SECRET_ACCESS_KEY": "10",
    "AZURE_CLIENT_SECRET": "11",
    "GOOGLE_APPLICATION_CREDENTIALS": "12",
    "CLAUDE_CONFIG_DIR": "13",
    "CLAUDE_CODE_OAUTH_TOKEN": "14",
}


@pytest.mark.parametrize(
    ("switches", "names"),
    [
        ({}, {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"}),
        (
            {"CLAUDE_CODE_USE_BEDROCK": "0", "CLAUDE_CODE_USE_VERTEX": "", "CLAUDE_CODE_USE_FOUNDRY": "no"},
            {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"},
        ),
        (
            {"CLAUDE_CODE_USE_BEDROCK": "1"},
            {"CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_BEDROCK_BASE_URL", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"},
        ),
        (
            {"CLAUDE_CODE_USE_VERTEX": "TRUE"},
            {"CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_APPLICATION_CREDENTIALS"},
        ),
        (
            {"CLAUDE_CODE_USE_FOUNDRY": "yes"},
            {"CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_API_KEY", "AZURE_CLIENT_SECRET"},
        ),
    ],
    ids=["anthropic", "clouds switched off", "bedrock", "vertex", "foundry"],
)
def test_claude_code_sees_the_variables_of_its_provider_only(switches, names):
    environ = {**AROUND, **switches}
    kind = available_engines(environ)["claude"]
    needed = kind.capabilities.environment | kind.provider_variables((None,), None)
    assert build_child_environment(environ, needed).keys() == names | {"CLAUDE_CONFIG_DIR"}
