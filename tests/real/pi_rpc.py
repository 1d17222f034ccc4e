"""pi as a process that takes commands, for tests that look at pi itself."""

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

PATIENCE = 20
"""Seconds for anything to come; all of it comes in less than one."""
LONGEST_LINE = 64 * 2**20
QUIET = ("-ne", "--no-skills", "-np", "--no-themes", "-nc")
"""Nothing is loaded that a test does not name."""

Record = Mapping[str, Any]


class PiRpc:
    """The lines to and from one pi."""

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
        """What pi says until something is found in it, that included."""
        heard: list[Record] = []
        with anyio.fail_after(PATIENCE):
            while not heard or not found(heard[-1]):
                heard.append(json.loads(await self._lines.receive_until(b"\n", LONGEST_LINE)))
        return heard

    async def ask(self, command: str, **fields: Any) -> tuple[Record, list[Record]]:
        """The response to a command, and the events that came before it."""
        sent = await self.send(command, **fields)
        *events, response = await self.until(lambda record: record.get("id") == sent)
        return response, events

    async def state(self) -> Record:
        response, _ = await self.ask("get_state")
        state: Record = response["data"]
        return state

    async def prompt(self, message: str) -> list[Record]:
        """The events of one run."""
        response, before = await self.ask("prompt", message=message)
        assert (response["success"], before) == (True, [])
        return await self.settled()

    async def settled(self) -> list[Record]:
        return await self.until(lambda record: record["type"] == "agent_settled")

    async def end(self) -> tuple[int, bytes, bytes]:
        """Closes stdin: how pi ends, and what is left on stdout and stderr."""
        await self._stdin.aclose()
        with anyio.fail_after(PATIENCE):
            code = await self.process.wait()
            return (
                code,
                b"".join([part async for part in self._lines]),
                b"".join([part async for part in self._stderr]),
            )


@asynccontextmanager
async def rpc(pi: PiInstall, environ: Mapping[str, str], cwd: Path, *options: str) -> AsyncIterator[PiRpc]:
    command = [*pi.argv, "--mode", "rpc", *QUIET, *options]
    # Leaving closes its stdin, and with that a pi ends, whatever it is doing.
    async with await anyio.open_process(command, cwd=cwd, env=environ, stderr=subprocess.PIPE) as process:
        yield PiRpc(process)


def kinds(records: list[Record]) -> list[str]:
    """What happened, in short; streamed pieces are left out."""
    return [_kind(record) for record in records if record["type"] != "message_update"]


def _kind(record: Record) -> str:
    if record["type"] in {"message_start", "message_end"}:
        message = record["message"]
        return " ".join(filter(None, (record["type"], message["role"], message.get("stopReason"))))
    return str(record["type"])


def of(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["type"] == kind]


def answers(records: list[Record]) -> list[Record]:
    """The model's messages."""
    return [record["message"] for record in of(records, "message_end") if record["message"]["role"] == "assistant"]
