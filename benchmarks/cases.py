"""What is measured: our side, its floor, and the goal for their ratio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from benchmarks.measure import Cost

Figure = Callable[[Cost], float]


def cpu(cost: Cost) -> float:
    return cost.cpu


def wall(cost: Cost) -> float:
    return cost.wall


def grown(cost: Cost) -> float:
    return max(float(cost.grown_bytes), 1.0)


class Case(Struct, frozen=True, kw_only=True):
    """One comparison: the ratio of two workloads' figures, as a median over interleaved pairs."""

    name: str
    ours: tuple[str, ...]
    floor: tuple[str, ...]
    goal: float
    """The ratio may be at most this; for a `rate` at least this."""
    figure: Figure = cpu
    unit: str = "ms"
    per: str = ""
    is_rate: bool = False
    """Then the ratio is the floor's cost over ours: how much of its rate is left."""
    pairs: int = 5

    def ratio(self, ours: Cost, floor: Cost) -> float:
        a, b = self.figure(ours), self.figure(floor)
        return b / a if self.is_rate else a / b


def _ours(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.ours", work, str(count))


def _floor(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.floor", work, str(count))


def _on_pi(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_pi", work, str(count))


def _on_claude(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_claude", work, str(count))


def _on_home(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_home", work, str(count))


def _on_nesting(engine: str, how: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_nesting", engine, how, "4")


def _on_mcp(work: str, count: int, *which: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_mcp", work, str(count), *which)


def _on_http(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_http", work, str(count))


def _on_dashboard(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_dashboard", work, str(count))


def _on_bridge(work: str, count: int, *which: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.on_bridge", work, str(count), *which)


def _beside_the_sdk(name: str, work: str, count: int, goal: float, **more: Any) -> Case:
    """The server of ours beside the least one the SDK makes."""
    return Case(name=name, ours=_on_mcp(work, count), floor=_on_mcp(work, count, "minimal"), goal=goal, **more)


def _constant(**figures: float) -> tuple[str, ...]:
    """A floor that is a number, not work."""
    return ("-c", f"print({json.dumps(json.dumps(figures))})")


BARE = ("-c", "pass")

CASES = (
    Case(name="import retinue", ours=("-c", "import retinue"), floor=BARE, goal=3.0, pairs=15),
    Case(name="retinue --help", ours=("-m", "retinue", "--help"), floor=BARE, goal=6.0, pairs=15),
    Case(
        name="start to the first model request",
        ours=_ours("first_request", 0),
        floor=_floor("first_request", 0),
        goal=2.0,
        pairs=15,
    ),
    Case(
        name="one delegation",
        ours=_ours("delegations", 200),
        floor=_floor("delegations", 200),
        goal=15.0,
        per="run",
    ),
    Case(name="16 at once", ours=_ours("parallel", 16), floor=_floor("parallel", 16), goal=15.0, per="run"),
    Case(name="64 at once", ours=_ours("parallel", 64), floor=_ours("parallel", 16), goal=1.2, per="run"),
    Case(name="256 at once", ours=_ours("parallel", 256), floor=_ours("parallel", 16), goal=1.2, per="run"),
    Case(name="1,000 at once", ours=_ours("parallel", 1000), floor=_ours("parallel", 16), goal=1.2, per="run"),
    Case(
        name="a delegation that calls home: 1,000 a second",
        ours=_on_home("called", 2000),
        floor=_constant(wall=0.001),
        goal=1.0,
        figure=wall,
        per="run",
    ),
    Case(
        name="calling home over asking directly",
        ours=_on_home("called", 2000),
        floor=_on_home("direct", 2000),
        goal=1.5,
        per="run",
    ),
    *(
        Case(
            name=f"nesting on {engine}: a level over a run alone",
            ours=_on_nesting(engine, "nested"),
            floor=_on_nesting(engine, "alone"),
            goal=1.1,
            figure=wall,
            per="run",
            pairs=3,
        )
        for engine in ("scripted", "loop", "pi")
    ),
    Case(
        name="memory of a run",
        ours=_ours("held", 500),
        floor=_floor("held", 500),
        goal=3.0,
        figure=grown,
        unit="KB",
        per="run",
    ),
    Case(name="100,000 deltas, 50 MB", ours=_ours("deltas", 100_000), floor=_floor("deltas", 100_000), goal=10.0),
    Case(
        name="deltas grow linearly",
        ours=_ours("deltas", 100_000),
        floor=_ours("deltas", 25_000),
        goal=4.8,
    ),
    Case(
        name="memory of 100,000 deltas over 1,000",
        ours=_ours("deltas", 100_000),
        floor=_constant(grown_bytes=20 * 2**20),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=3,
    ),
    Case(
        name="100,000 deltas, masked for a watcher",
        ours=_ours("watched_deltas", 100_000),
        floor=_floor("deltas", 100_000),
        goal=50.0,
        pairs=3,
    ),
    Case(
        # Of one core, over the same work that nobody looks at.
        name="drawing 16 agents, 1,000 lines a second",
        ours=("-m", "benchmarks.drawing", "3"),
        floor=("-c", "print('{\"cpu\": 1.0}')"),
        goal=0.05,
        per="s",
        pairs=3,
    ),
    Case(
        name="durable events",
        ours=_ours("appended", 20_000),
        floor=_floor("appended", 20_000),
        goal=0.2,
        unit="µs",
        per="event",
        is_rate=True,
    ),
    *(
        Case(
            name=f"{count} tasks that think, of the time it must take",
            ours=_ours("thinking", count),
            floor=_constant(wall=-(-count // 4) * 0.2),
            goal=1.1,
            figure=wall,
            pairs=3,
        )
        for count in (16, 64, 256)
    ),
    Case(
        name="first screen of a session of 50 MB",
        ours=_ours("first_screen", 10_000),
        floor=_ours("last_bytes", 10_000),
        goal=3.0,
        pairs=3,
    ),
    Case(
        name="listing a session of 100,000 events",
        ours=_ours("listed", 100_000),
        floor=_ours("listed", 10),
        goal=1.5,
        pairs=3,
    ),
    Case(
        name="answer and tail of 100,000 events",
        ours=_ours("tailed", 100_000),
        floor=_ours("tailed", 20),
        goal=1.5,
        pairs=3,
    ),
    Case(
        name="pi: one delegation, cold",
        ours=_on_pi("cold", 5),
        floor=_on_pi("bare", 1),
        goal=1.05,
        figure=wall,
        pairs=7,
    ),
    Case(name="pi: our own CPU in it", ours=_on_pi("cold", 5), floor=_on_pi("bare", 1), goal=0.03, pairs=7),
    Case(
        name="pi: one delegation, warm",
        ours=_on_pi("warm", 20),
        floor=_on_pi("bare", 1),
        goal=0.25,
        figure=wall,
    ),
    Case(
        name="pi: 16 at once, time",
        ours=_on_pi("many", 16),
        floor=_on_pi("bare", 16),
        goal=0.2,
        figure=wall,
    ),
    Case(name="pi: 16 at once, CPU", ours=_on_pi("many", 16), floor=_on_pi("bare", 16), goal=0.2),
    Case(
        name="pi: 50 MB of updates read",
        ours=_on_pi("streamed", 50 * 2**20),
        floor=_on_pi("split", 50 * 2**20),
        goal=0.6,
        figure=wall,
        is_rate=True,
    ),
    Case(
        name="pi: memory of 50 MB over 20 MB",
        ours=_on_pi("streamed", 50 * 2**20),
        floor=_constant(grown_bytes=20 * 2**20),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=3,
    ),
    *(
        Case(
            name=f"pi: {count} that think, of the time it must take",
            ours=_on_pi("thinking", count),
            floor=_constant(wall=-(-count // 4) * 0.2),
            goal=1.1,
            figure=wall,
            pairs=2,
        )
        for count in (16, 64, 256)
    ),
    Case(
        name="pi: 64 stopped, of 2 s",
        ours=_on_pi("obeying", 64),
        floor=_constant(wall=2.0),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    Case(
        name="pi: 64 that do not listen, of 10 s",
        ours=_on_pi("ignoring", 64),
        floor=_constant(wall=10.0),
        goal=1.0,
        figure=wall,
        pairs=1,
    ),
    Case(
        name="claude: one delegation, of the SDK's query",
        ours=_on_claude("compared", 25),
        floor=_constant(wall=1.0),
        goal=1.05,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    Case(
        name="claude: a delegation by a run on it",
        ours=_on_claude("nested", 7),
        floor=_on_claude("delegated", 8),
        goal=1.25,
        figure=wall,
        per="run",
    ),
    _beside_the_sdk("mcp: start to the first answer", "start", 0, 1.5, figure=wall, pairs=9),
    _beside_the_sdk("mcp: a call that does nothing", "calls", 500, 1.3, figure=wall, per="call"),
    _beside_the_sdk("mcp: 200 calls in flight", "in_flight", 200, 1.3, figure=wall, per="call"),
    _beside_the_sdk("mcp: memory while idle", "memory", 0, 1.5, figure=grown, unit="KB"),
    Case(
        name="bridge: start to the tools, over opening directly",
        ours=_on_bridge("start", 0),
        floor=_on_bridge("start", 0, "direct"),
        goal=1.3,
        figure=wall,
        pairs=9,
    ),
    Case(
        # CPU: the time is that of two syncs to the disk on both sides.
        name="bridge: a delegation, over calling directly",
        ours=_on_bridge("calls", 300),
        floor=_on_bridge("calls", 300, "direct"),
        goal=1.5,
        per="call",
    ),
    Case(
        name="serve: start, over the least server",
        ours=_on_http("start", 0),
        floor=_on_http("echo_start", 0),
        goal=2.0,
        figure=wall,
        pairs=7,
    ),
    Case(
        # The floor is the least SSE server's, and the 100 ms more that an event may take through us.
        name="serve: an event until it is read",
        ours=_on_http("latency", 100),
        floor=_on_http("echoed", 100),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    Case(
        # The same in a browser, until it is painted; the floor's page only adds a line to a list.
        name="serve: an event until it is painted",
        ours=_on_dashboard("dashboard", 100),
        floor=_on_dashboard("echoed", 100),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    Case(
        name="serve: a run of 100 readers, one stalled",
        ours=("-m", "benchmarks.on_watching", "3", "100"),
        floor=("-m", "benchmarks.on_watching", "3", "0"),
        goal=1.05,
        figure=wall,
        pairs=3,
    ),
    Case(
        name="serve: 10,000 runs, over the query",
        ours=_on_http("listing", 10_000),
        floor=_constant(wall=1.0),
        goal=3.0,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    Case(
        name="serve: their first page, over the same",
        ours=_on_http("page", 10_000),
        floor=_constant(wall=1.0),
        goal=1.0,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    Case(
        name="serve: the dashboard, packed",
        ours=_on_http("weight", 0),
        floor=_constant(grown_bytes=100 * 1024),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=1,
    ),
)
