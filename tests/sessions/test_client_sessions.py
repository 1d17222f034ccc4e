"""Clients of one state folder: each sees its own sessions only."""

from __future__ import annotations

from tests.support.retinue_factory import scripted

from retinue.client import Retinue
from retinue.engines.scripted import ScriptedEngine, reply
from retinue.sessions.jsonl import make_client_root
from retinue.sessions.store import SessionFilter

ALICE, BOB = "client-a1", "client-b2"


def of(home, client):
    return Retinue(
        cwd=home,
        engine="scripted",
        engines=scripted(ScriptedEngine(reply("done"))),
        environ={"HOME": str(home)},
        client=client,
    )


async def test_client_finds_and_lists_its_own_sessions_only(tmp_path):
    async with of(tmp_path, ALICE) as alice, of(tmp_path, BOB) as bob, of(tmp_path, None) as user:
        begun = {who: (await who.run("explorer", "look")).session for who in (alice, bob, user)}
        for who in (alice, bob):
            assert [each.session for each in await who.sessions()] == [begun[who]]
            found = {other: await who.session(session) for other, session in begun.items()}
            assert [other for other, summary in found.items() if summary] == [who]
            assert await who.session(begun[who][:8]) is not None
        assert {each.session for each in await user.sessions()} == set(begun.values())
        assert all([await user.session(session) for session in begun.values()])


async def test_list_limit_counts_only_sessions_of_the_client(tmp_path):
    async with of(tmp_path, ALICE) as alice, of(tmp_path, BOB) as bob:
        for _ in range(2):
            await alice.run("explorer", "look")
        await bob.run("explorer", "look")
        await bob.run("explorer", "look")
        assert len(await alice.sessions(SessionFilter(limit=1))) == 1
        assert len(await alice.sessions(SessionFilter(limit=3))) == 2


async def test_client_names_with_a_common_prefix_are_distinct(tmp_path):
    async with of(tmp_path, ALICE) as alice, of(tmp_path, f"{ALICE}x") as like:
        session = (await like.run("explorer", "look")).session
        assert await alice.session(session) is None


def test_root_id_is_unchanged_without_a_client():
    assert make_client_root(None, "r") == "r"
    assert make_client_root(ALICE, "r") == f"{ALICE}-r"
