"""The benchmark cases: Retinue's side, its floor, and the goal for their ratio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from benchmarks.measure import ProcessCost

Figure = Callable[[ProcessCost], float]


def cpu(cost: ProcessCost) -> float:
    return cost.cpu


def wall(cost: ProcessCost) -> float:
    return cost.wall


def grown(cost: ProcessCost) -> float:
    return max(float(cost.grown_bytes), 1.0)


class BenchmarkCase(Struct, frozen=True, kw_only=True):
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
    """The ratio is then the floor's cost divided by Retinue's: the part of the floor's rate that is left."""
    pairs: int = 5

    def ratio(self, ours: ProcessCost, floor: ProcessCost) -> float:
        a, b = self.figure(ours), self.figure(floor)
        return b / a if self.is_rate else a / b


def _retinue(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.retinue_bench", work, str(count))


def _baseline(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.asyncio_baseline", work, str(count))


def _pi(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.pi_bench", work, str(count))


def _agents(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.agents_bench", work, str(count))


def _api(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.api_bench", work, str(count))


def _claude(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.claude_bench", work, str(count))


def _delegation(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.delegation_bench", work, str(count))


def _nesting(engine: str, how: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.nesting_bench", engine, how, "4")


def _mcp(work: str, count: int, *which: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.mcp_bench", work, str(count), *which)


def _http(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.http_bench", work, str(count))


def _dashboard(work: str, count: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.dashboard_bench", work, str(count))


def _bridge(work: str, count: int, *which: str) -> tuple[str, ...]:
    return ("-m", "benchmarks.bridge_bench", work, str(count), *which)


def _mcp_case(name: str, work: str, count: int, goal: float, **more: Any) -> BenchmarkCase:
    """Return a case that compares the MCP server with a minimal server of the SDK."""
    return BenchmarkCase(name=name, ours=_mcp(work, count), floor=_mcp(work, count, "minimal"), goal=goal, **more)


def _constant(**figures: float) -> tuple[str, ...]:
    """Return a floor that is a number, not work."""
    return ("-c", f"print({json.dumps(json.dumps(figures))})")


BARE = ("-c", "pass")

CASES = (
    BenchmarkCase(name="import retinue", ours=("-c", "import retinue"), floor=BARE, goal=3.0, pairs=15),
    BenchmarkCase(name="retinue --help", ours=("-m", "retinue", "--help"), floor=BARE, goal=6.0, pairs=15),
    BenchmarkCase(
        name="start to the first model request",
        ours=_retinue("first_request", 0),
        floor=_baseline("first_request", 0),
        goal=2.0,
        pairs=15,
    ),
    BenchmarkCase(
        name="5,000 agent files listed", ours=_agents("list", 5000), floor=_agents("read", 5000), goal=20.0
    ),
    BenchmarkCase(
        name="5,000 agent files listed, in s", ours=_agents("list", 5000), floor=_constant(cpu=1.0), goal=1.5
    ),
    BenchmarkCase(
        name="one agent found among 5,000 files", ours=_agents("find", 5000), floor=_agents("list", 5000), goal=0.2
    ),
    BenchmarkCase(
        name="one delegation",
        ours=_retinue("delegations", 200),
        floor=_baseline("delegations", 200),
        goal=15.0,
        per="run",
    ),
    BenchmarkCase(
        name="16 at once", ours=_retinue("parallel", 16), floor=_baseline("parallel", 16), goal=15.0, per="run"
    ),
    BenchmarkCase(
        name="64 at once", ours=_retinue("parallel", 64), floor=_retinue("parallel", 16), goal=1.2, per="run"
    ),
    BenchmarkCase(
        name="256 at once", ours=_retinue("parallel", 256), floor=_retinue("parallel", 16), goal=1.2, per="run"
    ),
    BenchmarkCase(
        name="1,000 at once", ours=_retinue("parallel", 1000), floor=_retinue("parallel", 16), goal=1.2, per="run"
    ),
    BenchmarkCase(
        name="a delegation through the socket: 1,000 a second",
        ours=_delegation("called", 2000),
        floor=_constant(wall=0.001),
        goal=1.0,
        figure=wall,
        per="run",
    ),
    BenchmarkCase(
        name="the socket over a direct call",
        ours=_delegation("called", 2000),
        floor=_delegation("direct", 2000),
        goal=1.5,
        per="run",
    ),
    *(
        BenchmarkCase(
            name=f"nesting on {engine}: a level over a run alone",
            ours=_nesting(engine, "nested"),
            floor=_nesting(engine, "alone"),
            goal=1.1,
            figure=wall,
            per="run",
            pairs=3,
        )
        for engine in ("scripted", "loop", "pi")
    ),
    BenchmarkCase(
        name="memory of a run",
        ours=_retinue("held", 500),
        floor=_baseline("held", 500),
        goal=3.0,
        figure=grown,
        unit="KB",
        per="run",
    ),
    BenchmarkCase(
        name="100,000 deltas, 50 MB", ours=_retinue("deltas", 100_000), floor=_baseline("deltas", 100_000), goal=10.0
    ),
    BenchmarkCase(
        name="deltas grow linearly",
        ours=_retinue("deltas", 100_000),
        floor=_retinue("deltas", 25_000),
        goal=4.8,
    ),
    BenchmarkCase(
        name="memory of 100,000 deltas over 1,000",
        ours=_retinue("deltas", 100_000),
        floor=_constant(grown_bytes=20 * 2**20),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=3,
    ),
    BenchmarkCase(
        name="100,000 deltas, masked for a watcher",
        ours=_retinue("watched_deltas", 100_000),
        floor=_baseline("deltas", 100_000),
        goal=50.0,
        pairs=3,
    ),
    BenchmarkCase(
        # Of one core, over the same work that nobody looks at.
        name="drawing 16 agents, 1,000 lines a second",
        ours=("-m", "benchmarks.drawing_bench", "3"),
        floor=("-c", "print('{\"cpu\": 1.0}')"),
        goal=0.05,
        per="s",
        pairs=3,
    ),
    BenchmarkCase(
        name="durable events",
        ours=_retinue("appended", 20_000),
        floor=_baseline("appended", 20_000),
        goal=0.2,
        unit="µs",
        per="event",
        is_rate=True,
    ),
    *(
        BenchmarkCase(
            name=f"{count} tasks that think, of the time it must take",
            ours=_retinue("thinking", count),
            floor=_constant(wall=-(-count // 4) * 0.2),
            goal=1.1,
            figure=wall,
            pairs=3,
        )
        for count in (16, 64, 256)
    ),
    BenchmarkCase(
        name="first screen of a session of 50 MB",
        ours=_retinue("first_screen", 10_000),
        floor=_retinue("last_bytes", 10_000),
        goal=3.0,
        pairs=3,
    ),
    BenchmarkCase(
        name="listing a session of 100,000 events",
        ours=_retinue("listed", 100_000),
        floor=_retinue("listed", 10),
        goal=1.5,
        pairs=3,
    ),
    BenchmarkCase(
        name="answer and tail of 100,000 events",
        ours=_retinue("tailed", 100_000),
        floor=_retinue("tailed", 20),
        goal=1.5,
        pairs=3,
    ),
    BenchmarkCase(
        name="api: start to the first byte sent",
        ours=_api("first_byte", 0),
        floor=_api("plain_first_byte", 0),
        goal=2.0,
        pairs=9,
    ),
    BenchmarkCase(
        name="api: the same, over its HTTP client alone",
        ours=_api("first_byte", 0),
        floor=_api("client_first_byte", 0),
        goal=2.0,
        pairs=9,
    ),
    BenchmarkCase(
        name="api: CPU of a turn beyond the HTTP client's, of 2 ms",
        ours=_api("turns", 20),
        floor=_constant(cpu=0.002),
        goal=1.0,
        per="turn",
    ),
    BenchmarkCase(
        name="api: memory of 1,000 at once beside messages, of 60 KB",
        ours=_api("held", 1000),
        floor=_constant(grown_bytes=60 * 1024),
        goal=1.0,
        figure=grown,
        unit="KB",
        per="run",
        pairs=3,
    ),
    BenchmarkCase(
        name="api: 100,000 deltas over HTTP",
        ours=_api("deltas", 100_000),
        floor=_api("plain_deltas", 100_000),
        goal=10.0,
    ),
    BenchmarkCase(
        name="pi: one delegation, cold",
        ours=_pi("cold", 5),
        floor=_pi("bare", 1),
        goal=1.05,
        figure=wall,
        pairs=7,
    ),
    BenchmarkCase(name="pi: CPU of Retinue in it", ours=_pi("cold", 5), floor=_pi("bare", 1), goal=0.03, pairs=7),
    BenchmarkCase(
        name="pi: one delegation, warm",
        ours=_pi("warm", 20),
        floor=_pi("bare", 1),
        goal=0.25,
        figure=wall,
    ),
    # At most 3 ms more than where Retinue starts pi itself; `python -m benchmarks.start_bench pairs 60` prints them.
    BenchmarkCase(
        name="pi: its start by the watchdog",
        ours=("-m", "benchmarks.start_bench", "watchdog"),
        floor=("-m", "benchmarks.start_bench", "direct"),
        goal=1.02,
        figure=wall,
        pairs=15,
    ),
    # At most 15 ms of a cold and 1 ms of a warm delegation.
    BenchmarkCase(
        name="pi: one delegation in the sandbox, cold",
        ours=_pi("cold_confined", 5),
        floor=_pi("cold", 5),
        goal=1.03,
        figure=wall,
        pairs=7,
    ),
    BenchmarkCase(
        name="pi: one delegation in the sandbox, warm",
        ours=_pi("warm_confined", 40),
        floor=_pi("warm", 40),
        goal=1.04,
        figure=wall,
        pairs=7,
    ),
    BenchmarkCase(
        name="pi: 16 at once, time",
        ours=_pi("many", 16),
        floor=_pi("bare", 16),
        goal=0.2,
        figure=wall,
    ),
    BenchmarkCase(name="pi: 16 at once, CPU", ours=_pi("many", 16), floor=_pi("bare", 16), goal=0.2),
    BenchmarkCase(
        name="pi: 50 MB of updates read",
        ours=_pi("streamed", 50 * 2**20),
        floor=_pi("split", 50 * 2**20),
        goal=0.6,
        figure=wall,
        is_rate=True,
    ),
    BenchmarkCase(
        name="pi: memory of 50 MB over 20 MB",
        ours=_pi("streamed", 50 * 2**20),
        floor=_constant(grown_bytes=20 * 2**20),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=3,
    ),
    *(
        BenchmarkCase(
            name=f"pi: {count} that think, of the time it must take",
            ours=_pi("thinking", count),
            floor=_constant(wall=-(-count // 4) * 0.2),
            goal=1.1,
            figure=wall,
            pairs=2,
        )
        for count in (16, 64, 256)
    ),
    BenchmarkCase(
        name="pi: 64 stopped, of 2 s",
        ours=_pi("obeying", 64),
        floor=_constant(wall=2.0),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    BenchmarkCase(
        name="pi: 64 that ignore SIGTERM, of 10 s",
        ours=_pi("ignoring", 64),
        floor=_constant(wall=10.0),
        goal=1.0,
        figure=wall,
        pairs=1,
    ),
    BenchmarkCase(
        name="claude: one delegation, of the SDK's query",
        ours=_claude("compared", 25),
        floor=_constant(wall=1.0),
        goal=1.05,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    BenchmarkCase(
        name="claude: a delegation by a run on it",
        ours=_claude("nested", 7),
        floor=_claude("delegated", 8),
        goal=1.25,
        figure=wall,
        per="run",
    ),
    _mcp_case("mcp: start to the first answer", "start", 0, 1.5, figure=wall, pairs=9),
    _mcp_case("mcp: a call that does nothing", "calls", 500, 1.3, figure=wall, per="call"),
    _mcp_case("mcp: 200 calls in flight", "in_flight", 200, 1.3, figure=wall, per="call"),
    # A run is planned, recorded and reported.
    _mcp_case("mcp: a delegation, over a call that does nothing", "delegations", 2000, 3.5, per="call", pairs=3),
    _mcp_case("mcp: memory while idle", "memory", 0, 1.5, figure=grown, unit="KB"),
    BenchmarkCase(
        name="bridge: start to the tools, over a direct start",
        ours=_bridge("start", 0),
        floor=_bridge("start", 0, "direct"),
        goal=1.3,
        figure=wall,
        pairs=9,
    ),
    BenchmarkCase(
        # CPU: the time is that of two syncs to the disk on both sides.
        name="bridge: a delegation, over a direct call",
        ours=_bridge("calls", 300),
        floor=_bridge("calls", 300, "direct"),
        goal=1.5,
        per="call",
    ),
    BenchmarkCase(
        name="serve: start, over the least server",
        ours=_http("start", 0),
        floor=_http("echo_start", 0),
        goal=2.0,
        figure=wall,
        pairs=7,
    ),
    BenchmarkCase(
        # The floor is the least SSE server's, and the 100 ms more that an event may take through us.
        name="serve: an event until it is read",
        ours=_http("latency", 100),
        floor=_http("echoed", 100),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    BenchmarkCase(
        # The same in a browser, until it is painted; the floor's page only adds a line to a list.
        name="serve: an event until it is painted",
        ours=_dashboard("dashboard", 100),
        floor=_dashboard("echoed", 100),
        goal=1.0,
        figure=wall,
        pairs=3,
    ),
    BenchmarkCase(
        name="serve: a run of 100 readers, one stalled",
        ours=("-m", "benchmarks.watcher_bench", "3", "100"),
        floor=("-m", "benchmarks.watcher_bench", "3", "0"),
        goal=1.05,
        figure=wall,
        pairs=3,
    ),
    BenchmarkCase(
        name="serve: 10,000 runs, over the query",
        ours=_http("listing", 10_000),
        floor=_constant(wall=1.0),
        goal=3.0,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    BenchmarkCase(
        name="serve: their first page, over the same",
        ours=_http("page", 10_000),
        floor=_constant(wall=1.0),
        goal=1.0,
        figure=wall,
        unit="×",
        pairs=3,
    ),
    BenchmarkCase(
        name="serve: the dashboard, packed",
        ours=_http("weight", 0),
        floor=_constant(grown_bytes=100 * 1024),
        goal=1.0,
        figure=grown,
        unit="KB",
        pairs=1,
    ),
)
