"""What is written down and shown: no secret reaches the store, a watcher or the result."""

import pytest
from tests.stage import stage

from retinue.engines.base import engine_error
from retinue.engines.scripted import Raise, call, fail, say
from retinue.events import Notice, Text, TextDelta, Thinking, to_line

CANARY = "canary-value-of-a-secret-93hf"
GITHUB = "ghp_" + "a1B2" * 9


def scripts():
    return {
        "text": [say(f"the key is {CANARY} and {GITHUB}")],
        "deltas": [*[TextDelta(c) for c in f"the key is {CANARY} {GITHUB} !"], say("done")],
        "thinking": [Thinking(f"hm {CANARY} {GITHUB}"), say("done")],
        "arguments": [call("bash", command=f"curl -H {CANARY}", nested={"deep": [GITHUB]}), say("done")],
        "results": [call("read", path="x", returns=f"{CANARY}\n{GITHUB}"), say("done")],
        "notices": [Notice("x", f"{CANARY} {GITHUB}"), say("done")],
        "provider errors": [fail(f"401 bad key {CANARY} {GITHUB}")],
        "engine errors": [Raise(engine_error(f"could not start with {CANARY} {GITHUB}"))],
        "partial text": [Text(f"so far {CANARY} {GITHUB}")],
        "partial deltas": [TextDelta(f"so far {CANARY} "), TextDelta(f"{GITHUB} ")],
    }


@pytest.mark.parametrize("place", scripts())
async def test_no_secret_leaves(scratch_home, place):
    environ = {"HOME": str(scratch_home), "MY_SERVICE_API_KEY": CANARY}
    from tests.stage import scripted

    from retinue.app import Retinue
    from retinue.engines.scripted import ScriptedEngine
    from retinue.sessions.memory import MemoryStore

    retinue = Retinue(
        cwd=scratch_home,
        engine="scripted",
        environ=environ,
        engines=scripted(ScriptedEngine(*scripts()[place])),
        store=MemoryStore(),
    )
    async with retinue, retinue.events() as events:
        (result,) = await retinue.delegate([("explorer", f"use {CANARY} and {GITHUB}")])
        seen = b"".join(to_line(stamped) for stamped in events.waiting())
        stored = b"".join([to_line(stamped) async for stamped in retinue.history(result.spec.session)])
    left = repr((result.text, result.items, result.failure, result.spec.task, result.actual))
    for secret in (CANARY, GITHUB):
        assert secret.encode() not in seen
        assert secret.encode() not in stored
        assert secret not in left
    assert result.actual.masks >= 2


async def test_text_that_is_not_unicode_is_stored_all_the_same(scratch_home, tmp_path):
    odd = call("read", path="x\ud83d", returns="\udcff")
    async with stage(scratch_home, odd, say("half a \ud83d pair"), store=None, state=tmp_path / "state") as retinue:
        result = await retinue.run("explorer", "do it")
        stored = [s.event async for s in retinue.history(result.spec.session)]
    assert result.failure is None
    assert len(stored) == 9


async def test_a_store_that_cannot_write_costs_a_warning_and_no_answer(scratch_home, tmp_path):
    blocked = tmp_path / "state"
    blocked.write_text("a file stands where the folder should be")
    async with (
        stage(scratch_home, say("the answer"), store=None, state=blocked) as retinue,
        retinue.events() as events,
    ):
        result = await retinue.run("explorer", "do it")
        notices = [s.event for s in events.waiting() if isinstance(s.event, Notice)]
    assert (result.failure, result.text, result.actual.saved) == (None, "the answer", False)
    assert [notice.code for notice in notices] == ["storage"]
