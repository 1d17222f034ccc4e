"""Failures of one `fanout` task while the others continue: profiles, skills, directories, limits, engines."""

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


async def fail_task(fanout, task, *script, **options):
    """Return the window of a task that fails while another completes."""
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


async def fail_message(fanout, task, *script, **options):
    return (await fail_task(fanout, task, *script, **options))["errorMessage"]


# -- profiles and skills ---------------------------------------------------------------------------


async def test_unknown_profile_fails_only_its_task_and_lists_the_available(fanout):
    agents = [Agent(name="writer"), Agent(name="researcher")]
    window = await fail_task(fanout, {"profile": "code-reviewer"}, agents=agents)
    assert window["errorMessage"] == 'Unknown profile: "code-reviewer". Available profiles: researcher, writer'
    assert (window["exitCode"], window["profileName"], window["profileInfo"]) == (1, "code-reviewer", None)


async def test_unknown_profile_without_any_profiles_lists_none(fanout):
    assert await fail_message(fanout, {"profile": "code-reviewer"}) == (
        'Unknown profile: "code-reviewer". Available profiles: (none)'
    )


async def test_unknown_default_profile_fails_each_task_without_its_own(fanout):
    async with fanout(reply("done"), agents=[Agent(name="writer")]) as host:
        result = await host.delegate({**OTHER, "profile": "writer"}, OTHER, profile="nobody")
    assert [window["status"] for window in result.details["windows"]] == ["completed", "error"]
    assert [spec.agent.name for spec in host.specs] == ["writer"]


async def test_built_in_agents_can_be_called_as_profiles(fanout):
    async with fanout(reply("done")) as host:
        result = await host.delegate({**OTHER, "profile": "explorer"})
    assert result.text.startswith("✓ other: completed")


async def test_untrusted_project_profile_fails_only_its_task(fanout, workplace, agent_file):
    agent_file(workplace / ".pi" / "agent-profiles", "deployer", "tools: bash")
    assert "`retinue agents trust deployer`" in await fail_message(fanout, {"profile": "deployer"})


@pytest.fixture
def skills(scratch_home):
    for name in ("skill-a", "skill-b"):
        folder = scratch_home / ".pi" / "agent" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nDo {name}.\n")


@pytest.mark.parametrize("field", ["suggested_skills", "load_skills"])
async def test_unknown_skill_fails_only_its_task(fanout, skills, field):
    profile = structs.replace(Agent(name="learner"), **{field: ("bad-name",)})
    assert await fail_message(fanout, {"profile": "learner"}, agents=[profile]) == (
        'Unknown skills: "bad-name". Available skills: skill-a, skill-b'
    )


async def test_user_and_project_skills_are_suggested_or_loaded(fanout, skills, workplace):
    own = workplace / ".pi" / "skills" / "local"
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text("---\nname: local\ndescription: The project's.\n---\nDo it here.\n")
    profile = Agent(name="learner", tools=("read",), suggested_skills=("skill-a", "local"), load_skills=("skill-b",))
    profile = structs.replace(profile, append_system_prompt="Be brief.")
    async with fanout(reply("done"), agents=[profile]) as host:
        await host.delegate({**OTHER, "profile": "learner"})
    prompt = host.specs[0].append_prompt
    assert prompt.startswith('Be brief.\n\n<loaded_skill name="skill-b" folder="')
    assert "\nDo skill-b.\n</loaded_skill>" in prompt
    assert f"- local: The project's. ({own / 'SKILL.md'})" in prompt
    assert "- skill-a: About skill-a. (" in prompt
    assert "Do skill-a." not in prompt


async def test_skills_are_scanned_once_per_call(fanout, scratch_home):
    """A skill added while the call is planned is not found by later tasks: all use the same scan."""
    from retinue.agents.skills import SkillRegistry

    registry = SkillRegistry({"HOME": str(scratch_home)})
    first = registry.for_directory(scratch_home)
    (scratch_home / ".pi" / "agent" / "skills").mkdir(parents=True)
    (scratch_home / ".pi" / "agent" / "skills" / "late.md").write_text("---\ndescription: Late.\n---\nx\n")
    assert registry.for_directory(scratch_home) is first


# -- directories -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("src", "cwd must be an absolute path"),
        ("./", "cwd must be an absolute path"),
        ("~", "cwd must be an absolute path"),
        ("/tmp/../etc", "cwd must not contain '..' path segments"),
        ("/tmp/..", "cwd must not contain '..' path segments"),
        ("/nonexistent/a..b", "cwd does not exist: /nonexistent/a..b. Create the directory, or choose another."),
    ],
)
async def test_unusable_directory_fails_only_its_task(fanout, cwd, expected):
    assert await fail_message(fanout, {"cwd": cwd}) == expected


# -- limits ----------------------------------------------------------------------------------------


async def test_timeout_of_a_task_names_its_limit_and_how_long_the_run_took(fanout):
    window = await fail_task(fanout, {"timeout": 120}, HangStep())
    timed_out = "Timed out after 120s. Consider resuming with a longer timeout."
    assert window["errorMessage"] == f"{timed_out} The run took 150s."
    assert (window["exitCode"], window["timeout"]) == (124, 120)


async def test_task_timeout_is_ten_minutes_by_default(fanout):
    timed_out = "Timed out after 600s. Consider resuming with a longer timeout."
    assert await fail_message(fanout, {}, HangStep()) == f"{timed_out} The run took 630s."


async def test_timeout_of_a_task_does_not_affect_another(fanout):
    scripts = {"slow": [HangStep()], "steady": [WaitStep(500), reply("made it")]}
    tasks = [{"name": "slow", "prompt": "x", "timeout": 5}, {"name": "steady", "prompt": "x"}]
    async with fanout(lambda spec: scripts[spec.name]) as host:
        result = await host.delegate(*tasks)
    assert [window["status"] for window in result.details["windows"]] == ["error", "completed"]


async def ended_after(fanout, *script, **options):
    """Return the seconds a task with a timeout of 100 s ran, and its window."""
    async with fanout(*script, **options) as host:
        started = anyio.current_time()
        (window,) = (await host.delegate({**OTHER, "timeout": 100})).details["windows"]
        return anyio.current_time() - started, window["status"], window["timeout"]


async def test_tool_calls_after_the_timeout_restart_the_idle_timer(fanout):
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


async def test_tool_calls_cannot_extend_the_timeout_forever(fanout):
    calls = [step for number in range(100) for step in (WaitStep(20), call("read", path=str(number)))]
    assert await ended_after(fanout, *calls) == (pytest.approx(400, abs=1), "error", 100)


@pytest.fixture
def pi_settings(scratch_home, workplace):
    """Return a writer of the settings files of `fanout`: `pi_settings(user={…}, project={…})`."""
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
async def test_idle_timer_is_configured_in_the_toolsets_settings_files(fanout, pi_settings, user, project, ended):
    pi_settings(user={"extend_timeout_debounce": user})
    if project is not None:
        pi_settings(project={"extend_timeout_debounce": project})
    assert await ended_after(fanout, HangStep()) == (pytest.approx(ended, abs=1), "error", 100)


async def test_project_settings_cannot_raise_the_idle_timer(fanout, pi_settings):
    pi_settings(user={"extend_timeout_debounce": 5}, project={"extend_timeout_debounce": 300})
    assert (await ended_after(fanout, HangStep()))[0] == pytest.approx(105, abs=1)


async def test_window_lines_are_configured_in_the_toolsets_settings_files(fanout, pi_settings):
    pi_settings(user={"maxLinesPerWindow": 5}, project={"maxLinesPerWindow": 7})
    async with fanout(reply("done")) as host:
        assert (await host.delegate("a")).details["maxLinesPerWindow"] == 7


# -- loops -----------------------------------------------------------------------------------------

LOOP = "Loop detected: sub-agent is repeating the same tool calls"


def repeat_call(times, **args):
    return [*(call("edit", path="x", **args) for _ in range(times)), reply("done")]


async def test_five_identical_calls_in_a_row_fail_as_a_loop(fanout):
    window = await fail_task(fanout, {}, *repeat_call(9))
    assert (window["errorMessage"], window["toolCount"]) == (LOOP, 5)


async def test_calls_with_different_nested_arguments_are_no_loop(fanout):
    calls = [call("edit", path="x", edits=[{"oldText": str(n), "newText": "y"}]) for n in range(9)]
    async with fanout(*calls, reply("done")) as host:
        result = await host.delegate("a")
    assert result.text.startswith("✓ a: completed")


@pytest.mark.parametrize(
    ("user", "project", "most"),
    [(3, None, 3), (8, 3, 3), (0, None, None), (99, None, None), (3, 8, 3)],
    ids=["the user's", "the project's before it", "off", "at most 50", "a project may not loosen it"],
)
async def test_loop_threshold_is_configured_in_the_toolsets_settings_files(fanout, pi_settings, user, project, most):
    pi_settings(user={"looping_tool_count": user})
    if project is not None:
        pi_settings(project={"looping_tool_count": project})
    async with fanout(*repeat_call(40)) as host:
        (window,) = (await host.delegate("a")).details["windows"]
    assert (window["toolCount"], window["errorMessage"]) == ((most, LOOP) if most else (40, None))


# -- engines and failures ------------------------------------------------------------------------------


async def test_spawn_failure_has_its_reason_in_text_and_window(fanout):
    why = "Could not start pi: No such file or directory (ENOENT). Nothing was run. Install it."
    window = await fail_task(
        fanout, {}, FailEngine(engine_error(why, code=ErrorCode.SPAWN_FAILED, reason="spawn_failed"))
    )
    assert window["errorMessage"] == f"Failed to spawn sub-agent process: {why}"
    assert window["lines"] == [why]


async def test_missing_engine_fails_as_a_spawn_failure(fanout):
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
        f"The file of this agent was found and skipped: {folder}/scout.md:3: readonly: 'perhaps' is not true or false"
    )


async def test_missing_engines_fail_with_advice(fanout):
    async with fanout(reply("done")) as host:
        call = host.call(engine="nothing")
        result = await host.use({"tasks": [OTHER]}, tool="delegate_to_subagents", call=call)
    assert result.text.startswith('✗ other: error — Unknown engine "nothing". Engines: auto, scripted. (session: ')


@pytest.mark.parametrize(
    ("script", "start", "code"),
    [
        ([fail("401 no key")], "The model provider failed: 401 no key", 1),
        ([FailEngine(engine_error("pi broke off."))], "pi broke off.", 1),
        ([ProcessEnded(ProcessEnd(signal=9))], "The agent's process was ended by signal 9.", 137),
        ([WaitStep(1)], "The agent ended without a final message.", 1),
    ],
)
async def test_remaining_failures_keep_their_message(fanout, script, start, code):
    window = await fail_task(fanout, {}, *script)
    assert window["errorMessage"].startswith(start)
    assert window["exitCode"] == code


async def test_cancelled_call_stops_all_tasks_without_reporting_a_timeout(fanout):
    async with fanout(HangStep()) as host:
        with anyio.move_on_after(5):
            await host.delegate("a", "b", "c", "d", "e")
        sessions = await host.retinue.sessions()
    assert {session.latest.failure.code for session in sessions} == {"aborted"}
    assert len(sessions) == 5
    assert not any("Timed out" in session.preview for session in sessions)
