"""How one task of `fanout` fails while the others go on: profiles, skills, directories, limits, engines."""

from __future__ import annotations

import json

import anyio
import pytest
from msgspec import structs

from retinue.agents.agent import Agent
from retinue.engines.base import engine_error
from retinue.engines.scripted import FailEngine, HangStep, WaitStep, call, fail, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import ProcessEnded
from retinue.model.results import ProcessEnd

OTHER = {"name": "other", "prompt": "x"}


async def failing(fanout, task, *script, **options):
    """The window of a task that fails beside one that completes."""
    scripts = {"other": [reply("fine")]}
    async with fanout(lambda spec: scripts.get(spec.name, script), **options) as host:
        result = await host.delegate({"name": "a", "prompt": "x", **task}, OTHER)
        window, other = result.details["windows"]
        stored = await host.retinue.session(window["sessionId"])
    assert other["status"] == "completed"
    assert window["status"] == "error"
    assert stored.latest.state == "error"
    assert result.text.splitlines()[0].startswith(
        f"✗ a: error — {' '.join(window['errorMessage'].split())} (session: "
    )
    assert not result.is_error
    return window


async def message(fanout, task, *script, **options):
    return (await failing(fanout, task, *script, **options))["errorMessage"]


# -- profiles and skills ---------------------------------------------------------------------------


async def test_an_unknown_profile_fails_its_task_alone_and_tells_which_there_are(fanout):
    agents = [Agent(name="writer"), Agent(name="researcher")]
    window = await failing(fanout, {"profile": "code-reviewer"}, agents=agents)
    assert window["errorMessage"] == 'Unknown profile: "code-reviewer". Available profiles: researcher, writer'
    assert (window["exitCode"], window["profileName"], window["profileInfo"]) == (1, "code-reviewer", None)


async def test_where_there_are_no_profiles_it_says_none(fanout):
    assert await message(fanout, {"profile": "code-reviewer"}) == (
        'Unknown profile: "code-reviewer". Available profiles: (none)'
    )


async def test_an_unknown_default_profile_fails_each_task_without_its_own(fanout):
    async with fanout(reply("done"), agents=[Agent(name="writer")]) as host:
        result = await host.delegate({**OTHER, "profile": "writer"}, OTHER, profile="nobody")
    assert [window["status"] for window in result.details["windows"]] == ["completed", "error"]
    assert [spec.agent.name for spec in host.specs] == ["writer"]


async def test_built_in_agents_can_be_called_though_they_are_no_profiles(fanout):
    async with fanout(reply("done")) as host:
        result = await host.delegate({**OTHER, "profile": "explorer"})
    assert result.text.startswith("✓ other: completed")


async def test_a_projects_profile_that_is_not_trusted_fails_its_task_alone(fanout, workplace, agent_file):
    agent_file(workplace / ".pi" / "agent-profiles", "deployer", "tools: bash")
    assert "`retinue agents trust deployer`" in await message(fanout, {"profile": "deployer"})


@pytest.fixture
def skills(scratch_home):
    for name in ("skill-a", "skill-b"):
        folder = scratch_home / ".pi" / "agent" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nDo {name}.\n")


@pytest.mark.parametrize("field", ["suggested_skills", "load_skills"])
async def test_an_unknown_skill_fails_its_task_alone(fanout, skills, field):
    profile = structs.replace(Agent(name="learner"), **{field: ("bad-name",)})
    assert await message(fanout, {"profile": "learner"}, agents=[profile]) == (
        'Unknown skills: "bad-name". Available skills: skill-a, skill-b'
    )


async def test_skills_of_the_user_and_of_the_project_are_suggested_or_loaded(fanout, skills, workplace):
    own = workplace / ".pi" / "skills" / "local"
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text("---\nname: local\ndescription: The project's.\n---\nDo it here.\n")
    profile = Agent(name="learner", tools=("read",), suggested_skills=("skill-a", "local"), load_skills=("skill-b",))
    profile = structs.replace(profile, append_system_prompt="Be brief.")
    async with fanout(reply("done"), agents=[profile]) as host:
        await host.delegate({**OTHER, "profile": "learner"})
    told = host.specs[0].append_prompt
    assert told.startswith('Be brief.\n\n<loaded_skill name="skill-b" folder="')
    assert "\nDo skill-b.\n</loaded_skill>" in told
    assert f"- local: The project's. ({own / 'SKILL.md'})" in told
    assert "- skill-a: About skill-a. (" in told
    assert "Do skill-a." not in told


async def test_skills_are_looked_for_once_in_a_call(fanout, scratch_home):
    """A skill that comes while the call is planned is not found by its later tasks: all see the same shelf."""
    from retinue.agents.skills import SkillRegistry

    shelf = SkillRegistry({"HOME": str(scratch_home)})
    first = shelf.for_directory(scratch_home)
    (scratch_home / ".pi" / "agent" / "skills").mkdir(parents=True)
    (scratch_home / ".pi" / "agent" / "skills" / "late.md").write_text("---\ndescription: Late.\n---\nx\n")
    assert shelf.for_directory(scratch_home) is first


# -- directories -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "told"),
    [
        ("src", "cwd must be an absolute path"),
        ("./", "cwd must be an absolute path"),
        ("~", "cwd must be an absolute path"),
        ("/tmp/../etc", "cwd must not contain '..' path segments"),
        ("/tmp/..", "cwd must not contain '..' path segments"),
        ("/nonexistent/a..b", "cwd does not exist: /nonexistent/a..b. Create it, or name another."),
    ],
)
async def test_a_directory_that_cannot_be_used_fails_its_task_alone(fanout, cwd, told):
    assert await message(fanout, {"cwd": cwd}) == told


# -- limits ----------------------------------------------------------------------------------------


async def test_timeout_of_a_task_names_its_limit_and_how_long_the_run_took(fanout):
    window = await failing(fanout, {"timeout": 120}, HangStep())
    timed_out = "Timed out after 120s. Consider resuming with a longer timeout."
    assert window["errorMessage"] == f"{timed_out} The run took 150s."
    assert (window["exitCode"], window["timeout"]) == (124, 120)


async def test_a_task_has_ten_minutes_unless_it_says_otherwise(fanout):
    timed_out = "Timed out after 600s. Consider resuming with a longer timeout."
    assert await message(fanout, {}, HangStep()) == f"{timed_out} The run took 630s."


async def test_one_task_that_times_out_takes_no_time_from_another(fanout):
    scripts = {"slow": [HangStep()], "steady": [WaitStep(500), reply("made it")]}
    tasks = [{"name": "slow", "prompt": "x", "timeout": 5}, {"name": "steady", "prompt": "x"}]
    async with fanout(lambda spec: scripts[spec.name]) as host:
        result = await host.delegate(*tasks)
    assert [window["status"] for window in result.details["windows"]] == ["error", "completed"]


async def ended_after(fanout, *script, **options):
    """Seconds a task of a timeout of 100 s was at work, and what became of it."""
    async with fanout(*script, **options) as host:
        started = anyio.current_time()
        (window,) = (await host.delegate({**OTHER, "timeout": 100})).details["windows"]
        return anyio.current_time() - started, window["status"], window["timeout"]


async def test_at_the_timeout_an_idle_timer_begins_and_each_tool_call_winds_it_up(fanout):
    at_work = (
        WaitStep(125),
        call("read", path="1"),
        WaitStep(25),
        call("read", path="2"),
        WaitStep(25),
        reply("made it"),
    )
    assert await ended_after(fanout, *at_work) == (pytest.approx(175, abs=1), "completed", 100)
    assert await ended_after(fanout, *at_work[:4], HangStep()) == (pytest.approx(180, abs=1), "error", 100)
    assert await ended_after(fanout, HangStep()) == (pytest.approx(130, abs=1), "error", 100)


async def test_tool_calls_do_not_buy_time_for_ever(fanout):
    calls = [step for number in range(100) for step in (WaitStep(20), call("read", path=str(number)))]
    assert await ended_after(fanout, *calls) == (pytest.approx(400, abs=1), "error", 100)


@pytest.fixture
def pi_settings(scratch_home, workplace):
    """Writes the settings files of the seed: `pi_settings(user={…}, project={…})`."""
    places = {"user": scratch_home / ".pi" / "agent", "project": workplace / ".pi"}

    def write(**subagents):
        for name, values in subagents.items():
            places[name].mkdir(parents=True, exist_ok=True)
            (places[name] / "settings.json").write_text(json.dumps({"theme": "dark", "subagents": values}))

    return write


@pytest.mark.parametrize(
    ("user", "project", "ended"),
    [(60, None, 160), (60, 10, 110), (0, None, 100), (999, None, 400), (-5, None, 100), ("soon", None, 130)],
    ids=["the user's", "the project's before it", "hard", "at most 300", "at least 0", "not a number"],
)
async def test_the_idle_timer_is_set_in_the_files_of_the_seed(fanout, pi_settings, user, project, ended):
    pi_settings(user={"extend_timeout_debounce": user})
    if project is not None:
        pi_settings(project={"extend_timeout_debounce": project})
    assert await ended_after(fanout, HangStep()) == (pytest.approx(ended, abs=1), "error", 100)


async def test_a_project_may_not_give_itself_more_time(fanout, pi_settings):
    pi_settings(user={"extend_timeout_debounce": 5}, project={"extend_timeout_debounce": 300})
    assert (await ended_after(fanout, HangStep()))[0] == pytest.approx(105, abs=1)


async def test_the_lines_of_a_window_are_set_there_too(fanout, pi_settings):
    pi_settings(user={"maxLinesPerWindow": 5}, project={"maxLinesPerWindow": 7})
    async with fanout(reply("done")) as host:
        assert (await host.delegate("a")).details["maxLinesPerWindow"] == 7


# -- loops -----------------------------------------------------------------------------------------

LOOP = "Loop detected: sub-agent is repeating the same tool calls"


def repeated(times, **args):
    return [*(call("edit", path="x", **args) for _ in range(times)), reply("done")]


async def test_five_identical_calls_in_a_row_are_a_loop(fanout):
    window = await failing(fanout, {}, *repeated(9))
    assert (window["errorMessage"], window["toolCount"]) == (LOOP, 5)


async def test_calls_that_differ_deep_inside_are_no_loop(fanout):
    calls = [call("edit", path="x", edits=[{"oldText": str(n), "newText": "y"}]) for n in range(9)]
    async with fanout(*calls, reply("done")) as host:
        result = await host.delegate("a")
    assert result.text.startswith("✓ a: completed")


@pytest.mark.parametrize(
    ("user", "project", "most"),
    [(3, None, 3), (8, 3, 3), (0, None, None), (99, None, None), (3, 8, 3)],
    ids=["the user's", "the project's before it", "off", "at most 50", "a project may not loosen it"],
)
async def test_how_many_are_a_loop_is_set_in_the_files_of_the_seed(fanout, pi_settings, user, project, most):
    pi_settings(user={"looping_tool_count": user})
    if project is not None:
        pi_settings(project={"looping_tool_count": project})
    async with fanout(*repeated(40)) as host:
        (window,) = (await host.delegate("a")).details["windows"]
    assert (window["toolCount"], window["errorMessage"]) == ((most, LOOP) if most else (40, None))


# -- engines and ends ------------------------------------------------------------------------------


async def test_spawn_failure_is_named_with_its_reason_in_the_text_and_in_the_window(fanout):
    why = "Could not start pi: No such file or directory (ENOENT). Nothing was run. Install it."
    window = await failing(
        fanout, {}, FailEngine(engine_error(why, code=ErrorCode.SPAWN_FAILED, reason="spawn_failed"))
    )
    assert window["errorMessage"] == f"Failed to spawn sub-agent process: {why}"
    assert window["lines"] == [why]


async def test_an_engine_that_is_not_there_is_told_in_the_same_words(fanout):
    async with fanout(reply("done"), missing="no `pi` on the PATH.") as host:
        result = await host.delegate("a")
    why = "The scripted engine cannot be used: no `pi` on the PATH."
    assert result.text.startswith(f"✗ a: error — Failed to spawn sub-agent process: {why} (session: ")
    assert result.details["windows"][0]["lines"] == [why]


async def test_unknown_profile_whose_file_was_skipped_fails_with_the_reason(fanout, scratch_home):
    folder = scratch_home / ".pi" / "agent" / "agent-profiles"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\nreadonly: perhaps\n---\nx\n")
    async with fanout() as host:
        result = await host.delegate({"name": "a", "prompt": "x", "profile": "scout"})
    (window,) = result.details["windows"]
    assert window["errorMessage"] == (
        'Unknown profile: "scout". Available profiles: (none). '
        f"Its file was found and skipped: {folder}/scout.md:3: readonly: 'perhaps' is not true or false"
    )


async def test_no_engine_at_all_is_told_with_what_to_do(fanout):
    async with fanout(reply("done")) as host:
        call = host.call(engine="nothing")
        result = await host.use({"tasks": [OTHER]}, tool="delegate_to_subagents", call=call)
    assert result.text.startswith('✗ other: error — Unknown engine "nothing". Engines: auto, scripted. (session: ')


@pytest.mark.parametrize(
    ("script", "told", "code"),
    [
        ([fail("401 no key")], "The model provider failed: 401 no key", 1),
        ([FailEngine(engine_error("pi broke off."))], "pi broke off.", 1),
        ([ProcessEnded(ProcessEnd(signal=9))], "The agent's process was ended by signal 9.", 137),
        ([WaitStep(1)], "The agent ended without a final message.", 1),
    ],
)
async def test_every_other_end_is_told_as_it_was(fanout, script, told, code):
    window = await failing(fanout, {}, *script)
    assert window["errorMessage"].startswith(told)
    assert window["exitCode"] == code


async def test_a_cancelled_call_stops_all_tasks_and_calls_it_no_timeout(fanout):
    async with fanout(HangStep()) as host:
        with anyio.move_on_after(5):
            await host.delegate("a", "b", "c", "d", "e")
        sessions = await host.retinue.sessions()
    assert {session.latest.failure.code for session in sessions} == {"aborted"}
    assert len(sessions) == 5
    assert not any("Timed out" in session.preview for session in sessions)
