"""Runs of one conversation that change the same file."""

from pathlib import Path

import msgspec
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME, scripted, stage

from retinue.engines.scripted import CAPABILITIES, RunCallback, ScriptedEngine, WaitStep, call, reply
from retinue.model.events import ToolReturned
from retinue.model.tasks import Task

pytestmark = VIRTUAL_TIME
UNGATED = msgspec.structs.replace(CAPABILITIES, enforces=CAPABILITIES.enforces - {"gate"})


async def play(home, scripts, capabilities=CAPABILITIES, **settings):
    """Return of each task the texts of its failed calls and its notices about files."""
    engines = scripted(ScriptedEngine(lambda spec: scripts[spec.name]), capabilities)
    async with stage(home, engines=engines) as retinue, retinue.events() as watcher:
        tasks = [Task(agent="implementer", prompt=f"Do {name}.", name=name) for name in scripts]
        results = await retinue.delegate(tasks, allow_write=True, **settings)
        events = list(watcher.drain())
    assert [result.failure for result in results] == [None] * len(scripts)
    errors: dict[str, list[str]] = {result.run: [] for result in results}
    for record in events:
        if isinstance(record.event, ToolReturned) and record.event.is_error:
            errors[record.origin.run].append(record.event.text)
    notices = [[notice for notice in result.actual.notices if "out.md" in notice] for result in results]
    return [*errors.values()], notices, [result.run[:8] for result in results]


def change(path: Path, text: str) -> RunCallback:
    """Return the step of a command that changes a file."""

    async def write() -> None:
        path.write_text(text)

    return RunCallback(write)


async def test_second_of_two_tasks_that_write_one_file_is_refused(scratch_home):
    file = scratch_home / "out.md"
    scripts = {
        "a": [call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), call("edit", path=str(scratch_home / "x" / ".." / "out.md")), reply("ok")],
    }
    errors, notices, (first, _) = await play(scratch_home, scripts)
    writer = f'the task "a" (run {first})'
    text = (
        f"{file} was changed by {writer} since your task began. Nothing was written. Read the file again, then make "
        "your change to what it contains now."
    )
    assert errors == [[], [text]]
    assert notices == [[], [f"A change of {file} was refused, because {writer} had changed it since this run began."]]


async def test_refused_run_goes_on_after_reading_the_file_again(scratch_home):
    scripts = {
        "a": [WaitStep(2), call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [
            call("read", path="out.md"),
            WaitStep(5),
            call("write", path="out.md"),
            call("read", path="out.md"),
            call("write", path="out.md"),
            reply("ok"),
        ],
    }
    errors, notices, _ = await play(scratch_home, scripts)
    assert [len(texts) for texts in errors] == [0, 1]
    assert "since you read it" in errors[1][0]
    assert [len(texts) for texts in notices] == [0, 1]


async def test_link_and_its_target_are_one_file(scratch_home):
    (scratch_home / "out.md").write_text("x")
    (scratch_home / "link.md").symlink_to("out.md")
    scripts = {
        "a": [call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), call("write", path="@link.md"), reply("ok")],
    }
    errors, _, _ = await play(scratch_home, scripts)
    assert [len(texts) for texts in errors] == [0, 1]


async def test_failed_write_of_another_run_does_not_count(scratch_home):
    scripts = {
        "a": [call("edit", path="out.md", is_error=True), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), call("write", path="out.md"), reply("ok")],
    }
    errors, notices, _ = await play(scratch_home, scripts)
    assert ([len(texts) for texts in errors], notices) == ([1, 0], [[], []])


async def test_engine_that_cannot_refuse_reports_the_second_write(scratch_home):
    scripts = {
        "a": [call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), call("edit", path="out.md"), reply("ok")],
    }
    errors, (first, second), _ = await play(scratch_home, scripts, UNGATED)
    assert (errors, first) == ([[], []], [])
    (notice,) = second
    assert notice.startswith('The task "a" (run ')
    assert f"also wrote {scratch_home}/out.md while this run was active" in notice


async def test_command_that_changes_a_file_of_another_run_is_reported(scratch_home):
    file = scratch_home / "out.md"
    scripts = {
        "a": [change(file, "1"), call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), change(file, "22"), call("bash", command="make"), reply("ok")],
    }
    _, notices, (first, _) = await play(scratch_home, scripts)
    (notice,) = notices[1]
    assert notice.startswith(
        f'A command of this run, or a program outside, changed {file}, which the task "a" (run {first})'
    )
    assert notices[0] == []


async def test_run_whose_file_was_changed_by_a_command_must_read_it_again(scratch_home):
    file = scratch_home / "out.md"
    file.write_text("1")
    scripts = {
        "a": [call("read", path="out.md"), WaitStep(10), call("edit", path="out.md"), reply("ok")],
        "b": [WaitStep(5), change(file, "22"), call("bash", command="make"), WaitStep(10), reply("ok")],
    }
    errors, notices, (_, second) = await play(scratch_home, scripts)
    assert [len(texts) for texts in errors] == [1, 0]
    assert f'was changed by the task "b" (run {second}) since you read it' in errors[0][0]
    assert [len(texts) for texts in notices] == [1, 0]


@pytest.mark.parametrize("command", ["cat out.md", "sed -n 1,9p ./out.md"])
async def test_command_that_names_the_file_counts_as_reading_it(scratch_home, command):
    scripts = {
        "a": [call("write", path="out.md"), WaitStep(10), reply("ok")],
        "b": [WaitStep(5), call("bash", command=command), call("edit", path="out.md"), reply("ok")],
    }
    errors, notices, _ = await play(scratch_home, scripts)
    assert (errors, notices) == ([[], []], [[], []])


async def test_tasks_with_files_of_their_own_and_repeated_writes_are_neither_refused_nor_reported(scratch_home):
    scripts = {
        name: [call("write", path=f"{name}.md"), call("edit", path=f"{name}.md"), call("read", path="c"), reply("ok")]
        for name in "ab"
    }
    assert (await play(scratch_home, scripts))[:2] == ([[], []], [[], []])


async def test_tasks_that_run_one_after_the_other_are_not_refused(scratch_home):
    scripts = {name: [call("write", path="out.md"), WaitStep(1), reply("ok")] for name in "ab"}
    assert (await play(scratch_home, scripts, max_concurrency=1))[:2] == ([[], []], [[], []])
