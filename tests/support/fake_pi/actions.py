"""The actions of the fake pi: one method for each line of the table."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import Record

if TYPE_CHECKING:
    from .process import FakePi

FINALIZE = "subagent_finalize"
CHUNK = 1 << 18
"""Bytes of a flood written at once."""


class RunAbortedError(Exception):
    """The run was aborted by a command."""

    def __init__(self, command: Record) -> None:
        super().__init__()
        self.command = command


class FakePiActions:
    """The actions of the table."""

    def __init__(self, pi: FakePi) -> None:
        self._pi = pi

    def say(self, text: str, *, deltas: int = 0, stop: str = "stop", error: str = "", usage: Any = None) -> None:
        content = [{"type": "text", "text": text}] if text else []
        size = -(-len(text) // deltas) if deltas else 0
        parts = [text[at : at + size] for at in range(0, len(text), size)] if size else []
        self._pi.add(self._pi.make_message(content, stop, error=error or None, usage=usage), deltas=parts)
        self._pi.send({"type": "turn_end"})

    def call(
        self,
        tool: str,
        args: Record | None = None,
        *,
        returns: str = "",
        is_error: bool = False,
        updates: Sequence[str] = (),
        details: Record | None = None,
    ) -> None:
        called = self._begin_call(tool, args or {})
        for text in updates:
            self._pi.send({"type": "tool_execution_update", **called, "partialResult": _content(text)})
        self._end_call(called, returns, is_error=is_error, details=details)

    def finalize(self, result: str | None = None, *, error: str | None = None) -> None:
        arguments = {"status": "ERROR" if error else "SUCCESS", "result": result, "error": error}
        arguments = {key: value for key, value in arguments.items() if value is not None}
        self.call(FINALIZE, arguments, returns="finalized", details=arguments)

    def delegate(self, tool: str, args: Record, *, abandon: bool = False) -> None:
        from .delegation_client import DelegationClient

        if args.get("task") == "{prompt}":
            args = {**args, "task": self._pi.prompt}
        called = self._begin_call(tool, args)
        client = DelegationClient(self._pi.callback)
        client.start_call(tool, called["toolCallId"], args)
        if abandon:
            client.close()
            self._end_call(called, "Aborted", is_error=True)
            return
        for partial in client.iter_partials():
            self._pi.send({"type": "tool_execution_update", **called, "partialResult": partial})
        self._end_delegation(called, client.result)

    def delegate_all(self, tool: str, *args: Record) -> None:
        from .delegation_client import DelegationClient

        calls = [self._begin_call(tool, each) for each in args]
        clients = [DelegationClient(self._pi.callback) for _ in args]
        for called, client in zip(calls, clients, strict=True):
            client.start_call(tool, called["toolCallId"], called["args"])
        for called, client in zip(calls, clients, strict=True):
            list(client.iter_partials())
            self._end_delegation(called, client.result)

    def fail(self, error: str, *, will_retry: bool = False) -> None:
        self._pi.add(self._pi.make_message([], "error", error=error))
        if will_retry:
            again = {"attempt": 1, "maxAttempts": 3, "delayMs": 1, "errorMessage": error}
            self._pi.send({"type": "agent_end", "willRetry": True}, {"type": "auto_retry_start", **again})
            self._pi.send({"type": "agent_start"})

    def report(self, *variables: str) -> None:
        pi = self._pi
        known = {
            "pid": os.getpid(),
            "cwd": str(Path.cwd()),
            "argv": pi.argv,
            "session": pi.session.path,
            "prompts": pi.session.prompts,
            "served": pi.served,
            "configured": pi.configured,
            "environ": {name: os.environ.get(name) for name in variables},
            "descriptors": _descriptors(),
        }
        self.say(json.dumps(known))

    def ask(self, title: str) -> None:
        asked = {"type": "extension_ui_request", "id": "q1", "method": "confirm", "title": title}
        self._pi.send(asked)
        answer = next(self._pi.commands())
        self.say(json.dumps(answer))

    def long(self, size: int) -> None:
        def line(filler: str) -> Record:
            return {
                "type": "message_end",
                "message": self._pi.make_message([{"type": "text", "text": filler}], "stop"),
            }

        empty = len(json.dumps(line(""), separators=(",", ":")))
        self._pi.send(line("x" * (size - empty)))

    def wait_for_steering(self, *, settle: bool = False, drop: bool = False, refuse: str = "") -> None:
        for command in self._pi.commands():
            if command["type"] != "steer":
                self._pi.respond(command, error="Agent is already processing.")
                continue
            if settle:
                self._pi.settle()
            self._pi.respond(command, error=refuse or None, disposition="queued")
            if not (settle or drop or refuse):
                self._pi.add({"role": "user", **_content(command["message"])})
            return

    def settle(self) -> None:
        self._pi.settle()

    def emit(self, record: Record) -> None:
        self._pi.send(record)

    def raw(self, text: str) -> None:
        self._pi.write(text.encode("latin-1"))

    def drip(self, text: str) -> None:
        for byte in text.encode("latin-1"):
            os.write(1, bytes((byte,)))

    def repeat(self, text: str, times: int) -> None:
        at_once = max(1, CHUNK // len(text))
        for start in range(0, times, at_once):
            self._pi.write(text.encode("latin-1") * min(at_once, times - start))

    def beat(self, times: int, pause: float) -> None:
        for _ in range(times):
            self._pi.send({"type": "keep_alive"})
            time.sleep(pause)

    def flood(self, kind: str, size: int) -> None:
        filler = "x" * (CHUNK - 200)
        delta = {"type": "text_delta", "contentIndex": 0, "delta": filler}
        chunk = {
            "events": json.dumps({"type": "entry_appended", "entry": filler}, separators=(",", ":")) + "\n",
            "deltas": json.dumps({"type": "message_update", "assistantMessageEvent": delta}, separators=(",", ":"))
            + "\n",
        }.get(kind, filler)
        for _ in range(-(-size // len(chunk))):
            self._pi.write(chunk.encode(), 2 if kind == "stderr" else 1)

    def bash(self, command: str) -> None:
        import subprocess

        called = self._begin_call("bash", {"command": command})
        done = subprocess.run(
            command,
            shell=True,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._end_call(called, done.stdout.decode(errors="replace"), is_error=done.returncode != 0)

    def shell(self, command: str) -> None:
        import subprocess

        subprocess.run(command, shell=True, check=False, stdin=subprocess.DEVNULL)

    def hang(self, *, deaf: bool = False) -> None:
        if not deaf and self._pi.value_of("--mode") == "rpc":
            for command in self._pi.commands():
                if command["type"] == "abort":
                    raise RunAbortedError(command)
                self._pi.respond(command, error="Agent is already processing.")
            os._exit(0)
        while True:
            time.sleep(3600)

    def close(self) -> None:
        os.close(1)

    def exit(self, code: int) -> None:
        os._exit(code)

    def die(self, name: str) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = signal.Signals[f"SIG{name}"]
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def stop(self) -> None:
        self.die("STOP")

    def ignore(self, name: str) -> None:
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)

    def grow(self, size: int) -> None:
        self._pi.held.append(b"x" * size)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def refuse(self, command: str, error: str) -> None:
        self._pi.refusals[command] = error

    def have(self, *tools: str) -> None:
        self._pi.tools = tools

    def unload(self) -> None:
        self._pi.has_extension = False

    def _end_delegation(self, called: Record, result: Record) -> None:
        text = "".join(part["text"] for part in result["content"])
        self._end_call(called, text, is_error=result.get("isError", False), details=result.get("details"))

    def _begin_call(self, tool: str, args: Record) -> Record:
        call = self._pi.next_call()
        request = {"type": "toolCall", "id": call, "name": tool, "arguments": args}
        self._pi.add(self._pi.make_message([request], "toolUse"))
        called = {"toolCallId": call, "toolName": tool, "args": args}
        self._pi.send({"type": "tool_execution_start", **called})
        return called

    def _end_call(self, called: Record, text: str, *, is_error: bool, details: Record | None = None) -> None:
        result = {**_content(text), "details": details or {}}
        self._pi.send({"type": "tool_execution_end", **called, "result": result, "isError": is_error})
        self._pi.add({"role": "toolResult", "toolCallId": called["toolCallId"], **_content(text)})
        self._pi.send({"type": "turn_end"}, {"type": "turn_start"})


def _content(text: str) -> Record:
    return {"content": [{"type": "text", "text": text}]}


def _descriptors() -> list[str]:
    """Return the open descriptors, without the one that listing them opens."""
    return sorted(file.name for file in [*Path("/proc/self/fd").iterdir()] if file.exists())
