"""The store in memory works without threads, so that virtual time passes at once."""

import anyio
import pytest
import trio.testing

from retinue.model.events import Text
from retinue.sessions.memory import MemoryStore
from retinue.testing.stores import read_all, record_run, run_spec


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def test_memory_store_works_under_a_virtual_clock():
    store = MemoryStore()
    session = store.claim()
    events = await record_run(store, run_spec(session), Text("one"))
    began = anyio.current_time()
    await anyio.sleep(3600)
    events += await record_run(store, run_spec(session, store.claim(session)), Text("two"))
    assert anyio.current_time() - began == pytest.approx(3600)
    assert await read_all(store, session) == events


async def test_id_with_a_claimed_prefix_is_drawn_again():
    made = iter(["a" * 32, "a" * 8 + "b" * 24, "c" * 32])
    store = MemoryStore(new_id=lambda: next(made))
    assert [store.claim(), store.claim()] == ["a" * 32, "c" * 32]
