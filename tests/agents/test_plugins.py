"""Agents of Claude Code's plugins: which are found, by which names, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.claude_plugins import ClaudePlugins

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.registry import AgentRegistry, DefinitionStatus
from retinue.model.errors import ErrorCode, Failure

BUILTIN = ("explorer", "researcher", "reviewer", "implementer", "tester")
LEFT_OUT = "agents of the plugin kit@market are left out"


@pytest.fixture
def plugins(scratch_home: Path) -> ClaudePlugins:
    return ClaudePlugins(scratch_home)


@pytest.fixture
def kit(plugins: ClaudePlugins) -> Path:
    """Return the folder of an enabled plugin `kit`."""
    plugins.enable("kit@market")
    return plugins.install("kit@market")


def names(registry: AgentRegistry, cwd: Path) -> tuple[str, ...]:
    """Return the agents beside the built-in ones."""
    return registry.for_directory(cwd).names()[len(BUILTIN) :]


def test_agents_of_an_enabled_plugin_are_found_in_folders_and_subfolders(registry, repository, kit, write):
    path = write(kit / "agents/alpha.md", "tools: Read, Bash")
    write(kit / "agents/deep/beta.md")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == (*BUILTIN, "kit:alpha", "kit:deep:beta")
    assert agent_set.problems == ()
    found = agent_set.find("kit:alpha")
    assert isinstance(found, Agent)
    assert (found.name, found.plugin, found.layer, found.source) == ("kit:alpha", "kit", SourceLayer.USER, str(path))
    assert (found.is_foreign, found.optional_tools) == (True, ("Read", "Bash"))


@pytest.mark.parametrize("name", ["kit:deep:beta", "kit:beta", "beta"])
def test_agent_of_a_plugin_is_called_by_its_whole_and_its_short_names(registry, repository, kit, write, name):
    write(kit / "agents/deep/beta.md", body="of the plugin")
    found = registry.for_directory(repository).find(name)
    assert isinstance(found, Agent)
    assert (found.name, found.body) == ("kit:deep:beta", "of the plugin")


@pytest.mark.parametrize("folder", [".claude/agents", ".pi/agent/agents"])
def test_own_agent_keeps_the_short_name(registry, repository, scratch_home, kit, write, folder):
    write(kit / "agents/alpha.md", body="of the plugin")
    write(scratch_home / folder / "alpha.md", body="mine")
    agent_set = registry.for_directory(repository)
    assert [agent_set.resolve_name(name) for name in ("alpha", "kit:alpha")] == ["alpha", "kit:alpha"]
    assert [entry.aliases for entry in agent_set.list_definitions()] == [()] * 7


def test_built_in_agent_keeps_its_name(registry, repository, kit, write):
    write(kit / "agents/explorer.md")
    assert registry.for_directory(repository).resolve_name("explorer") == "explorer"


def test_short_name_of_two_plugins_is_neither_ones(registry, repository, plugins, kit, write):
    other = plugins.install("other@market")
    plugins.enable("kit@market", "other@market")
    write(kit / "agents/alpha.md")
    write(other / "agents/alpha.md")
    agent_set = registry.for_directory(repository)
    found = agent_set.find("alpha")
    assert isinstance(found, Failure)
    assert found.code is ErrorCode.UNKNOWN_AGENT
    assert "kit:alpha, other:alpha" in found.message


@pytest.mark.parametrize("tools", ["tools: read", "tools: bash"])
def test_project_agent_does_not_take_the_short_name_of_a_plugin(registry, repository, kit, write, tools):
    write(kit / "agents/alpha.md", body="of the plugin")
    write(repository / ".claude/agents/alpha.md", tools, body="of the project")
    agent_set = registry.for_directory(repository)
    found = agent_set.find("alpha")
    assert isinstance(found, Agent)
    assert found.body == "of the plugin"
    assert "is not approved, so the user kit:alpha is used" in found.notices[-1].text
    statuses = {entry.agent.name: entry.status for entry in agent_set.list_definitions()}
    assert statuses["alpha"] is DefinitionStatus.UNTRUSTED
    accepting = registry.for_directory(repository, project_agents="allow").find("alpha")
    assert isinstance(accepting, Agent)
    assert accepting.body == "of the project"


def test_title_of_a_project_agent_takes_no_short_name(registry, repository, kit, write):
    write(kit / "agents/alpha.md")
    write(repository / ".claude/agents/evil.md", "title: alpha", "tools: read")
    assert registry.for_directory(repository).resolve_name("alpha") == "kit:alpha"


def test_disabled_and_unlisted_plugins_are_not_used(registry, repository, plugins, write):
    write(plugins.install("off@market") / "agents/a.md")
    write(plugins.install("unlisted@market") / "agents/b.md")
    assert names(registry, repository) == ()
    plugins.enable(off=("off@market",))
    assert names(registry, repository) == ()


def test_change_of_the_settings_takes_effect_at_once(registry, repository, plugins, kit, write):
    write(kit / "agents/alpha.md")
    assert names(registry, repository) == ("kit:alpha",)
    plugins.enable(off=("kit@market",))
    assert names(registry, repository) == ()
    plugins.enable("kit@market")
    write(kit / "agents/beta.md")
    assert names(registry, repository) == ("kit:alpha", "kit:beta")


@pytest.mark.parametrize("settings", [".claude/settings.json", ".claude/settings.local.json"])
def test_plugin_of_a_project_is_used_only_there(registry, repository, tmp_path, plugins, write, settings):
    write(plugins.install("local@market", project=repository) / "agents/alpha.md")
    assert names(registry, repository) == ()
    plugins.enable("local@market", settings=repository / settings)
    below = repository / "deep"
    below.mkdir()
    assert [names(registry, cwd) for cwd in (repository, below, tmp_path)] == [("local:alpha",), ("local:alpha",), ()]


def test_local_settings_of_a_project_are_stronger_than_its_shared_ones(registry, repository, plugins, write):
    write(plugins.install("local@market", project=repository) / "agents/alpha.md")
    plugins.enable("local@market", settings=repository / ".claude/settings.json")
    plugins.enable(off=("local@market",), settings=repository / ".claude/settings.local.json")
    assert names(registry, repository) == ()


def test_project_enables_no_plugin_of_the_user_or_of_another_project(registry, repository, tmp_path, plugins, write):
    write(plugins.install("mine@market") / "agents/a.md")
    write(plugins.install("elsewhere@market", project=tmp_path / "elsewhere") / "agents/b.md")
    plugins.enable("mine@market", "elsewhere@market", settings=repository / ".claude/settings.json")
    assert names(registry, repository) == ()


def test_manifest_names_files_and_folders_instead_of_the_agents_folder(registry, repository, plugins, write):
    plugins.enable("kit@market")
    root = plugins.install("kit@market", manifest={"name": "kit", "agents": ["./special/x.md", "./more/"]})
    write(root / "agents/ignored.md")
    write(root / "special/x.md")
    write(root / "special/unnamed.md")
    write(root / "more/sub/y.md")
    assert names(registry, repository) == ("kit:sub:y", "kit:x")
    plugins.install("kit@market", manifest={"name": "renamed", "agents": "special/x.md"})
    assert names(registry, repository) == ("renamed:x",)


def test_plugin_without_a_manifest_has_the_name_it_is_installed_by(registry, repository, kit, write):
    (kit / ".claude-plugin/plugin.json").unlink()
    write(kit / "agents/alpha.md")
    assert names(registry, repository) == ("kit:alpha",)


def test_file_without_a_header_is_no_agent_of_a_plugin(registry, repository, kit):
    (kit / "agents").mkdir()
    (kit / "agents/notes.md").write_text("Only text.\n")
    assert names(registry, repository) == ()


def test_titles_of_plugins_folders_and_agents_become_names(registry, repository, plugins, write):
    plugins.enable("kit@market")
    root = plugins.install("kit@market", manifest={"name": "Kit & More"})
    write(root / "agents/Big Part/x.md", "name: FP&A (Analyst)")
    agent_set = registry.for_directory(repository)
    assert agent_set.names()[5:] == ("kit-more:big-part:fp-a-analyst",)
    assert agent_set.resolve_name("FP&A (Analyst)") == "kit-more:big-part:fp-a-analyst"


def test_file_of_a_plugin_starts_nothing_as_in_claude_code(registry, repository, kit, write):
    servers = "mcpServers: {docs: {command: run-me}}"
    path = write(kit / "agents/alpha.md", servers, "hooks: {Stop: [{command: run-me}]}", "permissionMode: plan")
    found = registry.for_directory(repository).find("kit:alpha")
    assert isinstance(found, Agent)
    assert (found.mcp_servers, found.unknown, found.readonly) == ((), (), True)
    assert [str(notice) for notice in found.notices] == [
        f"{path}:4: hooks: not run for agents of plugins, as in Claude Code",
        f"{path}:3: mcpServers: not started for agents of plugins, as in Claude Code",
    ]


def test_file_of_a_plugin_that_relies_on_hooks_is_refused_with_the_way_out(registry, repository, kit, write):
    path = write(kit / "agents/alpha.md", "hooks: {PreToolUse: [{command: check-it}]}")
    text = "has hooks before tool calls, which agents of plugins cannot have; copy it to ~/.claude/agents to use it"
    assert registry.for_directory(repository).problems == (Diagnostic(str(path), text),)


# -- files outside ----------------------------------------------------------------------------------


def test_links_out_of_a_plugin_are_refused_and_others_followed(registry, repository, tmp_path, kit, write):
    outside = write(tmp_path / "outside.md")
    write(kit / "shared/inside.md")
    (kit / "agents").mkdir()
    (kit / "agents/leak.md").symlink_to(outside)
    (kit / "agents/inside.md").symlink_to(kit / "shared/inside.md")
    agent_set = registry.for_directory(repository)
    assert agent_set.names()[5:] == ("kit:inside",)
    reason = f"leads out of {kit}, to {outside}, and is ignored"
    assert agent_set.problems == (Diagnostic(str(kit / "agents/leak.md"), reason),)


def test_folder_of_agents_that_leads_out_of_a_plugin_is_refused(registry, repository, tmp_path, kit, write):
    write(tmp_path / "outside/alpha.md")
    (kit / "agents").symlink_to(tmp_path / "outside")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN
    assert agent_set.problems == (Diagnostic(str(kit / "agents"), f"leads out of {kit} and is ignored"),)


@pytest.mark.parametrize("named", ["../outside.md", "/etc/passwd", "link.md", "gone/../../x.md"])
def test_manifest_that_names_files_outside_is_refused(registry, repository, plugins, write, named):
    plugins.enable("kit@market")
    root = plugins.install("kit@market", manifest={"name": "kit", "agents": [named]})
    write(root.parent / "outside.md")
    (root / "link.md").symlink_to(root.parent / "outside.md")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN
    manifest = str(root / ".claude-plugin/plugin.json")
    reason = f"names agents outside of the plugin: {named!a}; {LEFT_OUT}"
    assert agent_set.problems == (Diagnostic(manifest, reason),)


def test_manifest_that_is_a_link_out_of_the_plugin_is_refused(registry, repository, tmp_path, kit, write):
    manifest, outside = kit / ".claude-plugin/plugin.json", tmp_path / "plugin.json"
    outside.write_text('{"name": "kit", "agents": ["a.md"]}')
    manifest.unlink()
    manifest.symlink_to(outside)
    write(kit / "a.md")
    agent_set = registry.for_directory(repository)
    reason = f"leads out of {kit}, to {outside}, and is ignored; {LEFT_OUT}"
    assert (agent_set.names(), agent_set.problems) == (BUILTIN, (Diagnostic(str(manifest), reason),))


# -- broken files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not what Claude Code writes (Input data was truncated)"),
        ({"plugins": {}}, "is not what Claude Code writes (Object missing required field `version`)"),
        ({"version": 3, "plugins": {}}, "has version 3, which is not supported"),
    ],
)
def test_unreadable_list_of_plugins_is_reported_and_costs_no_other_agent(
    registry, repository, scratch_home, plugins, write, content, reason
):
    write(scratch_home / ".claude/agents/mine.md")
    path = plugins.write_installed(content)
    agent_set = registry.for_directory(repository)
    assert agent_set.names()[5:] == ("mine",)
    text = f"{reason}; no agents of Claude Code's plugins are used"
    assert agent_set.problems == (Diagnostic(str(path), text),)


def test_missing_folder_and_unreadable_manifest_are_reported_with_their_plugin(registry, repository, plugins, write):
    good = plugins.install("good@market")
    write(good / "agents/a.md")
    broken = plugins.install("broken@market", manifest={"agents": {"x": 1}})
    gone = plugins.install("gone@market")
    (gone / ".claude-plugin/plugin.json").unlink()
    (gone / ".claude-plugin").rmdir()
    gone.rmdir()
    plugins.enable("good@market", "broken@market", "gone@market")
    agent_set = registry.for_directory(repository)
    assert agent_set.names()[5:] == ("good:a",)
    assert [(problem.file, problem.text.partition(";")[2]) for problem in agent_set.problems] == [
        (str(broken / ".claude-plugin/plugin.json"), " agents of the plugin broken@market are left out"),
        (str(gone), " agents of the plugin gone@market are left out"),
    ]


def test_unchanged_plugins_give_the_same_agents(later_registry, repository, kit, write):
    write(kit / "agents/alpha.md")
    assert later_registry.for_directory(repository) is later_registry.for_directory(repository)
