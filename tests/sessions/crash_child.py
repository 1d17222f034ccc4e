"""Carries out storage scenarios in forked children and kills each at its Nth storage call.

Reads `[scenario, folder, kill_at]` per line, answers `{"acks": […], "killed": …}` when the child is gone.
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


class Axe:
    """Falls at the Nth storage call: before it is made, or, of a write, after half of it."""

    def __init__(self, kill_at: int) -> None:
        self.left = kill_at
        for name in CALLS:
            setattr(os, name, self.watched(getattr(os, name), name))

    def watched(self, call, name):
        @wraps(call)
        def watched(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    call(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return watched


async def write(folder: Path, acks: int) -> None:
    """Two sessions: one of three runs that rotates, one of one run, some of it streaming."""

    def acknowledge(tape: StoreRecorder) -> None:
        last = tape.events[-1]
        UNWATCHED_WRITE(acks, json.dumps([last.origin.session, last.origin.run, last.seq]).encode() + b"\n")

    async with JsonlStore(folder, limits=SMALL) as store:
        session = store.claim()
        specs = [run_spec(session), *(run_spec(session, store.claim(session)) for _ in range(2))]
        for spec in (*specs, run_spec(store.claim())):
            record = await store.open_record(spec)
            tape = StoreRecorder(record, spec)
            tape.record_start()
            await record.sync()
            acknowledge(tape)
            tape.record(*(Text(f"{i} " + "x" * 200) for i in range(4)))
            tape.record_end()
            await record.sync()
            acknowledge(tape)
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


def carry_out(scenario: str, folder: Path, kill_at: int) -> dict[str, object]:
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        acks = os.dup(sending)
        Axe(kill_at)
        anyio.run(SCENARIOS[scenario], folder, acks)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        acknowledged = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    return {"acks": acknowledged, "killed": os.WIFSIGNALED(status), "status": status}


for command in sys.stdin:
    scenario, folder, kill_at = json.loads(command)
    sys.stdout.write(json.dumps(carry_out(scenario, Path(folder), kill_at)) + "\n")
    sys.stdout.flush()
