"""A real browser in front of a real `retinue serve`. What it must never do is watched in every test."""

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
PATIENCE = 20_000
"""Milliseconds an expectation may take on a machine that is busy."""
WATCH_POLICY = """
addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""
DESKTOP = {"width": 1280, "height": 800}

Script = dict[str, Any]
Step = dict[str, Any]


class Served:
    """`retinue serve` in a process of its own, with a home and a project of its own."""

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
        """Starts it, on the port it had before."""
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
        told = json.loads(line)
        self._port, self.link, self.token_file = told["port"], told["link"], Path(told["tokenFile"])

    def stop(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGINT)
            self._process.communicate(timeout=20)
            self._process = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def popen(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Another Retinue process of the same user, on the same engine."""
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
        """What such a process answers, once it has ended well."""
        with self.popen(*arguments) as process:
            said, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint
        return said.strip()


class Watch:
    """What a page did that it must not do: complaints of the console, requests to others, code that was not ours."""

    def __init__(self, page: Page, base: str) -> None:
        self.faults: list[str] = []
        self._allowed: list[str] = []
        self._base = base
        page.on("console", lambda said: self._note(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self._note(f"uncaught: {error}"))
        page.on("dialog", self._asked_back)
        page.on("request", lambda request: self._asked(request.url))
        page.add_init_script(WATCH_POLICY)

    def allow(self, pattern: str) -> None:
        """A complaint that the test itself brings about."""
        self._allowed.append(pattern)

    def _note(self, fault: str) -> None:
        self.faults.append(fault)

    def _asked_back(self, dialog: Dialog) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, url: str) -> None:
        if not url.startswith((self._base + "/", "data:")):
            self._note(f"request to {url}")

    def check(self) -> None:
        left = [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self._allowed)]
        assert left == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Of one module: while Playwright is open, no other loop can run in this thread."""
    program = install.find()
    if not program:
        skip(f"There is no browser. {install.ADVICE}")
    home = str(tmp_path_factory.mktemp("browser"))
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=program, args=FLAGS, env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home}
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """`serve(agent=[steps…])`: a server whose agents play these steps, or one on another engine, for one module."""
    started: list[Served] = []

    def start(*, engine: str = "scripted", environ: dict[str, str] | None = None, **agents: list[Step]) -> Served:
        folder = tmp_path_factory.mktemp("served")
        script = folder / "script.json"
        script.write_text(json.dumps({"agents": agents}))
        served = Served(folder, engine, {"RETINUE_SCRIPT": str(script), **(environ or {})})
        served.start()
        started.append(served)
        return served

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`visit(served)`: a page that is signed in; whatever it must not have done fails the test at its end."""
    opened: list[tuple[BrowserContext, Watch]] = []

    def go(served: Served, path: str = "/", *, signed_in: bool = True, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        watch = Watch(page, served.base)
        opened.append((context, watch))
        page.watch = watch  # type: ignore[attr-defined]
        if signed_in:
            sign_in(page, served)
            page.goto(served.base + path)
        return page

    yield go
    for context, watch in opened:
        context.close()
        watch.check()


def sign_in(page: Page, served: Served) -> None:
    """By the link, which works once; by what it gave from then on."""
    if served.cookies:
        page.context.add_cookies(served.cookies)
        return
    page.goto(served.link)
    page.wait_for_url(f"{served.base}/")
    served.cookies = page.context.cookies()


def start_run(page: Page, agent: str, task: str) -> None:
    """Starts a run by the form, and waits for its page."""
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_label("Agent").select_option(agent)
    form.get_by_label("Task").fill(task)
    form.get_by_role("button", name="Start").click()
    expect(page.locator("main.run h1")).to_have_text(agent)


def state_of(page: Page) -> Any:
    """Where the page of a run says how it goes."""
    return page.locator(".titles .state")
