"""The api engine on loopback, and the same in plain asyncio or in the HTTP client alone.

`python -m benchmarks.api_bench WORK N`. The model server is a process of its own, so that its time is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.workload import print_cost, resident_bytes, scratch

if TYPE_CHECKING:
    from retinue.client import Retinue

TASK = ("explorer", "do it")
TURNS = 10
ANSWER_BYTES = 15 * 64
"""Of an answer that is held."""


@contextmanager
def open_server() -> Iterator[str]:
    """Start the model server and yield its URL."""
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.model_wire"], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def make_retinue(url: str) -> Retinue:
    """Return a Retinue whose only provider is the server, with prices as for a real one."""
    from retinue.client import Retinue

    config = Path(scratch(), ".config/retinue/config.toml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[providers.groq]\nbase_url = "{url}"\n')
    many = {"max_tasks": 100_000, "max_concurrency": 100_000, "idle_timeout": 180.0}
    environ = {"HOME": scratch(), "PATH": os.environ["PATH"], "GROQ_API_KEY": "bench"}
    folder = Path(scratch(), "work")
    for number in range(TURNS):
        (folder / f"d{number}").mkdir(parents=True, exist_ok=True)
    return Retinue(cwd=folder, state=f"{scratch()}/state", engine="api", environ=environ, settings=many)


# -- start to the first byte sent ------------------------------------------------------------------


def print_at_first_byte() -> str:
    """Return the URL of a socket in this process that prints the CPU time at the first byte it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def wait() -> None:
        connection, _ = listener.accept()
        connection.recv(1)
        print(json.dumps({"cpu": time.process_time()}), flush=True)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def first_byte(_: int) -> None:
    """Measure the program's start to the first byte of a request, the session being durable."""
    async with make_retinue(print_at_first_byte()) as retinue:
        await retinue.run(*TASK, model="groq/turns-1")


async def client_first_byte(_: int) -> None:
    """Measure the same with nothing but the HTTP client."""
    import ssl

    import httpx2

    # Without certificates, which an address without TLS does not need.
    async with httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client:
        await client.post(print_at_first_byte(), content=b"{}")


async def plain_first_byte(_count: int) -> None:
    """Measure the same in plain asyncio, the session being as durable."""
    from benchmarks.asyncio_baseline import PlainSession, folders

    url = print_at_first_byte()
    session = PlainSession(1, folders())
    session.write("run_queued", task="do it")
    session.write("run_started")
    session.begin()
    _, stream = await open_plain(url)
    stream.write(plain_request("turns-1", []))
    await asyncio.sleep(60)


# -- CPU of a turn ---------------------------------------------------------------------------------


async def turns(count: int) -> None:
    """Measure our CPU of a turn with one tool call, without that of the HTTP client on the same bytes."""
    import httpx2

    with open_server() as url:
        async with make_retinue(url) as retinue, httpx2.AsyncClient() as client:
            for _ in range(3):
                await retinue.run(*TASK, model=f"groq/turns-{TURNS}")
            bodies = make_bodies()
            result = await retinue.run(*TASK, model=f"groq/turns-{TURNS}")
            assert result.failure is None, result.failure
            ours = theirs = 0.0
            gc.collect()
            for _ in range(count):
                start = time.process_time()
                result = await retinue.run(*TASK, model=f"groq/turns-{TURNS}")
                middle = time.process_time()
                await send_all(client, url, bodies)
                ours, theirs = ours + middle - start, theirs + time.process_time() - middle
            assert result.usage.turns == TURNS == len(bodies)
    each = count * TURNS
    print(json.dumps({"cpu": (ours - theirs) / each, "wall": theirs / each}))


def make_bodies() -> list[bytes]:
    """Return request bodies like those of such a run."""
    tool = {
        "type": "function",
        "function": {"name": "ls", "description": "x" * 200, "parameters": {"type": "object"}},
    }
    bodies: list[bytes] = []
    messages: list[dict[str, Any]] = [{"role": "system", "content": "x" * 4500}, {"role": "user", "content": "do it"}]
    for number in range(TURNS):
        bodies.append(json.dumps({"model": f"turns-{TURNS}", "messages": messages, "tools": [tool] * 5}).encode())
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "ls", "arguments": f'{{"path": "d{number}"}}'},
        }
        messages += [
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": ""},
        ]
    return bodies


async def send_all(client: Any, url: str, bodies: list[bytes]) -> None:
    for body in bodies:
        async with client.stream("POST", f"{url}/chat/completions", content=body) as response:
            async for _ in response.aiter_raw():
                pass


# -- many runs at once -----------------------------------------------------------------------------


async def held(count: int) -> None:
    """Measure the memory of runs in the middle of their answers, over one pool of connections.

    Their messages are not counted: the request, which a retry would send again, and the answer so far.
    """
    import anyio

    raise_file_limit()
    with open_server() as url:
        async with make_retinue(url) as retinue:
            await retinue.delegate([TASK] * 4, model="groq/turns-1")
            await retinue.run(*TASK, model="groq/turns-2")
            gc.collect()
            before = resident_bytes()
            results: list[Any] = []

            async def run() -> None:
                results.extend(await retinue.delegate([TASK] * count, model="groq/held"))

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                sent = int((await ask_plain(url, f"waiting-{count}")).split(b"\r\n")[1])
                await anyio.sleep(1)  # the last answers are on their way
                gc.collect()
                messages = sent + count * ANSWER_BYTES
                print(json.dumps({"grown_bytes": (resident_bytes() - before - messages) // count}), flush=True)
                await ask_plain(url, "release")
    assert len(results) == count
    assert all(result.failure is None for result in results), results[0].failure


def raise_file_limit() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- deltas ----------------------------------------------------------------------------------------


async def deltas(count: int) -> None:
    """Measure an answer in this many deltas."""
    with open_server() as url:
        async with make_retinue(url) as retinue:
            await retinue.run(*TASK, model="groq/turns-1")
            with print_cost():
                result = await retinue.run(*TASK, model=f"groq/deltas-{count}")
            assert result.failure is None, result.failure


async def plain_deltas(count: int) -> None:
    """Measure the same stream read, split, decoded and joined in plain asyncio."""
    with open_server() as url:
        reader, writer = await open_plain(url)
        with print_cost():
            writer.write(plain_request(f"deltas-{count}", [{"role": "user", "content": "do it"}]))
            await reader.readuntil(b"\r\n\r\n")
            parts: list[str] = []
            rest = b""
            while size := int(await reader.readline(), 16):
                *lines, rest = (rest + await reader.readexactly(size)).split(b"\n")
                await reader.readexactly(2)
                for line in lines:
                    if line.startswith(b"data: {"):
                        choices = json.loads(line[6:])["choices"]
                        if choices and (text := choices[0]["delta"].get("content")):
                            parts.append(text)
            assert len("".join(parts)) == count * 100
        writer.close()


async def open_plain(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port), limit=2**24)


async def ask_plain(url: str, model: str) -> bytes:
    """Send a request and return the body of its reply, in chunks."""
    reader, writer = await open_plain(url)
    writer.write(plain_request(model, []))
    await reader.readuntil(b"\r\n\r\n")
    body = await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    return body


def plain_request(model: str, messages: list[dict[str, Any]]) -> bytes:
    body = json.dumps({"model": model, "messages": messages, "stream": True}).encode()
    head = f"POST /chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


WORK: dict[str, Callable[[int], Awaitable[None]]] = {
    work.__name__: work
    for work in (first_byte, client_first_byte, plain_first_byte, turns, held, deltas, plain_deltas)
}

if __name__ == "__main__":
    # httpcore2 imports trio where it is installed, as for our tests; users have no use for it.
    sys.modules["trio"] = None  # type: ignore[assignment]
    asyncio.run(WORK[sys.argv[1]](int(sys.argv[2])))  # type: ignore[arg-type]
