"""Tests of `models`, and of the api engine in `doctor` and `setup`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import click
import pytest
from anyio.from_thread import start_blocking_portal
from tests.support.model_server import ModelServer, ScriptedTurn

from retinue.cli.commands.completion import complete_providers
from retinue.cli.commands.models import models


def rows(output: str) -> dict[str, str]:
    return {line.split()[1]: line for line in output.splitlines()[1:]}


def test_models_lists_each_provider_with_the_variable_to_set(cli):
    done = cli("models", OPENAI_API_KEY="sk-1")
    found = rows(done.stdout)
    assert done.exit_code == 0
    assert found["openai"].startswith("✓  openai ")
    assert found["openai"].endswith("by OPENAI_API_KEY (used if no model is named)")
    assert found["anthropic"].startswith("✗  anthropic ")
    assert found["anthropic"].endswith("set ANTHROPIC_API_KEY")
    assert found["google"].endswith("set GEMINI_API_KEY or GOOGLE_API_KEY")
    assert "sk-1" not in done.output


def test_models_without_a_key_names_the_next_step(cli):
    done = cli("models")
    assert done.exit_code == 0
    assert "✓" not in done.stdout
    assert "export ANTHROPIC_API_KEY=…" in done.stderr


def test_models_json_has_window_and_prices_of_the_default_model(cli):
    found = json.loads(cli("models", "--json", ANTHROPIC_API_KEY="sk-ant-1").stdout)["providers"]
    chosen = found[0]
    assert (chosen["name"], chosen["configuredBy"], chosen["missing"]) == ("anthropic", "ANTHROPIC_API_KEY", None)
    assert chosen["model"]["contextWindow"] >= 200_000
    assert chosen["model"]["inputPrice"] < chosen["model"]["outputPrice"]
    assert [each["name"] for each in found if each["isChosen"]] == ["anthropic"]
    assert found[-1] == {
        "name": "ollama", "model": None, "configuredBy": None, "missing": "set OLLAMA_HOST", "isChosen": False,
    }  # fmt: skip


def test_models_marks_the_provider_of_the_setting_model(cli):
    keys = {"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "sk-1"}
    found = json.loads(cli("models", "--json", RETINUE_MODEL="openai/gpt-5", **keys).stdout)["providers"]
    assert [each["name"] for each in found if each["isChosen"]] == ["openai"]


@pytest.mark.parametrize("name", ["google", "gemini", "Gemini"])
def test_models_of_a_provider_lists_its_price_list(cli, name):
    found = json.loads(cli("models", name, "--json").stdout)["models"]
    names = [each["name"] for each in found]
    assert "gemini-3.8-flash" in names
    assert names == sorted(names)
    assert "gemini-3.8-flash" in cli("models", name).stdout


def test_models_of_a_provider_without_a_price_list_says_how_to_name_one(cli):
    done = cli("models", "ollama")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "--model ollama/MODEL" in done.stderr


def test_unknown_provider_is_refused_with_the_nearest_name(cli):
    done = cli("models", "antropic")
    assert done.exit_code == 2
    assert "Unknown provider: antropic. Did you mean anthropic? Providers: anthropic, openai, " in done.stderr


def test_completion_offers_providers():
    context, argument = click.Context(models), models.params[0]
    assert complete_providers(context, argument, "o") == ["openai", "openrouter", "ollama"]


def test_doctor_names_the_key_and_the_model_of_the_api_engine(cli):
    line = next(line for line in cli("doctor", OPENAI_API_KEY="sk-1").stdout.splitlines() if " api " in line)
    assert "openai/gpt-6.1-terra by OPENAI_API_KEY, in this process (auto takes this one)" in line
    configured = cli("doctor", OPENAI_API_KEY="sk-1", RETINUE_MODEL="openai/gpt-5").stdout
    assert "openai/gpt-5 by OPENAI_API_KEY" in configured


def test_doctor_reports_a_setting_model_whose_provider_has_no_key(cli):
    found = cli("doctor", OPENAI_API_KEY="sk-1", RETINUE_MODEL="anthropic/claude-opus-5-5").stdout
    assert "The provider anthropic is not configured: set ANTHROPIC_API_KEY." in found


def test_setup_tries_the_api_engine_with_one_request(cli):
    serving = ModelServer([ScriptedTurn(text="ready")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        done = cli("setup", "--yes", OPENAI_API_KEY="sk-1", OPENAI_BASE_URL=f"{server.url}/v1")
        assert (done.exit_code, len(server.requests)) == (0, 1)
    config = Path(os.environ["HOME"]) / ".config" / "retinue" / "config.toml"
    assert tomllib.loads(config.read_text()) == {"engine": "api"}
    assert "Trying it: explorer, Reply with the one word: ready" in done.stderr
    assert "It works." in done.stderr


def test_setup_of_the_api_engine_without_a_key_names_the_variables(cli):
    done = cli("setup", "--engine", "api", "--yes", "--no-run")
    assert (
        "api cannot answer yet: no provider key is set. Set one of ANTHROPIC_API_KEY, OPENAI_API_KEY" in done.stderr
    )


def test_demo_with_a_key_names_the_offline_rules_on_its_first_line(cli, place):
    (place / "main.py").write_text("print('hello')\n")
    first = cli("demo", OPENAI_API_KEY="sk-1").stderr.splitlines()[0]
    assert "on rules instead of a language model" in first


def test_run_uses_a_server_of_the_users_settings(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    serving = ModelServer([ScriptedTurn(text="From the lab.")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        table = f'base_url = "{server.url}/v1"\nkey_variable = "LAB"\ndefault_model = "m1"\n'
        (folder / "config.toml").write_text(f"[providers.lab]\n{table}")
        done = cli("run", "explorer", "Say hello", LAB="lab-key-123456")
        assert (done.exit_code, done.stdout, len(server.requests)) == (0, "From the lab.\n", 1)
        listed = cli("models", LAB="lab-key-123456").stdout
    assert done.stderr.startswith("engine: api (lab/m1 by LAB, in this process)")
    assert rows(listed)["lab"].endswith("by LAB (used if no model is named)")
    assert "lab-key-123456" not in done.output + listed
