"""The agents of a working directory: folders, precedence, trust, messages and changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource
from retinue.agents.registry import AgentRegistry, DefinitionStatus
from retinue.agents.search_paths import PROJECT_FOLDERS, AgentFolder, SearchPaths, scan_folder
from retinue.model.errors import ErrorCode, Failure

BUILTIN = ("explorer", "researcher", "reviewer", "implementer", "tester")
USER_FOLDERS = (
    ".config/retinue/agents",
    ".pi/agent/agents",
    ".pi/agent/subagents",
    ".pi/agent/agent-profiles",
    ".agents/agents",
    ".claude/agents",
)
HARMLESS = "tools: read"
HARMFUL = "tools: bash"


def body(registry: AgentRegistry, cwd: Path, name: str, **how: Any) -> str:
    """Return the prompt of the agent that would run, or why none would."""
    found = registry.for_directory(cwd, **how).find(name)
    return found.body if isinstance(found, Agent) else found.code


# -- folders and precedence -------------------------------------------------------------------------


def test_empty_home_has_the_built_in_agents_in_order(registry, repository):
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN
    assert agent_set.problems == ()
    assert [entry.status for entry in agent_set.list_definitions()] == [DefinitionStatus.USED] * 5


@pytest.mark.parametrize("folder", USER_FOLDERS)
def test_agents_are_found_in_every_folder_of_the_user(registry, scratch_home, repository, write, folder):
    path = write(scratch_home / folder / "mine.md", HARMFUL)
    found = registry.for_directory(repository).find("mine")
    assert isinstance(found, Agent)
    assert (found.layer, found.source, found.level) == (SourceLayer.USER, str(path), None)


MARKDOWN_FOLDERS = [folder for folder, dialect in PROJECT_FOLDERS if dialect is not AgentDialect.CODEX]


@pytest.mark.parametrize("folder", MARKDOWN_FOLDERS)
def test_agents_are_found_in_every_folder_of_a_project(registry, repository, write, folder):
    path = write(repository / folder / "ours.md", HARMLESS)
    found = registry.for_directory(repository).find("ours")
    assert isinstance(found, Agent)
    assert (found.layer, found.source, found.level) == (SourceLayer.PROJECT, str(path), str(repository))


def test_earlier_folders_have_precedence(registry, scratch_home, repository, write):
    for folder in reversed(USER_FOLDERS):
        write(scratch_home / folder / "x.md", HARMLESS, body=folder)
        assert body(registry, repository, "x") == folder
    for folder in reversed(MARKDOWN_FOLDERS):
        write(repository / folder / "x.md", HARMLESS, body=folder)
        assert body(registry, repository, "x", project_agents="allow") == folder


def test_stronger_layer_has_precedence(registry_with, scratch_home, repository, tmp_path, write):
    registry, how = registry_with(), {"vault": tmp_path / "vault", "project_agents": "allow"}
    assert "You explore codebases" in body(registry, repository, "explorer", **how)
    write(scratch_home / ".pi/agent/agents/explorer.md", body="user")
    assert body(registry, repository, "explorer", **how) == "user"
    workspace = tmp_path / "vault/agents/explorer"
    workspace.mkdir(parents=True)
    (workspace / "config.yaml").write_text("name: explorer\ndescription: from the vault\n")
    (workspace / "AGENTS.md").write_text("vault")
    assert body(registry, repository, "explorer", **how) == "vault"
    write(repository / ".pi/agents/explorer.md", HARMLESS, body="project")
    assert body(registry, repository, "explorer", **how) == "project"
    program = registry_with(Agent(name="explorer", body="program"))
    assert body(program, repository, "explorer", **how) == "program"


def test_nearest_project_level_has_precedence(registry, repository, write):
    deep = repository / "packages" / "app"
    deep.mkdir(parents=True)
    write(repository / ".retinue/agents/x.md", HARMLESS, body="root")
    write(deep / ".claude/agents/x.md", HARMLESS, body="near")
    assert body(registry, deep, "x") == "near"
    assert body(registry, repository, "x") == "root"


def test_folders_above_the_repository_are_ignored(registry, repository, tmp_path, write):
    write(tmp_path / ".pi/agents/above.md", HARMLESS)
    assert body(registry, repository, "above") is ErrorCode.UNKNOWN_AGENT


def test_outside_a_repository_only_the_working_directory_is_searched(registry, tmp_path, write):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    write(tmp_path / "a/.pi/agents/above.md", HARMLESS)
    write(below / ".pi/agents/here.md", HARMLESS)
    assert registry.for_directory(below).names() == (*BUILTIN, "here")


def test_missing_working_directory_has_no_project_agents(registry, tmp_path):
    assert registry.for_directory(tmp_path / "gone").names() == BUILTIN


def test_user_folders_in_home_are_not_project_folders(registry, scratch_home, write):
    (scratch_home / ".git").mkdir()
    write(scratch_home / ".claude/agents/mine.md", HARMFUL)
    write(scratch_home / ".agents/agents/other.md", HARMFUL)
    layers = [
        (entry.agent.name, entry.agent.layer) for entry in registry.for_directory(scratch_home).list_definitions()
    ]
    assert layers[5:] == [("mine", SourceLayer.USER), ("other", SourceLayer.USER)]


def test_linked_home_is_the_same_home(scratch_home, tmp_path, trust, write):
    link = tmp_path / "home"
    link.symlink_to(scratch_home)
    write(scratch_home / ".claude/agents/mine.md", HARMFUL)
    registry = AgentRegistry(SearchPaths({"HOME": str(link)}), trust)
    assert registry.for_directory(scratch_home).names() == (*BUILTIN, "mine")


@pytest.mark.parametrize(
    "replacement",
    [
        ("PI_CODING_AGENT_DIR", "agents", ".pi/agent/agents"),
        ("PI_CODING_AGENT_DIR", "agent-profiles", ".pi/agent/agent-profiles"),
        ("CLAUDE_CONFIG_DIR", "agents", ".claude/agents"),
        ("XDG_CONFIG_HOME", "retinue/agents", ".config/retinue/agents"),
    ],
)
def test_environment_variables_replace_user_folders(registry_with, tmp_path, write, replacement):
    variable, folder, replaced = replacement
    home, own = tmp_path / "home", tmp_path / "own"
    write(own / folder / "here.md")
    write(home / replaced / "there.md")
    registry = registry_with(environ={"HOME": str(home), variable: str(own)})
    assert registry.for_directory(tmp_path).names() == (*BUILTIN, "here")


def test_only_claude_folders_are_searched_recursively(registry, repository, write):
    write(repository / ".claude/agents/team/qa/deep.md", HARMLESS)
    write(repository / ".pi/agents/team/deeper.md", HARMLESS)
    assert registry.for_directory(repository).names() == (*BUILTIN, "deep")


def test_hidden_files_and_other_suffixes_are_ignored(registry, repository, write):
    for name in (".#x.md", "._x.md", "x.txt", "x.md~", "y.MARKDOWN", "z.Md"):
        write(repository / ".pi/agents" / name, HARMLESS, f"name: n{name.strip('.#_~').replace('.', '')}")
    assert registry.for_directory(repository).names() == (*BUILTIN, "nyMARKDOWN", "nzMd")


def test_bundle_folders_are_built_in_agents(registry_with, tmp_path, repository):
    workspace = tmp_path / "prompts/agents/scout"
    workspace.mkdir(parents=True)
    (workspace / "config.yaml").write_text("name: Scout\ndescription: Scouts\n")
    (workspace / "AGENTS.md").write_text("Scout.")
    agent_set = registry_with(bundle=tmp_path / "prompts").for_directory(repository)
    assert agent_set.names() == (*BUILTIN, "scout")
    assert agent_set.find_profile("scout").layer == "builtin"


def test_project_folder_linked_out_of_the_repository_is_refused(registry, repository, tmp_path, write):
    write(tmp_path / "elsewhere/agents/x.md", HARMLESS)
    (repository / ".claude").symlink_to(tmp_path / "elsewhere")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN
    folder = str(repository / ".claude/agents")
    assert agent_set.problems == (Diagnostic(folder, f"leads out of {repository} and is ignored"),)


def test_folder_beyond_max_entries_is_cut_and_reported(repository):
    path = repository / ".claude/agents"
    for i in range(4):
        (path / f"d{i}").mkdir(parents=True)
        (path / f"d{i}/notes.txt").touch()
    folder = AgentFolder(path, AgentSource(SourceLayer.PROJECT, AgentDialect.CLAUDE))
    remark = Diagnostic(str(path), "holds more than 7 entries; the others are ignored: keep fewer there")
    assert scan_folder(folder, limit=7).diagnostics == (remark,)
    assert scan_folder(folder, limit=8).diagnostics == ()


def test_linked_subfolders_are_not_searched(registry, repository, write):
    write(repository / ".claude/agents/x.md", HARMLESS)
    (repository / ".claude/agents/again").symlink_to(repository / ".claude/agents")
    assert registry.for_directory(repository).names() == (*BUILTIN, "x")


@pytest.mark.parametrize("where", [".claude/agents", ".pi", ".config/retinue"])
def test_user_folder_linked_to_itself_is_reported_once(registry_with, scratch_home, repository, where):
    loop = scratch_home / where
    loop.parent.mkdir(parents=True, exist_ok=True)
    loop.symlink_to(loop)
    agent_set = registry_with().for_directory(repository)
    assert agent_set.problems == (Diagnostic(str(loop), "is a link that cannot be followed"),)
    assert agent_set.names() == BUILTIN


@pytest.mark.parametrize("where", [".pi/agents", ".agents", ".retinue"])
def test_project_folder_linked_to_itself_is_reported_once(registry, repository, write, where):
    write(repository / ".claude/agents/x.md", HARMLESS)
    loop = repository / where
    loop.parent.mkdir(exist_ok=True)
    loop.symlink_to(loop)
    agent_set = registry.for_directory(repository)
    assert agent_set.problems == (Diagnostic(str(loop), "is a link that cannot be followed"),)
    assert agent_set.names() == (*BUILTIN, "x")


def test_working_directory_linked_to_itself_has_user_and_built_in_agents(registry, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    agent_set = registry.for_directory(loop)
    assert agent_set.problems == (Diagnostic(str(loop), "is a link that cannot be followed"),)
    assert agent_set.names() == BUILTIN


def test_tilde_in_claude_config_dir_is_the_home_folder(registry_with, scratch_home, repository, write):
    write(scratch_home / "claude/agents/mine.md")
    assert registry_with(environ={"CLAUDE_CONFIG_DIR": "~/claude"}).for_directory(repository).names() == (
        *BUILTIN,
        "mine",
    )


@pytest.mark.parametrize("name", ["CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME"])
@pytest.mark.parametrize("value", ["~nosuchuser", "~nosuchuser/x"])
def test_unknown_user_in_claude_config_dir_has_no_agents(registry_with, repository, name, value):
    agent_set = registry_with(environ={name: value}).for_directory(repository)
    assert (agent_set.names(), agent_set.problems) == (BUILTIN, ())


# -- trust -----------------------------------------------------------------------------------------


def test_harmful_project_agent_is_refused_until_accepted(registry, repository, trust, write):
    path = write(repository / ".pi/agents/deploy.md", HARMFUL)
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN
    assert agent_set.find("deploy") == Failure(
        ErrorCode.AGENT_UNTRUSTED,
        f'Agent "deploy" belongs to this project ({path}) and has not been approved, or has changed since you '
        "approved it. Nothing was started. Review and approve it with `retinue agents trust deploy`, or set "
        'project_agents = "allow".',
        detail={"agent": "deploy", "file": str(path)},
    )
    waiting = agent_set.find_awaiting_trust("deploy")
    assert waiting is not None
    trust.accept(waiting)
    assert registry.for_directory(repository).names() == (*BUILTIN, "deploy")
    assert registry.for_directory(repository).find_awaiting_trust("deploy") is None


def test_changed_accepted_agent_must_be_accepted_again(registry, repository, trust, write):
    path = write(repository / ".pi/agents/deploy.md", HARMFUL)
    waiting = registry.for_directory(repository).find_awaiting_trust("deploy")
    assert waiting is not None
    trust.accept(waiting)
    path.write_text(path.read_text().replace("Do it.", "Do ot."))
    assert body(registry, repository, "deploy") is ErrorCode.AGENT_UNTRUSTED


def test_untrusted_agent_shadows_no_other(registry, repository, scratch_home, write):
    path = write(repository / ".pi/agents/explorer.md", "tools: read, bash", body="evil")
    found = registry.for_directory(repository).find("explorer")
    assert isinstance(found, Agent)
    assert found.layer is SourceLayer.BUILTIN
    assert found.notices == (
        Diagnostic(
            str(path),
            "is not approved, so the builtin explorer is used; approve it with `retinue agents trust explorer`",
        ),
    )
    entries = [
        entry for entry in registry.for_directory(repository).list_definitions() if entry.agent.name == "explorer"
    ]
    assert [(entry.status, entry.shadowed_by) for entry in entries] == [
        (DefinitionStatus.UNTRUSTED, found.source),
        (DefinitionStatus.USED, None),
    ]
    assert entries[1].shadows == ()


@pytest.mark.parametrize("tools", [HARMLESS, HARMFUL])
def test_unaccepted_disabled_agent_disables_no_other(registry, repository, scratch_home, trust, write, tools):
    mine = write(scratch_home / ".agents/agents/mine.md", body="mine")
    for name in ("explorer", "mine"):
        write(repository / f".pi/agents/{name}.md", tools, "enabled: false")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == (*BUILTIN, "mine")
    assert body(registry, repository, "mine") == "mine"
    assert isinstance(agent_set.find("explorer"), Agent)
    assert agent_set.find_awaiting_trust("mine") is None
    entries = [
        (entry.status, entry.shadowed_by) for entry in agent_set.list_definitions() if entry.agent.name == "mine"
    ]
    assert entries == [(DefinitionStatus.UNTRUSTED, str(mine)), (DefinitionStatus.USED, None)]


def test_accepted_disabled_agent_shadows_weaker_ones(registry, repository, trust, write):
    write(repository / ".pi/agents/explorer.md", HARMLESS, "enabled: false")
    waiting = next(
        entry.agent
        for entry in registry.for_directory(repository).list_definitions()
        if entry.status is DefinitionStatus.UNTRUSTED
    )
    trust.accept(waiting)
    found = registry.for_directory(repository).find("explorer")
    assert isinstance(found, Failure)
    assert found.reason == "switched_off"


def test_unaccepted_disabled_agent_fails_as_disabled(registry, repository, write):
    write(repository / ".pi/agents/x.md", HARMLESS, "enabled: false")
    found = registry.for_directory(repository).find("x")
    assert isinstance(found, Failure)
    assert (found.reason, registry.for_directory(repository).find_awaiting_trust("x")) == ("switched_off", None)


def test_untrusted_trust_file_is_reported_as_a_problem(registry, repository, trust, write):
    write(repository / ".pi/agents/deploy.md", HARMFUL)
    waiting = registry.for_directory(repository).find_awaiting_trust("deploy")
    assert waiting is not None
    trust.accept(waiting)
    assert registry.for_directory(repository).problems == ()
    trust.path.chmod(0o666)
    (problem,) = registry.for_directory(repository).problems
    assert (
        str(problem)
        == f"{trust.path}: can be written by other users (run chmod 600 on it): no project agent is trusted"
    )
    assert body(registry, repository, "deploy") is ErrorCode.AGENT_UNTRUSTED


def test_harmless_project_agent_is_used_without_acceptance_and_reports_itself(registry, repository, write):
    path = write(repository / ".pi/agents/looker.md", HARMLESS, body="ours")
    found = registry.for_directory(repository).find("looker")
    assert isinstance(found, Agent)
    assert (found.body, found.notices) == ("ours", (Diagnostic(str(path), "the agent belongs to this project"),))


@pytest.mark.parametrize("name", ["explorer", "mine"])
def test_harmless_project_agent_takes_the_place_of_no_other_until_accepted(
    registry, repository, scratch_home, trust, write, name
):
    write(scratch_home / ".agents/agents/mine.md", body="mine")
    path = write(repository / f".pi/agents/{name}.md", HARMLESS, body="theirs")
    agent_set = registry.for_directory(repository)
    found = agent_set.find(name)
    assert isinstance(found, Agent)
    assert found.layer in {SourceLayer.BUILTIN, SourceLayer.USER}
    assert [notice.file for notice in found.notices] == [str(path)]
    waiting = agent_set.find_awaiting_trust(name)
    assert waiting
    trust.accept(waiting)
    assert body(registry, repository, name) == "theirs"


def test_project_agents_setting_allows_or_denies_all(registry, repository, write):
    write(repository / ".pi/agents/deploy.md", HARMFUL)
    write(repository / ".pi/agents/look.md", HARMLESS)
    assert registry.for_directory(repository, project_agents="allow").names() == (*BUILTIN, "deploy", "look")
    denied = registry.for_directory(repository, project_agents="deny")
    assert denied.names() == BUILTIN
    assert denied.find_awaiting_trust("look") is None
    found = denied.find("look")
    assert isinstance(found, Failure)
    assert (found.code, found.reason) == (ErrorCode.AGENT_DISABLED, "project_agents")


# -- messages ----------------------------------------------------------------------------------


def test_unknown_name_fails_with_the_available_agents(registry, scratch_home, repository, write):
    write(repository / ".pi/agents/b-ours.md", HARMLESS)
    write(repository / ".pi/agents/a-ours.md", HARMLESS)
    write(scratch_home / ".claude/agents/mine.md")
    found = registry.for_directory(repository).find("exporer")
    assert found == Failure(
        ErrorCode.UNKNOWN_AGENT,
        "Unknown agent: exporer. Available agents: explorer, researcher, reviewer, implementer, tester, mine, "
        "a-ours, b-ours",
        detail={"agent": "exporer"},
    )
    assert registry.for_directory(repository).suggest_name("exporer") == "explorer"
    assert registry.for_directory(repository).suggest_name("zzz") is None


def test_hostile_agent_name_is_escaped_in_messages(registry, repository):
    found = registry.for_directory(repository).find("\x1b[2J" + "x" * 10_000)
    assert isinstance(found, Failure)
    assert found.message.startswith("Unknown agent: '\\x1b[2Jxxx")
    assert len(found.message) < 300


@pytest.mark.parametrize("name", ["Explorer", "explorer ", "explore", "", "../explorer"])
def test_similar_name_never_finds_another_agent(registry, repository, name):
    found = registry.for_directory(repository).find(name)
    assert isinstance(found, Failure)
    assert found.code is ErrorCode.UNKNOWN_AGENT


def test_broken_files_are_reported_and_shadow_nothing(registry, repository, write):
    folder = repository / ".pi/agents"
    write(folder / "good.md", HARMLESS)
    (folder / "bad.md").write_text("---\nfoo: [\n---\n")
    os.mkfifo(folder / "pipe.md")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == (*BUILTIN, "good")
    assert [(Path(remark.file).name, remark.line) for remark in agent_set.problems] == [
        ("bad.md", 3),
        ("pipe.md", None),
    ]
    unknown = agent_set.find("bad")
    assert isinstance(unknown, Failure)
    assert str(unknown.detail["broken"]).startswith(f"{folder / 'bad.md'}:3: the header is not valid YAML")


def test_agent_used_instead_of_a_broken_file_has_a_notice(registry, repository, tmp_path):
    config = tmp_path / "vault/agents/explorer/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("name: My explorer\n")
    found = registry.for_directory(repository, vault=tmp_path / "vault").find("explorer")
    assert isinstance(found, Agent)
    assert found.notices == (Diagnostic(str(config), "has no description; the builtin explorer is used"),)
    other = registry.for_directory(repository, vault=tmp_path / "vault").find("tester")
    assert isinstance(other, Agent)
    assert other.notices == ()


def test_unknown_agent_names_its_broken_folder(registry, repository, tmp_path):
    (tmp_path / "vault/agents/scout").mkdir(parents=True)
    unknown = registry.for_directory(repository, vault=tmp_path / "vault").find("scout")
    assert isinstance(unknown, Failure)
    assert unknown.detail["broken"] == f"{tmp_path / 'vault/agents/scout/config.yaml'}: is missing"


def test_listing_names_shadowed_and_shadowing_definitions(registry, scratch_home, repository, write):
    user = write(scratch_home / ".pi/agent/agents/tester.md")
    ours = write(repository / ".pi/agents/tester.md", HARMLESS)
    agent_set = registry.for_directory(repository, project_agents="allow")
    entries = [entry for entry in agent_set.list_definitions() if entry.agent.name == "tester"]
    builtin = entries[2].agent.source
    assert [(entry.status, entry.shadowed_by, entry.shadows) for entry in entries] == [
        (DefinitionStatus.USED, None, (str(user), builtin)),
        (DefinitionStatus.SHADOWED, str(ours), ()),
        (DefinitionStatus.SHADOWED, str(ours), ()),
    ]
    assert [entry.agent.layer for entry in entries] == [SourceLayer.PROJECT, SourceLayer.USER, SourceLayer.BUILTIN]


def test_listing_has_both_files_of_one_name_in_a_folder(registry, scratch_home, repository, write):
    first = write(scratch_home / ".pi/agent/agents/a.md", "name: twin")
    write(scratch_home / ".pi/agent/agents/b.md", "name: twin")
    entries = [entry for entry in registry.for_directory(repository).list_definitions() if entry.agent.name == "twin"]
    assert [(entry.status, entry.shadowed_by) for entry in entries] == [
        (DefinitionStatus.USED, None),
        (DefinitionStatus.SHADOWED, str(first)),
    ]


def test_disabled_agent_is_not_listed_and_fails_with_the_reason(registry, scratch_home, repository, write):
    path = write(scratch_home / ".pi/agent/agents/tester.md", "enabled: false")
    agent_set = registry.for_directory(repository)
    assert agent_set.names() == BUILTIN[:-1]
    found = agent_set.find("tester")
    assert isinstance(found, Failure)
    assert (found.code, found.reason) == (ErrorCode.AGENT_DISABLED, "switched_off")
    assert found.message.startswith(f'Agent "tester" is disabled in {path}.')


def test_found_profile_has_no_persona(registry_with, repository):
    agent_set = registry_with(Agent(name="a", persona="P", memory="M")).for_directory(repository)
    assert agent_set.find_profile("a") == Agent(name="a").to_profile()
    assert isinstance(agent_set.find_profile("b"), Failure)


# -- changes ---------------------------------------------------------------------------------------


def test_unchanged_tree_gives_the_same_agent_set_without_reading(later_registry, repository, write):
    write(repository / ".pi/agents/x.md", HARMLESS)
    before = later_registry.for_directory(repository)
    assert later_registry.for_directory(repository) is before
    assert later_registry.for_directory(repository, project_agents="allow") is not before


def test_edit_affects_the_next_agent_set_but_no_earlier_one(registry, repository, write):
    path = write(repository / ".pi/agents/x.md", HARMLESS, body="one")
    earlier = registry.for_directory(repository)
    # The same length and, on a coarse clock, the same time.
    path.write_text(path.read_text().replace("one", "two"))
    assert body(registry, repository, "x") == "two"
    assert earlier.find("x").body == "one"
    path.unlink()
    assert body(registry, repository, "x") is ErrorCode.UNKNOWN_AGENT


def _project_agents(registry: AgentRegistry, cwd: Path) -> list[Agent]:
    listed = registry.for_directory(cwd).list_definitions()
    return [entry.agent for entry in listed if entry.agent.layer is SourceLayer.PROJECT]


def test_only_changed_files_are_read_again(later_registry, repository, write):
    write(repository / ".pi/agents/kept.md", HARMLESS)
    (first,) = _project_agents(later_registry, repository)
    write(repository / ".pi/agents/new.md", HARMLESS)
    assert _project_agents(later_registry, repository)[0] is first
    assert later_registry.for_directory(repository).names() == (*BUILTIN, "kept", "new")


def test_changed_file_of_an_agent_folder_is_noticed(registry, repository, tmp_path):
    workspace = tmp_path / "vault/agents/scout"
    workspace.mkdir(parents=True)
    (workspace / "config.yaml").write_text("name: scout\ndescription: d\n")
    (workspace / "AGENTS.md").write_text("one")
    assert body(registry, repository, "scout", vault=tmp_path / "vault") == "one"
    (workspace / "AGENTS.md").write_text("two")
    assert body(registry, repository, "scout", vault=tmp_path / "vault") == "two"


def test_thousands_of_files_are_read_once_and_then_only_statted(later_registry, scratch_home, repository):
    folder = scratch_home / ".pi/agent/agents"
    folder.mkdir(parents=True)
    for i in range(3000):
        (folder / f"a{i}.md").write_text(f"---\nname: a{i}\ndescription: number {i}\ntools: read, grep\n---\nBody\n")
    first = later_registry.for_directory(repository)
    assert len(first.names()) == 3005
    assert later_registry.for_directory(repository) is first  # made of what was read then
