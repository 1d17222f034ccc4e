"""`subagentStart` and `subagentComplete`: the same from every engine, at every depth, and in the vault's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from tests.engines.api.conftest import MODELS as API_MODELS
from tests.engines.api.conftest import environment as api_environment
from tests.support import fake_pi
from tests.support.model_server import ModelServer, script64
from tests.support.nested_contract import ROOT, check_contract
from tests.support.pi_setup import environment, task
from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.base import engine_error
from retinue.engines.scripted import FailEngine, HangStep, RunCallback, ScriptedEngine, call, fail, finalize, reply
from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord, EventSource, SubagentComplete, SubagentStart, to_subagent_event
from retinue.model.events import RunEnded, RunQueued, Text
from retinue.model.results import AnswerStatus
from retinue.model.runs import RunSpec
from retinue.model.tasks import Lineage, Mode, Plan
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import WriterLimits

WORKER = Agent(name="worker", body="You work.", tools=("read", "bash"), model="big", fallback_models=("small",))
SPAWN = "spawn_subagent"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the store is in files


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def open_retinue(workplace, scratch_home, tmp_path, vault):
    """Return `open_retinue`: `open_retinue("offline")` is Retinue with a vault, for a conversation of its host."""

    def make_retinue(engine: str, *script, **options) -> Retinue:
        if script:
            options["engines"] = scripted(ScriptedEngine(*script))
        options.setdefault("environ", {"HOME": str(scratch_home)})
        return Retinue(
            cwd=workplace,
            engine=engine,
            agents=[WORKER],
            state=tmp_path / "state",
            root=ROOT,
            settings={"vault": str(vault), **options.pop("settings", {})},
            **options,
        )

    return make_retinue


def log(vault: Path, root: str = "conversation-1-*") -> list[dict[str, Any]]:
    """Return the records of the vault's log of a conversation, oldest first."""
    (folder,) = (vault / ".orion" / "subagent-events").glob(root)
    older = sorted(folder.glob("events.*.jsonl"), key=lambda path: int(path.name.split(".")[1]))
    return [json.loads(line) for path in (*older, folder / "events.jsonl") for line in path.read_bytes().splitlines()]


# -- every engine --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "fails"),
    [
        ([reply("An answer.", deltas=3)], False),
        ([call("read", path="x", returns="x"), reply("Done.")], False),
        ([reply("Half.", stop_reason="length"), fail("400 bad request")], True),
        ([FailEngine(engine_error("It broke."))], True),
        ([finalize("Not asked for."), reply("Done.")], False),
    ],
    ids=["answers", "calls a tool", "fails", "breaks", "finalizes"],
)
async def test_scripted_engine_emits_the_documented_subagent_events(open_retinue, vault, script, fails):
    async with open_retinue("scripted", *script) as retinue:
        await check_contract(retinue, vault, "worker", "Do it.", fails=fails)


async def test_offline_engine_emits_the_documented_subagent_events(open_retinue, vault, workplace):
    (workplace / "kettle.py").write_text('"""Boils water."""\n\n\ndef boil(water):\n    return water\n')
    async with open_retinue("offline") as retinue:
        await check_contract(retinue, vault, "explorer", "Where is water boiled?")


@pytest.mark.parametrize("api", API_MODELS)
@pytest.mark.parametrize(
    ("steps", "fails"),
    [
        ([{"text": "I look.", "tool": "ls", "args": {}}, {"text": "Done."}], False),
        ([{"text": "I look.", "tool": "ls", "args": {}}, {"fail": {"status": 401, "times": -1}}], True),
    ],
    ids=["answers", "fails"],
)
async def test_api_engine_emits_the_documented_subagent_events(open_retinue, vault, scratch_home, api, steps, fails):
    async with ModelServer() as server:
        environ = {"HOME": str(scratch_home), **api_environment(server.url)}
        async with open_retinue("api", environ=environ, settings={"model": API_MODELS[api]}) as retinue:
            await check_contract(retinue, vault, "explorer", script64(steps), fails=fails)


@pytest.mark.process
@pytest.mark.parametrize("version", [None, "0.80.0"], ids=["conversing", "once"])
@pytest.mark.parametrize(
    ("deeds", "fails"),
    [
        (
            [fake_pi.action("call", "read", {"path": "x"}, returns="x"), fake_pi.action("say", "Done.", deltas=3)],
            False,
        ),
        ([fake_pi.action("call", "read"), fake_pi.action("fail", "400 bad request")], True),
        ([fake_pi.action("say", "Half."), fake_pi.action("call", "read"), fake_pi.action("die", "SEGV")], True),
    ],
    ids=["answers", "fails", "dies"],
)
async def test_pi_engine_emits_the_documented_subagent_events(
    open_retinue, vault, scratch_home, version, deeds, fails
):
    fake_pi.install_fake_pi(scratch_home / "bin", version=version)
    async with open_retinue("pi", environ=environment(scratch_home)) as retinue:
        await check_contract(retinue, vault, "explorer", fake_pi.encode_script(*deeds), fails=fails)


async def test_run_that_never_started_emits_subagent_events(open_retinue, vault):
    async with open_retinue("scripted", reply("done")) as retinue:
        await check_contract(retinue, vault, "nobody", "Do it.", fails=True)


# -- the fields ------------------------------------------------------------------------------------

ORIGIN = EventSource(run="r1", session="s1", root="c1", parent_run="r0", parent_tool_use_id="toolu_1", depth=2)


def convert_event(event):
    return to_subagent_event(EventRecord(ORIGIN, 1, 0.0, event))


def test_start_event_has_exactly_the_documented_fields():
    queued = RunQueued(name="A scout", agent="scout", task="Look.", cwd="/", surface="nested", vault="/vault")
    assert convert_event(queued) == SubagentStart(
        subagent_id="r1", parent_tool_use_id="toolu_1", agent="scout", prompt="Look.", root_conversation_id="c1"
    )


@pytest.mark.parametrize(
    ("ended", "result", "is_error"),
    [
        (RunEnded(text="It is X.", answer=AnswerStatus.FINAL), "It is X.", False),
        (RunEnded(failure=Failure(ErrorCode.TIMEOUT, "Too late.")), "Too late.", True),
        (
            RunEnded(text="Half.", answer=AnswerStatus.PARTIAL, failure=Failure(ErrorCode.TIMEOUT, "Too late.")),
            "Too late.\n\nHalf.",
            True,
        ),
        (
            RunEnded(
                text="(ran: ls)", answer=AnswerStatus.DIAGNOSIS, failure=Failure(ErrorCode.TIMEOUT, "Too late.")
            ),
            "Too late.",
            True,
        ),
    ],
    ids=["answered", "failed", "failed with text", "failed with a diagnosis"],
)
def test_complete_event_has_exactly_the_documented_fields(ended, result, is_error):
    assert convert_event(ended) == SubagentComplete(
        subagent_id="r1", parent_tool_use_id="toolu_1", result=result, is_error=is_error
    )


def test_ordinary_events_are_not_subagent_events():
    assert convert_event(Text("I look.")) is None


@pytest.mark.parametrize("empty", [{"root": ""}, {"parent_call": ""}, {"root": "\ud800"}, {"parent_call": "a\nb"}])
def test_subagent_id_is_never_empty_or_unprintable(empty):
    with pytest.raises(ValueError, match="printable and not empty"):
        Lineage(**{"root": "r", "parent_call": "c", **empty})


# -- child runs ----------------------------------------------------------------------------------


async def test_child_run_events_name_the_call_that_started_them(open_retinue, vault):
    """A run starts the next one by a tool call of its own, up to the maximum depth."""
    refusals: list[str] = []

    def script(spec: RunSpec):
        depth = spec.lineage.depth

        async def delegate() -> None:
            line = structs.replace(spec.lineage, parent_call=f"toolu_{depth}", parent_run=spec.run)
            caller = structs.replace(retinue.call("nested"), lineage=line, authority=spec.authority)
            result = await retinue.toolset("nested").handlers[SPAWN](
                {"agent": "worker", "task": f"Level {depth + 1}"}, caller, None
            )
            if "error" in result.details:
                refusals.append(result.text)

        return [RunCallback(delegate), reply(f"done {depth}")]

    async with open_retinue("scripted", script) as retinue:
        caller = retinue.call("nested", parent_call="toolu_0")
        await retinue.toolset("nested").handlers[SPAWN]({"agent": "worker", "task": "Level 1"}, caller, None)
    starts = [event for event in log(vault) if event["type"] == "subagentStart"]
    assert [(event["prompt"], event["parentToolUseId"]) for event in starts] == [
        ("Level 1", "toolu_0"),
        ("Level 2", "toolu_1"),
        ("Level 3", "toolu_2"),
    ]
    assert {event["rootConversationId"] for event in starts} == {ROOT}
    completes = [event for event in log(vault) if event["type"] == "subagentComplete"]
    assert [event["subagentId"] for event in completes] == [event["subagentId"] for event in reversed(starts)]
    assert refusals == ["Subagent depth exceeded (3/3). Nested subagents are not allowed."]


async def test_child_runs_get_no_tool_their_parent_lacks(open_retinue):
    """Authority only shrinks: a child of a run that may read cannot run commands."""
    grants = {}

    def script(spec: RunSpec):
        grants[spec.task] = (spec.grant.tools, [(removed.tool, removed.by) for removed in spec.grant.removed])
        authority = spec.authority

        async def delegate() -> None:
            line = structs.replace(spec.lineage, parent_call="toolu_1", parent_run=spec.run)
            caller = structs.replace(retinue.call("nested"), lineage=line, authority=authority)
            await retinue.toolset("nested").handlers[SPAWN]({"agent": "worker", "task": "inner"}, caller, None)

        return [RunCallback(delegate), reply("done")] if spec.task == "outer" else [reply("done")]

    async with open_retinue("scripted", script) as retinue:
        await retinue.toolset("nested").handlers[SPAWN](
            {"agent": "explorer", "task": "outer"}, retinue.call("nested"), None
        )
    assert "bash" not in grants["outer"][0]
    assert grants["inner"] == (("read",), [("bash", "authority")])


# -- attempts --------------------------------------------------------------------------------------


async def test_run_with_a_model_fallback_has_one_start_and_one_complete(open_retinue, vault):
    def script(spec: RunSpec):
        return [fail("429 rate limit exceeded")] if spec.model == "big" else [reply("small did it")]

    async with open_retinue("scripted", script) as retinue:
        caller = retinue.call("nested", parent_call="toolu_1")
        result = await retinue.toolset("nested").handlers[SPAWN]({"agent": "worker", "task": "Do it."}, caller, None)
        (one,) = result.details["results"]
        (session,) = await retinue.sessions()
        end = [stamped.event async for stamped in retinue.history(one["subagentId"])][-1]
    assert [event["type"] for event in log(vault)] == ["subagentStart", "subagentComplete"]
    assert (result.text, session.runs) == ("small did it", 1)
    assert (end.actual.declared_model, end.actual.model) == ("big", "small")
    assert [(attempt.reason, attempt.model) for attempt in end.actual.attempts] == [
        ("first", "big"),
        ("fallback", "small"),
    ]
    assert end.actual.attempts[0].failure.reason == "rate_limit"


@pytest.mark.process
async def test_pi_falls_back_to_another_model_except_for_context_overflow(open_retinue, scratch_home):
    fake_pi.install_fake_pi(scratch_home / "bin")
    async with open_retinue("pi", environ=environment(scratch_home)) as retinue:
        limited, too_long = await retinue.run_plan(
            Plan(
                tasks=(
                    task(fake_pi.action("fail", "429 rate limit exceeded"), agent="worker"),
                    task(fake_pi.action("fail", "prompt is too long: 210000 tokens > 200000"), agent="worker"),
                ),
                mode=Mode.PARALLEL,
            ),
            retinue.call("nested"),
        )
    assert [(attempt.reason, attempt.model) for attempt in limited.actual.attempts] == [
        ("first", "big"),
        ("fallback", "small"),
    ]
    assert [attempt.reason for attempt in too_long.actual.attempts] == ["first"]
    assert too_long.failure and too_long.failure.reason == "context_overflow"


# -- the vault's log -------------------------------------------------------------------------------


async def test_events_are_available_but_not_logged_without_a_vault(open_retinue, vault, tmp_path):
    async with open_retinue("scripted", reply("done"), settings={"vault": None}) as retinue:
        await retinue.run("worker", "Do it.")
        stored = [to_subagent_event(stamped) async for stamped in retinue.root_history(ROOT)]
    assert list(vault.iterdir()) == []
    assert [type(event) for event in stored if event] == [SubagentStart, SubagentComplete]


async def test_missing_vault_is_not_created_and_noted_by_the_run(open_retinue, tmp_path):
    missing = str(tmp_path / "nowhere")
    async with open_retinue("scripted", reply("done"), settings={"vault": missing}) as retinue:
        result = await retinue.run("worker", "Do it.")
    notice = f"The vault {missing} is not a folder: no agents are read from it and no events are written to it."
    assert (result.failure, result.actual.notices) == (None, (notice,))
    assert not Path(missing).exists()


async def test_unwritable_vault_fails_no_run(open_retinue, vault, caplog):
    (vault / ".orion").write_text("a file where a folder should be")
    async with open_retinue("scripted", reply("done")) as retinue:
        results = [await retinue.run("worker", f"Do it. {number}") for number in range(3)]
    assert [result.failure for result in results] == [None, None, None]
    assert "Events are missing from" in caplog.text


async def test_vault_log_stays_within_its_limit_with_complete_records(workplace, tmp_path, vault):
    """The log of a conversation is bounded."""
    bounds = WriterLimits(log_bytes=4096, log_files=8)
    cap, written = bounds.log_bytes * bounds.log_files, 0
    retinue = Retinue(
        cwd=workplace,
        engine="scripted",
        engines=scripted(ScriptedEngine(reply("é" * 700))),
        store=(store := JsonlStore(tmp_path / "state", limits=bounds)),
        root="c1",
        settings={"vault": str(vault)},
    )
    async with store, retinue:
        while written < 10 * cap:
            result = await retinue.run("explorer", "x" * 1000)
            written += len(result.text.encode()) + 1000
    folder = vault / ".orion" / "subagent-events" / "c1"
    files = sorted(folder.glob("*.jsonl"))
    assert len(files) == 8
    assert all(path.stat().st_size <= bounds.log_bytes for path in files)
    records = log(vault, "c1")
    assert records[-1]["subagentId"] == result.run, "the newest is kept"
    starts = [event["subagentId"] for event in records if event["type"] == "subagentStart"]
    ends = [event["subagentId"] for event in records if event["type"] == "subagentComplete"]
    assert ends[-len(starts) :] == starts, "nothing is missing between the oldest that is kept and the newest"


def test_vault_log_has_8_files_of_16_mib():
    assert (WriterLimits().log_bytes, WriterLimits().log_files) == (16 * 2**20, 8)


async def test_cancelled_call_has_a_complete_for_every_start(open_retinue, vault):
    async with open_retinue("scripted", HangStep()) as retinue, anyio.create_task_group() as group:
        tasks = [{"agent": "worker", "task": f"Task {number}"} for number in range(6)]
        caller = retinue.call("nested")
        group.start_soon(
            retinue.toolset("nested").handlers[SPAWN], {"mode": "parallel", "tasks": tasks}, caller, None
        )
        async with retinue.events() as events:
            async for _ in events:
                if len(retinue._orchestrator.active_run_ids) == len(tasks):
                    break
        group.cancel_scope.cancel()
    types = [event["type"] for event in log(vault)]
    assert types.count("subagentStart") == types.count("subagentComplete") == 6
