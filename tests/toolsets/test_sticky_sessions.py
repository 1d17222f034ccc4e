"""Sessions of the `sticky` toolset: ownership, continuation and refusals."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from uuid import RFC_4122, UUID

import anyio
import pytest
from msgspec import structs

from retinue.agents.agent import Agent
from retinue.config.directories import engine_session_file
from retinue.engines.scripted import CAPABILITIES, HangStep, RunCallback, ScriptedEngine, finalize, reply
from retinue.model.events import Notice
from retinue.sessions.memory import MemoryStore

SCOUT = Agent(name="scout", body="You scout.", tools=("read",))
NATIVE = structs.replace(CAPABILITIES, resumes_natively=True)
NEXT = "Keep going and inspect the registration path"
AFRESH = " Leave out sessionId to start a new session."
GONE = (
    "The scripted engine has no record of the latest run of this session; the run continues from the stored messages."
)


async def start_session(host, **more):
    """Run a task and return the id of its session."""
    return (await host.ask("scout", "Find it", **more))["details"]["sessionId"]


async def continue_session(host, session, agent="scout", **more):
    return await host.use({"agent": agent, "sessionId": session, "task": NEXT}, **more)


def refusal(code, message):
    return {
        "content": [{"type": "text", "text": message}],
        "details": {"error": {"code": code, "message": message}},
        "isError": True,
    }


async def test_returned_session_id_continues_the_same_context(open_host):
    async with open_host(finalize("It is in x."), toolset="sticky", agents=[SCOUT]) as host:
        session = await start_session(host)
        result = await continue_session(host, session)
        (summary,) = await host.retinue.sessions()
    assert result.details["sessionId"] == session
    assert (summary.session, summary.runs) == (session.replace("-", ""), 2)
    _, spec = host.specs
    assert (spec.prompt, spec.task, spec.system_prompt) == (NEXT, NEXT, "You scout.")
    assert spec.history[0].text == "Find it"
    assert spec.history[1].calls[0].args == {"status": "SUCCESS", "result": "It is in x."}


async def test_sticky_session_id_is_a_version_4_uuid(open_host):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        sessions = [await start_session(host) for _ in range(50)]
    found = [UUID(session) for session in sessions]
    assert {(uuid.version, uuid.variant) for uuid in found} == {(4, RFC_4122)}
    assert [str(uuid) for uuid in found] == sessions


async def test_session_id_of_an_earlier_version_is_continued(open_host):
    old = "a2ba19168ac26a907fed0123456789ab"
    ids = iter([old, "b" * 32, "c" * 32])
    options = {"toolset": "sticky", "agents": [SCOUT], "store": MemoryStore(lambda: next(ids))}
    async with open_host(finalize("done"), **options) as host:
        shown = await start_session(host)
        results = [
            await continue_session(host, session) for session in (shown, "a2ba1916-8ac2-6a90-7fed-0123456789ab")
        ]
    assert shown == old
    assert [(result.is_error, result.details["sessionId"]) for result in results] == [(False, old)] * 2


async def test_call_without_a_session_id_starts_a_new_session(open_host):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        assert await start_session(host) != await start_session(host)
    assert [spec.history for spec in host.specs] == [(), ()]


@pytest.mark.parametrize("shown", [str, lambda i: i.replace("-", ""), lambda i: i[:8], str.upper])
async def test_every_form_of_a_session_id_is_accepted(open_host, shown):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        session = await start_session(host)
        result = await continue_session(host, shown(session))
    assert result.details["sessionId"] == session


async def test_failed_or_unfinalized_run_is_continued_by_its_session_id(open_host):
    async with open_host(reply("text"), toolset="sticky", agents=[SCOUT]) as host:
        session = await start_session(host)
        result = await continue_session(host, session)
    assert result.details["sessionId"] == session


# -- ownership --------------------------------------------------------------------------------


async def test_session_is_not_continued_by_another_agent(open_host, workplace):
    other = structs.replace(SCOUT, name="other")
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT, other]) as host:
        session = await start_session(host)
        result = await continue_session(host, session, "other")
    message = (
        f'Cannot resume: session "{session}" does not belong to agent "other" in {workplace}, but to agent "scout" '
        f"in {workplace}. Continue the session with that agent in that directory.{AFRESH}"
    )
    assert result.as_json() == refusal("session_not_found", message)
    assert (len(host.specs), result.exit_code) == (1, 2)


async def test_session_is_not_continued_in_another_directory(open_host, workplace, tmp_path):
    store = MemoryStore()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(workplace)
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT], store=store) as host:
        session = await start_session(host)
    async with open_host(
        finalize("done"), toolset="sticky", agents=[SCOUT], store=store, cwd=tmp_path / "elsewhere"
    ) as host:
        strange = await continue_session(host, session)
    async with open_host(
        finalize("done"), toolset="sticky", agents=[SCOUT], store=store, cwd=tmp_path / "link"
    ) as host:
        linked = await continue_session(host, session)
    assert strange.details["error"]["code"] == "session_not_found"
    assert f'but to agent "scout" in {workplace}. ' in strange.text
    assert linked.details["sessionId"] == session


@pytest.mark.parametrize("session", ["550e8400-e29b-41d4-a716-446655440000", "no-such-session", "a" * 64])
async def test_unknown_session_is_refused_instead_of_started_anew(open_host, session):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        result = await continue_session(host, session)
        assert await host.retinue.sessions() == []
    message = (
        f'Cannot resume: session "{session}" not found. The ID is incorrect, or the session was deleted.{AFRESH}'
    )
    assert result.as_json() == refusal("session_not_found", message)


async def test_running_session_is_refused_as_busy(open_host):
    at_work = anyio.Event()

    async def begin():
        at_work.set()

    script = RunCallback(begin), HangStep()
    async with open_host(*script, toolset="sticky", agents=[SCOUT]) as host, anyio.create_task_group() as group:
        group.start_soon(host.ask, "scout")
        await at_work.wait()
        (summary,) = await host.retinue.sessions()
        result = await continue_session(host, summary.session)
        group.cancel_scope.cancel()
    message = f'Cannot resume: session "{summary.session}" is still running. Wait for it to complete before resuming.'
    assert result.as_json() == refusal("session_busy", message)


# -- native sessions -----------------------------------------------------------------------


async def test_native_sessions_are_in_the_documented_folder(open_host, workplace, scratch_home):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        session = await start_session(host)
    (spec,) = host.specs
    digits = sha256(str(workplace.resolve()).encode()).hexdigest()[:16]
    folder = scratch_home / ".pi" / "subagent-sessions" / digits
    assert spec.native_folder == str(folder)
    assert engine_session_file(folder, "scout", spec.session) == folder / f"scout_{session}.jsonl"


async def test_engine_with_native_sessions_continues_its_own(open_host):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await start_session(host)
        (spec,) = host.specs
        file = engine_session_file(Path(spec.native_folder), "scout", spec.session)
        file.parent.mkdir(parents=True)
        file.write_text("{}\n")
        await continue_session(host, session)
    assert [spec.native_session for spec in host.specs] == [None, str(file)]
    assert [spec.notices for spec in host.specs] == [(), ()]


async def test_correction_stays_in_the_native_session(open_host):
    engine = ScriptedEngine.from_scripts([finalize("done")], [reply("text")], [finalize("done")])
    async with open_host(engine.script_for, toolset="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await start_session(host)
        file = engine_session_file(Path(host.specs[0].native_folder), "scout", host.specs[0].session)
        file.parent.mkdir(parents=True)
        file.touch()
        await continue_session(host, session)
    assert [spec.native_session for spec in host.specs[1:]] == [str(file), str(file)]


async def test_lost_native_session_continues_from_stored_messages_with_a_notice(open_host):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await start_session(host)
        await continue_session(host, session)
        events = [stamped.event async for stamped in host.retinue.history(session)]
    assert (host.specs[1].native_session, host.specs[1].history[0].text) == (None, "Find it")
    assert [event.message for event in events if isinstance(event, Notice)] == [GONE]


async def test_engine_without_native_sessions_continues_from_messages_without_notice(open_host):
    async with open_host(finalize("done"), toolset="sticky", agents=[SCOUT]) as host:
        await continue_session(host, await start_session(host))
    assert (host.specs[1].native_session, host.specs[1].notices) == (None, ())
