"""Installs the official MCP conformance suite and the MCP inspector, for the tests beside this file.

    python -m tests.frontends.mcp.install .tools          as the lock says
    python -m tests.frontends.mcp.install --lock          writes the lock anew

Where they cannot be had it says so and leaves the tests to be skipped; with CI or RETINUE_REQUIRE_REAL set it fails.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.engines_real.install import FILES, QUICK_TO_GIVE_UP, MissingError, npm, required

SOURCE = Path(__file__).parent / "clients"
FOLDER = "mcp-clients"
STAMP = ".mcp"
"""Written last, so that an installation that was cut off is begun again."""


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["--lock"]:
            lock()
        else:
            install(Path(arguments[0] if arguments else ".tools").absolute())
    except MissingError as why:
        fate = "" if required() else " The tests that run them are skipped."
        sys.stderr.write(f"The MCP conformance suite and inspector could not be installed: {why}{fate}\n")
        return 1 if required() else 0
    return 0


def install(tools: Path) -> None:
    (tools / STAMP).unlink(missing_ok=True)
    folder = tools / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    npm("view", "@modelcontextprotocol/conformance", "version", *QUICK_TO_GIVE_UP, folder=folder)
    for file in FILES:
        shutil.copy(SOURCE / file, folder / file)
    npm("ci", "--omit=dev", *QUICK_TO_GIVE_UP, folder=folder)
    (tools / STAMP).touch()


def lock() -> None:
    path = SOURCE / "package-lock.json"
    path.unlink(missing_ok=True)
    npm("install", "--package-lock-only", folder=SOURCE)
    found = json.loads(path.read_text())
    for package in found["packages"].values():
        package.pop("funding", None)
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
