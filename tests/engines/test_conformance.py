"""Retinue's own engines pass the conformance suite on both event loops."""

from pathlib import Path

import pytest
from tests.support import fake_pi
from tests.support.fake_pi import action as do
from tests.support.pi_setup import OLD, alive, environment

from retinue.composition import available_engines
from retinue.engines.base import Emit, engine_error
from retinue.engines.offline.engine import OfflineEngine
from retinue.engines.scripted import (
    FailEngine,
    HangStep,
    ScriptedEngine,
    Step,
    WaitForSteering,
    call,
    fail,
    finalize,
    reply,
)
from retinue.model.errors import Failure
from retinue.model.events import Text
from retinue.model.runs import RunSpec
from retinue.runtime.executor import LocalExecutor
from retinue.testing.engines import EngineBehavior, EngineCase, EngineSuite, make_run_spec

SCRIPTS: dict[EngineBehavior, list[Step]] = {
    "answer": [reply("An answer.", deltas=3)],
    "call": [call("read", path="x", returns="text"), call("ls", returns="x", is_error=True), reply("Done.")],
    "fail": [call("read", path="x"), fail("429 rate limit")],
    "hang": [Text("thinking aloud"), HangStep()],
    "break": [FailEngine(engine_error("It broke."))],
    "finalize": [reply("text"), finalize("The result.")],
    "steer": [call("read", path="x"), WaitForSteering(), reply("I was told: {steer}")],
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestScripted(EngineSuite):
    supported = frozenset({"steer"})

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        return EngineCase(ScriptedEngine(*SCRIPTS[behavior]), make_run_spec(folder))


class TestOffline(EngineSuite):
    unsupported = frozenset({"fail", "break", "hang"})  # it has no provider, and does not hang

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        (folder / "kettle.py").write_text('"""Boils water."""\n\n\ndef boil(water):\n    return water\n')
        return EngineCase(OfflineEngine(), make_run_spec(folder, task="Where is water boiled?"))


def test_suite_omits_the_tests_of_unsupported_behaviors():
    def tests(suite: type) -> set[str]:
        return {name for name in dir(suite) if name.startswith("test_") and callable(getattr(suite, name))}

    assert tests(TestScripted) == tests(EngineSuite)
    assert tests(EngineSuite) - tests(TestOffline) == {
        "test_provider_failure_is_a_message_not_an_exception",
        "test_engine_failure_is_an_engine_error_with_a_message",
        "test_silent_run_ends_when_cancelled",
        "test_steering_message_is_emitted_where_the_agent_receives_it",
    }


PI_SCRIPTS: dict[EngineBehavior, list[fake_pi.FakePiAction]] = {
    "answer": [do("say", "An answer.", deltas=3)],
    "call": [do("call", "read", {"path": "x"}, returns="text"), do("call", "ls", is_error=True), do("say", "Done.")],
    "fail": [do("call", "read"), do("fail", "429 rate limit")],
    "hang": [do("call", "read"), do("hang")],
    "break": [do("raw", '{"type":"message_end","mess'), do("exit", 0)],
    "finalize": [do("say", "text"), do("finalize", "The result.")],
    "steer": [do("call", "read"), do("wait_for_steering"), do("say", "Done.")],
}


class ExecutedEngine:
    """The pi engine in an executor of its own, for one run."""

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        async with LocalExecutor(available_engines(spec.environment)) as self._executor:
            self._spec = spec
            await self._executor.execute(spec, emit)

    async def steer(self, run: str, text: str) -> Failure | None:
        assert run == self._spec.run
        return await self._executor.steer(self._spec, text)


@pytest.mark.process
class TestPi(EngineSuite):
    supported = frozenset({"steer"})
    reports_completion = True
    version: str | None = None

    @pytest.fixture(autouse=True)
    def home(self, scratch_home: Path) -> None:
        self._home = scratch_home
        fake_pi.install_fake_pi(scratch_home / "bin", version=self.version)

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        spec = make_run_spec(
            folder,
            task=fake_pi.encode_script(*PI_SCRIPTS[behavior]),
            engine="pi",
            environment=environment(self._home),
            native_folder=str(self._home / "native"),
        )
        return EngineCase(ExecutedEngine(), spec)

    def find_leftovers(self) -> list[str]:
        return alive(self._home)


class TestPiOncePerRun(TestPi):
    version = OLD
    unsupported = frozenset({"steer"})
