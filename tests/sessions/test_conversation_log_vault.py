"""The log in the vault: one start and one complete event per run, also after a crash; pruned with ours."""

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


def read_vault_log(vault, root="root-1"):
    """Return the type, run and failure flag of each line."""
    lines = (vault_log_folder(vault, root) / "events.jsonl").read_bytes().splitlines()
    return [(event["type"], event["subagentId"], event.get("isError")) for event in map(json.loads, lines)]


async def test_vault_log_has_a_start_and_a_complete_event_per_run(folder, vault):
    async with JsonlStore(folder) as store:
        session = store.claim()
        await record_run(store, spec_in(vault, session), *(Text("detail") for _ in range(9)))
    assert read_vault_log(vault) == [("subagentStart", session, None), ("subagentComplete", session, False)]


async def test_two_processes_write_one_vault_log(folder, vault):
    async with JsonlStore(folder) as one, JsonlStore(folder) as other:
        runs = []
        for store in (one, other, one, other):
            runs.append(store.claim())
            await record_run(store, spec_in(vault, runs[-1]))
    assert [run for kind, run, _ in read_vault_log(vault) if kind == "subagentComplete"] == runs


@pytest.mark.parametrize("how", ["recovered", "resumed", "pruned"])
async def test_vault_log_is_completed_by_the_process_that_recovers_the_run(folder, vault, how):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(spec_in(vault, session))
        recorder = StoreRecorder(record, spec_in(vault, session))
        recorder.record_start()
        recorder.record(Text("Half of it."))
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
    assert read_vault_log(vault)[:2] == completed
    assert read_vault_log(vault)[2:] == [
        event for run in again for event in (("subagentStart", run, None), ("subagentComplete", run, False))
    ]
    last = json.loads((vault_log_folder(vault, "root-1") / "events.jsonl").read_bytes().splitlines()[1])
    assert last["result"] == f"{INTERRUPTED.message}\n\nHalf of it."


async def test_vault_log_files_are_private_and_folder_names_safe(folder, vault):
    async with JsonlStore(folder) as store:
        await record_run(store, spec_in(vault, store.claim(), root="../../../etc/x"))
    (log,) = vault.rglob("events.jsonl")
    assert log.parent.parent == vault / ".orion" / "subagent-events"
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


async def test_pruning_deletes_only_own_old_logs_in_the_vault(folder, vault):
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
