"""The log in the user's vault: one start and one complete per run, also where its process died; forgotten with ours."""

import json
import os

import pytest
from msgspec import structs

from retinue.model.events import Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import vault_log_folder
from retinue.sessions.store import INTERRUPTED
from retinue.testing.stores import StoreRecorder, record_run, run_spec

DAY = 86400.0


@pytest.fixture
def vault(tmp_path):
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


def spec_in(vault, *ids, root="root-1"):
    return structs.replace(run_spec(*ids, root=root), vault_path=str(vault))


def told(vault, root="root-1"):
    """Type, run and whether it failed, of each line."""
    lines = (vault_log_folder(vault, root) / "events.jsonl").read_bytes().splitlines()
    return [(event["type"], event["subagentId"], event.get("isError")) for event in map(json.loads, lines)]


async def test_a_run_is_told_by_its_beginning_and_its_end(folder, vault):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, spec_in(vault, session), *(Text("detail") for _ in range(9)))
    assert told(vault) == [("subagentStart", session, None), ("subagentComplete", session, False)]


async def test_two_processes_tell_one_conversation(folder, vault):
    async with JsonlStore(folder) as one, JsonlStore(folder) as other:
        runs = []
        for store in (one, other, one, other):
            runs.append(store.claim())
            await record_run(store, spec_in(vault, runs[-1]))
    assert [run for kind, run, _ in told(vault) if kind == "subagentComplete"] == runs


@pytest.mark.parametrize("how", ["recovered", "resumed", "pruned"])
async def test_a_run_whose_process_died_is_completed_by_whoever_finds_it(folder, vault, how):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(spec_in(vault, session))
        tape = StoreRecorder(record, spec_in(vault, session))
        tape.record_start()
        tape.record(Text("Half of it."))
        await record.sync()
        await record.release()  # without an end, as a process that is killed leaves it
    again = []
    async with JsonlStore(folder) as store:
        if how == "recovered":
            assert len(await store.recover()) == 1
            assert await store.recover() == []
        elif how == "pruned":
            await store.prune(older_than=0.0)
        else:
            again = [store.claim(session)]
            await record_run(store, spec_in(vault, session, *again))
    completed = [("subagentStart", session, None), ("subagentComplete", session, True)]
    assert told(vault)[:2] == completed
    assert told(vault)[2:] == [
        event for run in again for event in (("subagentStart", run, None), ("subagentComplete", run, False))
    ]
    last = json.loads((vault_log_folder(vault, "root-1") / "events.jsonl").read_bytes().splitlines()[1])
    assert last["result"] == f"{INTERRUPTED.message}\n\nHalf of it."


async def test_files_are_private_and_folders_have_safe_names(folder, vault):
    async with JsonlStore(folder) as store:
        await record_run(store, spec_in(vault, store.claim(), root="../../../etc/x"))
    (log,) = vault.rglob("events.jsonl")
    assert log.parent.parent == vault / ".orion" / "subagent-events"
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


async def test_pruning_forgets_our_old_logs_in_the_vault_and_nobody_elses(folder, vault):
    async with JsonlStore(folder) as store:
        for root in ("old", "new"):
            await record_run(store, spec_in(vault, store.claim(), root=root))
        foreign = vault_log_folder(vault, "foreign") / "events.jsonl"
        foreign.parent.mkdir()
        foreign.write_text("{}\n")
        (vault_log_folder(vault, "old") / "note.txt").write_text("mine")
        for path in (*vault.rglob("*"), *folder.rglob("*")):
            if "new" not in path.parts:
                then = path.stat().st_mtime - 10 * DAY
                os.utime(path, (then, then))
        await store.prune(older_than=7 * DAY, vault=vault)
    left = {path.relative_to(vault / ".orion" / "subagent-events") for path in vault.rglob("*") if path.is_file()}
    assert {str(path) for path in left} == {"foreign/events.jsonl", "new/events.jsonl", "old/note.txt"}
