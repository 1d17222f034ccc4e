"""The api engine passes the engine suite on every provider API, on asyncio and trio."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.engines.api.conftest import MODELS, environment
from tests.support.model_server import ModelServer, ScriptedError, ScriptedTurn
from tests.support.model_server.script import Steps

from retinue.composition import available_engines
from retinue.engines.base import Emit
from retinue.model.errors import Failure
from retinue.model.runs import RunSpec
from retinue.runtime.executor import LocalExecutor
from retinue.testing.engines import EngineBehavior, EngineCase, EngineSuite, make_run_spec

# On trio, httpcore leaves its own generators of a cancelled stream to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in.*(PoolByteStream|HTTP11ConnectionByteStream|AsyncResponseStream|BoundAsyncStream)"
    ":pytest.PytestUnraisableExceptionWarning"
)
READ = ScriptedTurn(text="I look.", tool="read", args={"path": "x"})
SCRIPTS: dict[EngineBehavior, Steps] = {
    "answer": [ScriptedTurn(text="An answer in words.")],
    "call": [READ, ScriptedTurn(text="Done.")],
    "fail": [READ, ScriptedTurn(fail=ScriptedError(status=401, times=-1))],
    "hang": [READ, ScriptedTurn(text="never", hang=True)],
    "break": [],
    "finalize": [
        READ,
        ScriptedTurn(tool="subagent_finalize", args={"status": "SUCCESS", "result": "The result."}),
    ],
    "steer": [READ, ScriptedTurn(text="Done.", delay=0.2), ScriptedTurn(text="Steered.")],
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class ApiOnModelServer:
    """The engine on a local executor and a model server of its own, for one run."""

    def __init__(self, script: Steps) -> None:
        self._script = script

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        if not self._script:  # without a key
            await self._execute(spec, emit)
            return
        async with ModelServer(self._script) as server:
            await self._execute(replace(spec, environment=environment(server.url)), emit)

    async def _execute(self, spec: RunSpec, emit: Emit) -> None:
        self._spec = spec
        async with LocalExecutor(available_engines(spec.environment)) as self._executor:
            await self._executor.execute(spec, emit)

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._executor.steer(self._spec, text)


class ApiSuite(EngineSuite):
    supported = frozenset({"steer"})
    reports_completion = True
    api: str

    def make_case(self, behavior: EngineBehavior, folder: Path) -> EngineCase:
        spec = make_run_spec(folder, engine="api", model=MODELS[self.api], finalize=behavior == "finalize")
        return EngineCase(ApiOnModelServer(SCRIPTS[behavior]), spec)


class TestChatCompletions(ApiSuite):
    api = "openai-chat"


class TestResponses(ApiSuite):
    api = "openai-responses"


class TestAnthropicMessages(ApiSuite):
    api = "anthropic"


class TestGemini(ApiSuite):
    api = "gemini"
