"""Tasks of one call that write the same file."""

from tests.support.retinue_factory import VIRTUAL_TIME, stage

from retinue.engines.scripted import WaitStep, call, reply
from retinue.model.tasks import Task

pytestmark = VIRTUAL_TIME


async def notices(home, scripts, **settings):
    async with stage(home, lambda spec: scripts[spec.name]) as retinue:
        tasks = [Task(agent="implementer", prompt=f"Do {name}.", name=name) for name in scripts]
        results = await retinue.delegate(tasks, allow_write=True, **settings)
    assert [result.failure for result in results] == [None] * len(scripts)
    return [[notice for notice in result.actual.notices if "also wrote" in notice] for result in results]


async def test_two_tasks_that_write_one_file_are_reported(scratch_home):
    scripts = {
        "a": [call("write", path="out.md"), WaitStep(1), reply("ok")],
        "b": [WaitStep(5), call("edit", path=str(scratch_home / "x" / ".." / "out.md")), reply("ok")],
    }
    first, second = await notices(scratch_home, scripts)
    assert first == []
    (notice,) = second
    assert notice.startswith('The task "a" (run ')
    assert f"also wrote {scratch_home}/out.md while this run was active" in notice


async def test_tasks_with_files_of_their_own_and_repeated_writes_are_not_reported(scratch_home):
    scripts = {
        name: [call("write", path=f"{name}.md"), call("edit", path=f"{name}.md"), call("read", path="c"), reply("ok")]
        for name in "ab"
    }
    assert await notices(scratch_home, scripts) == [[], []]


async def test_tasks_that_run_one_after_the_other_are_not_reported(scratch_home):
    scripts = {name: [call("write", path="out.md"), WaitStep(1), reply("ok")] for name in "ab"}
    assert await notices(scratch_home, scripts, max_concurrency=1) == [[], []]
