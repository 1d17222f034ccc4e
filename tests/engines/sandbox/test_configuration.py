"""A run in a sandbox leaves nothing from which agents load code later, unless the user allows it."""

import os
from pathlib import Path

import pytest
from tests.support.sandboxes import LANDLOCK_ALONE, SUPPORT, make_policy, run_script

from retinue.engines.sandbox import configuration
from retinue.engines.sandbox.configuration import ConfigurationGuard
from retinue.engines.sandbox.guarded_files import TooManyFilesError
from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import SandboxedDirectory
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxPolicy, SandboxReport

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not SUPPORT.landlock_abi, reason="Landlock is not active in this kernel"),
]
needs_bubblewrap = pytest.mark.skipif(not SUPPORT.bubblewrap, reason="bubblewrap is not installed or does not work")
SUPPORTS = {"bubblewrap": SUPPORT, "landlock": LANDLOCK_ALONE}
EVERY_MECHANISM = pytest.mark.parametrize("name", [pytest.param("bubblewrap", marks=needs_bubblewrap), "landlock"])
SUFFIX = ".from-run-1f0c2a9e"
HOOKS = '{"hooks": {}}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name in (".claude/agents", ".github/agents", "shared"):
        (root / name).mkdir(parents=True)
    (root / ".claude/settings.json").write_text(HOOKS)
    (root / ".github/agents/mine.md").write_text("mine")
    (root / "shared/settings.json").write_text("shared")
    (root / ".codex").symlink_to("shared")
    return root


def list_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


async def run_guarded(script: str, policy: SandboxPolicy, project: Path) -> list[str]:
    """Run a script in the project, and return the paths that differed after it."""
    guard = ConfigurationGuard(policy, str(project), SUFFIX)
    await run_script(script, policy, project)
    return [str(Path(path).relative_to(project)) for path in guard.restore()]


PLANT = """
mkdir -p .pi/extensions .vscode; echo evil > .pi/extensions/evil.js; echo evil > .mcp.json; echo evil > .vscode/mcp.json
echo evil > .claude/settings.json; echo evil > .claude/agents/evil.md; rm .github/agents/mine.md
mv .github moved; mkdir -p .github/agents; echo evil > .github/agents/evil.md
rm .codex; mkdir .codex; echo evil > .codex/config.toml; echo evil > shared/settings.json; echo fine > made
"""


@EVERY_MECHANISM
async def test_planted_configuration_is_set_aside_and_changed_files_are_restored(name, project):
    before = list_files(project)
    changed = await run_guarded(PLANT, make_policy(support=SUPPORTS[name]), project)
    after = list_files(project)
    assert {path: text for path, text in after.items() if SUFFIX not in path} == {**before, "made": "fine\n"}
    assert {".codex", ".mcp.json", ".pi", ".vscode/mcp.json"} <= {*changed}
    assert len(changed) == len({*changed})
    assert after[f".pi{SUFFIX}/extensions/evil.js"] == "evil\n"


@needs_bubblewrap
@pytest.mark.parametrize("mode", ["workspace", "strict"])
async def test_existing_configuration_is_read_only_with_bubblewrap(project, mode):
    script = (
        "echo x > .claude/settings.json; mv .claude other; mv .github other; rm -r .claude; cat .claude/settings.json"
    )
    output = await run_script(script, make_policy(mode), project)
    assert output.count("Read-only file system") + output.count("busy") >= 3
    assert output.endswith(HOOKS)


@EVERY_MECHANISM
async def test_sandbox_write_lets_a_run_change_the_configuration_it_names(name, project):
    granted = (f"{project}/.claude/agents", f"{project}/.pi", f"{project}/.mcp.json")
    policy = make_policy(support=SUPPORTS[name], write=granted)
    script = "mkdir .pi; echo new > .pi/x; echo new > .mcp.json; echo new > .claude/agents/new.md; echo x > .claude/settings.json"
    await run_guarded(script, policy, project)
    after = list_files(project)
    assert [after.get(path) for path in (".pi/x", ".mcp.json", ".claude/agents/new.md")] == ["new\n"] * 3
    assert after[".claude/settings.json"] == HOOKS


def landlock() -> SandboxPolicy:
    return SandboxPolicy(report=SandboxReport(mode=SandboxMode.WORKSPACE, mechanism=SandboxMechanism.LANDLOCK))


def test_unchanged_configuration_is_left_alone(project):
    before = list_files(project)
    assert ConfigurationGuard(landlock(), str(project), SUFFIX).restore() == []
    assert list_files(project) == before


def test_folder_that_became_a_link_is_set_aside_and_nothing_behind_it_is_touched(project, tmp_path):
    elsewhere = tmp_path / "elsewhere/agents"
    elsewhere.mkdir(parents=True)
    (elsewhere / "theirs.md").write_text("theirs")
    guard = ConfigurationGuard(landlock(), str(project), SUFFIX)
    (project / ".github").rename(project / "moved")
    (project / ".github").symlink_to(elsewhere.parent)
    guard.restore()
    assert (project / ".github/agents/mine.md").read_text() == "mine"
    assert list_files(elsewhere) == {"theirs.md": "theirs"}


def test_file_that_is_too_large_to_be_restored_is_set_aside(project, monkeypatch):
    monkeypatch.setattr(configuration, "MAX_KEPT_BYTES", 1)
    guard = ConfigurationGuard(landlock(), str(project), SUFFIX)
    (project / ".claude/settings.json").write_text("evil")
    assert guard.restore() == [f"{project}/.claude/settings.json"]
    assert not (project / ".claude/settings.json").exists()
    assert (project / f".claude/settings.json{SUFFIX}").read_text() == "evil"


def test_flood_of_files_is_set_aside_and_what_was_there_is_restored(project, monkeypatch):
    monkeypatch.setattr(configuration, "MAX_COMPARED_FILES", 20)
    guard = ConfigurationGuard(landlock(), str(project), SUFFIX)
    for number in range(50):
        (project / f".claude/agents/{number}.md").touch()
    guard.restore()
    assert [path.name for path in (project / ".claude").rglob("*") if path.is_file()] == ["settings.json"]


def test_project_with_too_many_files_is_refused(project, monkeypatch):
    monkeypatch.setattr(configuration, "MAX_COMPARED_FILES", 2)
    with pytest.raises(TooManyFilesError):
        ConfigurationGuard(landlock(), str(project), SUFFIX)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read closed folders")
def test_folder_that_the_run_closed_is_opened_and_compared(project):
    guard = ConfigurationGuard(landlock(), str(project), SUFFIX)
    (project / ".claude/agents/evil.md").write_text("evil")
    (project / ".claude/agents").chmod(0o000)
    assert guard.restore() == [f"{project}/.claude/agents/evil.md"]


@pytest.mark.parametrize(
    "path", [".claude/settings.json", "sub/.pi/extensions/x.js", ".MCP.json", ".github/agents/x.md"]
)
def test_tools_of_this_process_do_not_write_configuration(project, path):
    report = SandboxReport(mode=SandboxMode.WORKSPACE, mechanism=SandboxMechanism.IN_PROCESS)
    folder = SandboxedDirectory(str(project), None, SandboxPolicy(report=report))
    with pytest.raises(ToolError, match="is read-only in the sandbox of this run"):
        folder.write_bytes(folder.resolve(path), b"evil", create=True)
    granted = SandboxPolicy(report=report, write=(str((project / path).parent),))
    folder = SandboxedDirectory(str(project), None, granted)
    if path == "sub/.pi/extensions/x.js":  # the others are there, or in the project's own folder
        folder.write_bytes(folder.resolve(path), b"fine", create=True)
        assert (project / path).read_bytes() == b"fine"
