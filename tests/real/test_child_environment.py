"""The environment of a child of the real pi and Claude Code: the variables of its own provider, no other secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.real.claude_install import PATH, need_claude
from tests.real.conftest import TOOLS
from tests.real.programs import claude_program, pi_program, worker
from tests.support.model_server import script64

from retinue import Retinue
from retinue.engines.claude.installation import find_claude
from retinue.engines.pi.providers import PROVIDERS

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

OWN = {
    "ANTHROPIC_API_KEY": "sk-not-a-real-key",
    "OPENAI_API_KEY": "of openai",
    "GROQ_API_KEY": "of groq",
    "AWS_ACCESS_KEY_ID": "of aws",
    "AWS_SECRET_ACCESS_KEY": "of aws",
    "AWS_SESSION_TOKEN": "of aws",
    "AWS_REGION": "eu-central-1",
    "AZURE_CLIENT_SECRET": "of azure",
    "AZURE_OPENAI_API_KEY": "of azure",
    "CLOUDFLARE_API_TOKEN": "of cloudflare",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent.json",
    "GOOGLE_CLOUD_PROJECT": "of google",
    "GOOGLE_CLOUD_LOCATION": "of google",
    "DEPLOY_TOKEN": "of nobody's provider",
    "GITHUB_TOKEN": "of nobody's provider",
}
"""Secrets in the environment of Retinue."""
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"}
VERTEX = {"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"}


def read_secrets(file: Path) -> set[str]:
    """Return the secrets in a listing of `env`."""
    names = {line.split("=", 1)[0] for line in file.read_text().splitlines()}
    assert "PATH" in names
    return names & OWN.keys()


@pytest.fixture
def run_on_pi(pi, server, project, tmp_path):
    """Run an agent on pi; return the secrets in the environment of its commands, else of pi's own process."""
    program = pi_program(pi, tmp_path / "home", server.url)
    models = tmp_path / "home" / "agent" / "models.json"
    configured = json.loads(models.read_text())
    configured["providers"]["anthropic"] = {"baseUrl": server.url}
    models.write_text(json.dumps(configured))
    wrapper = tmp_path / "pi"
    wrapper.write_text(f'#!/bin/sh\nenv > {tmp_path}/process\nexec {pi.node} {pi.cli} "$@"\n')
    wrapper.chmod(0o755)

    async def run(*models: str, in_command: bool) -> set[str]:
        environ = {**program.environ, **OWN, "RETINUE_PI": str(wrapper), "AWS_ENDPOINT_URL": f"{server.url}/none"}
        agent = worker(fallback_models=models[1:])
        settings = {"model": models[0], "retry_attempts": 1, "allow_write": True}
        script = script64([program.tool_step("bash", command=f"env > {tmp_path}/command"), {"text": "ok"}])
        async with Retinue(
            cwd=project, engine="pi", agents=[agent], environ=environ, state=tmp_path / "state", settings=settings
        ) as retinue:
            result = await retinue.run("worker", script)
        assert (result.failure is None) == in_command, result.failure
        return read_secrets(tmp_path / ("command" if in_command else "process"))

    return run


async def test_child_of_a_local_run_on_pi_sees_no_keys_at_all(run_on_pi):
    assert await run_on_pi("local/scripted-1", in_command=True) == set()


async def test_child_of_an_anthropic_run_on_pi_sees_the_anthropic_key_only(run_on_pi):
    assert await run_on_pi("anthropic/claude-opus-4-8", in_command=True) == {"ANTHROPIC_API_KEY"}


async def test_child_of_a_run_with_a_fallback_on_pi_sees_the_keys_of_both_providers(run_on_pi):
    names = await run_on_pi("local/scripted-1", "openai/gpt-5.5", in_command=True)
    assert names == {"OPENAI_API_KEY"}


async def test_pi_process_of_a_bedrock_run_sees_the_aws_variables_only(run_on_pi):
    assert await run_on_pi("amazon-bedrock/no-such-model", in_command=False) == AWS


async def test_pi_process_of_a_vertex_run_sees_the_google_cloud_variables_only(run_on_pi):
    assert await run_on_pi("google-vertex/no-such-model", in_command=False) == VERTEX


async def test_warm_pi_process_of_one_provider_serves_no_run_of_another(pi, server, project, tmp_path):
    program = pi_program(pi, tmp_path / "home", server.url)
    custom = json.loads((tmp_path / "home" / "agent" / "models.json").read_text())["providers"]
    keyed = {"other": {**custom["local"], "apiKey": "$OTHER_KEY"}}
    (tmp_path / "home" / "agent" / "models.json").write_text(json.dumps({"providers": custom | keyed}))
    environ = {**program.environ, **OWN, "OTHER_KEY": "of the other"}
    pids = []
    async with Retinue(
        cwd=project,
        engine="pi",
        agents=[worker()],
        environ=environ,
        state=tmp_path / "state",
        settings={"allow_write": True},
    ) as retinue:
        for model in ("other/scripted-1", "local/scripted-1", "local/scripted-1"):
            script = script64(
                [program.tool_step("bash", command=f"env > {tmp_path}/command; echo PID=$PPID"), {"text": "ok"}]
            )
            result = await retinue.run("worker", script, model=model)
            assert result.failure is None
            pids.append(re.findall(r"PID=(\d+)", str(server.requests[-1].body)))
            has_key = "OTHER_KEY=" in (tmp_path / "command").read_text()
            assert has_key == (model == "other/scripted-1")
    assert pids[0] != pids[1] == pids[2]


@pytest.fixture
def run_on_claude(server, project, tmp_path):
    """Run an agent on Claude Code, whose provider is chosen by environment variables; return the same."""
    need_claude()
    program = claude_program(tmp_path / "home", server.url)
    wrapper = tmp_path / "claude"
    wrapper.write_text(f'#!/bin/sh\nenv > {tmp_path}/process\nexec {find_claude({"PATH": PATH})} "$@"\n')
    wrapper.chmod(0o755)

    async def run(in_command: bool, **switches: str) -> set[str]:
        environ = {**program.environ, **OWN, **switches, "RETINUE_CLAUDE": str(wrapper)}
        settings = {"model": program.model, "retry_attempts": 1, "allow_write": True}
        uses = program.tool_step("bash", command=f"env > {tmp_path}/command", description="Lists.")
        async with Retinue(
            cwd=project,
            engine="claude",
            agents=[worker()],
            environ=environ,
            state=tmp_path / "state",
            settings=settings,
        ) as retinue:
            result = await retinue.run("worker", script64([uses, {"text": "ok"}]))
        assert (result.failure is None) == in_command, result.failure
        return read_secrets(tmp_path / ("command" if in_command else "process"))

    return run


async def test_child_of_an_anthropic_run_on_claude_code_sees_the_anthropic_key_only(run_on_claude):
    assert await run_on_claude(in_command=True) == {"ANTHROPIC_API_KEY"}


async def test_claude_code_process_of_a_bedrock_run_sees_the_aws_variables_only(run_on_claude, server):
    switches = {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_BEDROCK_BASE_URL": f"{server.url}/none"}
    assert await run_on_claude(in_command=False, **switches) == AWS


async def test_claude_code_process_of_a_vertex_run_sees_the_google_cloud_variables_only(run_on_claude, server):
    switches = {
        "CLAUDE_CODE_USE_VERTEX": "1",
        "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
        "ANTHROPIC_VERTEX_BASE_URL": f"{server.url}/none",
        "ANTHROPIC_VERTEX_PROJECT_ID": "p",
        "CLOUD_ML_REGION": "r",
    }
    assert await run_on_claude(in_command=False, **switches) == {
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
    }


# -- the table against pi's own -------------------------------------------------------------------------


def test_table_of_providers_has_every_key_that_pi_0_87_reads(pi_0_87):
    text = (TOOLS / "pi-0.87" / "node_modules" / "@earendil-works" / "pi-ai" / "dist" / "env-api-keys.js").read_text()
    table = text[text.index("const envMap = {") : text.index("const envVar = envMap[provider]")]
    pairs = re.findall(r'"?([\w-]+)"?: "([A-Z0-9_]+)"', table)
    assert len(pairs) > 30
    assert [(name, key) for name, key in pairs if not _passes(name, key)] == []


def test_table_of_providers_has_every_variable_that_pi_1_5_documents(pi_1_5):
    text = (
        TOOLS / "pi-1.5" / "node_modules" / "@earendil-works" / "pi-coding-agent" / "docs" / "providers.md"
    ).read_text()
    names = {
        name
        for name in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", text)
        if not name.endswith(("_CREDENTIALS_", "_ACCOUNT_"))
    }
    assert len(names) > 50
    assert [name for name in sorted(names) if not any(_passes(provider, name) for provider in PROVIDERS)] == []


def test_providers_are_in_the_order_in_which_pi_picks_its_default(pi):
    folder = TOOLS / ("pi-0.87" if pi.is_0_87 else "pi-1.5") / "node_modules" / "@earendil-works" / "pi-coding-agent"
    text = (folder / "dist" / "core" / "model-resolver.js").read_text()
    table = text[text.index("defaultModelPerProvider = {") :]
    order = re.findall(r'^    "?([\w-]+)"?:', table[: table.index("};")], re.MULTILINE)
    assert len(order) > 30
    assert [name for name in PROVIDERS if name in order] == order


def _passes(provider: str, variable: str) -> bool:
    names = PROVIDERS[provider].variables
    return any(variable == name or (name.endswith("*") and variable.startswith(name[:-1])) for name in names)
