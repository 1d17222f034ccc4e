"""Tests of the tables `[providers.NAME]` in settings files."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.config.settings_files import SettingsFiles

VLLM = '[providers.vllm]\nbase_url = "http://127.0.0.1:8000/v1"\n'


def read_settings(home: Path, text: str) -> SettingsFiles:
    folder = home / ".config" / "retinue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    return SettingsFiles({"HOME": str(home)}, {"nested": {}})


def test_providers_of_the_users_file_are_read_without_problems(tmp_path):
    settings = read_settings(tmp_path, VLLM + 'key_variable = "VLLM_KEY"\nwire = "anthropic"\n')
    found = settings.user_providers()["vllm"]
    assert (found.base_url, found.key_variable, found.wire) == ("http://127.0.0.1:8000/v1", "VLLM_KEY", "anthropic")
    assert settings.resolve("nested", tmp_path).problems == ()


def test_providers_of_a_project_are_ignored_and_named(tmp_path):
    project = tmp_path / "project"
    (project / ".retinue").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".retinue" / "config.toml").write_text(VLLM)
    settings = SettingsFiles({"HOME": str(tmp_path / "home")}, {"nested": {}})
    assert settings.user_providers() == {}
    messages = [problem.message for problem in settings.resolve("nested", project).problems]
    assert messages == ["providers cannot be set by a project; ignored"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("providers = 1\n", "providers ignored: expected tables such as [providers.vllm]"),
        ('[providers."a/b"]\n', "providers.a/b ignored: a name has lowercase letters"),
        ('[providers.x]\nbase_url = "ftp://x"\n', "providers.x ignored: Expected `str` matching regex"),
        ('[providers.x]\nbase_url = "http://me:pw@x"\n', "providers.x ignored: Expected `str` matching regex"),
        ('[providers.x]\nbase_url = "http://x"\nwire = "grpc"\n', "providers.x ignored: Invalid enum value 'grpc'"),
        ('[providers.x]\nurl = "http://x"\n', "providers.x ignored: Object contains unknown field `url`"),
        ('[providers.x]\nbase_url = "http://x"\ncontext_window = 0\n', "providers.x ignored: Expected `int` >= 1"),
        ('[providers.x]\nkey_variable = "A B"\n', "providers.x ignored: Expected `str` matching regex"),
    ],
)
def test_invalid_provider_is_ignored_and_named_and_others_remain(tmp_path, text, problem):
    settings = read_settings(tmp_path, text + (VLLM if text.startswith("[") else ""))
    assert list(settings.user_providers()) == (["vllm"] if text.startswith("[") else [])
    (found,) = settings.resolve("nested", tmp_path).problems
    assert found.message.startswith(problem)
