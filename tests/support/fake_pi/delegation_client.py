"""The delegation client of the fake pi, as our extension has it in the real one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from . import Record


class DelegationClient:
    """A connection to the process that started the run."""

    def __init__(self, callback: Record) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(callback["socket"])
        self._lines = self._socket.makefile("rb")
        self._send({"type": "hello", "v": 1, "token": callback["token"]})
        self._hello_reply = self._receive()
        self.result: Record = {"content": [{"type": "text", "text": ""}]}

    def list_tools(self) -> list[str]:
        """Return the names of the delegation tools."""
        self._send({"type": "tools"})
        return [tool["name"] for tool in self._receive()["tools"]]

    def start_call(self, tool: str, call: str, args: Record) -> None:
        self._send({"type": "call", "tool": tool, "call": call, "arguments": args, "partial": True})

    def iter_partials(self) -> Iterator[Record]:
        """Yield partial results until the final one arrives."""
        while True:
            message = self._receive()
            if message["type"] == "partial":
                yield message["result"]
                continue
            failed = {"content": [{"type": "text", "text": message.get("message", "")}], "isError": True}
            self.result = message.get("result", failed)
            return

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _send(self, message: Record) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> Record:
        line = self._lines.readline()
        message: Record = json.loads(line) if line else {"type": "gone", "message": "Nobody answers."}
        return message
