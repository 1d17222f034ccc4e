"""The claude engine passes the engine suite on asyncio and trio."""

from pathlib import Path

import pytest
from tests.support.claude_setup import Deed as Deeds
from tests.support.claude_setup import deeds, environment
from tests.support.pi_setup import alive

from retinue.composition import available_engines
from retinue.engines.base import Emit
from retinue.model.errors import Failure
from retinue.model.runs import RunSpec
from retinue.runtime.executor import LocalExecutor
from retinue.testing.engines import EngineBehavior, EngineCase, EngineSuite, make_run_spec

SCRIPTS: dict[EngineBehavior, list[Deeds]] = {
    "answer": [{"say": "An answer.", "deltas": 3}],
    "call": [
        {"call": "Read", "args": {"file_path": "x"}, "returns": "text"},
        {"call": "mcp__retinue__ls", "is_error": True},
        {"say": "Done."},
    ],
    "fail": [{"call": "Read"}, {"fail": "429 rate limit"}],
    "hang": [{"call": "Read"}, {"hang": True}],
    "break": [{"raw": '{"type":"assistant","mess'}, {"exit": 0}],
    "steer": [{"call": "Read"}, {"hear": "now"}, {"say": "Done."}],
    "finalize": [{"say": "text"}, {"finalize": {"status": "SUCCESS", "result": "The result."}}],
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class EngineOnLocalExecutor:
    """The engine on a local executor of its own, for one run."""

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        async with LocalExecutor(available_engines(spec.environment)) as self._place:
            self._spec = spec
            await self._place.execute(spec, emit)

    async def steer(self, run: str, text: str) -> Failure | None:
        assert run == self._spec.run
        return await self._place.steer(self._spec, text)


@pytest.mark.process
class TestClaude(EngineSuite):
    supported = frozenset({"steer"})
    reports_completion = True

    @pytest.fixture(autouse=True)
    def home(self, scratch_home: Path) -> None:
        self._home = scratch_home

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        spec = make_run_spec(
            folder,
            task=deeds(*SCRIPTS[behavior]),
            engine="claude",
            environment=environment(self._home),
            native_folder=str(self._home / "native"),
        )
        return EngineCase(EngineOnLocalExecutor(), spec)

    def find_leftovers(self) -> list[str]:
        return alive(self._home)
