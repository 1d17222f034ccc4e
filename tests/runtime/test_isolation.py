"""Tests of runs in git worktrees of their own."""

import os
from pathlib import Path

import pytest
from tests.support.repositories import git, make_repository, snapshot, write_files, writing
from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import DelegateStep, ScriptedEngine, TextStep
from retinue.model.errors import ErrorCode
from retinue.model.events import RunEnded
from retinue.model.runs import RunSpec
from retinue.model.tasks import Mode, Plan, Task
from retinue.worktrees.store import WorktreeState

WRITER = Agent(name="writer", body="You write.", tools=("read", "write"))
ISOLATED = Agent(name="isolated", body="You write.", tools=("read", "write"), isolation="worktree")


def write_one(folder: Path, _spec: object) -> None:
    write_files(folder, {"a.txt": f"written in {folder.name}\n"})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "shop", {"a.txt": "one\n", "sub/b.txt": "two\n"})


def make(repository: Path, work=write_one, **options) -> Retinue:
    environ = {"HOME": str(repository.parent), "PATH": os.environ["PATH"]}
    options.setdefault("engines", writing(work))
    options.setdefault("agents", [WRITER, ISOLATED])
    return Retinue(cwd=repository, environ=environ, engine="scripted", **options)


async def test_run_with_isolation_reports_its_changes_and_leaves_the_users_files(repository):
    before = snapshot(repository)
    async with make(repository) as retinue:
        result = await retinue.run("writer", "Write it", isolation="worktree")
        stored = await retinue.tail(result.session, 1)
    assert result.failure is None
    changes = result.actual.worktree
    assert changes
    assert (changes.files, changes.insertions, changes.deletions) == (1, 1, 1)
    assert changes.branch == f"retinue/writer-{result.session[:8]}"
    assert result.spec.cwd == changes.path
    assert isinstance(stored[0].event, RunEnded)
    assert stored[0].event.actual.worktree == changes
    assert git(repository, "show", f"{changes.branch}:a.txt") == f"written in {result.session[:8]}"
    assert snapshot(repository) == before


BYPRODUCTS = {
    "__pycache__/a.cpython-311.pyc": "made",
    "sub/__pycache__/b.pyc": "made",
    ".pytest_cache/README.md": "x",
}


async def test_byproducts_alone_are_no_change(repository):
    write_files(repository, {"sub/__pycache__/b.pyc": "the user's"})
    async with make(repository, work=lambda folder, _spec: write_files(folder, BYPRODUCTS)) as retinue:
        result = await retinue.run("writer", "Run it", isolation="worktree")
    assert (result.failure, result.actual.worktree) == (None, None)
    assert git(repository, "branch", "--list", "retinue/*") == ""


async def test_byproducts_are_left_out_of_the_changes_unless_they_are_tracked(repository):
    write_files(repository, {"tracked.pyc": "old\n"})
    git(repository, "add", "tracked.pyc")
    git(repository, "commit", "--quiet", "--message", "tracked")
    changed = {**BYPRODUCTS, "a.txt": "new\n", "tracked.pyc": "new\n"}
    async with make(repository, work=lambda folder, _spec: write_files(folder, changed)) as retinue:
        result = await retinue.run("writer", "Run it", isolation="worktree")
    changes = result.actual.worktree
    assert changes
    assert git(repository, "diff", "--name-only", changes.base, changes.head).split() == ["a.txt", "tracked.pyc"]


async def test_isolation_of_the_agents_file_applies_without_an_option(repository):
    write_files(repository.parent, {".claude/agents/filed.md": (
        "---\nname: filed\ndescription: d\ntools: Read, Write\nisolation: worktree\n---\nYou write.\n"
    )})  # fmt: skip
    async with make(repository) as retinue:
        result = await retinue.run("filed", "Write it")
    assert result.failure is None
    assert result.actual.worktree
    assert (repository / "a.txt").read_text() == "one\n"


async def test_person_can_run_an_isolated_agent_in_the_users_files(repository):
    async with make(repository) as retinue:
        result = await retinue.run("isolated", "Write it", isolation="none")
    assert result.actual.worktree is None
    assert (repository / "a.txt").read_text() == "written in shop\n"


async def test_task_chooses_isolation_for_itself_alone(repository):
    tasks = [Task(agent="writer", prompt="one", isolation="worktree"), Task(agent="writer", prompt="two")]
    async with make(repository) as retinue:
        first, second = await retinue.delegate(tasks)
    assert first.actual.worktree
    assert second.actual.worktree is None


async def test_sub_folder_of_the_caller_is_the_directory_in_the_worktree(repository):
    seen: list[Path] = []
    async with make(repository, lambda folder, _: seen.append(folder)) as retinue:
        result = await retinue.run("isolated", "Look", cwd="sub")
    assert result.actual.worktree is None
    assert seen[0].name == "sub"
    assert (seen[0].parent.name, seen[0].parents[3]) == (result.session[:8], retinue.state)
    assert not seen[0].exists()


async def test_many_runs_without_changes_leave_no_worktree_and_no_branch(repository):
    async with make(repository, lambda *_: None, settings={"max_concurrency": 8, "max_tasks": 100}) as retinue:
        results = await retinue.delegate([("isolated", "Look")] * 40)
    assert [result.failure for result in results] == [None] * 40
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "branch", "--list", "retinue/*") == ""
    assert {record.state for record in retinue.worktrees.list_all()} == {WorktreeState.UNCHANGED}


async def test_resumed_session_works_in_its_worktree_again(repository):
    async with make(repository) as retinue:
        first = await retinue.run("isolated", "Write it")
        second = await retinue.run("writer", "Write more", session=first.session)
    assert second.failure is None
    assert second.spec.cwd == first.spec.cwd
    assert first.actual.worktree
    assert second.actual.worktree
    assert second.actual.worktree.base == first.actual.worktree.base
    assert (repository / "a.txt").read_text() == "one\n"


async def test_resumed_session_whose_worktree_was_removed_gets_it_back(repository):
    async with make(repository, lambda *_: None) as retinue:
        first = await retinue.run("isolated", "Look")
        second = await retinue.run("isolated", "Look again", session=first.session)
    assert second.failure is None
    assert second.spec.cwd == first.spec.cwd


async def test_folder_outside_a_repository_fails_the_run_by_name(tmp_path):
    async with make(tmp_path) as retinue:
        result = await retinue.run("isolated", "Write it")
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "worktree")
    assert "not a git repository" in result.failure.message
    assert "without isolation" in result.failure.message


async def test_worktree_that_cannot_be_made_fails_the_run_before_its_engine_starts(repository):
    git(repository, "update-ref", "refs/heads/retinue", "HEAD")
    ran: list[Path] = []
    async with make(repository, lambda folder, _: ran.append(folder)) as retinue:
        result = await retinue.run("isolated", "Write it")
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.SPAWN_FAILED, "worktree")
    assert ran == []


async def test_changes_that_cannot_be_committed_stay_and_are_reported(repository):
    def damage(folder: Path, _spec: object) -> None:
        write_files(folder, {"a.txt": "kept\n"})
        git(repository, "worktree", "remove", "--force", "--force", str(folder))
        write_files(folder, {"a.txt": "kept\n"})

    async with make(repository, damage) as retinue:
        result = await retinue.run("isolated", "Write it")
    assert result.failure is None
    assert any("could not be committed" in notice for notice in result.actual.notices)
    assert Path(result.spec.cwd, "a.txt").read_text() == "kept\n"


async def test_child_runs_work_in_the_worktree_of_their_parent(repository):
    places: list[tuple[str, str]] = []

    def script(spec):
        places.append((spec.agent.name, spec.cwd))
        if spec.agent.name == "lead":
            return (DelegateStep(args={"agent": "reader", "task": "Look"}), TextStep(text="done"))
        return (TextStep(text="seen"),)

    lead = Agent(name="lead", body="You lead.", tools=("read", "spawn_subagent"), isolation="worktree")
    reader = Agent(name="reader", body="You read.", tools=("read",))
    async with make(repository, engines=scripted(ScriptedEngine(script)), agents=[lead, reader]) as retinue:
        result = await retinue.run("lead", "Lead it", max_depth=3)
    assert result.failure is None
    assert places == [("lead", result.spec.cwd), ("reader", result.spec.cwd)]


async def test_sandbox_of_a_run_includes_its_worktree_and_the_git_folder(repository):
    async with make(repository, engines=None) as retinue:
        call = retinue.call("single", sandbox="workspace", isolation="worktree", engine="offline")
        specs: list[RunSpec] = []
        plan = Plan(
            tasks=(Task(agent="explorer", prompt="Look"), Task(agent="explorer", prompt="Look")), mode=Mode.PARALLEL
        )
        await retinue.run_plan(plan, call, specs.extend)
    (spec, _) = specs
    assert (spec.cwd in spec.sandbox.read, str(repository / ".git") in spec.sandbox.read) == (True, True)


async def test_invalid_isolation_of_a_task_is_refused(repository):
    async with make(repository) as retinue:
        (result,) = await retinue.delegate([Task(agent="writer", prompt="one", isolation="container")])
    assert result.failure
    assert "isolation 'container': it must be worktree or none" in result.failure.message


async def test_tools_of_hosts_take_isolation_and_name_the_branch(repository):
    async with make(repository) as retinue:
        tool = retinue.toolset("fanout")
        answer = await tool.handlers["delegate_to_subagents"](
            {"tasks": [{"name": "one", "profile": "writer", "prompt": "Write it", "isolation": "worktree"}]},
            retinue.call("fanout"),
            None,
        )
    assert "1 file changed (+1 −1) on branch retinue/writer-" in answer.text


@pytest.mark.parametrize("name", ["single", "sticky"])
async def test_answer_of_an_isolated_agent_names_the_branch_without_a_parameter(repository, name):
    async with make(repository) as retinue:
        (use,) = retinue.toolset(name).handlers.values()
        answer = await use({"agent": "isolated", "task": "Write it"}, retinue.call(name, allow_write=True), None)
    assert "1 file changed (+1 −1) on branch retinue/isolated-" in answer.text
