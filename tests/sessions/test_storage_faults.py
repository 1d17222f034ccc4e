"""One storage call of a run fails, or all from then on: the answer is kept, and `saved` is true or the truth."""

from __future__ import annotations

import errno

import pytest
from msgspec import structs
from tests.support.storage_faults import StorageFault, find_lies, run_under_fault

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("number", ERRORS, ids=[errno.errorcode[number] for number in ERRORS])
async def test_fault_at_any_storage_call_loses_no_answer_and_is_reported(number, forever, memory_path):
    for nth in range(1, 500):
        home = memory_path / str(nth)
        home.mkdir()
        fault = StorageFault(number, nth=nth, forever=forever)
        assert find_lies(await run_under_fault(home, fault)) == [], f"call {nth}"
        if not fault.has_struck:
            break
    assert 40 < nth < 499


async def test_lost_event_that_was_reported_as_saved_is_noticed(memory_path):
    outcome = await run_under_fault(memory_path, StorageFault(errno.EIO, nth=10**6, forever=False))
    assert find_lies(structs.replace(outcome, stored=outcome.stored[:-1])) == [
        f"{len(outcome.shown)} events were shown and reported as saved, {len(outcome.shown) - 1} are stored"
    ]
