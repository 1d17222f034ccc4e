"""Installs axe-core, which checks the accessibility of the dashboard beside our own `looks.js`.

python -m tests.servers.dashboard.axe .tools          the locked version
python -m tests.servers.dashboard.axe --lock          write the lock again
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.real.install import Installation, main

FOLDER = "axe"
AXE = Installation(
    title="axe-core",
    stamp=".axe",
    package="axe-core",
    sources={FOLDER: Path(__file__).parent / FOLDER},
)


def program(tools: Path) -> str:
    """Return the script of axe-core; empty if it is not installed."""
    return (tools / FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text() if AXE.is_in(tools) else ""


if __name__ == "__main__":
    sys.exit(main(AXE, sys.argv[1:]))
