"""An approval of a project's agent covers the files of the project that the agent names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.agents.agent import Agent
from retinue.agents.named_files import MAX_FILES
from retinue.model.errors import ErrorCode, Failure


@pytest.fixture
def registry(registry_with):
    return registry_with()


@pytest.fixture
def project(repository, write):
    """Return a repository with an agent that names an extension, which imports a file, a skill and a setting."""
    skill = repository / ".pi" / "skills" / "deploy"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nRun scripts/go.sh.\n")
    (skill / "scripts" / "go.sh").write_text("echo go\n")
    (repository / "ext.ts").write_text('import { help } from "./lib/help.js";\nexport * from "./lib";\n')
    (repository / "lib").mkdir()
    (repository / "lib" / "help.ts").write_text("export const help = 1;\n")
    (repository / "lib" / "index.ts").write_text('require("../more.js");\n')
    (repository / "more.js").write_text("1;\n")
    write(
        repository / ".retinue" / "agents" / "builder.md",
        "tools: read, bash",
        "extensions: [./ext.ts, 'npm:other']",
        "load_skills: [deploy]",
    )
    return repository


def approve(registry, trust, cwd):
    agent = registry.for_directory(cwd).find_awaiting_trust("builder")
    assert agent
    trust.accept(agent)
    return agent


def is_approved(registry, cwd):
    found = registry.for_directory(cwd).find("builder")
    assert isinstance(found, Agent) or found.code is ErrorCode.AGENT_UNTRUSTED
    return isinstance(found, Agent)


NAMED = ("ext.ts", "lib/help.ts", "lib/index.ts", "more.js", ".pi/skills/deploy/SKILL.md",
         ".pi/skills/deploy/scripts/go.sh")  # fmt: skip


def test_named_files_are_the_extension_its_imports_and_the_folder_of_the_skill(registry, trust, project):
    agent = approve(registry, trust, project)
    files = {path for path in agent.named_files if not Path(path).is_dir()}
    assert files == {str(project / name) for name in NAMED}
    assert agent.extensions == (str(project / "ext.ts"), "npm:other")
    assert is_approved(registry, project)


@pytest.mark.parametrize("name", NAMED)
def test_changed_named_file_asks_again(registry, trust, project, name):
    approve(registry, trust, project)
    (project / name).write_text((project / name).read_text() + " ")
    assert not is_approved(registry, project)
    approve(registry, trust, project)
    assert is_approved(registry, project)


@pytest.mark.parametrize("name", ["ext.ts", ".pi/skills/deploy/scripts/go.sh", ".pi/skills/deploy/SKILL.md"])
def test_removed_named_file_asks_again(registry, trust, project, name):
    approve(registry, trust, project)
    (project / name).unlink()
    assert not is_approved(registry, project)


def test_new_file_of_a_skill_and_a_stronger_skill_ask_again(registry, trust, project):
    approve(registry, trust, project)
    added = project / ".pi" / "skills" / "deploy" / "more.md"
    added.write_text("x")
    assert not is_approved(registry, project)
    added.unlink()
    assert is_approved(registry, project)
    nearer = project / "sub" / ".pi" / "skills" / "deploy"
    nearer.mkdir(parents=True)
    (nearer / "SKILL.md").write_text("---\nname: deploy\ndescription: Other.\n---\nOther.\n")
    assert is_approved(registry, project)
    assert not is_approved(registry, project / "sub")


def test_approval_holds_in_every_directory_that_has_the_same_files(registry, trust, project):
    approve(registry, trust, project)
    (project / "sub").mkdir()
    assert is_approved(registry, project / "sub")
    found = registry.for_directory(project / "sub").find("builder")
    assert found.extensions == (str(project / "ext.ts"), "npm:other")


def test_extension_that_appears_in_a_nearer_directory_asks_again(registry, trust, project):
    approve(registry, trust, project)
    (project / "sub").mkdir()
    (project / "sub" / "ext.ts").write_text("harm();\n")
    assert not is_approved(registry, project / "sub")


def test_link_out_of_the_project_is_covered_by_its_content(registry, trust, project, tmp_path):
    outside = tmp_path / "outside.ts"
    outside.write_text("1;\n")
    (project / "ext.ts").unlink()
    (project / "ext.ts").symlink_to(outside)
    approve(registry, trust, project)
    assert is_approved(registry, project)
    outside.write_text("2;\n")
    assert not is_approved(registry, project)


def test_folder_as_extension_is_covered_with_all_its_files(registry, trust, project):
    (project / "ext.ts").unlink()
    (project / "ext.ts" / "deep").mkdir(parents=True)
    (project / "ext.ts" / "deep" / "code.wasm").write_bytes(b"1")
    approve(registry, trust, project)
    (project / "ext.ts" / "deep" / "code.wasm").write_bytes(b"2")
    assert not is_approved(registry, project)


def make_pipe(path):
    os.mkfifo(path / "pipe")


def make_loop(path):
    (path / "again").symlink_to(path)


def make_many(path):
    for number in range(MAX_FILES):
        (path / str(number)).touch()


@pytest.mark.parametrize("make", [make_pipe, make_loop, make_many])
def test_agent_whose_files_cannot_be_covered_is_not_used_and_named(registry, project, make):
    (project / "ext.ts").unlink()
    (project / "ext.ts").mkdir()
    make(project / "ext.ts")
    agent_set = registry.for_directory(project)
    found = agent_set.find("builder")
    assert isinstance(found, Failure)
    assert found.code is ErrorCode.UNKNOWN_AGENT
    assert "names files that cannot be approved" in str(found.detail["broken"])
    assert agent_set.find_awaiting_trust("builder") is None


def test_agent_of_the_user_is_not_covered(registry, project, scratch_home, write):
    write(scratch_home / ".config" / "retinue" / "agents" / "mine.md", "extensions: [./ext.ts]")
    found = registry.for_directory(project).find("mine")
    assert (found.named_files, found.extensions) == ((), ("./ext.ts",))


def test_unchanged_files_give_the_same_agent_set(registry_with, project):
    later = registry_with(clock=lambda: 2**63)
    assert later.for_directory(project) is later.for_directory(project)
