"""A pi process in RPC mode, for tests of pi itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.real.pi_install import PiInstall

REPLY_TIMEOUT = 20
"""Seconds for any reply; each takes less than one."""
MAX_LINE_BYTES = 64 * 2**20
QUIET = ("-ne", "--no-skills", "-np", "--no-themes", "-nc")
"""Options that load only what a test names."""

Record = Mapping[str, Any]


class PiRpc:
    """Commands to one pi and its records."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._stderr = process.stderr
        self._sent = 0

    async def send(self, command: str, **fields: Any) -> str:
        self._sent += 1
        line = json.dumps({"id": f"r{self._sent}", "type": command, **fields})
        await self._stdin.send(line.encode() + b"\n")
        return f"r{self._sent}"

    async def until(self, found: Callable[[Record], bool]) -> list[Record]:
        """Return the records up to the first one that `found` accepts."""
        records: list[Record] = []
        with anyio.fail_after(REPLY_TIMEOUT):
            while not records or not found(records[-1]):
                records.append(json.loads(await self._lines.receive_until(b"\n", MAX_LINE_BYTES)))
        return records

    async def ask(self, command: str, **fields: Any) -> tuple[Record, list[Record]]:
        """Return the response to a command, and the events before it."""
        sent = await self.send(command, **fields)
        *events, response = await self.until(lambda record: record.get("id") == sent)
        return response, events

    async def state(self) -> Record:
        response, _ = await self.ask("get_state")
        state: Record = response["data"]
        return state

    async def prompt(self, message: str) -> list[Record]:
        """Send a prompt and return the events of its run."""
        response, before = await self.ask("prompt", message=message)
        assert (response["success"], before) == (True, [])
        return await self.wait_idle()

    async def wait_idle(self) -> list[Record]:
        return await self.until(lambda record: record["type"] == "agent_settled")

    async def end(self) -> tuple[int, bytes, bytes]:
        """Close stdin and return the exit code and the rest of stdout and stderr."""
        await self._stdin.aclose()
        with anyio.fail_after(REPLY_TIMEOUT):
            code = await self.process.wait()
            return (
                code,
                b"".join([part async for part in self._lines]),
                b"".join([part async for part in self._stderr]),
            )


@asynccontextmanager
async def rpc(pi: PiInstall, environ: Mapping[str, str], cwd: Path, *options: str) -> AsyncIterator[PiRpc]:
    command = [*pi.argv, "--mode", "rpc", *QUIET, *options]
    # Leaving the block closes stdin, which ends pi at any time.
    async with await anyio.open_process(command, cwd=cwd, env=environ, stderr=subprocess.PIPE) as process:
        yield PiRpc(process)


def kinds(records: list[Record]) -> list[str]:
    """Return short descriptions of the records, without streamed deltas."""
    return [_kind(record) for record in records if record["type"] != "message_update"]


def _kind(record: Record) -> str:
    if record["type"] in {"message_start", "message_end"}:
        message = record["message"]
        return " ".join(filter(None, (record["type"], message["role"], message.get("stopReason"))))
    return str(record["type"])


def select_events(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["type"] == kind]


def assistant_messages(records: list[Record]) -> list[Record]:
    """Return the messages of the model."""
    return [
        record["message"]
        for record in select_events(records, "message_end")
        if record["message"]["role"] == "assistant"
    ]
