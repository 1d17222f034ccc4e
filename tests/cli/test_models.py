"""Tests of `models`, and of the api engine in `doctor` and `setup`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import click
import pytest
from anyio.from_thread import start_blocking_portal
from tests.support.model_server import ModelServer, ScriptedError, ScriptedTurn

from retinue.cli.commands.completion import complete_providers
from retinue.cli.commands.models import models


def rows(output: str) -> dict[str, str]:
    return {line.split()[1]: line for line in output.splitlines()[1:]}


def test_models_lists_each_provider_with_the_variable_to_set(cli):
    done = cli("models", OPENAI_API_KEY="sk-1")
    found = rows(done.stdout)
    assert done.exit_code == 0
    assert found["openai"].startswith("✓  openai ")
    assert found["openai"].endswith("by OPENAI_API_KEY (default)")
    assert found["anthropic"].startswith("✗  anthropic ")
    assert found["anthropic"].endswith("set ANTHROPIC_API_KEY")
    assert found["google"].endswith("set GEMINI_API_KEY or GOOGLE_API_KEY")
    assert "sk-1" not in done.output


def test_models_has_one_line_per_provider_at_80_columns(cli):
    done = cli("models", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert [line[:1] for line in lines] == [" ", *"✗" * (len(lines) - 1)]
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "…" in line] == []
    assert rows(done.stdout)["google"].endswith("gemini-3.8-flash                   set GEMINI_API_KEY")


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


def test_models_of_a_provider_without_a_price_list_explain_how_to_name_one(cli):
    done = cli("models", "ollama")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "--model ollama/MODEL" in done.stderr


def test_unknown_provider_is_refused_with_the_nearest_name(cli):
    done = cli("models", "antropic")
    assert done.exit_code == 2
    assert "Unknown provider: antropic. Did you mean anthropic? Providers: anthropic, openai, " in done.stderr


def test_completion_offers_providers():
    context, argument = click.Context(models), models.params[0]
    found = {each.value: each.help for each in complete_providers(context, argument, "o")}
    assert found == {
        "openai": "set OPENAI_API_KEY",
        "openrouter": "set OPENROUTER_API_KEY",
        "ollama": "set OLLAMA_HOST",
    }


def test_doctor_names_the_key_and_the_model_of_the_api_engine(cli):
    line = next(line for line in cli("doctor", OPENAI_API_KEY="sk-1").stdout.splitlines() if "  api " in line)
    assert "openai/gpt-6.1-terra by OPENAI_API_KEY, in this process (auto uses it)" in line
    configured = cli("doctor", OPENAI_API_KEY="sk-1", RETINUE_MODEL="openai/gpt-5").stdout
    assert "openai/gpt-5 by OPENAI_API_KEY" in configured


BROKEN = [
    (
        {"RETINUE_MODEL": "anthropic/claude-opus-5-5"},
        "The provider anthropic is not configured: set ANTHROPIC_API_KEY.",
    ),
    ({"RETINUE_MODEL": "opnai/x"}, "Unknown provider 'opnai'."),
    ({"OPENAI_BASE_URL": "ftp://h"}, "OPENAI_BASE_URL='ftp://h' is not an HTTP URL."),
]


@pytest.mark.parametrize(("environ", "sentence"), BROKEN)
def test_doctor_reports_a_model_that_cannot_be_used_as_a_problem(cli, environ, sentence):
    done = cli("doctor", OPENAI_API_KEY="sk-1", **environ)
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[:2] == ["✗ Not ready: api cannot be used as it is configured", "✗ 1 problem to fix"]
    assert sentence in done.stdout
    assert any(line.startswith("  ✗  api ") for line in lines)


def test_setup_tries_the_api_engine_with_one_request(cli):
    serving = ModelServer([ScriptedTurn(text="ready")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        done = cli("setup", "--yes", OPENAI_API_KEY="sk-1", OPENAI_BASE_URL=f"{server.url}/v1")
        assert (done.exit_code, len(server.requests)) == (0, 1)
    config = Path(os.environ["HOME"]) / ".config" / "retinue" / "config.toml"
    assert tomllib.loads(config.read_text()) == {"engine": "api"}
    assert "Testing: explorer, Reply with the one word: ready" in done.stderr
    assert "Test passed." in done.stderr


@pytest.mark.parametrize(("status", "code"), [(None, 0), (401, 1)])
def test_doctor_tries_the_engine_with_one_request_only_when_asked(cli, status, code):
    turn = ScriptedTurn(text="ready", fail=ScriptedError(status=status, times=-1) if status else None)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ModelServer([turn])) as server:
        key = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{server.url}/v1"}
        assert (cli("doctor", **key).exit_code, len(server.requests)) == (0, 0)
        done = cli("doctor", "--try", "--json", **key)
        assert (done.exit_code, json.loads(done.stdout)["trial"]["status"]) == (
            code,
            "failed" if code else "completed",
        )
        assert (len(server.requests), "Test passed: api answered 'ready'." in done.stderr) == (1, not code)


def test_doctor_without_a_model_has_nothing_to_try(cli):
    done = cli("doctor", "--try")
    assert done.exit_code == 1
    assert "Nothing to test: no engine with a language model is ready. Run `retinue setup`." in done.stderr


def test_setup_of_the_api_engine_without_a_key_names_the_variables(cli):
    done = cli("setup", "--engine", "api", "--yes", "--no-run")
    assert (
        "api cannot answer yet: no provider key is set. Set one of ANTHROPIC_API_KEY, OPENAI_API_KEY" in done.stderr
    )


# -- a local server ----------------------------------------------------------------------------------


def test_local_server_is_used_last_with_the_first_of_its_models(cli):
    serving = ModelServer([ScriptedTurn(text="From here.")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        alone = cli("run", "explorer", "x", OLLAMA_HOST=server.url)
        doctor = cli("doctor", OLLAMA_HOST=server.url, MISTRAL_API_KEY="m-1").stdout
        listed = rows(cli("models", OLLAMA_HOST=server.url).stdout)
    assert (alone.exit_code, alone.stdout) == (0, "From here.\n")
    assert alone.stderr.startswith("engine: api (ollama/scripted-1 by OLLAMA_HOST, in this process)\n")
    assert "mistral/mistral-medium-latest by MISTRAL_API_KEY" in doctor
    assert listed["ollama"].startswith("✓  ollama ")
    assert " scripted-1 " in listed["ollama"]


def test_models_of_a_server_without_a_price_list_are_those_it_lists(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ModelServer()) as server:
        (folder / "config.toml").write_text(f'[providers.lan]\nbase_url = "{server.url}/v1"\ncontext_window = 9000\n')
        own = json.loads(cli("models", "lan", "--json").stdout)["models"]
        ollama = cli("models", "ollama", OLLAMA_HOST=server.url)
    assert [(each["name"], each["contextWindow"]) for each in own] == [("scripted-1", 9000), ("scripted-2", 9000)]
    assert [line.split()[0] for line in ollama.stdout.splitlines()[1:]] == ["scripted-1", "scripted-2"]
    assert "no server answers" in cli("models", "ollama", OLLAMA_HOST="127.0.0.1:9").stderr


def test_message_without_a_key_names_the_variables_of_own_providers(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    table = '[providers.lan]\nbase_url = "http://127.0.0.1:9/v1"\nkey_variable = "LAN_KEY"\n'
    (folder / "config.toml").write_text(table)
    assert " LAN_KEY," in cli("run", "explorer", "x", "--engine", "api").stderr


def test_models_names_the_model_of_the_setting(cli):
    hint = "A run without --model uses openai/gpt-5, the setting model."
    assert hint in cli("models", OPENAI_API_KEY="sk-1", RETINUE_MODEL="openai/gpt-5").stderr
    assert "the setting model" not in cli("models", OPENAI_API_KEY="sk-1").stderr


def test_local_server_that_does_not_answer_is_not_used(cli):
    nowhere = {"OLLAMA_HOST": "127.0.0.1:9"}
    assert cli("run", "explorer", "x", **nowhere).stderr.startswith("engine: offline (rules, not a language model")
    reason = "no server answers at http://127.0.0.1:9/v1 (OLLAMA_HOST): start it with `ollama serve`"
    assert reason in cli("doctor", **nowhere).stdout
    assert rows(cli("models", **nowhere).stdout)["ollama"].endswith(reason)


@pytest.mark.parametrize(
    ("model", "named"), [("sonnet", "gpt-6.1-terra"), ("gpt-5", "gpt-5"), ("openai:gpt-5", "gpt-5")]
)
def test_first_line_names_the_model_that_a_short_name_means(cli, model, named):
    serving = ModelServer([ScriptedTurn(text="ok")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        done = cli(
            "run", "explorer", "x", "--model", model, OPENAI_API_KEY="sk-1", OPENAI_BASE_URL=f"{server.url}/v1"
        )
    assert done.stderr.splitlines()[0] == f"engine: api (openai/{named} by OPENAI_API_KEY, in this process)"


def test_first_line_names_the_provider_of_the_agent(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("---\nname: one\nprovider: openai\nmodel: gpt-5\ntools: read\n---\nAnswer.\n")
    serving = ModelServer([ScriptedTurn(text="ok")])
    keys = {"OPENAI_API_KEY": "sk-1", "MISTRAL_API_KEY": "m-1", "OPENROUTER_API_KEY": "or-1"}
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        done = cli("run", "one", "x", OPENAI_BASE_URL=f"{server.url}/v1", **keys)
        agent_first = cli("run", "one", "x", ANTHROPIC_API_KEY="a-1", OPENAI_BASE_URL=f"{server.url}/v1", **keys)
    first = "engine: api (openai/gpt-5 by OPENAI_API_KEY, in this process)"
    assert [each.stderr.splitlines()[0] for each in (done, agent_first)] == [first, first]


def test_first_line_of_the_offline_engine_states_that_it_is_no_model(cli):
    done = cli("run", "explorer", "x", RETINUE_MODEL="openai/gpt-5")
    assert done.stderr.startswith("engine: offline (rules, not a language model")


# -- bad input ---------------------------------------------------------------------------------------

KEY = {"OPENAI_API_KEY": "sk-1"}
REFUSED = [
    (
        ("--model", "opnai/gpt-5"),
        KEY,
        "Unknown provider 'opnai'. Did you mean 'openai'? Providers: anthropic, openai, ",
    ),
    (("--model", "groq/x"), KEY, "The provider groq is not configured: set GROQ_API_KEY."),
    (("--model", "openai/gpt-5"), {}, "The provider openai is not configured: set OPENAI_API_KEY."),
    (("--model", "cerebras/x"), {}, "The provider cerebras cannot be used: "),
    (("--model", "gpt-5"), {}, "no provider key is set. Set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, "),
    (("--engine", "api"), {}, "no provider key is set. Set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, "),
    (
        (),
        {"OPENAI_API_KEY": "sk 1\n"},
        "The key in OPENAI_API_KEY has leading or trailing spaces, or characters that keys do not have",
    ),
    ((), {**KEY, "OPENAI_BASE_URL": "ftp://h"}, "OPENAI_BASE_URL='ftp://h' is not an HTTP URL."),
    ((), {**KEY, "RETINUE_MODEL": "opnai/x"}, "Unknown provider 'opnai'. Did you mean 'openai'?"),
]


@pytest.mark.parametrize(("arguments", "environ", "sentence"), REFUSED)
def test_run_whose_model_cannot_be_used_is_refused_and_leaves_no_session(cli, arguments, environ, sentence):
    done = cli("run", "explorer", "x", *arguments, **environ)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "explorer" not in done.stderr
    assert json.loads(cli("sessions", "--json").stdout)["sessions"] == []


@pytest.mark.parametrize(
    ("status", "sentences"),
    [
        (401, ["401", "Check the provider's key or login."]),
        (404, ["404", "Did you mean openai/gpt-6.1-terra?", "`retinue models openai` lists its models."]),
    ],
)
def test_refusal_of_the_provider_names_the_next_step(cli, status, sentences):
    serving = ModelServer([ScriptedTurn(fail=ScriptedError(status=status, times=-1, message="no"))])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        done = cli(
            "run", "explorer", "x", "--model", "openai/gpt-6.1-tera", OPENAI_BASE_URL=f"{server.url}/v1", **KEY
        )
    assert done.exit_code == 1
    for sentence in sentences:
        assert sentence in done.stderr
    assert "JSONL" not in done.stderr


def test_demo_with_a_key_names_the_offline_rules_on_its_first_line(cli, place):
    (place / "main.py").write_text("print('hello')\n")
    first = cli("demo", OPENAI_API_KEY="sk-1").stderr.splitlines()[0]
    assert "with rules instead of a language model" in first


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
    assert rows(listed)["lab"].endswith("by LAB (default)")
    assert "lab-key-123456" not in done.output + listed
