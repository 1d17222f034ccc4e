"""Sessions of the `sticky` surface: whose they are, how they go on, and when they do not."""

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
AFRESH = " Leave out sessionId to begin a new session."
GONE = "The scripted engine has no own record of the latest run: it goes on from the stored messages."


async def begun(host, **more):
    """The id of a session in which one task is done."""
    return (await host.ask("scout", "Find it", **more))["details"]["sessionId"]


async def continued(host, session, agent="scout", **more):
    return await host.use({"agent": agent, "sessionId": session, "task": NEXT}, **more)


def refusal(code, message):
    return {
        "content": [{"type": "text", "text": message}],
        "details": {"error": {"code": code, "message": message}},
        "isError": True,
    }


async def test_the_returned_session_id_continues_the_same_context(open_host):
    async with open_host(finalize("It is in x."), surface="sticky", agents=[SCOUT]) as host:
        session = await begun(host)
        result = await continued(host, session)
        (summary,) = await host.retinue.sessions()
    assert result.details["sessionId"] == session
    assert (summary.session, summary.runs) == (session.replace("-", ""), 2)
    _, spec = host.specs
    assert (spec.prompt, spec.task, spec.system_prompt) == (NEXT, NEXT, "You scout.")
    assert spec.history[0].text == "Find it"
    assert spec.history[1].calls[0].args == {"status": "SUCCESS", "result": "It is in x."}


async def test_the_session_id_is_a_version_4_uuid(open_host):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        sessions = [await begun(host) for _ in range(50)]
    found = [UUID(session) for session in sessions]
    assert {(uuid.version, uuid.variant) for uuid in found} == {(4, RFC_4122)}
    assert [str(uuid) for uuid in found] == sessions


async def test_a_session_with_an_id_of_an_earlier_version_is_continued(open_host):
    old = "a2ba19168ac26a907fed0123456789ab"
    ids = iter([old, "b" * 32, "c" * 32])
    options = {"surface": "sticky", "agents": [SCOUT], "store": MemoryStore(lambda: next(ids))}
    async with open_host(finalize("done"), **options) as host:
        shown = await begun(host)
        results = [await continued(host, session) for session in (shown, "a2ba1916-8ac2-6a90-7fed-0123456789ab")]
    assert shown == old
    assert [(result.is_error, result.details["sessionId"]) for result in results] == [(False, old)] * 2


async def test_without_a_session_id_a_new_session_begins(open_host):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        assert await begun(host) != await begun(host)
    assert [spec.history for spec in host.specs] == [(), ()]


@pytest.mark.parametrize("shown", [str, lambda i: i.replace("-", ""), lambda i: i[:8], str.upper])
async def test_any_form_of_an_id_that_names_the_session_is_taken(open_host, shown):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        session = await begun(host)
        result = await continued(host, shown(session))
    assert result.details["sessionId"] == session


async def test_a_failed_or_unfinalized_run_can_be_continued_by_its_id(open_host):
    async with open_host(reply("text"), surface="sticky", agents=[SCOUT]) as host:
        session = await begun(host)
        result = await continued(host, session)
    assert result.details["sessionId"] == session


# -- whose they are --------------------------------------------------------------------------------


async def test_a_session_belongs_to_its_agent(open_host, workplace):
    other = structs.replace(SCOUT, name="other")
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT, other]) as host:
        session = await begun(host)
        result = await continued(host, session, "other")
    message = (
        f'Cannot resume: session "{session}" is not one of agent "other" in {workplace}. It belongs to agent "scout" '
        f"in {workplace}: continue it with that agent from there.{AFRESH}"
    )
    assert result.as_json() == refusal("session_not_found", message)
    assert (len(host.specs), result.exit_code) == (1, 2)


async def test_a_session_belongs_to_its_directory_by_whatever_name(open_host, workplace, tmp_path):
    store = MemoryStore()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(workplace)
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT], store=store) as host:
        session = await begun(host)
    async with open_host(
        finalize("done"), surface="sticky", agents=[SCOUT], store=store, cwd=tmp_path / "elsewhere"
    ) as host:
        strange = await continued(host, session)
    async with open_host(
        finalize("done"), surface="sticky", agents=[SCOUT], store=store, cwd=tmp_path / "link"
    ) as host:
        linked = await continued(host, session)
    assert strange.details["error"]["code"] == "session_not_found"
    assert f'It belongs to agent "scout" in {workplace}: ' in strange.text
    assert linked.details["sessionId"] == session


@pytest.mark.parametrize("session", ["550e8400-e29b-41d4-a716-446655440000", "no-such-session", "a" * 64])
async def test_an_unknown_session_is_refused_not_begun_afresh(open_host, session):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        result = await continued(host, session)
        assert await host.retinue.sessions() == []
    message = (
        f'Cannot resume: session "{session}" not found. The session may have expired or the ID is incorrect.{AFRESH}'
    )
    assert result.as_json() == refusal("session_not_found", message)


async def test_a_session_that_is_at_work_is_busy(open_host):
    at_work = anyio.Event()

    async def begin():
        at_work.set()

    script = RunCallback(begin), HangStep()
    async with open_host(*script, surface="sticky", agents=[SCOUT]) as host, anyio.create_task_group() as group:
        group.start_soon(host.ask, "scout")
        await at_work.wait()
        (summary,) = await host.retinue.sessions()
        result = await continued(host, summary.session)
        group.cancel_scope.cancel()
    message = f'Cannot resume: session "{summary.session}" is still running. Wait for it to complete before resuming.'
    assert result.as_json() == refusal("session_busy", message)


# -- the engine's own record -----------------------------------------------------------------------


async def test_the_engine_keeps_its_own_sessions_where_the_seed_says(open_host, workplace, scratch_home):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        session = await begun(host)
    (spec,) = host.specs
    digits = sha256(str(workplace.resolve()).encode()).hexdigest()[:16]
    folder = scratch_home / ".pi" / "subagent-sessions" / digits
    assert spec.native_folder == str(folder)
    assert engine_session_file(folder, "scout", spec.session) == folder / f"scout_{session}.jsonl"


async def test_an_engine_that_keeps_its_own_session_goes_on_from_it(open_host):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await begun(host)
        (spec,) = host.specs
        file = engine_session_file(Path(spec.native_folder), "scout", spec.session)
        file.parent.mkdir(parents=True)
        file.write_text("{}\n")
        await continued(host, session)
    assert [spec.native_session for spec in host.specs] == [None, str(file)]
    assert [spec.notices for spec in host.specs] == [(), ()]


async def test_a_correction_stays_in_the_engines_own_session(open_host):
    engine = ScriptedEngine.from_scripts([finalize("done")], [reply("text")], [finalize("done")])
    async with open_host(engine.script_for, surface="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await begun(host)
        file = engine_session_file(Path(host.specs[0].native_folder), "scout", host.specs[0].session)
        file.parent.mkdir(parents=True)
        file.touch()
        await continued(host, session)
    assert [spec.native_session for spec in host.specs[1:]] == [str(file), str(file)]


async def test_where_that_is_gone_the_stored_messages_serve_and_a_notice_says_so(open_host):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT], capabilities=NATIVE) as host:
        session = await begun(host)
        await continued(host, session)
        events = [stamped.event async for stamped in host.retinue.history(session)]
    assert (host.specs[1].native_session, host.specs[1].history[0].text) == (None, "Find it")
    assert [event.message for event in events if isinstance(event, Notice)] == [GONE]


async def test_an_engine_that_has_none_goes_on_from_messages_without_a_word(open_host):
    async with open_host(finalize("done"), surface="sticky", agents=[SCOUT]) as host:
        await continued(host, await begun(host))
    assert (host.specs[1].native_session, host.specs[1].notices) == (None, ())
