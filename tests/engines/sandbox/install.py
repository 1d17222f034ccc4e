"""Find bubblewrap for the tests of the sandbox, or install the package of the system.

    python -m tests.engines.sandbox.install .tools

Elsewhere than on Debian and its derivatives, or without root, it prints what to install, and the tests that need it
are skipped. With CI or REQUIRE_REAL set, it fails instead.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.system_packages import install_packages, run_installation

STAMP = ".bubblewrap"
ADVICE = "Install bubblewrap."


def install(tools: Path) -> None:
    """Install bubblewrap if it is not there; other systems than Linux have none.

    Raises:
        MissingError: it is not there and cannot be installed.
    """
    if sys.platform == "linux" and not shutil.which("bwrap"):
        install_packages(["bubblewrap"], ADVICE)
    tools.mkdir(parents=True, exist_ok=True)
    (tools / STAMP).touch()


if __name__ == "__main__":
    sys.exit(run_installation("bubblewrap", install, sys.argv[1:]))
