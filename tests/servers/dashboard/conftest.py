"""A real browser with a real `retinue serve`. Every test also checks what a page must never do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright
from tests.real.install import skip
from tests.servers.dashboard import install

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EXPECT_TIMEOUT = 20_000
"""Milliseconds for an expectation on a busy machine."""
REPORT_POLICY_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""
DESKTOP = {"width": 1280, "height": 800}

Script = dict[str, Any]
Step = dict[str, Any]


class DashboardServer:
    """A `retinue serve` process with its own home and project."""

    def __init__(self, folder: Path, engine: str, environ: dict[str, str]) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self._environ = {**os.environ, "HOME": str(folder), "RETINUE_STATE": str(folder / "state"), **environ}
        self._engine = engine
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.link = ""
        self.token_file = Path()
        self.cookies: Any = None

    def start(self) -> None:
        """Start the server, again on its former port."""
        command = [sys.executable, "-m", "retinue", "serve", "--json", "--port", str(self._port)]
        self._process = subprocess.Popen(
            [*command, "--engine", self._engine],
            cwd=self.project,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        address = json.loads(line)
        self._port, self.link, self.token_file = address["port"], address["link"], Path(address["tokenFile"])

    def stop(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGINT)
            self._process.communicate(timeout=20)
            self._process = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def popen(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start another Retinue process of the same user, with the same engine."""
        return subprocess.Popen(
            [sys.executable, "-m", "retinue", *arguments],
            cwd=self.project,
            env={**self._environ, "RETINUE_ENGINE": self._engine, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Return the output of another Retinue process that succeeds."""
        with self.popen(*arguments) as process:
            output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return output.strip()


class PageMonitor:
    """Records violations of a page: console errors, requests to other hosts, dialogs."""

    def __init__(self, page: Page, base: str) -> None:
        self.faults: list[str] = []
        self._allowed: list[str] = []
        self._base = base
        page.on("console", lambda message: self._add(message.text) if message.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self._add(f"uncaught: {error}"))
        page.on("dialog", self._dismiss_dialog)
        page.on("request", lambda request: self._check_request(request.url))
        page.add_init_script(REPORT_POLICY_VIOLATIONS)

    def allow(self, pattern: str) -> None:
        """Allow a violation that the test itself causes."""
        self._allowed.append(pattern)

    def _add(self, fault: str) -> None:
        self.faults.append(fault)

    def _dismiss_dialog(self, dialog: Dialog) -> None:
        self._add(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check_request(self, url: str) -> None:
        if not url.startswith((self._base + "/", "data:")):
            self._add(f"request to {url}")

    def check(self) -> None:
        left = [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self._allowed)]
        assert left == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Open a browser per module: while Playwright is open, no other event loop can run in this thread."""
    program = install.find()
    if not program:
        skip(f"There is no browser. {install.ADVICE}")
    home = str(tmp_path_factory.mktemp("browser"))
    expect.set_options(timeout=EXPECT_TIMEOUT)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=program, args=FLAGS, env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home}
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., DashboardServer]]:
    """Return `serve(agent=[steps…])`, which starts a server with scripted agents or another engine, per module."""
    started: list[DashboardServer] = []

    def start(
        *, engine: str = "scripted", environ: dict[str, str] | None = None, **agents: list[Step]
    ) -> DashboardServer:
        folder = tmp_path_factory.mktemp("served")
        script = folder / "script.json"
        script.write_text(json.dumps({"agents": agents}))
        served = DashboardServer(folder, engine, {"RETINUE_SCRIPT": str(script), **(environ or {})})
        served.start()
        started.append(served)
        return served

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return `visit(server)`, which opens a signed-in page; violations of the page fail the test at its end."""
    opened: list[tuple[BrowserContext, PageMonitor]] = []

    def go(served: DashboardServer, path: str = "/", *, signed_in: bool = True, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
        context.set_default_timeout(EXPECT_TIMEOUT)
        page = context.new_page()
        monitor = PageMonitor(page, served.base)
        opened.append((context, monitor))
        page.monitor = monitor  # type: ignore[attr-defined]
        if signed_in:
            sign_in(page, served)
            page.goto(served.base + path)
        return page

    yield go
    for context, monitor in opened:
        context.close()
        monitor.check()


def sign_in(page: Page, served: DashboardServer) -> None:
    """Sign in with the link, which works once, and with its cookies from then on."""
    if served.cookies:
        page.context.add_cookies(served.cookies)
        return
    page.goto(served.link)
    page.wait_for_url(f"{served.base}/")
    served.cookies = page.context.cookies()


def start_run(page: Page, agent: str, task: str) -> None:
    """Start a run with the form and wait for its page."""
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_label("Agent").select_option(agent)
    form.get_by_label("Task").fill(task)
    form.get_by_role("button", name="Start").click()
    expect(page.locator("main.run h1")).to_have_text(agent)


def state_of(page: Page) -> Any:
    """Return the element with the state of the run."""
    return page.locator(".titles .state")
