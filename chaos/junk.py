"""Write junk to every input: whoever reads it goes on, and the next good message is answered as if nothing was."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.support.fake_pi import action, encode_script, install_fake_pi

from chaos.attack import EXIT_TIMEOUT, Attack, environment
from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError, open_connection
from retinue.model.events import Text
from retinue.sessions.jsonl import JsonlStore
from retinue.testing.stores import read_all, record_run, run_spec

LINES = 300
"""Junk lines of one attempt."""
MAX_LINE_BYTES = 64 * 1024 * 1024
ANSWER_TIMEOUT = 60.0
SAMPLES = (
    '{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"half"',
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"single","arguments":{}}}',
    '{"v":1,"seq":1,"time":1.0,"run":"0","session":"0","root":"0","depth":1,"type":"text","text":"x"}',
    '{"type":"call","id":"1","tool":"single","arguments":{"agent":"explorer","task":"look"}}',
    '{"command":"cancel","run":"0"}',
    "---\nname: reader\ndescription: reads\ntools: [read, grep]\n---\nYou read.\n",
)


def make_junk(choose: random.Random) -> bytes:
    """Return a line that is almost, or not at all, what a reader expects; without its newline."""
    kind = choose.randrange(7)
    if kind == 0:
        return choose.randbytes(choose.randint(0, 300)).replace(b"\n", b"")
    if kind == 1:
        return b"[" * choose.randint(1, 20_000)
    if kind == 2:
        return b'{"type":"' + b"x" * choose.choice((10, 1000, 100_000)) + b'"}'
    if kind == 3:
        return choose.choice(
            (b"null", b"0", b"-1e999", b"NaN", b'"', b"\xef\xbb\xbf{}", b"\x00", b"\xed\xa0\x80", b"{}")
        )
    line = bytearray(choose.choice(SAMPLES).encode())
    for _ in range(choose.randint(1, 6)):
        at = choose.randrange(len(line))
        line[at : at + choose.randint(0, 4)] = choose.randbytes(choose.randint(0, 3))
    return bytes(line).replace(b"\n", b" ")


async def attack_with_junk(attack: Attack) -> None:
    """Write junk to the output of children, MCP, the bridge, the control socket, agent files and session files."""
    targets = (
        junk_from_a_child,
        junk_to_mcp,
        junk_to_the_bridge,
        junk_to_the_control_socket,
        junk_in_agent_files,
        junk_in_session_files,
    )
    lines = 0
    while attack.goes_on(len(targets)):
        target = targets[attack.tally.tried % len(targets)]
        problems = await run_one(attack, target)
        attack.tally.note(*(f"{target.__name__}: {problem}" for problem in problems), lost=len(problems))
        lines += LINES
    attack.tally.counts |= {"junk lines": lines}
    attack.tally.figures |= {"inputs": len(targets)}


async def run_one(attack: Attack, target: Callable[[Attack, Path], Awaitable[list[str]]]) -> list[str]:
    try:
        with anyio.fail_after(ANSWER_TIMEOUT):
            return await target(attack, attack.folder())
    except TimeoutError:
        return ["no answer to a good message after the junk"]


async def junk_from_a_child(attack: Attack, home: Path) -> list[str]:
    install_fake_pi(home / "bin")
    answer = f"answer {attack.choose.getrandbits(64):x}"
    junk = (make_junk(attack.choose) for _ in range(LINES))
    lines = b"\n".join(line for line in junk if b"message_end" not in line) + b"\n"
    ending = action("exit", 1) if attack.is_control else action("say", answer)
    script = encode_script(action("raw", lines[:60_000].decode("latin-1") + "\n"), ending)
    async with Retinue(environ=environment(home), cwd=home, state=home / "state", engine="pi") as retinue:
        result = await retinue.run(None, script)
    return [] if (result.failure, result.text) == (None, answer) else [f"{result.failure or result.text!r}"]


async def junk_to_mcp(attack: Attack, home: Path) -> list[str]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    good = {"jsonrpc": "2.0", "id": "good", "method": "tools/list", "params": {"_meta": meta}}
    return await junk_to_a_process(attack, home, ["mcp"], good, lambda reply: "tools" in reply.get("result", {}))


async def junk_to_the_bridge(attack: Attack, home: Path) -> list[str]:
    return await junk_to_a_process(
        attack, home, ["bridge"], {"type": "tools", "id": "good"}, lambda reply: bool(reply.get("tools"))
    )


async def junk_to_a_process(
    attack: Attack, home: Path, arguments: list[str], good: Any, is_answer: Callable[[Any], bool]
) -> list[str]:
    """Write junk to a server's stdin, then a good message; every line of its stdout must be JSON."""
    command = [sys.executable, "-m", "retinue", *arguments, "--engine", "offline"]
    async with await anyio.open_process(command, cwd=home, env=environment(home), stderr=DEVNULL) as process:
        return await _write_junk_to(process, attack, good, is_answer)


async def _write_junk_to(process: Process, attack: Attack, good: Any, is_answer: Callable[[Any], bool]) -> list[str]:
    assert process.stdin
    assert process.stdout
    answers = BufferedByteReceiveStream(process.stdout)
    problems: list[str] = []

    async def read_answers() -> None:
        while True:
            line = await answers.receive_until(b"\n", MAX_LINE_BYTES)
            try:
                message = json.loads(line)
            except ValueError:
                problems.append(f"stdout has a line that is no JSON: {line[:100]!r}")
                continue
            if message.get("id") == "good":
                if not is_answer(message):
                    problems.append(f"the good message was answered with {line[:200]!r}")
                return

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read_answers)
            # The first message decides which protocol an MCP server speaks on this connection.
            await process.stdin.send(json.dumps({**good, "id": "first"}).encode() + b"\n")
            for _ in range(LINES):
                await process.stdin.send(make_junk(attack.choose) + b"\n")
            if attack.is_control:
                await process.stdin.aclose()
            else:
                await process.stdin.send(json.dumps(good).encode() + b"\n")
    except* (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
        problems.append(f"the server ended with exit code {process.returncode}")
    finally:
        await process.stdin.aclose()
        with anyio.move_on_after(EXIT_TIMEOUT, shield=True):
            await process.wait()
    return problems


async def junk_to_the_control_socket(attack: Attack, home: Path) -> list[str]:
    with TemporaryDirectory(prefix="rc-") as runtime:  # paths of sockets must be short
        environ = {**environment(home), "XDG_RUNTIME_DIR": runtime}
        async with Retinue(environ=environ, cwd=home, state=home / "state", engine="offline") as retinue:
            await retinue.run("explorer", "What is here?")  # the socket exists from the first run on
            (address,) = Path(runtime, "retinue").glob("*.sock")
            for _ in range(20):
                async with await anyio.connect_unix(address) as stream:
                    with suppress(anyio.BrokenResourceError):  # cut off, as it should be
                        for _ in range(LINES // 20):
                            await stream.send(make_junk(attack.choose) + b"\n")
            if attack.is_control:
                address.unlink()
            try:
                async with open_connection(str(address)):
                    result = await retinue.run("explorer", "What is here?")
            except (OSError, ProcessUnreachableError) as problem:
                return [f"the control socket does not answer: {problem}"]
    return [f"the next run failed: {result.failure.message}"] if result.failure else []


async def junk_in_agent_files(attack: Attack, home: Path) -> list[str]:
    folder = home / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for number in range(LINES // 10):
        lines = [make_junk(attack.choose) for _ in range(attack.choose.randint(1, 4))]
        start = attack.choose.choice((b"---\n", b"", b"---\nname: x\n"))
        (folder / f"junk-{number}.md").write_bytes(
            start + b"\n".join(lines) + attack.choose.choice((b"\n---\n", b""))
        )
    name = "another" if attack.is_control else "good"
    (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: reads\ntools: [read]\n---\nYou read.\n")
    retinue = Retinue(environ=environment(home), cwd=home, engine="offline", settings={"project_agents": "allow"})
    found = retinue.roster().find("good")
    return [] if isinstance(found, Agent) else ["a sound agent file is not found beside the junk"]


async def junk_in_session_files(attack: Attack, home: Path) -> list[str]:
    state = home / "state"
    async with JsonlStore(state) as store:
        specs = [run_spec(store.claim()) for _ in range(3)]
        written = [await record_run(store, spec, *map(Text, "abcdefgh")) for spec in specs]
    for spec in specs if attack.is_control else specs[1:]:
        path = state / "sessions" / spec.session[:8] / "session.jsonl"
        data = bytearray(path.read_bytes())
        for _ in range(attack.choose.randint(1, 5)):
            at = attack.choose.randrange(len(data))
            piece = make_junk(attack.choose)[:1000] + attack.choose.choice((b"\n", b""))
            data[at : at + attack.choose.choice((0, 1, 50, 5000))] = piece
        path.write_bytes(data)
    reader = JsonlStore(state)
    await reader.recover()
    await reader.list()
    read = [await read_all(reader, spec.session) for spec in specs]
    return [] if read[0] == written[0] else ["an undamaged session beside the damaged ones is not read"]
