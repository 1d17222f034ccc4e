"""Start `retinue bridge` and act as the extension of a host, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

TIMEOUT = 30.0
TASK = {"agent": "explorer", "task": "look"}
HANGS = [{"call": "read", "args": {"path": "a.py"}}, {"event": {"type": "text", "text": "half"}}, {"hang": True}]

INTERRUPTED = {
    "code": "interrupted",
    "message": "Session was interrupted (main agent session ended unexpectedly)",
}


class Extension:
    """An extension that has started a bridge."""

    def __init__(self, place: Path, *arguments: str, program: tuple[str, ...], script: Any, environ: dict[str, str]):
        if script is not None:
            environ["RETINUE_SCRIPT"] = str(place / "script.json")
            (place / "script.json").write_text(json.dumps({"steps": script}))
        self.process = subprocess.Popen(
            [sys.executable, *program, "bridge", *arguments],
            cwd=place,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # A silent bridge must not block the tests.
        self._timeout = threading.Timer(TIMEOUT, self.process.kill)
        self._timeout.start()

    def send(self, *messages: dict[str, Any]) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def call(self, id_: str = "1", tool: str = "subagent", arguments: Any = TASK, **more: Any) -> None:
        self.send({"type": "call", "id": id_, "tool": tool, "arguments": arguments, **more})

    def receive(self) -> dict[str, Any]:
        """Return the next answer or partial result."""
        while (message := self.read_message())["type"] in {"hello", "started", "ended"}:
            pass
        return message

    def read_message(self) -> dict[str, Any]:
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def receive_until(self, kind: str) -> list[dict[str, Any]]:
        """Return all messages up to the first of this type, inclusive."""
        messages = [self.receive()]
        while messages[-1]["type"] != kind:
            messages.append(self.receive())
        return messages

    def close(self) -> tuple[bytes, bytes]:
        """Close stdin, wait for the exit and return the rest of stdout and stderr."""
        return self.process.communicate(timeout=TIMEOUT)

    def kill(self) -> None:
        self._timeout.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


def run_retinue(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "retinue", *arguments], capture_output=True, check=False, timeout=TIMEOUT
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def result_text(answer: dict[str, Any]) -> str:
    (block,) = answer["result"]["content"]
    return str(block["text"])
