"""An agent file that is edited while its agent runs, and between the runs of a session."""

from pathlib import Path

from tests.support.retinue_factory import stage

from retinue.engines.scripted import RunCallback, ScriptedEngine, call, reply

BEFORE = "---\nname: scout\ntools: read\n---\nYou are the first scout."
AFTER = "---\nname: scout\ntools: read, grep\nmodel: other\n---\nYou are the second scout."


def write_agent(home: Path, text: str) -> None:
    file = home / ".config" / "retinue" / "agents" / "scout.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def changes_in(result):
    return [notice for notice in result.actual.notices if "has changed" in notice]


async def test_run_keeps_the_definition_it_was_planned_with_in_all_its_attempts(scratch_home):
    seen = []

    async def edit() -> None:
        write_agent(scratch_home, AFTER)

    attempts = iter([[RunCallback(edit), call("read", path="a")], [reply("done")]])

    def script(spec):
        seen.append((spec.agent.body, spec.grant.tools, spec.model))
        return next(attempts)

    write_agent(scratch_home, BEFORE)
    async with stage(scratch_home, script) as retinue:
        result = await retinue.run("scout", "Look.", output={"type": "string"}, finalize_retries=1)
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert seen[0][0] == "You are the first scout."
    assert changes_in(result) == []


async def test_resumed_session_uses_the_edited_definition_and_states_what_changed(scratch_home):
    write_agent(scratch_home, BEFORE)
    async with stage(scratch_home, reply("done")) as retinue:
        first = await retinue.run("scout", "Look.")
        write_agent(scratch_home, AFTER)
        second = await retinue.run("scout", "Look again.", session=first.session)
        third = await retinue.run("scout", "And again.", session=first.session)
    assert changes_in(first) == changes_in(third) == []
    (notice,) = changes_in(second)
    assert notice == (
        'The definition of the agent "scout" has changed since the last run of this session (model: none → other; '
        "tools: read → read, grep). This run uses the new one."
    )


async def test_change_of_the_instructions_alone_is_stated(scratch_home):
    write_agent(scratch_home, BEFORE)
    async with stage(scratch_home, reply("done")) as retinue:
        first = await retinue.run("scout", "Look.")
        write_agent(scratch_home, BEFORE + " Be brief.")
        second = await retinue.run("scout", "Look again.", session=first.session)
    assert "(its instructions or other fields)" in changes_in(second)[0]


async def test_built_in_agent_of_a_resumed_session_has_no_notice(scratch_home):
    async with stage(scratch_home, ScriptedEngine(reply("done")).script_for) as retinue:
        first = await retinue.run("explorer", "Look.")
        second = await retinue.run("explorer", "Look again.", session=first.session)
    assert (first.failure, second.failure, changes_in(second)) == (None, None, [])
