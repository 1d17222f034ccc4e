"""Pipes where the loop cannot wait for them: threads read and write."""

import os
import subprocess

import anyio
import pytest

from retinue.engines.processes.exits import look_until_exit
from retinue.engines.processes.pipes import Once, ThreadedSink, ThreadedSource
from retinue.results import ProcessEnd


async def test_threads_carry_every_byte():
    reading, writing = os.pipe()
    source, sink = ThreadedSource(os.fdopen(reading, "rb", 0)), ThreadedSink(os.fdopen(writing, "wb", 0))
    data = bytes(range(256)) * 4000
    received = []

    async def send() -> None:
        await sink.send(data, Once())
        sink.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        while chunk := await source.receive(Once()):
            received.append(chunk)
    source.close()
    assert b"".join(received) == data


async def test_what_an_abandoned_thread_read_is_not_lost():
    reading, writing = os.pipe()
    source = ThreadedSource(os.fdopen(reading, "rb", 0))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await source.receive(Once())
    with anyio.move_on_after(0.01):
        await source.receive(Once())
    os.write(writing, b"late")
    os.close(writing)
    assert await source.receive(Once()) == b"late"
    assert await source.receive(Once()) == b""
    source.close()


@pytest.mark.process
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_end_is_seen_without_process_descriptors(backend):
    process = subprocess.Popen(["sh", "-c", "exit 6"])
    assert anyio.run(look_until_exit, process, backend=backend) == ProcessEnd(code=6)
    process.wait()
