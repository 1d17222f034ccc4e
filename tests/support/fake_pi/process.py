"""The fake pi process: its commands, sessions and lines."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Relative, because the program finds this package without Retinue around it.
from . import SCRIPT_MARK, FakePiAction, Record, action, decode_script
from .actions import FINALIZE, FakePiActions, RunAbortedError

CONFIGURE = "/retinue_configure "
TOOLS = ("read", "write", "edit", "bash", "grep", "find", "ls", FINALIZE)
CHUNK = 1 << 16
MAX_ECHO_CHARS = 60
"""Characters echoed of a prompt without a script."""


def main(argv: Sequence[str], at_start: Sequence[FakePiAction] = ()) -> NoReturn:
    # As pi: on SIGTERM it exits with a code of its own.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    pi = FakePi(argv)
    try:
        pi.run_actions(at_start)
        if pi.value_of("--mode") == "rpc":
            pi.serve_commands()
        else:
            pi.answer_once()
    except BrokenPipeError:
        os._exit(1)
    os._exit(0)


class FakePiSession:
    """A conversation and its file: a header line, then its messages."""

    def __init__(self, path: str | None) -> None:
        """Open the session, or create it if the file does not exist.

        Raises:
            ValueError: the file is not a session, or its folder is gone.
        """
        self.path = path
        self.messages: list[Record] = []
        self.header: Record = {"type": "session", "version": 3, "id": os.urandom(16).hex(), "cwd": str(Path.cwd())}
        lines = Path(path).read_text().splitlines() if path and Path(path).exists() else []
        self._is_written = bool(lines)
        if lines:
            self._read(lines)

    def add(self, message: Record) -> None:
        self.messages.append(message)
        if self.path:
            lines = [] if self._is_written else [self.header]
            self._is_written = True
            with Path(self.path).open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in [*lines, {"type": "message", "message": message}])

    @property
    def prompts(self) -> list[str]:
        """The prompts of the session, without their scripts."""
        texts = (_message_text(message) for message in self.messages if message["role"] == "user")
        return [text.partition(SCRIPT_MARK)[0].strip() for text in texts]

    def _read(self, lines: list[str]) -> None:
        try:
            self.header, *entries = map(json.loads, lines)
            self.messages = [entry["message"] for entry in entries if entry["type"] == "message"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"Session file is not a valid pi session: {self.path}") from None
        if not Path(self.header["cwd"]).is_dir():
            raise ValueError(f"Stored session working directory does not exist: {self.header['cwd']}")


class FakePi:
    """The process: its commands, its session, and its output."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.session = FakePiSession(None if "--no-session" in argv else self.value_of("--session"))
        self.served: list[str] = []
        """The prompts of this process, of all sessions."""
        self.tools: Sequence[str] = TOOLS
        self.has_extension = True
        self.configured: Record = self._configured_by_arguments()
        self.callback: Record = {}
        """The address for delegation calls."""
        self.refusals: dict[str, str] = {}
        self.is_settled = True
        self.prompt = ""
        """The current prompt."""
        self._rest = b""
        self.held: list[bytes] = []
        """Memory that is never released."""
        self._calls = 0

    def value_of(self, flag: str) -> str | None:
        return self.argv[self.argv.index(flag) + 1] if flag in self.argv else None

    def serve_commands(self) -> None:
        """Handle commands until the input ends."""
        for command in self.commands():
            self.handle_command(command)

    def answer_once(self) -> None:
        self.send(self.session.header)
        self.run(sys.stdin.buffer.read().decode())

    def commands(self) -> Iterator[Record]:
        while True:
            while b"\n" not in self._rest:
                chunk = os.read(0, CHUNK)
                if not chunk:
                    return
                self._rest += chunk
            line, self._rest = self._rest.split(b"\n", 1)
            yield json.loads(line)

    def handle_command(self, command: Record) -> None:
        kind = command["type"]
        if kind in self.refusals:
            self.respond(command, error=self.refusals[kind])
        elif kind == "get_state":
            self.respond(command, sessionId=self.session.header["id"], sessionFile=self.session.path)
        elif kind in {"new_session", "switch_session"}:
            self._change_session(command)
        elif kind == "prompt":
            self._handle_prompt(command)
        elif kind == "abort" or kind.startswith("set_"):
            self.respond(command)
        else:
            self.respond(command, error=f"Unknown command: {kind}")

    def respond(self, command: Record, *, error: str | None = None, **data: Any) -> None:
        record = {"id": command.get("id"), "type": "response", "command": command["type"], "success": error is None}
        self.send({**record, **({"error": error} if error else {"data": data} if data else {})})

    def _change_session(self, command: Record) -> None:
        path = self.session.path
        fresh = str(Path(path).with_name(f"{os.urandom(8).hex()}.jsonl")) if path else None
        try:
            self.session = FakePiSession(command.get("sessionPath", fresh))
        except ValueError as error:
            self.respond(command, error=str(error))
            return
        self.configured = {}  # pi loads its extensions anew
        self.respond(command, cancelled=False)

    def _handle_prompt(self, command: Record) -> None:
        message = command["message"]
        if message.startswith(CONFIGURE) and self.has_extension:
            self.configured = json.loads(message.removeprefix(CONFIGURE))
            self.callback = self.configured.get("home", {})
            known = [*self.tools, *self._list_delegation_tools()]
            notification = {"missing": [tool for tool in self.configured["tools"] if tool not in known]}
            asked = {"type": "extension_ui_request", "id": "1", "method": "notify", "notifyType": "info"}
            self.send({**asked, "message": f"retinue {json.dumps(notification)}"})
            self.respond(command, disposition="handled")
        else:
            self.respond(command, disposition="started")
            self.run(message)

    def _list_delegation_tools(self) -> list[str]:
        if not self.callback:
            return []
        from .delegation_client import DelegationClient

        client = DelegationClient(self.callback)
        tools = client.list_tools()
        client.close()
        return tools

    # -- a run ---------------------------------------------------------------------------------------

    def run(self, prompt: str) -> None:
        self.is_settled = False
        self.prompt = prompt
        text, _, rest = prompt.partition(SCRIPT_MARK)
        self.send({"type": "agent_start"}, {"type": "turn_start"})
        self.add({"role": "user", "content": [{"type": "text", "text": prompt}]})
        try:
            self.run_actions(
                decode_script(rest.split(maxsplit=1)[0])
                if rest
                else [action("say", f"ECHO: {prompt[:MAX_ECHO_CHARS]}")]
            )
        except RunAbortedError as aborted:
            self.add(self.make_message([], "error", error="This operation was aborted"))
            self.settle(aborted=True)
            self.respond(aborted.command)
        self.served.append(text.strip())
        if not self.is_settled:
            self.settle()

    def run_actions(self, actions: Sequence[FakePiAction]) -> None:
        available = FakePiActions(self)
        for name, args, options in actions:
            getattr(available, name)(*args, **options)

    def settle(self, *, aborted: bool = False) -> None:
        self.is_settled = True
        self.send({"type": "agent_end", "willRetry": False}, {"type": "agent_settled", "aborted": aborted})

    def make_message(
        self, content: list[Record], stop: str, *, error: str | None = None, usage: Any = None
    ) -> Record:
        used = {"input": 10, "output": 3, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.001}}
        fields = {"role": "assistant", "content": content, "provider": "fake", "model": "fake-1", "stopReason": stop}
        return {**fields, "usage": used if usage is None else usage, **({"errorMessage": error} if error else {})}

    def add(self, message: Record, *, deltas: Sequence[str] = ()) -> None:
        self.send({"type": "message_start", "message": {**message, "content": []}})
        for part in deltas:
            event = {"type": "text_delta", "contentIndex": 0, "delta": part}
            self.send({"type": "message_update", "assistantMessageEvent": event})
        self.send({"type": "message_end", "message": message})
        self.session.add(message)

    def next_call(self) -> str:
        self._calls += 1
        return f"call_{os.getpid()}_{self._calls}"

    def send(self, *records: Record) -> None:
        self.write("".join(f"{json.dumps(record, separators=(',', ':'))}\n" for record in records).encode())

    def write(self, data: bytes, descriptor: int = 1) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def _configured_by_arguments(self) -> Record:
        """Return the configuration that older versions get by arguments."""
        prompts = {
            key: Path(path).read_text() if (path := self.value_of(flag)) else ""
            for key, flag in (("system", "--system-prompt"), ("append", "--append-system-prompt"))
        }
        return {"tools": list(filter(None, (self.value_of("--tools") or "").split(","))), **prompts}


def _message_text(message: Record) -> str:
    return "".join(block.get("text", "") for block in message["content"])
