"""Tests of the unused settings, keys and codes that the reference pages list."""

import pytest
from docs._generate.reference import page
from docs._generate.texts import UNUSED
from docs._generate.usage import unreported_codes, unused_agent_fields, unused_settings
from msgspec import structs
from tests.support.retinue_factory import plan_of, scripted, stage

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import Script, ScriptedEngine, reply
from retinue.model.results import Usage
from retinue.model.runs import RunSpec
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore


async def plan_run(home, **fields) -> RunSpec:
    """Plan a task for an agent with these fields and return the spec of its run."""
    agent = Agent(name="scout", tools=("read",), **fields)
    async with stage(home, reply("ok"), agents=[agent]) as retinue:
        plan = Plan(tasks=(Task(agent="scout", prompt="Look."),))
        (one,) = await plan_of(retinue, plan, retinue.call("fanout"))
    return one.spec


def test_unused_settings_keys_and_codes_are_found_in_the_sources():
    assert unused_agent_fields() == {"output", "default_progress", "color", "avatar_emoji"}
    assert unused_settings() == set()
    assert unreported_codes() == set()


def test_agent_keys_page_marks_exactly_the_unused_keys():
    marked = {line.split("`")[1] for line in page("agent-keys.md").splitlines() if line.endswith(f"{UNUSED} |")}
    assert marked == unused_agent_fields()
    assert "without effect" not in page("settings.md")
    assert "Reserved" not in page("failures.md")


@pytest.mark.parametrize("field", ["avatar_emoji", "color", "output"])
async def test_unused_agent_key_changes_nothing_of_a_run(scratch_home, field):
    plain, changed = await plan_run(scratch_home), await plan_run(scratch_home, **{field: "x"})
    # Preferences that are not applied are named.
    same = {"run": "", "session": "", "lineage": plain.lineage, "agent": plain.agent, "unsupported_preferences": ()}
    assert structs.replace(changed, **same) == structs.replace(plain, **same)


async def test_default_reads_and_environment_reach_the_run(scratch_home):
    (scratch_home / "NOTES.md").write_text("Mind the gap.\n")
    specs: list[RunSpec] = []

    def record_spec(spec: RunSpec) -> Script:
        specs.append(spec)
        return (reply("ok"),)

    agent = Agent(name="scout", tools=("read",), default_reads=("NOTES.md",), environment=("PROJECT_MODE",))
    retinue = Retinue(
        cwd=scratch_home,
        environ={"HOME": str(scratch_home), "PROJECT_MODE": "fast", "OTHER": "x"},
        store=MemoryStore(),
        engine="scripted",
        engines=scripted(ScriptedEngine(record_spec)),
        agents=[agent],
    )
    async with retinue:
        await retinue.run("scout", "Look.")
    (spec,) = specs
    assert spec.prompt == "=== NOTES.md ===\nMind the gap.\n\nLook."
    assert (spec.environment.get("PROJECT_MODE"), spec.environment.get("OTHER")) == ("fast", None)


@pytest.mark.parametrize("retries", [0, 1])
async def test_finalize_retries_sets_how_often_a_missing_finalization_is_asked_for(scratch_home, retries):
    async with stage(scratch_home, reply("no call"), settings={"finalize_retries": retries}) as retinue:
        call = structs.replace(retinue.call("sticky"), finalize=True)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="explorer", prompt="x"),)), call)
    assert (result.usage, len(result.actual.attempts)) == (Usage(turns=retries + 1), retries + 1)
