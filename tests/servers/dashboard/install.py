"""Find a Chromium for the dashboard tests, or install the package of the system.

    python -m tests.servers.dashboard.install .tools

On Debian and its derivatives, as root, it installs the package `chromium`; elsewhere it prints what to install, and the
tests are skipped. With CI or REQUIRE_REAL set, it fails instead.
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
"""Environment variable with the path of another Chromium."""
STAMP = ".browser"
INSTALL_TIMEOUT = 600.0
"""Seconds for installing the packages, which takes about a minute."""
ADVICE = f"Install Chromium or Chrome, or name one in {VARIABLE}."


def find() -> str | None:
    """Return the path of the browser; None if there is none."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


def install(tools: Path) -> None:
    """Install a browser if there is none.

    Raises:
        MissingError: there is no browser, and none can be installed.
    """
    if not find():
        _install_package()
    if not find():
        raise MissingError(f"its package brought no program. {ADVICE}")
    tools.mkdir(parents=True, exist_ok=True)
    (tools / STAMP).touch()


def _install_package() -> None:
    apt = shutil.which("apt-get")
    if not apt or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise MissingError(f"this needs root on a system with apt-get. {ADVICE}")
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        _run([apt, "-qq", *command])


def _run(command: list[str]) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
        )
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
