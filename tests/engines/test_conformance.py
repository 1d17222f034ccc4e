"""Our own engines pass the suite every engine passes, on both event loops."""

from pathlib import Path

import pytest
from tests.pi_stage import OLD, alive, environment

from retinue.engines.base import Emit, engine_error
from retinue.engines.offline import OfflineEngine
from retinue.engines.scripted import Hang, Hear, Raise, ScriptedEngine, Step, call, fail, finalize, say
from retinue.events import Text
from retinue.parts import engine_kinds
from retinue.places.local import Local
from retinue.testing import fake_pi
from retinue.testing.engines import Deed, EngineSuite, Subject, run_spec
from retinue.testing.fake_pi import deed as do
from retinue.types import Failure, RunSpec

SCRIPTS: dict[Deed, list[Step]] = {
    "answer": [say("An answer.", deltas=3)],
    "call": [call("read", path="x", returns="text"), call("ls", returns="x", is_error=True), say("Done.")],
    "fail": [call("read", path="x"), fail("429 rate limit")],
    "hang": [Text("thinking aloud"), Hang()],
    "break": [Raise(engine_error("It broke."))],
    "finalize": [say("text"), finalize("The result.")],
    "steer": [call("read", path="x"), Hear(), say("I was told: {steer}")],
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestScripted(EngineSuite):
    can = frozenset({"steer"})

    def subject(self, deed: Deed, folder: Path) -> Subject:
        return Subject(ScriptedEngine(*SCRIPTS[deed]), run_spec(folder))


class TestOffline(EngineSuite):
    cannot = frozenset({"fail", "break", "hang"})  # it has no provider, and does not hang

    def subject(self, deed: Deed, folder: Path) -> Subject:
        (folder / "kettle.py").write_text('"""Boils water."""\n\n\ndef boil(water):\n    return water\n')
        return Subject(OfflineEngine(), run_spec(folder, task="Where is water boiled?"))


def test_an_engine_has_the_tests_of_what_it_can_be_brought_to():
    def tests(suite: type) -> set[str]:
        return {name for name in dir(suite) if name.startswith("test_") and callable(getattr(suite, name))}

    assert tests(TestScripted) == tests(EngineSuite)
    assert tests(EngineSuite) - tests(TestOffline) == {
        "test_a_provider_failure_is_a_message_not_an_exception",
        "test_a_failure_of_the_engine_is_an_engine_error_with_words",
        "test_a_silent_run_ends_when_it_is_cancelled",
        "test_what_an_agent_is_told_stands_where_it_is_given_it",
    }


PI_SCRIPTS: dict[Deed, list[fake_pi.Deed]] = {
    "answer": [do("say", "An answer.", deltas=3)],
    "call": [do("call", "read", {"path": "x"}, returns="text"), do("call", "ls", is_error=True), do("say", "Done.")],
    "fail": [do("call", "read"), do("fail", "429 rate limit")],
    "hang": [do("call", "read"), do("hang")],
    "break": [do("raw", '{"type":"message_end","mess'), do("exit", 0)],
    "finalize": [do("say", "text"), do("finalize", "The result.")],
    "steer": [do("call", "read"), do("hear"), do("say", "Done.")],
}


class Placed:
    """The pi engine as it lives in its place, for one run."""

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        async with Local(engine_kinds(spec.environment)) as self._place:
            self._spec = spec
            await self._place.carry(spec, emit)

    async def steer(self, run: str, text: str) -> Failure | None:
        assert run == self._spec.run
        return await self._place.steer(self._spec, text)


@pytest.mark.process
class TestPi(EngineSuite):
    can = frozenset({"steer"})
    reports_completion = True
    version: str | None = None

    @pytest.fixture(autouse=True)
    def home(self, scratch_home: Path) -> None:
        self._home = scratch_home
        fake_pi.install(scratch_home / "bin", version=self.version)

    def subject(self, deed: Deed, folder: Path) -> Subject:
        spec = run_spec(
            folder,
            task=fake_pi.script(*PI_SCRIPTS[deed]),
            engine="pi",
            environment=environment(self._home),
            native_folder=str(self._home / "native"),
        )
        return Subject(Placed(), spec)

    def leftovers(self) -> list[str]:
        return alive(self._home)


class TestPiOncePerRun(TestPi):
    version = OLD
    cannot = frozenset({"steer"})
