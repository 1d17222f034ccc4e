"""Run storage scenarios in forked children and kill each at its Nth storage call.

Reads `[scenario, folder, kill_at]` per line, prints `{"acks": […], "killed": …}` when the child is gone.
"""

import json
import os
import signal
import sys
from functools import wraps
from pathlib import Path

import anyio

from retinue.model.events import Text
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.writer import WriterLimits
from retinue.testing.stores import StoreRecorder, run_spec

CALLS = ("open", "write", "ftruncate", "fdatasync", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir")
UNWATCHED_WRITE = os.write
SMALL = WriterLimits(part_bytes=1500, log_bytes=3000, log_files=3)


class StorageKiller:
    """Kills the process at the Nth storage call: before the call, or after half of a write."""

    def __init__(self, kill_at: int) -> None:
        self.left = kill_at
        for name in CALLS:
            setattr(os, name, self.wrap(getattr(os, name), name))

    def wrap(self, call, name):
        @wraps(call)
        def count_call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    call(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return count_call


async def write(folder: Path, acks: int) -> None:
    """Write two sessions: one with three runs that rotates, one with one run, with stream events."""

    def acknowledge(recorder: StoreRecorder) -> None:
        last = recorder.events[-1]
        UNWATCHED_WRITE(acks, json.dumps([last.origin.session, last.origin.run, last.seq]).encode() + b"\n")

    async with JsonlStore(folder, limits=SMALL) as store:
        session = store.claim()
        specs = [run_spec(session), *(run_spec(session, store.claim(session)) for _ in range(2))]
        for spec in (*specs, run_spec(store.claim())):
            record = await store.open_record(spec)
            recorder = StoreRecorder(record, spec)
            recorder.record_start()
            await record.sync()
            acknowledge(recorder)
            recorder.record(*(Text(f"{i} " + "x" * 500) for i in range(2)))
            recorder.record_end()
            await record.sync()
            acknowledge(recorder)
            await record.release()


async def recover(folder: Path, acks: int) -> None:
    recovered = await JsonlStore(folder, limits=SMALL).recover()
    UNWATCHED_WRITE(acks, json.dumps([summary.session for summary in recovered]).encode() + b"\n")


async def resume(folder: Path, acks: int) -> None:
    async with JsonlStore(folder, limits=SMALL) as store:
        (summary, *_) = await store.list()
        spec = run_spec(summary.session, store.claim(summary.session))
        record = await store.open_record(spec)
        StoreRecorder(record, spec).record_start()
        await record.sync()
        await record.release()


async def thin(folder: Path, acks: int) -> None:
    await JsonlStore(folder, limits=SMALL).prune(older_than=-10.0)


async def remove(folder: Path, acks: int) -> None:
    await JsonlStore(folder, limits=SMALL).prune(older_than=-10.0, keep_results=False)


SCENARIOS = {each.__name__: each for each in (write, recover, resume, thin, remove)}


def run_scenario(scenario: str, folder: Path, kill_at: int) -> dict[str, object]:
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        acks = os.dup(sending)
        StorageKiller(kill_at)
        anyio.run(SCENARIOS[scenario], folder, acks)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        acknowledged = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    return {"acks": acknowledged, "killed": os.WIFSIGNALED(status), "status": status}


for command in sys.stdin:
    scenario, folder, kill_at = json.loads(command)
    sys.stdout.write(json.dumps(run_scenario(scenario, Path(folder), kill_at)) + "\n")
    sys.stdout.flush()
