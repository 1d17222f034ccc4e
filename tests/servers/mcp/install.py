"""Installs the official MCP conformance suite and the MCP inspector, for the tests beside this file.

python -m tests.servers.mcp.install .tools          as the lock says
python -m tests.servers.mcp.install --lock          writes the lock anew
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.real.install import Installation, main

FOLDER = "mcp-clients"
CLIENTS = Installation(
    title="The MCP suite and inspector",
    stamp=".mcp",
    package="@modelcontextprotocol/conformance",
    sources={FOLDER: Path(__file__).parent / "clients"},
)

if __name__ == "__main__":
    sys.exit(main(CLIENTS, sys.argv[1:]))
