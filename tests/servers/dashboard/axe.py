"""Installs axe-core, which judges the pages of the dashboard beside our own looks.

python -m tests.servers.dashboard.axe .tools          as the lock says
python -m tests.servers.dashboard.axe --lock          writes the lock anew
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
    """Its script; empty where it is not installed."""
    return (tools / FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text() if AXE.is_in(tools) else ""


if __name__ == "__main__":
    sys.exit(main(AXE, sys.argv[1:]))
