"""Runs that claim finished work and called no tool."""

from tests.support.retinue_factory import stage

from retinue.engines.scripted import call, reply
from retinue.runtime.active_run import WORK_WITHOUT_TOOLS


async def notices(home, *script, agent="implementer", **settings):
    async with stage(home, *script) as retinue:
        (result,) = await retinue.delegate([(agent, "Fix the parser")], allow_write=True, **settings)
    assert result.failure is None
    return [notice for notice in result.actual.notices if notice == WORK_WITHOUT_TOOLS]


CLAIM = reply("Done. I have fixed the parser.")


async def test_claim_without_any_tool_call_completes_with_a_notice(scratch_home):
    assert await notices(scratch_home, CLAIM) == [WORK_WITHOUT_TOOLS]


async def test_claim_after_a_tool_call_has_no_notice(scratch_home):
    assert await notices(scratch_home, call("edit", path="a"), CLAIM) == []


async def test_agent_that_can_only_read_has_no_notice(scratch_home):
    assert await notices(scratch_home, CLAIM, agent="explorer") == []


async def test_answer_without_a_claim_has_no_notice(scratch_home):
    assert await notices(scratch_home, reply("The parser needs no fix.")) == []


async def test_continued_session_has_no_notice(scratch_home):
    async with stage(scratch_home, CLAIM) as retinue:
        first = await retinue.run("implementer", "Fix it", allow_write=True)
        again = await retinue.run("implementer", "What did you do?", session=first.session, allow_write=True)
    assert WORK_WITHOUT_TOOLS in first.actual.notices
    assert WORK_WITHOUT_TOOLS not in again.actual.notices
