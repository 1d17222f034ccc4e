"""The scripted engine plays steps from Python and from script files."""

import json
import os
from pathlib import Path

import anyio
import pytest

from retinue.engines import scripted
from retinue.engines.base import RUN_NOT_ACTIVE, EngineError, engine_error
from retinue.engines.scripted import FailEngine, RunCallback, ScriptedEngine, WaitStep, call, fail, finalize, reply
from retinue.model.agents import AgentProfile
from retinue.model.events import (
    Finalized,
    MessageEnded,
    Notice,
    SteeringDelivered,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage
from retinue.testing.engines import make_run_spec, record_run

TURN = Usage(turns=1)


def message_ended(reason, **more):
    return MessageEnded(stop_reason=reason, model="scripted", usage=TURN, **more)


async def test_steps_are_played_as_events(tmp_path):
    engine = ScriptedEngine(
        Notice("storage", "slow disk"),
        call("read", path="x", returns="text"),
        call("bash", returns="no", is_error=True),
        reply("{agent}: {task}", deltas=2),
    )
    assert await record_run(engine, make_run_spec(tmp_path, task="Go.")) == [
        Notice("storage", "slow disk"),
        ToolCalled("01234567-1", "read", {"path": "x"}),
        message_ended("tool_use"),
        ToolReturned("01234567-1", "read", "text"),
        ToolCalled("01234567-2", "bash", {}),
        message_ended("tool_use"),
        ToolReturned("01234567-2", "bash", "no", is_error=True),
        TextDelta("subjec"),
        TextDelta("t: Go."),
        Text("subject: Go."),
        message_ended("stop"),
    ]


async def test_message_names_the_requested_model(tmp_path):
    events = await record_run(ScriptedEngine(reply("hi")), make_run_spec(tmp_path, model="big"))
    assert events[-1] == MessageEnded(stop_reason="stop", model="big", usage=TURN)


async def test_failures_are_played(tmp_path):
    assert await record_run(ScriptedEngine(fail("429 rate limit")), make_run_spec(tmp_path)) == [
        message_ended("error", error="429 rate limit")
    ]
    with pytest.raises(EngineError, match="It broke"):
        await record_run(ScriptedEngine(FailEngine(engine_error("It broke."))), make_run_spec(tmp_path))


async def test_finalization_is_a_tool_call_and_an_event(tmp_path):
    assert await record_run(ScriptedEngine(finalize("half", error="no disk")), make_run_spec(tmp_path)) == [
        ToolCalled("01234567-1", "subagent_finalize", {"status": "ERROR", "result": "half", "error": "no disk"}),
        message_ended("tool_use"),
        ToolReturned("01234567-1", "subagent_finalize", "finalized"),
        Finalized(Finalization("ERROR", "half", "no disk")),
    ]


async def test_run_after_the_last_script_fails(tmp_path):
    engine = ScriptedEngine.from_scripts([reply("one")], [reply("two")])
    spec = make_run_spec(tmp_path)
    assert (await record_run(engine, spec))[0] == Text("one")
    assert (await record_run(engine, spec))[0] == Text("two")
    with pytest.raises(EngineError, match="has 2 runs and no more"):
        await record_run(engine, spec)


async def test_function_returns_the_script_of_a_run(tmp_path):
    engine = ScriptedEngine(lambda spec: [reply(spec.cwd)])
    assert (await record_run(engine, make_run_spec(tmp_path)))[0] == Text(str(tmp_path))


def test_function_together_with_steps_is_refused():
    with pytest.raises(TypeError):
        ScriptedEngine(lambda _: [], reply("hi"))


class TestTime:
    @pytest.fixture
    def anyio_backend(self):
        from trio.testing import MockClock

        return "trio", {"clock": MockClock(autojump_threshold=0)}

    async def test_wait_step_takes_no_time_on_a_mock_clock(self, tmp_path):
        started = anyio.current_time()
        await record_run(ScriptedEngine(WaitStep(3600), reply("made it")), make_run_spec(tmp_path))
        assert anyio.current_time() - started == 3600


async def test_callback_runs_between_steps(tmp_path):
    calls = []

    async def act():
        calls.append("acted")

    await record_run(ScriptedEngine(RunCallback(act), reply("hi")), make_run_spec(tmp_path))
    assert calls == ["acted"]


async def test_steering_messages_are_delivered_before_the_next_step(tmp_path):
    engine = scripted.parse_script(
        b'{"steps": [{"call": "ls"}, {"hear": true}, {"say": "I heard: {steer}"}]}', name="x"
    )
    spec, events, has_called = make_run_spec(tmp_path), [], anyio.Event()

    async def emit(event):
        events.append(event)
        if isinstance(event, ToolReturned):
            has_called.set()

    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, spec, emit)
        await has_called.wait()
        assert await engine.steer(spec.run, "one") is None
        assert await engine.steer(spec.run, "two") is None
    assert events[-4:] == [
        SteeringDelivered("one"),
        SteeringDelivered("two"),
        Text("I heard: two"),
        message_ended("stop"),
    ]
    assert await engine.steer(spec.run, "three") == RUN_NOT_ACTIVE


STEPS = [
    {"say": "{task}", "deltas": 0},
    {"call": "read", "args": {"path": "x", "returns": "y"}, "returns": "text", "isError": True},
    {"event": {"type": "notice", "code": "x", "message": "y"}},
    {"wait": 0},
    {"finalize": "all"},
    {"fail": "500"},
]
PLAYED = [
    Text("Answer."),
    message_ended("stop"),
    ToolCalled("01234567-1", "read", {"path": "x", "returns": "y"}),
    message_ended("tool_use"),
    ToolReturned("01234567-1", "read", "text", is_error=True),
    Notice("x", "y"),
    ToolCalled("01234567-2", "subagent_finalize", {"status": "SUCCESS", "result": "all"}),
    message_ended("tool_use"),
    ToolReturned("01234567-2", "subagent_finalize", "finalized"),
    Finalized(Finalization("SUCCESS", "all")),
    message_ended("error", error="500"),
]


async def test_script_file_plays_the_same_events(tmp_path):
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"steps": STEPS}))
    assert await record_run(scripted.load_script(file), make_run_spec(tmp_path)) == PLAYED


async def test_script_is_read_from_the_environment_variable(tmp_path):
    engine = scripted.from_environment({"RETINUE_SCRIPT": json.dumps({"steps": STEPS})})
    assert await record_run(engine, make_run_spec(tmp_path)) == PLAYED


async def test_toml_file_has_scripts_by_run_and_by_agent(tmp_path):
    file = tmp_path / "script.toml"
    file.write_text('runs = [[{say = "one"}], [{say = "two"}]]\n[[agents.scout]]\nsay = "scouted"\n')
    engine = scripted.from_environment({"RETINUE_SCRIPT": str(file)})
    spec = make_run_spec(tmp_path)
    scout = make_run_spec(tmp_path, agent=AgentProfile(name="scout"))
    texts = [(await record_run(engine, each))[0] for each in (spec, scout, spec, scout)]
    assert texts == [Text("one"), Text("scouted"), Text("two"), Text("scouted")]


async def test_without_a_script_a_default_answer_is_given(tmp_path):
    engine = scripted.from_environment({})
    assert Text("A scripted answer of subject to: Answer.") in await record_run(engine, make_run_spec(tmp_path))
    finalized = await record_run(engine, make_run_spec(tmp_path, finalize=True))
    assert finalized[-1] == Finalized(Finalization("SUCCESS", "A scripted answer of subject to: Answer."))


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("{", "RETINUE_SCRIPT is not a valid script: Input data was truncated."),
        ('{"stpes": []}', "RETINUE_SCRIPT is not a valid script: Object contains unknown field `stpes`."),
        ('{"steps": [{"say": 3}]}', "RETINUE_SCRIPT is not a valid script: Expected `str | null`, got `int`"),
        ('{"steps": [{}]}', "RETINUE_SCRIPT is not a valid script: a step needs exactly one of"),
        (
            '{"steps": [{"say": "a", "hang": true}]}',
            "RETINUE_SCRIPT is not a valid script: a step needs exactly one of",
        ),
        ("/nowhere/script.json", "Cannot read the script /nowhere/script.json: No such file or directory."),
    ],
)
def test_invalid_script_is_an_error_with_the_reason(script, complaint):
    with pytest.raises(EngineError) as caught:
        scripted.from_environment({"RETINUE_SCRIPT": script})
    assert caught.value.failure.message.startswith(complaint)


@pytest.mark.parametrize("content", [b"\xff", b"{" * 5000, b'{"steps":' + b"[" * 5000, b"[1]"])
def test_malformed_script_file_is_an_error(tmp_path, content):
    path = tmp_path / "script.json"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="is not a valid script"):
        scripted.load_script(path)


@pytest.mark.parametrize("kind", ["missing", "fifo", "folder", "device"])
def test_script_path_that_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = Path("/dev/zero") if kind == "device" else tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(EngineError, match="Cannot read the script"):
        scripted.load_script(path)
