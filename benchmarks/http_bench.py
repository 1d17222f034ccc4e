"""`retinue serve` compared with a minimal server and raw queries. `python -m benchmarks.http_bench WORK N`.

The client is this process, so that what is measured is the server.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.workload import scratch
from retinue.model.event_codec import EventRecord, EventSource, to_line
from retinue.model.events import PersistedEvent, RunEnded, RunQueued, RunStarted
from retinue.model.results import AnswerStatus
from retinue.servers.http.app import AssetFolder

ECHO = ("-m", "benchmarks.sse_echo")
"""An SSE server that only sends back what is posted to it."""
WORK_TIMEOUT = 60.0
MAY = 0.1
"""Seconds an event may take longer through Retinue."""
APART = {"wait": 0.03}
"""Seconds between two events."""
PAGE = 1_000
"""Runs per response."""


PAGES = """
SELECT updated, session, summary FROM sessions
WHERE updated <= :seen AND (updated < :seen OR session > :session) ORDER BY updated DESC, session LIMIT :size
"""


class HttpServer:
    """`retinue serve` in a process of its own, and requests to it."""

    def __init__(self, *arguments: str, script: Any = None) -> None:
        self._started = time.monotonic()
        scripted = {"RETINUE_SCRIPT": json.dumps({"steps": script})} if script else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "serve", "--port", "0", "--json", "--engine", "scripted", *arguments],
            env={**os.environ, **scripted, "RETINUE_STATE": str(state())},
            cwd=scratch(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout
        announcement = json.loads(self.process.stdout.readline())
        self.port: int = announcement["port"]
        self.headers = {
            "Authorization": f"Bearer {Path(announcement['tokenFile']).read_text().strip()}",
            "Content-Type": "application/json",
        }
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WORK_TIMEOUT)

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        self._connection.request(
            method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers=self.headers
        )
        return self._connection.getresponse().read()

    def first(self) -> float:
        """Return the seconds from the start to the first response."""
        assert b'"ok"' in self.ask("GET", "health")
        return time.monotonic() - self._started

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def open_stream(port: int, headers: dict[str, str], path: str = "/api/v1/events") -> Iterator[Any]:
    """Open the event stream of a server as a file, for the block."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WORK_TIMEOUT)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.readline()
    try:
        yield answer
    finally:
        connection.close()


def state() -> Path:
    return Path(scratch(), "state")


def fill(count: int) -> None:
    """Write this many ended sessions, as the store does."""
    for number in range(count):
        run = f"{number:08x}{number:024x}"
        origin = EventSource(run=run, session=run, root=f"{number // 5:032x}", parent_tool_use_id=f"call-{number}")
        queued = RunQueued(
            name="explorer", agent="explorer", task=f"Look at part {number}", cwd="/", surface="single"
        )
        ended = RunEnded(text=f"It is in part {number}.\nMore.", answer=AnswerStatus.FINAL, elapsed=1.0)
        when = 1_700_000_000.0 + number
        story: tuple[PersistedEvent, ...] = (queued, RunStarted(), ended)
        events = [EventRecord(origin, place, when + place, event) for place, event in enumerate(story, 1)]
        folder = state() / "sessions" / run[:8]
        folder.mkdir(parents=True, mode=0o700)
        header = json.dumps({"v": 1, "type": "session", "id": run, "part": 1, "created": when}).encode() + b"\n"
        (folder / "session.jsonl").write_bytes(header + b"".join(map(to_line, events)))


def print_figures(**figures: float) -> None:
    print(json.dumps(figures))


# -- lists -----------------------------------------------------------------------------------------


def listing(count: int) -> None:
    """Measure the list of all runs, page by page, against SQL for the same pages in the same order."""
    fill(count)
    server = HttpServer()
    server.ask("GET", "runs?limit=1")
    ratios: list[float] = []
    for _ in range(15):
        began = time.perf_counter()
        seen, before = 0, ""
        while before is not None:
            answer = server.ask("GET", f"runs?limit={PAGE}&before={before}")
            seen += answer.count(b'"sessionRuns"')
            # The end of an answer says where to go on; parsing all of it would be this process's work.
            before = json.loads(b"{" + answer[answer.rindex(b'"next":') :])["next"]
        ours = time.perf_counter() - began
        assert seen == count
        ratios.append(ours / _raw(count, PAGE))
    server.leave()
    print_figures(wall=statistics.median(ratios))


def page(count: int) -> None:
    """Measure the first page of the activity against the raw query of all runs, which it must not read."""
    fill(count)
    server = HttpServer()
    server.ask("GET", "activity")
    took = []
    for _ in range(15):
        began = time.perf_counter()
        assert b'"groups"' in server.ask("GET", "activity")
        took.append(time.perf_counter() - began)
    server.leave()
    print_figures(wall=statistics.median(took) / statistics.median(_raw(count, count) for _ in range(5)))


def _raw(count: int, size: int) -> float:
    """Return the seconds to fetch the index rows of this many runs in pages of this size."""
    began = time.perf_counter()
    with closing(sqlite3.connect(state() / "index.sqlite")) as database:
        found, updated, session = 0, float("inf"), ""
        while found < count:
            rows = database.execute(PAGES, {"seen": updated, "session": session, "size": size}).fetchall()
            found += len(rows)
            updated, session, _ = rows[-1]
    assert found == count
    return time.perf_counter() - began


# -- the stream ------------------------------------------------------------------------------------


def latency(count: int) -> None:
    """Measure the median time from storing an event to its arrival at a subscriber."""
    steps = [step for number in range(count) for step in ({"event": {"type": "text", "text": str(number)}}, APART)]
    server = HttpServer(script=[*steps, {"say": "done"}])
    took: list[float] = []
    with open_stream(server.port, server.headers) as stream:
        server.ask("POST", "runs", {"agent": "explorer", "task": "talk"})
        while len(took) < count:
            line = stream.readline()
            if b'"type":"text"' in line:
                took.append(time.time() - json.loads(line.partition(b": ")[2])["event"]["time"])
    server.leave()
    print_figures(wall=statistics.median(took))


def echoed(count: int) -> None:
    """Measure the same for the minimal server, plus the extra time Retinue may take."""
    process = subprocess.Popen([sys.executable, *ECHO], stdout=subprocess.PIPE)
    assert process.stdout
    port, took = int(process.stdout.readline()), []
    posting = http.client.HTTPConnection("127.0.0.1", port, timeout=WORK_TIMEOUT)
    with open_stream(port, {}, "/") as stream:
        for _ in range(count):
            posting.request("POST", "/", f"data: {time.time()!r}\n\n")
            while not (line := stream.readline()).startswith(b"data:"):
                pass
            took.append(time.time() - float(line.partition(b": ")[2]))
            posting.getresponse().read()
            time.sleep(APART["wait"])
    process.kill()
    process.communicate()
    print_figures(wall=statistics.median(took) + MAY)


# -- the rest --------------------------------------------------------------------------------------


def start(_: int) -> None:
    server = HttpServer()
    print_figures(wall=server.first())
    server.leave()


def echo_start(_: int) -> None:
    """Measure the start of the minimal server."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, *ECHO], stdout=subprocess.PIPE)
    assert process.stdout
    connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=WORK_TIMEOUT)
    connection.request("POST", "/", "data: x\n\n")
    connection.getresponse().read()
    print_figures(wall=time.monotonic() - began)
    process.kill()
    process.communicate()


def weight(_: int) -> None:
    """Measure the KB that a browser loads for the first page, as sent."""
    assets = AssetFolder()
    sizes = []
    for name in assets.list_names():
        asset = assets.find(name)
        assert asset
        if not name.startswith("login"):
            sizes.append(len(asset.gzipped or gzip.compress(asset.body)))
    print_figures(grown_bytes=sum(sizes))


WORKS: dict[str, Callable[[int], None]] = {
    "listing": listing,
    "page": page,
    "latency": latency,
    "echoed": echoed,
    "start": start,
    "echo_start": echo_start,
    "weight": weight,
}


def main() -> None:
    work, count = sys.argv[1:]
    WORKS[work](int(count))


if __name__ == "__main__":
    main()
