"""Find a Chromium for the dashboard tests, or install the package of the system.

    python -m tests.servers.dashboard.install .tools

On Debian and its derivatives, as root, it installs the package `chromium`; elsewhere it prints what to install, and the
tests are skipped. With CI or REQUIRE_REAL set, it fails instead.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.real.install import MissingError
from tests.support.system_packages import install_packages, run_installation

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "RETINUE_TEST_BROWSER"
"""Environment variable with the path of another Chromium."""
STAMP = ".browser"
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
        install_packages(["chromium"], ADVICE)
    if not find():
        raise MissingError(f"its package brought no program. {ADVICE}")
    tools.mkdir(parents=True, exist_ok=True)
    (tools / STAMP).touch()


if __name__ == "__main__":
    sys.exit(run_installation("A browser", install, sys.argv[1:]))
