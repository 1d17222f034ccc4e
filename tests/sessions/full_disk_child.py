"""Record a run while files cannot grow beyond 20 KiB, then lift the limit and end it."""

import json
import resource
import sys
from pathlib import Path

import anyio
import msgspec

from retinue.model.events import Text
from retinue.sessions.jsonl import JsonlStore
from retinue.testing.stores import StoreRecorder, run_spec


async def main(folder: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with JsonlStore(folder) as store:
        spec = run_spec(store.claim())
        record = await store.open_record(spec)
        recorder = StoreRecorder(record, spec)
        recorder.record_start()
        await record.sync()
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 * 1024, hard))
        recorder.record(*(Text(f"{i} " + "x" * 700) for i in range(100)))
        await record.sync()
        full = record.fault
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        recorder.record_end()
        await record.sync()
        after = record.fault
        await record.release()
    told = {"session": spec.session, "events": len(recorder.events), "full": full, "after": after}
    sys.stdout.write(json.dumps(msgspec.to_builtins(told)))


anyio.run(main, Path(sys.argv[1]))
