"""`retinue mcp` as a process on stdin and stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.process

PATIENCE = 30.0
TASK = {"agent": "explorer", "task": "look"}
HANGS = json.dumps({"steps": [{"call": "read", "args": {"path": "a.py"}}, {"hang": True}]})
ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


class Host:
    """Speaks to a server line by line."""

    def __init__(
        self, place: Path, *arguments: str, program: tuple[str, ...] = ("-m", "retinue"), **environ: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, "mcp", "--engine", "scripted", *arguments],
            cwd=place,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, method: str, number: int = 1, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **ENVELOPE}})

    def call(self, tool: str, arguments: Any, number: int = 1, **meta: Any) -> None:
        params = {"name": tool, "arguments": arguments, "_meta": {**ENVELOPE["_meta"], **meta}}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def line(self) -> Any:
        """The next message of the server."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def leave(self) -> tuple[bytes, bytes]:
        """Closes stdin and waits for the end; what was still said on stdout and on stderr."""
        return self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def host(tmp_path):
    started: list[Host] = []

    def start(*arguments: str, **how: Any) -> Host:
        started.append(Host(tmp_path, *arguments, **how))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_sdk_client_is_answered_on_stdio_in_both_revisions(tmp_path, mode):
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "retinue", "mcp", "--engine", "scripted"],
        cwd=tmp_path,
        env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]},
    )
    async with Client(parameters, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 5
        result = await client.call_tool("subagent", TASK)
    assert [block.model_dump()["text"] for block in result.content] == ["A scripted answer of explorer to: look"]


def test_stdout_carries_only_the_protocol(host):
    """Whatever prints in the process or below it while it serves, on the stream or on the descriptor."""
    noisy = """
import os, sys, warnings
from retinue.cli.main import main
from retinue.toolsets.single import SingleToolset
quiet = SingleToolset.run_subagent
async def loud(self, *given):
    print("noise of a library", flush=True)
    os.write(1, b"noise of an extension\\n")
    os.system("echo noise of a child; cat")
    warnings.warn("noise of Python")
    return await quiet(self, *given)
SingleToolset.run_subagent = loud
main(sys.argv[1:])
"""
    served = host(program=("-c", noisy))
    served.call("subagent", TASK)
    assert served.line()["result"]["content"][0]["text"] == "A scripted answer of explorer to: look"
    out, err = served.leave()
    assert out == b""
    assert err.count(b"noise of") >= 4
    assert served.process.returncode == 0


def test_invalid_messages_are_survived_and_the_next_call_answered(host):
    served = host()
    served.write(b"\n\n{\n[]\nnull\n\xff\xfe\n" + b"[" * 100_000 + b'\n{"jsonrpc":"2.0"}\n{"id":{}}\n')
    served.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"9" * 5000 + b"}\n")
    served.call("subagent", TASK, 7)
    while (answer := served.line()).get("id") != 7:
        assert answer["jsonrpc"] == "2.0"
    assert answer["result"]["isError"] is False


def test_lone_surrogate_in_a_call_on_stdio_is_answered(host):
    """Hosts in JavaScript write such escapes where they cut an emoji in two."""
    served = host()
    served.call("subagent", {"agent": "explorer", "task": "look \ud83d"}, 7)
    answer = served.line()
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (
        7,
        "A scripted answer of explorer to: look \ufffd",
    )


def test_endless_message_is_skipped_in_bounded_memory(host):
    served = host()
    for _ in range(6):
        served.write(b"x" * 2**20)
    served.write(b"\n")
    served.call("subagent", TASK, 7)
    assert served.line()["id"] == 7
    _, err = served.leave()
    assert b"A message of more than 4 MiB was skipped" in err


def test_closed_stdin_ends_the_server_and_its_runs(host, tmp_path):
    served = host(RETINUE_SCRIPT=HANGS)
    served.call("subagent", TASK, progressToken="t")
    while "read" not in served.line()["params"]["message"]:
        pass
    served.leave()
    assert served.process.returncode == 0
    assert listed(tmp_path) == [("error", "aborted")]


def test_closed_stdout_ends_the_server(host, tmp_path):
    served = host(RETINUE_SCRIPT=HANGS)
    served.call("subagent", TASK, progressToken="t")
    served.line()
    served.process.stdout.close()
    served.ask("tools/list", 2)
    assert served.process.wait(PATIENCE) == 0
    assert listed(tmp_path) == [("error", "aborted")]


def test_slow_host_gets_every_message(host):
    served = host("--toolset", "single,nested")
    for number in range(300):
        served.ask("tools/list", number)
    assert sorted(served.line()["id"] for _ in range(300)) == list(range(300))


def test_cancelled_request_is_not_answered_and_the_server_continues(host, tmp_path):
    served = host(RETINUE_SCRIPT=HANGS)
    served.call("subagent", TASK, 1, progressToken="t")
    while "read" not in served.line()["params"]["message"]:
        pass
    served.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    served.ask("tools/list", 2)
    assert served.line()["id"] == 2
    served.leave()
    assert listed(tmp_path) == [("error", "aborted")]


def started(served: Host, agent: str) -> str:
    served.call("subagent_start", {"agent": agent, "task": "look"})
    return str(served.line()["result"]["structuredContent"]["id"])


def waited(served: Host, name: str, seconds: float) -> Any:
    served.call("subagent_wait", {"id": name, "seconds": seconds})
    return served.line()["result"]["structuredContent"]


def test_background_result_outlives_a_killed_server(host):
    """What was done is there for whoever serves next; what was not is said to be interrupted, with what it had."""
    script = json.dumps(
        {"agents": {"tester": [{"say": "So far."}, {"hang": True}]}, "steps": [{"say": "In auth.py."}]}
    )
    first = host("--background", RETINUE_SCRIPT=script)
    done, cut = started(first, "explorer"), started(first, "tester")
    first.process.kill()
    first.process.wait(PATIENCE)
    second = host("--background")
    read = waited(second, done, 0)
    assert (read["state"], read["result"]) == ("completed", "In auth.py.")
    lost = waited(second, cut, 20)
    assert (lost["state"], lost["error"]["code"]) == ("failed", "interrupted")
    assert waited(second, done, 0) == read


def test_run_of_a_killed_server_is_interrupted_for_another_server(host):
    first, second = host("--background", RETINUE_SCRIPT=HANGS), host("--background")
    name = started(first, "explorer")
    assert waited(second, name, 0)["state"] == "working"
    first.process.kill()
    first.process.wait(PATIENCE)
    lost = waited(second, name, 20)
    assert (lost["state"], lost["error"]["code"]) == ("failed", "interrupted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_stdio_server(host, number):
    served = host()
    served.ask("tools/list")
    served.line()
    served.process.send_signal(number)
    assert served.process.wait(PATIENCE) == 130


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--toolset", "single,sticky"),
            "The toolsets single and sticky both have a tool subagent: choose one of the toolsets.",
        ),
        (("--toolset", "singel"), "Unknown toolset: singel. Did you mean single?"),
        (("--toolset", " , "), "The value is empty: name at least one toolset."),
    ],
)
def test_invalid_mcp_options_are_reported_and_nothing_is_served(host, arguments, sentence):
    served = host(*arguments)
    out, err = served.leave()
    assert (served.process.returncode, out) == (2, b"")
    assert sentence in err.decode()


def listed(place: Path) -> list[tuple[str, str | None]]:
    result = subprocess.run(
        [sys.executable, "-m", "retinue", "sessions", "list", "--json"],
        capture_output=True,
        timeout=PATIENCE,
        cwd=place,
        check=True,
    )
    latest = [session["latest"] for session in json.loads(result.stdout)["sessions"]]
    return [(run["state"], (run["failure"] or {}).get("code")) for run in latest]
