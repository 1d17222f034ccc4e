"""Retinue with a store that other processes do not share."""

import pytest
from tests.support.retinue_factory import stage

from retinue.engines.scripted import reply
from retinue.model.errors import ErrorCode, RefusedError
from retinue.sessions.store import EVERY_SESSION


async def test_memory_store_lists_sessions_and_has_no_owners(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        result = await retinue.run("explorer", "do it")
        assert [each.session for each in await retinue.sessions(look=False)] == [result.session]
        (conversation,) = await retinue.conversations(EVERY_SESSION, most=5, look=False)
        assert [each.session for each in conversation.sessions] == [result.session]
        assert await retinue.names() == {result.run[:8]}
        assert await retinue.owners() == ()


async def test_memory_store_refuses_pruning_and_the_history_of_a_root(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        with pytest.raises(RefusedError) as pruning:
            await retinue.prune(older_than=0)
        with pytest.raises(RefusedError) as reading:
            retinue.root_history("0123456789abcdef")
    assert [each.value.failure.code for each in (pruning, reading)] == [ErrorCode.UNSUPPORTED] * 2
