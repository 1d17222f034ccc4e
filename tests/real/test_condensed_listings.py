"""Counts that windows show for listings of the real programs: `2 files, 1 dir`, `3 matches`."""

from __future__ import annotations

import pytest
from tests.real.programs import worker
from tests.support.model_server import script64

from retinue import Retinue
from retinue.runtime.progress import CallProgress, ToolCallItem
from retinue.tui.event_lines import format_result

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
def condense_calls(program, project, tmp_path):
    """Let an agent of a real program make these calls; return each call with its condensed result."""

    async def condense(*calls):
        async with Retinue(
            cwd=project,
            engine=program.engine,
            agents=[worker(tools=("ls", "find"))],
            environ=program.environ,
            state=tmp_path / "state",
            settings={"model": program.model},
        ) as retinue:
            steps = [*(program.tool_step(name, **args) for name, args in calls), {"text": "Done."}]
            progress = CallProgress()
            async with retinue.events() as events:
                result = await retinue.run("worker", script64(steps))
                for stamped in events.drain():
                    progress = progress.apply(stamped)
        assert (result.failure, result.text) == (None, "Done.")
        (view,) = progress.runs.values()
        return [(item.name, format_result(item)) for item in view.items if isinstance(item, ToolCallItem)]

    return condense


async def test_ls_counts_files_and_folders(condense_calls, project):
    (project / "lib").mkdir()
    (project / "many").mkdir()
    for number in range(510):
        (project / "many" / f"f{number}").touch()
    found = await condense_calls(("ls", {"path": "."}), ("ls", {"path": "lib"}), ("ls", {"path": "many"}))
    assert found == [("ls", "1 file, 2 dirs"), ("ls", "(empty)"), ("ls", "500 files+")]


@pytest.mark.parametrize("program", ["claude"], indirect=True)
async def test_find_counts_matches_of_claude_code(condense_calls, project):
    for number in range(150):
        (project / f"f{number:03}.ts").touch()
    found = await condense_calls(
        *(("find", {"pattern": pattern}) for pattern in ("*.zzz", "f001.ts", "f00*.ts", "*.ts"))
    )
    assert found == [("find", "0 matches"), ("find", "1 match"), ("find", "10 matches"), ("find", "100 matches+")]
