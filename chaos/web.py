"""Attack `retinue serve` over raw sockets, and with requests generated from its own OpenAPI document."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketAttribute
from msgspec import Struct

from chaos.attack import EXIT_TIMEOUT, Attack, environment

API = "/api/v1"
START_TIMEOUT = 60.0
ANSWER_TIMEOUT = 20.0
MAX_ANSWER_BYTES = 1 << 20
SCHEMATHESIS_SECONDS = 20
"""The time of one run of schemathesis; a section makes several."""
SCHEMATHESIS = Path(".tools/chaos/bin/schemathesis")
TASK = b'{"agent":"explorer","task":"What is here?"}'
ROUTES = (
    ("GET", "/runs"),
    ("POST", "/runs"),
    ("GET", "/agents"),
    ("GET", "/sessions"),
    ("GET", "/events"),
    ("GET", "/statistics"),
    ("GET", "/facets"),
    ("GET", "/openapi.json"),
    ("OPTIONS", "/runs"),
    ("DELETE", "/runs"),
    ("GET", "/no-such-route"),
)


class RunningServer(Struct, frozen=True):
    """A `retinue serve` of ours."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def document(self) -> str:
        return f"{self.url}{API}/openapi.json"

    def request(self, line: str, *headers: str, body: bytes = b"", host: str | None = None, token: str = "") -> bytes:
        """Return a request; without `token` it has none, and `host` is the server's own."""
        lines = [line + " HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}", *headers]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += [f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body

    async def send(self, data: bytes) -> bytes:
        """Send bytes and return the answer; empty if the connection was cut off."""
        answer = b""
        with anyio.move_on_after(ANSWER_TIMEOUT), suppress(anyio.BrokenResourceError):
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                assert stream.extra(SocketAttribute.remote_port) == self.port
                await stream.send(data)
                async for piece in stream:
                    answer += piece
                    if len(answer) > MAX_ANSWER_BYTES:
                        break
        return answer

    async def count_runs(self) -> int:
        """Return how many sessions the server knows; -1 if it does not answer a good request."""
        answer = await self.send(self.request(f"GET {API}/sessions?limit=200", token=self.token))
        head, _, body = answer.partition(b"\r\n\r\n")
        if read_status(head) != 200:
            return -1
        return body.count(b'"session":')


def read_status(answer: bytes) -> int:
    """Return the status of an answer; 0 if there was none."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


@asynccontextmanager
async def open_server(home: Path) -> AsyncIterator[RunningServer]:
    """Start `retinue serve` on any free port of the loopback interface."""
    command = [sys.executable, "-m", "retinue", "serve", "--port", "0", "--json", "--engine", "offline"]
    async with await anyio.open_process(
        command, cwd=home, env=environment(home), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        output = b""
        with anyio.fail_after(START_TIMEOUT):
            while b"\n" not in output:
                output += await process.stdout.receive()
        started: dict[str, Any] = json.loads(output)
        yield RunningServer(started["port"], Path(started["tokenFile"]).read_text().strip())
        process.terminate()
        with anyio.move_on_after(EXIT_TIMEOUT):
            await process.wait()


def make_requests(server: RunningServer, attack: Attack) -> Iterator[tuple[str, bytes]]:
    """Yield hostile requests, none of which may succeed or start a run, each with what it tries."""
    choose, good = attack.choose, server.token
    json_type = "Content-Type: application/json"
    for method, path in ROUTES:
        yield "no token", server.request(f"{method} {API}{path}", json_type, body=TASK if method == "POST" else b"")
    for token in (good[:-1], good + "0", good.swapcase(), "", "null", f"{choose.getrandbits(128):x}"):
        yield "a wrong token", server.request(f"GET {API}/runs", token=token or "-")
    yield "the token in the query", server.request(f"GET {API}/runs?token={good}")
    yield "the token as a cookie", server.request(f"GET {API}/runs", f"Cookie: token={good}; session={good}")
    for host in ("evil.example", f"127.0.0.1.evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1", "-"):
        yield "a foreign host", server.request(f"GET {API}/runs", token=good, host=host)
    yield "two hosts", server.request(f"GET {API}/runs", "Host: evil.example", token=good)
    origins = ("https://evil.example", "null", "http://localhost.evil.example", f"http://127.0.0.1:{server.port + 1}")
    for origin in origins:
        headers = (f"Origin: {origin}", json_type)
        yield "a foreign origin", server.request(f"POST {API}/runs", *headers, body=TASK, token=good)
        yield "a foreign page", server.request(f"GET {API}/runs", f"Origin: {origin}", token=good)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        yield "a form", server.request(f"POST {API}/runs", f"Content-Type: {kind}", body=TASK, token=good)
    headers = (json_type, "Sec-Fetch-Site: cross-site")
    yield "a cross-site request", server.request(f"POST {API}/runs", *headers, body=TASK, token=good)
    for path in (
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..\\..\\etc\\passwd",
        "%00",
        "....//etc/passwd",
    ):
        for prefix in (f"{API}/sessions/", f"{API}/agents/", "/assets/"):
            yield "traversal", server.request(f"GET {prefix}{path}", token=good)
    yield from make_smuggled_requests(server)
    big = b'{"agent":"explorer","task":"' + b"x" * (9 << 20) + b'"}'
    yield "a body that is too large", server.request(f"POST {API}/runs", json_type, body=big, token=good)
    deep = b'{"task":' * 5000
    for body in (deep, b'{"task":1}', b"[]", b"\xff", b'{"agent":"explorer"}', b'{"task":null}'):
        yield "a wrong body", server.request(f"POST {API}/runs", json_type, body=body, token=good)
    yield "many headers", server.request(f"GET {API}/runs", *(f"X-{n}: {'y' * 100}" for n in range(5000)), token=good)
    for _ in range(20):
        yield "junk", choose.randbytes(choose.randint(1, 400)) + b"\r\n\r\n"


def make_smuggled_requests(server: RunningServer) -> Iterator[tuple[str, bytes]]:
    """Yield requests whose end readers could disagree about; the second request in each has no token."""
    inner = (
        f"POST {API}/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(TASK)}\r\n\r\n".encode()
    )
    start = f"POST {API}/login HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    for headers in (
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Content-Length: 4\r\nContent-Length: 400\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 4\r\n folded\r\n",
        "X: y\nContent-Length: 4\r\n",
    ):
        yield "smuggling", (start + headers + "\r\n").encode("latin-1") + b"0\r\n\r\n" + inner + TASK


async def attack_over_http(attack: Attack, *, at_least: int = 60) -> None:
    """Send hostile requests to a server: none succeeds, no run starts, the next good request is answered."""
    home = attack.folder()
    async with open_server(home) as server:
        while attack.goes_on(at_least):
            for kind, request in make_requests(server, attack):
                granted = server.request(f"GET {API}/runs", token=server.token)
                answer = await server.send(granted if attack.is_control else request)
                problems = find_effects(answer)
                attack.tally.note(*(f"{kind}: {problem}" for problem in problems), leaks=len(problems))
                if attack.is_control and not attack.goes_on(at_least):
                    break
            runs = await server.count_runs()
            problem = f"{runs} runs were started" if runs > 0 else "a good request was not answered" if runs else ""
            attack.tally.note(*([problem] if problem else []), leaks=max(0, runs))


def find_effects(answer: bytes) -> list[str]:
    """Return what an answer to a hostile request should not have been."""
    status = read_status(answer)
    # The sign-in page and its files are for everybody; data is only below the API.
    if status and status < 400 and b"application/json" in answer.partition(b"\r\n\r\n")[0].lower():
        return [f"status {status}: {answer[-100:]!r}"]
    if status >= 500 and status != 503:
        return [f"status {status}"]
    return ["a file of the system came out"] if b"root:x:0:0" in answer else []


# -- schemathesis ----------------------------------------------------------------------------------


async def attack_with_schemathesis(attack: Attack) -> None:
    """Send requests generated from our OpenAPI document; every answer must be one that the document describes."""
    if not SCHEMATHESIS.exists():
        attack.tally.note(f"{SCHEMATHESIS} is not installed: `make .tools/chaos/.installed` installs it")
        return
    home = attack.folder()
    async with open_server(home) as server:
        document = await write_false_document(server, home) if attack.is_control else server.document
        examples = 40
        while attack.goes_on(1):
            done = await run_schemathesis(server, document, examples, attack.choose.getrandbits(31))
            found, failed, problems = read_report(done)
            attack.tally.tried += found
            attack.tally.held += found - failed
            attack.tally.problems += problems[:20]
            examples *= 2
            if not found:
                attack.tally.note(done[-500:].decode(errors="replace"))
                break


async def write_false_document(server: RunningServer, home: Path) -> str:
    """Write the server's OpenAPI document with wrong answers, as if the server had changed; return its path."""
    answer = await server.send(server.request(f"GET {API}/openapi.json", token=server.token))
    document: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                operation["responses"] = {"299": {"description": "No answer of the server."}}
    written = home / "openapi.json"
    written.write_text(json.dumps(document))
    return str(written)


async def run_schemathesis(server: RunningServer, document: str, examples: int, seed: int) -> bytes:
    """Run schemathesis once and return what it printed."""
    command = [
        # Not by its first line, which names the interpreter that it was installed with.
        *(str(SCHEMATHESIS.with_name("python")), str(SCHEMATHESIS)),
        *("run", document, "--url", server.url),
        *("--header", f"Authorization: Bearer {server.token}"),
        *("--max-examples", str(examples), "--seed", str(seed), "--phases", "examples,fuzzing"),
        *("--max-time", str(SCHEMATHESIS_SECONDS)),
        *("--checks", "not_a_server_error,status_code_conformance,response_schema_conformance"),
        *("--no-color", "--request-timeout", "20"),
    ]
    done = await anyio.run_process(command, stderr=subprocess.STDOUT, check=False)
    return done.stdout


def read_report(output: bytes) -> tuple[int, int, list[str]]:
    """Return the cases of a run, how many failed, and what failed."""
    text = output.decode(errors="replace")
    total = re.search(r"(\d+) generated", text)
    failed = re.search(r"(\d+) found (\d+) unique failures", text)
    problems = re.findall(r"^- (.+)$", text, re.MULTILINE)
    return int(total[1]) if total else 0, int(failed[1]) if failed else 0, problems
