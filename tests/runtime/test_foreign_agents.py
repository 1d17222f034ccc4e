"""Runs of agents of other tools' files: what adds is optional, what restricts is enforced."""

from pathlib import Path

import pytest
from tests.support.claude_plugins import ClaudePlugins
from tests.support.repositories import write_files
from tests.support.retinue_factory import scripted, stage

from retinue.agents.agent import Agent
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import CAPABILITIES, DelegateStep, ScriptedEngine, TextStep
from retinue.model.errors import ErrorCode

PLAIN = EngineCapabilities(
    tools=frozenset({"read", "write"}), enforces=CAPABILITIES.enforces, default_tools=("read", "write")
)
LEAD = Agent(name="lead", body="Lead.", tools=("read", "Agent(scout)"))
SCOUT = Agent(name="scout", body="Look.", tools=("read",))


async def test_tools_that_the_engine_lacks_are_left_out_and_reported(scratch_home):
    write_files(
        scratch_home, {".claude/agents/x.md": "---\nname: x\ntools: Read, WebSearch, mcp__a__b\n---\nWork.\n"}
    )
    async with stage(scratch_home, engines=scripted(ScriptedEngine(TextStep(text="ok")), PLAIN)) as retinue:
        result = await retinue.run("x", "Look", allow_write=True)
    assert result.failure is None
    assert (result.actual.tools_granted, result.actual.tools_missing) == (("read",), ("web_search", "mcp__a__b"))


async def test_model_that_the_engine_cannot_have_is_left_out_and_reported(scratch_home):
    write_files(scratch_home, {".claude/agents/x.md": "---\nname: x\nmodel: sonnet\ntools: Read\n---\nWork.\n"})
    engine = ScriptedEngine(TextStep(text="ok"))
    engines = {
        "scripted": EngineInfo(
            name="scripted", capabilities=CAPABILITIES, make=lambda: engine, not_installed_reason=lambda: None,
            has_model=lambda _model, _provider, _environ: False,
        )
    }  # fmt: skip
    async with stage(scratch_home, engines=engines) as retinue:
        result = await retinue.run("x", "Look")
        chosen = await retinue.run("x", "Look", model="sonnet")
    assert (result.failure, result.spec.model, result.actual.not_applied) == (None, None, ("model",))
    assert any("The model sonnet of the agent's file cannot be used" in notice for notice in result.actual.notices)
    assert chosen.spec.model == "sonnet"


@pytest.mark.parametrize("key", ["permission: {bash: {x: deny}}", "sandboxed: yes", "denyPaths: [a]", "blocked: x"])
async def test_restriction_that_nothing_enforces_fails_the_run_by_name(scratch_home, key):
    write_files(scratch_home, {".config/retinue/agents/x.md": f"---\nname: x\n{key}\n---\nWork.\n"})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        result = await retinue.run("x", "Look")
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "restriction")
    assert key.partition(":")[0] in result.failure.message


async def test_other_unknown_keys_do_not_fail_the_run(scratch_home):
    write_files(scratch_home, {".config/retinue/agents/x.md": "---\nname: x\ntemperature: 1\n---\nWork.\n"})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        assert (await retinue.run("x", "Look")).failure is None


@pytest.mark.parametrize(("called", "code"), [("scout", None), ("explorer", "not_callable")])
async def test_agent_calls_only_those_that_its_tools_name(scratch_home, called, code):
    seen: list[str] = []

    def script(spec):
        seen.append(spec.agent.name)
        if spec.agent.name == "lead":
            tools = spec.delegation.list_tools()
            assert "- scout:" in tools[0].description
            assert "- explorer:" not in tools[0].description
            return (DelegateStep(args={"agent": called, "task": "Look"}), TextStep(text="over"))
        return (TextStep(text="seen"),)

    agents = [LEAD, SCOUT]
    async with stage(scratch_home, engines=scripted(ScriptedEngine(script)), agents=agents) as retinue:
        result = await retinue.run("lead", "Lead it", max_depth=3)
    assert result.failure is None
    assert seen == (["lead", "scout"] if code is None else ["lead"])


@pytest.mark.parametrize("called", ["kit:deep:beta", "kit:beta", "beta"])
@pytest.mark.parametrize(
    ("rule", "is_called"), [("tools: Agent(beta)", True), ("disallowedTools: Agent(beta)", False)]
)
async def test_rule_on_an_agent_of_a_plugin_covers_all_its_names(scratch_home, called, rule, is_called):
    plugins = ClaudePlugins(scratch_home)
    plugins.enable("kit@market")
    folder = plugins.install("kit@market") / "agents"
    header = f"---\nname: alpha\ndelegates: true\n{rule}\n---\nLead.\n"
    write_files(folder, {"alpha.md": header, "deep/beta.md": "---\nname: beta\n---\nLook.\n"})
    seen: list[str] = []

    def script(spec):
        seen.append(spec.agent.name)
        delegate = DelegateStep(args={"agent": called, "task": "Look"})
        return (delegate, TextStep(text="over")) if spec.delegation else (TextStep(text="seen"),)

    async with stage(scratch_home, engines=scripted(ScriptedEngine(script))) as retinue:
        result = await retinue.run("alpha", "Lead it", max_depth=2)
    assert result.failure is None
    assert seen == ["kit:alpha", *(["kit:deep:beta"] if is_called else [])]


async def test_session_of_a_plugin_agent_is_continued_by_its_short_name(scratch_home):
    plugins = ClaudePlugins(scratch_home)
    plugins.enable("kit@market")
    write_files(plugins.install("kit@market"), {"agents/beta.md": "---\nname: beta\n---\nLook.\n"})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        first = await retinue.run("kit:beta", "Look")
        second = await retinue.run("beta", "Look again", session=first.session)
    assert (second.failure, second.session, second.spec.agent.name) == (None, first.session, "kit:beta")


async def test_every_folder_of_other_tools_is_searched(scratch_home):
    header = "---\nname: {0}\ndescription: d\n---\nWork.\n"
    files = {
        ".gemini/agents/a.md": "gemini", ".config/opencode/agent/b.md": "opencode",
        ".config/opencode/agents/c.md": "opencode-two", ".copilot/agents/d.agent.md": "copilot",
        ".cursor/agents/e.md": "cursor",
    }  # fmt: skip
    write_files(scratch_home, {path: header.format(name) for path, name in files.items()})
    write_files(scratch_home, {".codex/agents/f.toml": 'name = "codex"\ndescription = "d"\n'})
    names = stage(scratch_home).roster().names()
    assert set(names) >= {*files.values(), "codex"}


def test_codex_home_replaces_the_folder(scratch_home, tmp_path: Path):
    from retinue.client import Retinue

    write_files(tmp_path, {"agents/f.toml": 'name = "codex"\ndescription = "d"\n'})
    environ = {"HOME": str(scratch_home), "CODEX_HOME": str(tmp_path)}
    assert "codex" in Retinue(cwd=scratch_home, environ=environ).roster().names()
