"""The baseline: the same work in plain asyncio. `python -m benchmarks.asyncio_baseline WORK N`.

It makes the same files, writes the same lines and syncs as often, so that Python is compared, not the disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from benchmarks.workload import print_cost, resident_bytes, scratch

LINE = {"v": 1, "run": "a" * 32, "session": "a" * 32, "root": "b" * 32, "parentToolUseId": "call-" + "c" * 16}


class PlainSession:
    """The system calls of a durable session: a folder, a record, a lease, a log, two syncs of the record."""

    def __init__(self, number: int, log: int) -> None:
        self._folder = f"{scratch()}/sessions/{number:08x}"
        os.mkdir(self._folder, 0o700)
        self._lease = f"{scratch()}/leases/{number:08x}"
        self._lease_file = os.open(self._lease, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(self._lease_file, json.dumps(LINE).encode())
        self._file = os.open(
            f"{self._folder}/session.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600
        )
        self._log = log
        self._seq = 0

    def write(self, kind: str, **more: Any) -> dict[str, Any]:
        self._seq += 1
        event = {**LINE, "seq": self._seq, "type": kind, **more}
        data = json.dumps(event).encode() + b"\n"
        os.write(self._file, data)
        os.write(self._log, data)
        return event

    def begin(self) -> None:
        os.fdatasync(self._file)
        for folder in (self._folder, f"{scratch()}/sessions"):
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def end(self) -> None:
        os.fdatasync(self._file)
        os.unlink(self._lease)
        os.close(self._lease_file)
        os.close(self._file)


def folders() -> int:
    """Make the folders and open their common log."""
    for name in ("sessions", "leases", "roots"):
        os.mkdir(f"{scratch()}/{name}")
    return os.open(f"{scratch()}/roots/events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Call one tool, then answer."""
    await asyncio.sleep(0)
    if messages[-1]["role"] == "user":
        return {"role": "assistant", "calls": [{"id": "c1", "name": "read", "args": {"path": "x"}}]}
    return {"role": "assistant", "text": "done"}


async def tool(args: dict[str, Any]) -> str:
    return f"content of {args['path']}"


async def delegation(number: int, log: int) -> list[dict[str, Any]]:
    """Run one delegation with one tool call and one answer, and return its events."""
    session = PlainSession(number, log)
    events = [session.write("run_queued", task="do it"), session.write("run_started")]
    session.begin()
    messages: list[dict[str, Any]] = [{"role": "user", "text": "do it"}]
    events.append(session.write("attempt_started"))
    while True:
        reply = await model(messages)
        messages.append(reply)
        if "text" in reply:
            events += [session.write("text", text=reply["text"]), session.write("message_ended")]
            break
        for call in reply["calls"]:
            events += [session.write("tool_called", **call), session.write("message_ended")]
            result = await tool(call["args"])
            messages.append({"role": "tool", "text": result})
            events.append(session.write("tool_returned", text=result))
    events.append(session.write("run_ended", text="done"))
    session.end()
    return events


async def delegations(count: int) -> None:
    log = folders()
    for number in range(20):
        await delegation(10**6 + number, log)
    with print_cost(times=count):
        for number in range(count):
            await delegation(number, log)


async def parallel(count: int) -> None:
    log = folders()
    await delegation(10**6, log)
    with print_cost(times=count):
        await asyncio.gather(*(delegation(number, log) for number in range(count)))


async def held(count: int) -> None:
    """Measure the memory of tasks that hold the events of a run, just before the last event."""
    ready, go = 0, asyncio.Event()

    def make_events() -> list[dict[str, Any]]:
        facts = {"name": "explorer", "agent": "explorer", "task": "do it", "cwd": "/", "surface": "fanout"}
        events: list[dict[str, Any]] = [
            {**stamp(1), "type": "run_queued", **facts, "engine": "bench", "timeout": 600.0, "tools": ["read"]},
            {**stamp(2), "type": "run_started"},
            {**stamp(3), "type": "attempt_started", "number": 1, "reason": "first"},
        ]
        for turn in range(2):
            name, path = f"c{turn}", f"file {turn}"
            usage = {"turns": 1}
            events += [
                {**stamp(4), "type": "tool_called", "call": name, "name": "read", "args": {"path": path}},
                {**stamp(5), "type": "message_ended", "stopReason": "tool_use", "model": "m", "usage": usage},
                {**stamp(6), "type": "tool_returned", "call": name, "name": "read", "text": f"content of {path}"},
            ]
        return events

    async def one() -> list[dict[str, Any]]:
        nonlocal ready
        events = make_events()
        ready += 1
        await go.wait()
        return events

    before = resident_bytes()
    tasks = [asyncio.create_task(one()) for _ in range(count)]
    while ready < count:
        await asyncio.sleep(0)
    print(json.dumps({"grown_bytes": (resident_bytes() - before) // count}))
    go.set()
    await asyncio.gather(*tasks)


def stamp(seq: int) -> dict[str, Any]:
    import time

    return {**LINE, "parentRun": None, "depth": 1, "seq": seq, "time": time.time()}


async def deltas(count: int) -> None:
    """Measure a stream of deltas of 500 bytes: generated, classified, counted, the first 8 MiB stored."""
    answer_parts: list[str] = []
    size = 0

    async def stream() -> AsyncIterator[dict[str, str]]:
        text = "x" * 500
        for number in range(count):
            yield {"type": "text_delta", "text": text}
            if number % 32 == 0:
                await asyncio.sleep(0)

    with print_cost():
        async for event in stream():
            if event["type"] == "text_delta":
                size += len(event["text"])
                if size <= 8 * 2**20:
                    answer_parts.append(event["text"])
        answer = "".join(answer_parts)
    assert answer


async def appended(count: int) -> None:
    """Encode and write event lines, with a sync and a write to the shared log after each hundred."""
    from retinue.model.event_codec import EventRecord, EventSource, to_line
    from retinue.model.events import ToolCalled

    log = folders()
    file = os.open(f"{scratch()}/plain.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    origin = EventSource(run="a" * 32, session="a" * 32, root="b" * 32, parent_tool_use_id="call-1")
    held: list[bytes] = []
    with print_cost(times=count):
        for number in range(count):
            event = ToolCalled(f"c{number}", "read", {"path": "x" * 60, "n": number})
            line = to_line(EventRecord(origin, number, 1.5, event))
            os.write(file, line)
            held.append(line)
            if len(held) == 100:
                os.write(log, b"".join(held))
                os.fdatasync(file)
                held.clear()
        os.fdatasync(file)


async def first_request(_: int) -> None:
    """From the start of the program to the first model request, the session being durable."""
    import time

    log = folders()
    session = PlainSession(1, log)
    session.write("run_queued", task="do it")
    session.write("run_started")
    session.begin()
    print(json.dumps({"cpu": time.process_time()}))
    session.end()


WORK: dict[str, Callable[[int], Awaitable[None]]] = {
    work.__name__: work for work in (delegations, parallel, held, deltas, appended, first_request)
}

if __name__ == "__main__":
    asyncio.run(WORK[sys.argv[1]](int(sys.argv[2])))  # type: ignore[arg-type]
