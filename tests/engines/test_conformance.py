"""Our own engines pass the suite every engine passes, on both event loops."""

from pathlib import Path

import pytest

from retinue.engines.base import engine_error
from retinue.engines.offline import OfflineEngine
from retinue.engines.scripted import Hang, Raise, ScriptedEngine, Step, call, fail, finalize, say
from retinue.events import Text
from retinue.testing.engines import Deed, EngineSuite, Subject, run_spec

SCRIPTS: dict[Deed, list[Step]] = {
    "answer": [say("An answer.", deltas=3)],
    "call": [call("read", path="x", returns="text"), call("ls", returns="x", is_error=True), say("Done.")],
    "fail": [call("read", path="x"), fail("429 rate limit")],
    "hang": [Text("thinking aloud"), Hang()],
    "break": [Raise(engine_error("It broke."))],
    "finalize": [say("text"), finalize("The result.")],
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestScripted(EngineSuite):
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
    }
