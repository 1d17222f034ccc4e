"""Fixtures that run the command line in this process or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner, Result
from tests.support.cli_terminal import Terminal

from retinue.cli.group import root

PROCESS_TIMEOUT = 30.0
"""Seconds a process may take."""

Cli = Callable[..., Result]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETINUE_SCRIPT", raising=False)
    return tmp_path


@pytest.fixture
def cli(place: Path) -> Cli:
    """Return a function that runs a command in this process: `cli("run", "explorer", "look", script=[…])`."""

    def run(*arguments: str, stdin: str | bytes | None = None, script: Any = None, **environ: str) -> Result:
        if script is not None:
            environ["RETINUE_SCRIPT"] = encode_script(script)
        return CliRunner().invoke(
            root, arguments, input=stdin, env=environ, prog_name="retinue", catch_exceptions=False
        )

    return run


class ProcessStarter:
    """Starts `retinue` as a process and kills it after the test."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, script: Any = None, **how: Any) -> subprocess.Popen[str]:
        environ = _environ(script, how.pop("environ", {}))
        streams = {name: how.pop(name, subprocess.PIPE) for name in ("stdin", "stdout", "stderr")}
        process = subprocess.Popen(
            [*how.pop("before", ()), sys.executable, "-m", "retinue", *arguments],
            cwd=how.pop("cwd", self._place),
            env=environ,
            text=True,
            encoding="utf-8",
            errors="replace",  # a killed process may end within a character
            **streams,
            **how,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, text: str | None = "", **how: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **how)
        out, err = process.communicate(text, timeout=PROCESS_TIMEOUT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def process(place: Path):
    started = ProcessStarter(place)
    yield started
    started.end()


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    opened.close()


def encode_script(script: Any) -> str:
    """Return a script for the scripted engine as JSON, from steps for every run or from a whole script."""
    return json.dumps({"steps": script} if isinstance(script, list) else script)


def wait_for(process: subprocess.Popen[str], text: str, stream: str = "stderr") -> str:
    """Read a stream up to the line that contains the text, and return what was read."""
    reading: IO[str] = getattr(process, stream)
    seen = ""
    with _kill_after_timeout(process):
        for line in reading:
            seen += line
            if text in line:
                return seen
    raise AssertionError(f"{text!r} was not printed, but: {seen}")


@contextmanager
def _kill_after_timeout(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that takes too long, which also ends reading from it."""
    timer = threading.Timer(PROCESS_TIMEOUT, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _environ(script: Any, more: Mapping[str, str | None]) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if script is not None:
        environ["RETINUE_SCRIPT"] = encode_script(script)
    environ.update({name: value for name, value in more.items() if value is not None})
    return environ
