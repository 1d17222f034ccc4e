"""The sandbox of a run: the strictest of what user, caller, agent and project ask for, and what its result reports."""

import msgspec
import pytest
from msgspec import structs
from tests.support.retinue_factory import plan_of, scripted, stage

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, reply, spawn
from retinue.model.errors import ErrorCode
from retinue.model.events import RunEnded
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport
from retinue.model.tasks import Plan, Task

WORKSPACE = SandboxReport(mode=SandboxMode.WORKSPACE, mechanism=SandboxMechanism.IN_PROCESS)
STRICT = SandboxReport(mode=SandboxMode.STRICT, mechanism=SandboxMechanism.IN_PROCESS)
CAREFUL = Agent(name="careful", body="You work.", sandbox=SandboxMode.STRICT)
LAX = Agent(name="lax", body="You work.", sandbox=SandboxMode.OFF)


@pytest.mark.parametrize(
    ("agent", "setting", "expected"),
    [
        (None, None, SandboxReport()),
        (None, "workspace", WORKSPACE),
        ("careful", None, STRICT),
        ("careful", "workspace", STRICT),
        ("lax", "workspace", WORKSPACE),
    ],
)
async def test_agent_can_only_tighten_the_sandbox(tmp_path, agent, setting, expected):
    async with stage(tmp_path, reply("Done."), agents=[CAREFUL, LAX]) as retinue:
        result = await retinue.run(agent, "Work.", sandbox=setting)
    assert (result.failure, result.actual.sandbox) == (None, expected)


async def test_result_as_json_states_the_sandbox_even_where_there_is_none(tmp_path):
    async with stage(tmp_path, reply("Done.")) as retinue:
        result = await retinue.run(None, "Work.")
    assert msgspec.to_builtins(result.actual)["sandbox"] == {"mode": "off", "mechanism": "none", "gaps": ()}


async def test_run_on_an_engine_that_cannot_confine_it_fails(tmp_path):
    engines = scripted(ScriptedEngine(reply("Done.")), structs.replace(CAPABILITIES, confines=False))
    async with stage(tmp_path, engines=engines) as retinue:
        result = await retinue.run(None, "Work.", sandbox="workspace")
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "restriction")
    assert 'The engine "scripted" cannot confine its runs' in result.failure.message


async def test_strict_without_bubblewrap_fails_and_names_it(tmp_path):
    engines = scripted(ScriptedEngine(reply("Done.")), structs.replace(CAPABILITIES, runs_program=True))
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    async with Retinue(cwd=tmp_path, environ=environ, engine="scripted", engines=engines) as retinue:
        result = await retinue.run(None, "Work.", sandbox="strict")
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "sandbox_unavailable")
    assert "needs bubblewrap, and bwrap is not on the PATH. Nothing was started. Install" in result.failure.message


async def test_child_run_cannot_loosen_the_sandbox_of_its_parent(tmp_path):
    lead = Agent(name="lead", body="You lead.", tools=("read", "subagent"), sandbox=SandboxMode.STRICT)

    def play(spec):
        return [spawn("lax", "Work."), reply("Done.")] if spec.agent.name == "lead" else [reply("Worked.")]

    async with stage(tmp_path, play, agents=[lead, LAX]) as retinue, retinue.events(deltas=False) as watcher:
        await retinue.run("lead", "Lead.", max_depth=2)
        ends = [record.event for record in watcher.drain() if isinstance(record.event, RunEnded)]
    assert [end.actual.sandbox for end in ends] == [STRICT, STRICT]


async def test_sandboxed_run_cannot_delegate_to_another_directory(tmp_path):
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
    lead = Agent(name="lead", body="You lead.", tools=("read", "subagent"))
    async with stage(tmp_path, reply("Done."), agents=[lead]) as retinue:
        call = structs.replace(retinue.call("nested", sandbox="workspace"), cwd=str(tmp_path / "work"))
        (planned,) = await plan_of(retinue, Plan(tasks=(Task(agent="lead", prompt="Lead."),)), call)
        assert planned.child_context
        task = Task(agent="lead", prompt="Work.", cwd=str(tmp_path / "other"))
        (child,) = await plan_of(retinue, Plan(tasks=(task,)), planned.child_context)
    assert child.failure
    assert child.failure.message.startswith(f"cwd is outside of {tmp_path}/work: {tmp_path}/other.")
