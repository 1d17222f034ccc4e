"""Pipes that the loop cannot wait for are read and written in threads."""

import os
import subprocess

import anyio
import pytest

from retinue.engines.process.pipes import OneShotEvent, ThreadedPipeReader, ThreadedPipeWriter
from retinue.engines.process.started_process import poll_exit
from retinue.model.results import ProcessEnd


async def test_threaded_pipes_transfer_every_byte():
    reading, writing = os.pipe()
    source, sink = ThreadedPipeReader(os.fdopen(reading, "rb", 0)), ThreadedPipeWriter(os.fdopen(writing, "wb", 0))
    data = bytes(range(256)) * 4000
    received = []

    async def send() -> None:
        await sink.send(data, OneShotEvent())
        sink.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        while chunk := await source.receive(OneShotEvent()):
            received.append(chunk)
    source.close()
    assert b"".join(received) == data


async def test_chunk_read_by_an_abandoned_thread_is_not_lost():
    reading, writing = os.pipe()
    source = ThreadedPipeReader(os.fdopen(reading, "rb", 0))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await source.receive(OneShotEvent())
    with anyio.move_on_after(0.01):
        await source.receive(OneShotEvent())
    os.write(writing, b"late")
    os.close(writing)
    assert await source.receive(OneShotEvent()) == b"late"
    assert await source.receive(OneShotEvent()) == b""
    source.close()


@pytest.mark.process
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_exit_is_detected_without_process_descriptors(backend):
    process = subprocess.Popen(["sh", "-c", "exit 6"])
    assert anyio.run(poll_exit, process, backend=backend) == ProcessEnd(code=6)
    process.wait()
