"""The numbers that windows show for listings, on what the real programs answer: `2 files, 1 dir`, `3 matches`."""

from __future__ import annotations

import pytest
from tests.engines_real.programs import worker

from retinue import Retinue
from retinue.frontends.tool_lines import result_line
from retinue.progress import Called, Progress
from retinue.testing.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
def condensed(program, project, tmp_path):
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
            steps = [*(program.uses(name, **args) for name, args in calls), {"text": "Done."}]
            progress = Progress()
            async with retinue.events() as events:
                result = await retinue.run("worker", script64(steps))
                for stamped in events.waiting():
                    progress = progress.after(stamped)
        assert (result.failure, result.text) == (None, "Done.")
        (view,) = progress.runs.values()
        return [(item.name, result_line(item)) for item in view.items if isinstance(item, Called)]

    return condense


async def test_ls_counts_files_and_folders(condensed, project):
    (project / "lib").mkdir()
    (project / "many").mkdir()
    for number in range(510):
        (project / "many" / f"f{number}").touch()
    found = await condensed(("ls", {"path": "."}), ("ls", {"path": "lib"}), ("ls", {"path": "many"}))
    assert found == [("ls", "1 file, 2 dirs"), ("ls", "(empty)"), ("ls", "500 files+")]


@pytest.mark.parametrize("program", ["claude"], indirect=True)
async def test_find_counts_matches_of_claude_code(condensed, project):
    for number in range(150):
        (project / f"f{number:03}.ts").touch()
    found = await condensed(*(("find", {"pattern": pattern}) for pattern in ("*.zzz", "f001.ts", "f00*.ts", "*.ts")))
    assert found == [("find", "0 matches"), ("find", "1 match"), ("find", "10 matches"), ("find", "100 matches+")]
