"""A bridge and the other end of it: what an extension of a host does, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 30.0
TASK = {"agent": "explorer", "task": "look"}
HANGS = [{"call": "read", "args": {"path": "a.py"}}, {"event": {"type": "text", "text": "half"}}, {"hang": True}]

INTERRUPTED = {
    "code": "interrupted",
    "message": "Session was interrupted (main agent session ended unexpectedly)",
}


class Extension:
    """The other end of a bridge."""

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
        # One that says nothing more must not hold up the tests.
        self._patience = threading.Timer(PATIENCE, self.process.kill)
        self._patience.start()

    def say(self, *messages: dict[str, Any]) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def call(self, id_: str = "1", tool: str = "subagent", arguments: Any = TASK, **more: Any) -> None:
        self.say({"type": "call", "id": id_, "tool": tool, "arguments": arguments, **more})

    def heard(self) -> dict[str, Any]:
        """The next message that answers or shows something."""
        while (message := self.line())["type"] in {"hello", "started", "ended"}:
            pass
        return message

    def line(self) -> dict[str, Any]:
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def until(self, kind: str) -> list[dict[str, Any]]:
        """All messages up to the first of this type, that included."""
        said = [self.heard()]
        while said[-1]["type"] != kind:
            said.append(self.heard())
        return said

    def leave(self) -> tuple[bytes, bytes]:
        """Closes stdin and waits for the end; what was still said on stdout and on stderr."""
        return self.process.communicate(timeout=PATIENCE)

    def end(self) -> None:
        self._patience.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


def retinue(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "retinue", *arguments], capture_output=True, check=False, timeout=PATIENCE
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["result"]["content"]
    return str(block["text"])
