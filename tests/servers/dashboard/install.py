"""Finds a Chromium for the tests beside this file, or installs the one of the system's packages.

    python -m tests.servers.dashboard.install .tools

On Debian and its kin, as root, it installs the package `chromium`; elsewhere it says what to install and leaves the tests
to be skipped. With CI or RETINUE_REQUIRE_REAL set it fails instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real.install import MissingError, required

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "RETINUE_TEST_BROWSER"
"""Names another program of the same kind."""
STAMP = ".browser"
PATIENCE = 600.0
"""Seconds for the packages; they take about a minute."""
ADVICE = f"Install Chromium or Chrome, or name one in {VARIABLE}."


def find() -> str | None:
    """The browser's program; None if there is none."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


def install(tools: Path) -> None:
    """Makes sure that there is a browser.

    Raises:
        MissingError: there is none, and none can be installed here.
    """
    if not find():
        _from_packages()
    if not find():
        raise MissingError(f"its package brought no program. {ADVICE}")
    tools.mkdir(parents=True, exist_ok=True)
    (tools / STAMP).touch()


def _from_packages() -> None:
    apt = shutil.which("apt-get")
    if not apt or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise MissingError(f"this needs root on a system with apt-get. {ADVICE}")
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        _run([apt, "-qq", *command])


def _run(command: list[str]) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"apt-get did not run to its end ({error}). {ADVICE}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise MissingError(f"apt-get {command[2]} failed ({last[:200]}). {ADVICE}")


def main(arguments: list[str]) -> int:
    try:
        install(Path(arguments[0] if arguments else ".tools").absolute())
    except MissingError as why:
        fate = "" if required() else " The tests that run it are skipped."
        sys.stderr.write(f"A browser could not be installed: {why}{fate}\n")
        return 1 if required() else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
