"""How the fake pi calls home: what our extension does in the real one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from . import Record


class Home:
    """A connection to the process that started the run."""

    def __init__(self, home: Record) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(home["socket"])
        self._lines = self._socket.makefile("rb")
        self._say({"type": "hello", "v": 1, "token": home["token"]})
        self._welcome = self._heard()
        self.result: Record = {"content": [{"type": "text", "text": ""}]}

    def tools(self) -> list[str]:
        """The names of the tools to delegate with."""
        self._say({"type": "tools"})
        return [tool["name"] for tool in self._heard()["tools"]]

    def ask(self, tool: str, call: str, args: Record) -> None:
        self._say({"type": "call", "tool": tool, "call": call, "arguments": args, "partial": True})

    def partial(self) -> Iterator[Record]:
        """Partial results until there is a whole one."""
        while True:
            heard = self._heard()
            if heard["type"] == "partial":
                yield heard["result"]
                continue
            failed = {"content": [{"type": "text", "text": heard.get("message", "")}], "isError": True}
            self.result = heard.get("result", failed)
            return

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _say(self, said: Record) -> None:
        self._socket.sendall(json.dumps(said).encode() + b"\n")

    def _heard(self) -> Record:
        line = self._lines.readline()
        heard: Record = json.loads(line) if line else {"type": "gone", "message": "Nobody answers."}
        return heard
