"""Every store passes the shipped conformance suite, on both event loops."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.memory import MemoryStore
from retinue.sessions.store import SessionStore
from retinue.testing.stores import CHECKS, StoreCheck


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "jsonl"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with JsonlStore(tmp_path / "state") as files:
        yield files


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_store_passes_the_conformance_check(check: StoreCheck, store: SessionStore):
    await check(store)
