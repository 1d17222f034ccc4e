"""Sessions of the api engine: what is recorded of long and signed conversations, and what another run or model gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.engines.api.conftest import LOOK, MODELS, environment, open_retinue
from tests.engines.api.test_long_work import IMAGE, LOOK_AT_IMAGE, PNG
from tests.support.model_server import ModelServer, ScriptedError, ScriptedTurn

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.compaction import SUMMARY_INSTRUCTIONS
from retinue.model.events import AttemptStarted, ModelChanged
from retinue.model.runs import SUMMARY_TEXT
from retinue.sessions.memory import MemoryStore

ANSWER = ScriptedTurn(text="It says hello.")
PROVIDER_WORDS = ('signature":', 'thoughtSignature":', 'encrypted_content":', 'reasoning_content":')
"""Fields that only the provider can read, and only with the conversation they came from."""


def in_order(*turns: ScriptedTurn) -> Any:
    remaining = iter(turns)
    return lambda _: next(remaining)


def open_cut_retinue(home, server, **settings):
    """Open a Retinue whose models have a small context window."""
    config = home / ".config" / "retinue" / "config.toml"
    config.parent.mkdir(parents=True)
    names = {model.partition("/")[0] for model in MODELS.values()}
    config.write_text("".join(f"[providers.{name}]\ncontext_window = 25000\n" for name in sorted(names)))
    (home / "a.txt").write_text("hello world\n" * 3000)
    return Retinue(
        cwd=home,
        environ={"HOME": str(home), **environment(server.url)},
        store=MemoryStore(),
        engine="api",
        agents=[Agent(name="reader", tools=("read",))],
        settings=settings,
    )


async def test_resumed_session_goes_on_from_the_recorded_summary(model, scratch_home):
    work = in_order(LOOK, LOOK, LOOK, LOOK, ANSWER, ANSWER)

    def script(request):
        return ScriptedTurn(text="The file says hello.") if request.system == SUMMARY_INSTRUCTIONS else work(request)

    async with ModelServer(script) as server, open_cut_retinue(scratch_home, server, model=model) as retinue:
        first = await retinue.run("reader", "Read it four times.")
        second = await retinue.run("reader", "And now?", session=first.session)
        requests = [request for request in server.requests if request.system != SUMMARY_INSTRUCTIONS]
    last = [message for message in requests[-1].messages if message.role != "system"]
    summary = SUMMARY_TEXT.format(summary="The file says hello.")
    assert (first.failure, second.failure) == (None, None)
    assert first.usage.turns == 6
    assert [notice for notice in first.actual.notices if "became a summary" in notice]
    assert last[0].text == f"Read it four times.\n\n{summary}"
    assert [message.role for message in last] == ["user", *["assistant", "tool"] * 2, "assistant", "user"]
    assert last[-1].text == "And now?"


async def test_record_of_images_and_signed_messages_is_text(model, scratch_home):
    (scratch_home / "p.png").write_bytes(PNG)
    script = in_order(
        msgspec.structs.replace(LOOK_AT_IMAGE, thinking="Let me see."), ANSWER, ScriptedTurn(text="A dot.")
    )
    async with open_retinue(script, scratch_home, model) as (retinue, server):
        first = await retinue.run("reader", "Look.")
        stored = repr([record async for record in retinue._store.events(first.session)])
        await retinue.run("reader", "What was it?", session=first.session)
        body = msgspec.json.encode(server.requests[-1].body).decode()
    assert f"[Image p.png: image/png, {len(PNG)} B.]" in stored
    for text in (IMAGE, "c2NyaXB0ZWQ", *PROVIDER_WORDS):
        assert text not in stored
        assert text not in body
    assert f"[Image p.png: image/png, {len(PNG)} B.]" in body


@pytest.mark.parametrize(
    ("status", "message", "falls_back"),
    [
        (429, "slow down", True),
        (402, "insufficient credit", True),
        (401, "invalid key", True),
        (404, "model not found", True),
        (503, "overloaded", True),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", False),
        (400, "temperature: must be at most 1", False),
    ],
)
async def test_next_model_is_tried_where_another_one_may_succeed(scratch_home, status, message, falls_back):
    """The same rules hold on every engine."""

    def script(request):
        if request.model == "broken":
            fail = ScriptedError(status=status, times=-1, headers={"retry-after": "0"}, message=message)
            return ScriptedTurn(fail=fail)
        return ANSWER

    agent = Agent(name="reader", tools=("read",), model="anthropic/broken", fallback_models=("google/scripted-1",))
    async with ModelServer(script) as server:
        environ = {"HOME": str(scratch_home), **environment(server.url)}
        store = MemoryStore()
        async with Retinue(cwd=scratch_home, environ=environ, store=store, engine="api", agents=[agent]) as retinue:
            result = await retinue.run("reader", "Go.")
            events = [record.event async for record in store.events(result.session)]
    assert (result.failure is None) == falls_back
    assert bool([event for event in events if isinstance(event, ModelChanged)]) == falls_back
    assert result.actual.model == ("google/scripted-1" if falls_back else result.actual.model)


async def test_fallback_to_another_provider_sends_none_of_the_first_ones_blocks(scratch_home):
    """The first model has worked and thought before it fails: its conversation is continued as plain text."""

    def script(request):
        if request.model == "first":
            if len(server.requests) == 1:
                return msgspec.structs.replace(LOOK, thinking="Let me see.")
            return ScriptedTurn(fail=ScriptedError(status=401, times=-1, message="key expired"))
        return ANSWER

    agent = Agent(name="reader", tools=("read",), model="anthropic/first", fallback_models=("google/scripted-1",))
    (scratch_home / "a.txt").write_text("hello\n")
    async with ModelServer(script) as server:
        environ = {"HOME": str(scratch_home), **environment(server.url)}
        store = MemoryStore()
        async with Retinue(cwd=scratch_home, environ=environ, store=store, engine="api", agents=[agent]) as retinue:
            result = await retinue.run("reader", "Go.")
            events = [record.event async for record in store.events(result.session)]
        bodies = [msgspec.json.encode(request.body).decode() for request in server.requests]
    assert result.failure is None
    assert [event.reason for event in events if isinstance(event, AttemptStarted)] == ["first", "fallback"]
    assert '"signature":"c2NyaXB0ZWQ="' in bodies[1]
    assert not [word for word in PROVIDER_WORDS if word in bodies[-1]]
