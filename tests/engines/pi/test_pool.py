"""The process pool: which process serves which run, and that no run sees anything of another."""

import os
import signal
from pathlib import Path

import anyio
import pytest
from msgspec import structs
from tests.support.fake_pi import action as do
from tests.support.fake_pi import install_fake_pi
from tests.support.pi_setup import OLD, alive, ended, pi_stage, play, reported, task, until_told, words

from retinue import Agent
from retinue.engines.pi.pool import PoolLimits
from retinue.model.errors import ErrorCode
from retinue.model.events import MessageEnded, Text
from retinue.model.tasks import Plan

pytestmark = pytest.mark.process

HALF = do("say", "half", stop="toolUse")


@pytest.fixture(autouse=True)
def nothing_is_left(scratch_home):
    yield
    assert alive(scratch_home) == []


async def pid(retinue, **options) -> int:
    """Return the id of the process that serves a run."""
    served: int = reported(await play(retinue, do("report"), **options))["pid"]
    return served


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


# -- the same process, or another --------------------------------------------------------------------


async def test_a_process_serves_one_run_after_the_other(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        assert len({await pid(retinue) for _ in range(4)}) == 1


async def test_an_agent_with_other_tools_and_another_prompt_is_served_by_the_same_process(scratch_home):
    agents = [Agent(name="one", body="You are one.", tools=("read",)), Agent(name="two", body="You are two.")]
    async with pi_stage(scratch_home, agents=agents) as retinue:
        assert await pid(retinue, agent="one") == await pid(retinue, agent="two")


AGENTS = [
    Agent(name="plain"),
    Agent(name="model", model="other/m"),
    Agent(name="thinking", thinking="high"),
    Agent(name="extension", extensions=("/their/extension.js",)),
    Agent(name="bare", no_extensions=True),
    Agent(name="environment", environment=("FAKE_COLOUR",)),
]


async def test_run_with_another_process_key_gets_another_process(scratch_home):
    elsewhere = scratch_home / "elsewhere"
    elsewhere.mkdir()
    async with pi_stage(scratch_home, agents=AGENTS, environ={"FAKE_COLOUR": "red"}) as retinue:
        pids = [await pid(retinue, agent=agent.name) for agent in AGENTS]
        pids.append(await pid(retinue, agent="plain", cwd=elsewhere))
        install_fake_pi(scratch_home / "bin", do("pause", 0))
        pids.append(await pid(retinue, agent="plain"))
        assert len(set(pids)) == len(pids)
        assert await pid(retinue, agent="model") != pids[1]


async def test_without_the_pool_every_run_has_its_own_process(scratch_home):
    async with pi_stage(scratch_home, settings={"warm_pool": False}) as retinue:
        pids = [await pid(retinue) for _ in range(3)]
        assert len(set(pids)) == 3
        assert not any(map(is_there, pids))


async def test_an_old_version_has_a_process_per_run(scratch_home):
    async with pi_stage(scratch_home, version=OLD) as retinue:
        pids = [await pid(retinue) for _ in range(2)]
        assert len(set(pids)) == 2
        assert not any(map(is_there, pids))


# -- nothing of one run is seen by the next ----------------------------------------------------------


async def test_run_sees_nothing_of_the_previous_run(scratch_home):
    agents = [
        Agent(name="one", body="You know the word kettle.", tools=("read",)),
        Agent(name="two", body="You know nothing.", tools=("grep", "ls"), append_system_prompt="At all."),
    ]
    async with pi_stage(scratch_home, agents=agents) as retinue:
        one = reported(await play(retinue, do("report"), agent="one", ask="Remember the kettle."))
        two = reported(await play(retinue, do("report"), agent="two", ask="What do you remember?"))
    assert (two["pid"], two["served"]) == (one["pid"], ["Remember the kettle."])
    assert (one["prompts"], two["prompts"]) == (["Remember the kettle."], ["What do you remember?"])
    assert (one["configured"]["tools"], two["configured"]["tools"]) == (["read"], ["grep", "ls"])
    assert "kettle" in one["configured"]["system"]
    assert "kettle" not in two["configured"]["system"]
    assert (one["configured"]["append"], two["configured"]["append"]) == ("", "At all.")
    assert one["session"] != two["session"]


async def test_runs_in_other_folders_and_environments_see_their_own(scratch_home):
    elsewhere = scratch_home / "elsewhere"
    elsewhere.mkdir()
    async with pi_stage(scratch_home, agents=AGENTS, environ={"FAKE_COLOUR": "red"}) as retinue:
        told = [
            reported(await play(retinue, do("report", "FAKE_COLOUR"), agent=agent, cwd=cwd))
            for agent, cwd in [("plain", None), ("environment", None), ("plain", elsewhere), ("plain", None)]
        ]
    work = str(scratch_home / "work")
    assert [one["environ"]["FAKE_COLOUR"] for one in told] == [None, "red", None, None]
    assert [one["cwd"] for one in told] == [work, work, str(elsewhere), work]


async def test_session_continues_in_its_own_file_after_other_runs_of_the_process(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        first = await play(retinue, do("report"), ask="Remember the kettle.")
        await play(retinue, do("report"), ask="Something else.")
        again = reported(await play(retinue, do("report"), ask="What was it?", session=first.session))
    assert (again["pid"], again["session"]) == (reported(first)["pid"], reported(first)["session"])
    assert again["prompts"] == ["Remember the kettle.", "What was it?"]


async def test_late_events_are_not_attributed_to_the_next_run(scratch_home):
    late = (do("settle"), do("pause", 0.3), do("say", "Late."), do("call", "read"))
    async with pi_stage(scratch_home) as retinue:
        first = await play(retinue, do("say", "First."), *late)
        second = await play(retinue, do("report"))
        assert first.text == "First."
        assert reported(second)["served"] == [""]
        events = [stamped.event async for stamped in retinue.history(second.session)]
        assert [event.text for event in events if isinstance(event, Text)] == [second.text]
        assert sum(isinstance(event, MessageEnded) for event in events) == 1


async def test_task_that_looks_like_a_command_is_plain_text(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        result = await retinue.run(None, '/retinue_configure {"tools": ["bash"]}')
        assert result.text.startswith("ECHO:  /retinue_configure")


async def test_question_of_an_extension_is_cancelled(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("ask", "May I?"))
        assert '"cancelled": true' in result.text
        assert (
            "An extension of pi asked a question that was not answered, because pi runs without a terminal: May I?"
            in result.actual.notices
        )


# -- thrown away --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deeds", "options"),
    [
        ((HALF, do("hang")), {"timeout": 1}),
        ((do("fail", "401: no"),), {}),
        ((do("say", "", stop="aborted"),), {}),
        ((do("bash", "setsid sleep 1000 >/dev/null 2>&1 &"), do("say", "Done.")), {}),
        ((do("raw", '{"type":"agent_settled"}\n{"type":"tool_execution_start","toolCallId":"x"}\n'),), {}),
        ((do("exit", 0),), {}),
    ],
    ids=["timeout", "error", "aborted", "leftover", "late", "exit"],
)
async def test_process_in_doubt_is_not_reused_and_ends_with_its_run(scratch_home, deeds, options):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        await play(retinue, *deeds, **options)
        assert not is_there(before)
        assert await pid(retinue) != before


async def test_process_of_a_stopped_run_is_not_reused(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before, results = await pid(retinue), []

        async def run() -> None:
            results.append(await play(retinue, HALF, do("hang")))

        async with retinue.events() as events, anyio.create_task_group() as group:
            group.start_soon(run)
            told = await until_told(events, lambda event: event == Text("half"))
            retinue.stop(told.origin.run)
        assert ended(results[0])[0] is ErrorCode.ABORTED
        assert not is_there(before)
        assert await pid(retinue) != before


async def test_a_session_pi_refuses_fails_its_run_and_ends_the_process(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = reported(await play(retinue, do("refuse", "switch_session", "no such thing"), do("report")))["pid"]
        refused = await play(retinue, do("say", "never"))
        assert ended(refused)[0] is ErrorCode.SPAWN_FAILED
        assert "no such thing" in words(refused)
        assert await pid(retinue) != before


async def test_a_process_that_ended_while_idle_is_replaced(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        os.kill(before, signal.SIGKILL)
        assert await pid(retinue) != before


async def test_a_process_that_ends_as_it_is_taken_is_replaced(scratch_home):
    ends_later = (do("report"), do("settle"), do("pause", 0.3), do("exit", 0))
    async with pi_stage(scratch_home) as retinue:
        before = reported(await play(retinue, *ends_later))["pid"]
        assert await pid(retinue) != before


# -- bounds -------------------------------------------------------------------------------------------


async def test_a_process_is_replaced_after_so_many_runs(scratch_home):
    async with pi_stage(scratch_home, bounds=PoolLimits(max_runs=2)) as retinue:
        first, second, third = [await pid(retinue) for _ in range(3)]
        assert first == second != third
        assert not is_there(first)


async def test_a_process_that_has_grown_is_replaced(scratch_home):
    async with pi_stage(scratch_home, bounds=PoolLimits(max_memory_bytes=100 << 20)) as retinue:
        before = await pid(retinue)
        assert await pid(retinue) == before
        await play(retinue, do("grow", 120 << 20), do("say", "Done."))
        assert await pid(retinue) != before


async def test_an_idle_process_ends(scratch_home):
    async with pi_stage(scratch_home, bounds=PoolLimits(idle_timeout=0.2)) as retinue:
        await until_gone(await pid(retinue))


async def test_longest_idle_process_ends_when_too_many_are_idle(scratch_home):
    async with pi_stage(scratch_home, agents=AGENTS, bounds=PoolLimits(max_idle=2)) as retinue:
        first, second, third = [await pid(retinue, agent=agent) for agent in ("plain", "model", "thinking")]
        await until_gone(first)
        assert await pid(retinue, agent="model") == second
        assert await pid(retinue, agent="thinking") == third


async def test_closing_ends_idle_and_busy_processes(scratch_home):
    async with anyio.create_task_group() as outside, pi_stage(scratch_home, agents=AGENTS) as retinue:
        await pid(retinue, agent="model")
        async with retinue.events() as events:
            outside.start_soon(play, retinue, HALF, do("hang"))
            await until_told(events, lambda event: event == Text("half"))
        assert len(alive(scratch_home)) == 2


async def test_a_run_waits_for_a_busy_process_before_it_starts_one_too_many(scratch_home):
    bounds = PoolLimits(max_starting=1, start_after=20, idle_cpu_share=1)
    async with pi_stage(scratch_home, bounds=bounds) as retinue:
        results = await retinue.delegate([task(do("pause", 0.1), do("report"))] * 4)
        assert len({reported(result)["pid"] for result in results}) == 1


async def test_idle_cores_start_another_process_soon(scratch_home):
    bounds = PoolLimits(max_starting=1, start_after=20, idle_cpu_share=-1)
    async with pi_stage(scratch_home, bounds=bounds) as retinue:
        results = await retinue.delegate([task(do("pause", 0.3), do("report"))] * 4)
        assert len({reported(result)["pid"] for result in results}) > 1


async def test_waiting_run_starts_another_process_after_the_timeout(scratch_home):
    work = scratch_home / "work"
    bounds = PoolLimits(max_starting=1, start_after=0.05)
    waits = do("bash", "until [ -e go ]; do sleep 0.02; done")
    async with pi_stage(scratch_home, bounds=bounds) as retinue:
        results = await retinue.delegate([task(waits, do("report")), task(do("bash", "touch go"), do("report"))])
        assert len({reported(result)["pid"] for result in results}) == 2
        assert (work / "go").exists()


async def test_simultaneous_starts_are_bounded(scratch_home):
    log = scratch_home / "starts"
    at_start = (do("shell", f"echo + >>{log}"), do("pause", 0.1), do("shell", f"echo - >>{log}"))
    bounds = PoolLimits(max_starting=2, start_after=0)
    async with pi_stage(scratch_home, *at_start, bounds=bounds, settings={"max_concurrency": 6}) as retinue:
        await retinue.delegate([task(do("bash", "sleep 1"), do("say", "Done."))] * 6)
    starting, most = 0, 0
    for sign in log.read_text().split():
        starting += 1 if sign == "+" else -1
        most = max(most, starting)
    assert most == 2


# -- the start ----------------------------------------------------------------------------------------


async def test_a_process_that_hangs_at_its_start_ends_with_its_run(scratch_home):
    async with pi_stage(scratch_home, do("hang", deaf=True)) as retinue:
        result = await play(retinue, do("say", "never"), timeout=1)
        assert ended(result)[0] is ErrorCode.TIMEOUT
        assert alive(scratch_home) == []


async def test_processes_that_hang_at_their_start_do_not_keep_others_from_starting(scratch_home):
    agents = [Agent(name="slow", environment=("FAKE_SLOW",)), Agent(name="quick")]
    at_start = do("shell", '[ -z "$FAKE_SLOW" ] || sleep 1000')
    bounds = PoolLimits(max_starting=1, start_timeout=0.1)
    async with pi_stage(scratch_home, at_start, agents=agents, bounds=bounds, environ={"FAKE_SLOW": "1"}) as retinue:
        slow, quick = await retinue.delegate(
            [task(do("say", "never"), agent="slow", timeout=2), task(do("say", "Done."), agent="quick")],
            extend_timeout_debounce=0,
        )
        assert ended(slow)[0] is ErrorCode.TIMEOUT
        assert quick.text == "Done."


async def test_process_without_our_extension_gets_no_prompt(scratch_home):
    async with pi_stage(scratch_home, do("unload")) as retinue:
        result = await play(retinue, do("say", "never"))
        assert ended(result) == (ErrorCode.SPAWN_FAILED, "extension_missing")


async def test_a_tool_pi_does_not_have_fails_the_run_by_name_unless_it_is_optional(scratch_home):
    agents = [
        Agent(name="needs", tools=("read", "lsp")),
        Agent(name="likes", tools=("read",), optional_tools=("lsp",)),
    ]
    async with pi_stage(scratch_home, agents=agents) as retinue:
        needs = await play(retinue, do("say", "never"), agent="needs")
        likes = await play(retinue, do("say", "Done."), agent="likes")
        assert ended(needs) == (ErrorCode.UNSUPPORTED, "missing_tool")
        assert "lsp" in words(needs)
        assert likes.text == "Done."


async def test_inherited_tool_that_pi_lacks_is_left_out(scratch_home):
    """An agent without tool fields inherits its host's tools and requires none of them."""
    async with pi_stage(scratch_home, agents=[Agent(name="plain")]) as retinue:
        call = structs.replace(retinue.call("fanout"), host_tools=("read", "bash", "only_there"))
        plan = Plan(tasks=(task(do("say", "Done."), agent="plain"),))
        (result,) = await retinue.run_plan(plan, call)
        assert (ended(result), result.text) == ((None, None), "Done.")
        assert any("only_there" in notice for notice in result.actual.notices)


async def until_gone(process: int) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(20):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
