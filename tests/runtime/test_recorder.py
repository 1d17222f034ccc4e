"""Recording: no secret reaches the store, a subscriber or the result."""

import pytest
from tests.support.retinue_factory import scripted, stage

from retinue import Agent, Task
from retinue.engines.base import engine_error
from retinue.engines.scripted import FailEngine, ScriptedEngine, call, fail, reply
from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import to_line
from retinue.model.events import (
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    Text,
    TextDelta,
    Thinking,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.runs import Compaction, Secret
from retinue.sessions.memory import MemoryStore

CANARY = "canary-value-of-a-secret-93hf"
GITHUB = "ghp_" + "a1B2" * 9


def scripts():
    return {
        "text": [reply(f"the key is {CANARY} and {GITHUB}")],
        "deltas": [*[TextDelta(c) for c in f"the key is {CANARY} {GITHUB} !"], reply("done")],
        "thinking": [Thinking(f"hm {CANARY} {GITHUB}"), reply("done")],
        "arguments": [call("bash", command=f"curl -H {CANARY}", nested={"deep": [GITHUB]}), reply("done")],
        "results": [call("read", path="x", returns=f"{CANARY}\n{GITHUB}"), reply("done")],
        "notices": [Notice("x", f"{CANARY} {GITHUB}"), reply("done")],
        "summaries": [
            Notice("compacted", "shorter", Compaction(summary=f"{CANARY} {GITHUB}", kept_turns=1)),
            reply("done"),
        ],
        "provider errors": [fail(f"401 bad key {CANARY} {GITHUB}")],
        "engine errors": [FailEngine(engine_error(f"could not start with {CANARY} {GITHUB}"))],
        "partial text": [Text(f"so far {CANARY} {GITHUB}")],
        "partial deltas": [TextDelta(f"so far {CANARY} "), TextDelta(f"{GITHUB} ")],
        "interleaved deltas": [
            *interleaved(f"the key is {CANARY} {GITHUB} !"),
            reply("done"),
        ],
        "names and ids": [
            ToolCalled(CANARY, GITHUB, {}),
            MessageEnded(stop_reason="tool_use", model=f"{CANARY} {GITHUB}"),
            ToolReturned(CANARY, GITHUB),
            Notice(GITHUB, CANARY),
            ModelChanged(GITHUB, CANARY, GITHUB),
            reply("done"),
        ],
    }


def interleaved(text):
    """Yield every character as two kinds of deltas, with durable events between them."""
    for number, char in enumerate(text):
        yield TextDelta(char)
        yield ToolDelta("t1", char)
        yield [Notice("x", "y"), ToolReturned("t2", "read"), ToolCalled("t2", "read", {"n": number})][number % 3]


@pytest.mark.parametrize("place", scripts())
async def test_secrets_are_redacted_in_the_store_the_events_and_the_result(scratch_home, place):
    environ = {"HOME": str(scratch_home), "MY_SERVICE_API_KEY": CANARY}

    from retinue.client import Retinue
    from retinue.sessions.memory import MemoryStore

    retinue = Retinue(
        cwd=scratch_home,
        engine="scripted",
        environ=environ,
        engines=scripted(ScriptedEngine(*scripts()[place])),
        store=MemoryStore(),
    )
    async with retinue, retinue.events() as events:
        task = Task(agent="explorer", name=f"{CANARY} {GITHUB}", prompt=f"use {CANARY} and {GITHUB}")
        (result,) = await retinue.delegate([task])
        seen = b"".join(to_line(stamped) for stamped in events.drain())
        stored = b"".join([to_line(stamped) async for stamped in retinue.history(result.spec.session)])
    left = repr(result)
    for secret in (CANARY, GITHUB):
        assert secret.encode() not in seen
        assert secret.encode() not in stored
        assert secret not in left
    assert result.actual.masks >= 2


async def test_text_that_is_not_unicode_is_stored_all_the_same(scratch_home, tmp_path):
    odd = call("read", path="x\ud83d", returns="\udcff")
    async with stage(scratch_home, odd, reply("half a \ud83d pair"), store=None, state=tmp_path / "state") as retinue:
        result = await retinue.run("explorer", "do it")
        stored = [s.event async for s in retinue.history(result.spec.session)]
    assert result.failure is None
    assert len(stored) == 9


async def test_failing_store_adds_a_warning_and_keeps_the_answer(scratch_home, tmp_path):
    blocked = tmp_path / "state"
    blocked.write_text("a file stands where the folder should be")
    async with (
        stage(scratch_home, reply("the answer"), store=None, state=blocked) as retinue,
        retinue.events() as events,
    ):
        result = await retinue.run("explorer", "do it")
        seen = events.drain()
    notices = [stamped.event for stamped in seen if isinstance(stamped.event, Notice)]
    numbers = [stamped.seq for stamped in seen]
    assert numbers == sorted(numbers)  # whoever comes back passes over what is not after what it had
    assert (result.failure, result.text, result.actual.saved) == (None, "the answer", False)
    assert [notice.code for notice in notices] == ["storage"]


async def test_an_agents_own_key_is_masked(scratch_home):
    key = "an-agents-own-key-0815"
    agent = Agent(name="a", api_key=Secret(key))
    async with stage(scratch_home, reply(f"my key is {key}"), agents=[agent]) as retinue:
        result = await retinue.run("a", "tell me")
    assert key not in repr(result)
    assert result.actual.masks == 1


async def test_secret_counts_once_however_often_it_is_stored(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        result = await retinue.run("explorer", f"use {GITHUB}")
    assert result.actual.masks == 1


async def test_the_end_is_the_last_event_even_if_the_disk_fails_there(scratch_home):
    class Failing(MemoryStore):
        async def open_record(self, spec):
            record = await super().open_record(spec)
            return Faulty(record)

    class Faulty:
        def __init__(self, record):
            self._record = record
            self.file = None
            self.fault = None

        def append(self, stamped):
            self._record.append(stamped)
            if isinstance(stamped.event, RunEnded):
                self.fault = Failure(ErrorCode.STORAGE, "the disk is full")

        async def sync(self):
            await self._record.sync()

        async def release(self):
            await self._record.release()

    async with stage(scratch_home, reply("ok"), store=Failing()) as retinue, retinue.events() as events:
        result = await retinue.run("explorer", "x")
        seen = events.drain()
    assert isinstance(seen[-1].event, RunEnded)
    assert result.actual.saved is False


async def test_arguments_nested_without_end_are_cut(scratch_home):
    deep: dict[str, object] = {}
    for _ in range(700):
        deep = {"in": deep}
    async with stage(scratch_home, call("read", deep=deep), reply("ok")) as retinue:
        result = await retinue.run("explorer", "x")
        answer = await retinue.toolset("single").handlers["subagent"](
            {"agent": "explorer", "task": "x"}, retinue.call("single"), None
        )
    assert result.failure is None
    assert answer.text == "ok"
