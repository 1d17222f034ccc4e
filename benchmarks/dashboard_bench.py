"""The dashboard in a real browser compared with a minimal page. `python -m benchmarks.dashboard_bench WORK N`.

Both are painted by the same browser and observed by the same script: what was added to the page, and the next frame
after that. The clock of the page is compared with ours.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, Route, sync_playwright
from tests.servers.dashboard.conftest import FLAGS
from tests.servers.dashboard.install import ADVICE, find

from benchmarks.http_bench import APART, ECHO, MAY, WORK_TIMEOUT, HttpServer, print_figures

OBSERVE = """(count) => {
  const painted = new Map();
  const number = /^painted (\\d+)$/;
  window.painted = new Promise((resolve) => {
    new MutationObserver((changes) => {
      const added = changes.flatMap((change) => [...change.addedNodes]);
      const matches = added.map((node) => number.exec(node.textContent.trim())).filter(Boolean);
      const found = matches.map((match) => match[1]).filter((one) => !painted.has(one));
      if (found.length === 0) return;
      requestAnimationFrame(() => {
        for (const one of found) painted.set(one, (performance.timeOrigin + performance.now()) / 1000);
        if (painted.size === count) resolve(Object.fromEntries(painted));
      });
    }).observe(document.body, { childList: true, subtree: true });
  });
}"""
CLOCK = "() => (performance.timeOrigin + performance.now()) / 1000"
LEAST = """<!doctype html><ol></ol><script>
new EventSource("/").onmessage = ({ data }) => {
  const item = document.createElement("li");
  item.textContent = data;
  document.querySelector("ol").append(item);
};
</script>"""


@contextmanager
def open_page() -> Iterator[Page]:
    program = find()
    if not program:
        raise SystemExit(f"There is no browser. {ADVICE}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser.new_page()
        browser.close()


def measure_paint_delay(page: Page, committed: Callable[[], dict[str, float]]) -> float:
    """Return the median seconds from storing an event to painting it."""
    ahead = _clock_offset(page)
    painted: dict[str, float] = page.evaluate("window.painted")
    return statistics.median(painted[number] - ahead - when for number, when in committed().items())


def _clock_offset(page: Page) -> float:
    """Return the seconds that the page's clock is ahead, by the fastest exchange."""
    exchanges: list[tuple[float, float]] = []
    for _ in range(20):
        began = time.time()
        there = page.evaluate(CLOCK)
        ended = time.time()
        exchanges.append((ended - began, there - (began + ended) / 2))
    return min(exchanges)[1]


def dashboard(count: int) -> None:
    """Measure this many deltas on the page of their run."""
    said = [{"event": {"type": "text", "text": f"painted {number}"}} for number in range(count)]
    steps = [step for one in said for step in (one, APART)]
    server = HttpServer(script=[{"hear": True}, *steps, {"say": "done"}])
    run = json.loads(server.ask("POST", "runs", {"agent": "explorer", "task": "talk"}))["run"]["run"]

    def committed() -> dict[str, float]:
        events = json.loads(server.ask("GET", f"runs/{run}/events?limit={4 * count + 100}"))["events"]
        texts = [event for event in events if event["type"] == "text" and event["text"].startswith("painted")]
        return {event["text"].split()[1]: event["time"] for event in texts}

    with open_page() as page:
        page.goto(json.loads(server.ask("POST", "links", {}))["link"])
        page.get_by_role("link", name="explorer, running").click()
        page.get_by_role("textbox", name="Message to explorer").wait_for()
        page.evaluate(OBSERVE, count)
        server.ask("POST", f"runs/{run}/steer", {"text": "begin"})
        print_figures(wall=measure_paint_delay(page, committed))
    server.leave()


def echoed(count: int) -> None:
    """Measure the same for the minimal server and page, plus the extra time Retinue may take."""
    process = subprocess.Popen([sys.executable, *ECHO], stdout=subprocess.PIPE)
    assert process.stdout
    port = int(process.stdout.readline())
    posting = http.client.HTTPConnection("127.0.0.1", port, timeout=WORK_TIMEOUT)
    address = f"http://127.0.0.1:{port}/page"

    def answer(route: Route) -> None:
        route.fulfill(content_type="text/html", body=LEAST)

    with open_page() as page:
        page.route(address, answer)
        with page.expect_response(f"http://127.0.0.1:{port}/"):
            page.goto(address)
        page.evaluate(OBSERVE, count)
        committed: dict[str, float] = {}
        for number in range(count):
            committed[str(number)] = time.time()
            posting.request("POST", "/", f"data: painted {number}\n\n")
            posting.getresponse().read()
            time.sleep(APART["wait"])
        print_figures(wall=measure_paint_delay(page, lambda: committed) + MAY)
    process.kill()
    process.communicate()


WORKS: dict[str, Callable[[int], None]] = {"dashboard": dashboard, "echoed": echoed}


def main() -> None:
    work, count = sys.argv[1:]
    WORKS[work](int(count))


if __name__ == "__main__":
    main()
