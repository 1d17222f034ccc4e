"""The command by which a host starts this installation of Retinue, and keeps starting it after updates."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "retinue"
_TEMPORARY = {
    "uvx": re.compile(r"[/\\]uv[/\\](?:cache[/\\])?(?:archive|builds|environments)-v\d+[/\\]"),
    "pipx": re.compile(r"[/\\]pipx[/\\](?:\.cache|cache)[/\\]|[/\\]\.cache[/\\]pipx[/\\]", re.IGNORECASE),
}
"""Programs that run a package once, and the environments they may delete afterwards."""
_EXTRAS = {"claude": "claude_agent_sdk", "providers": "pydantic_ai"}
"""The extras of the package, each with a module that it installs."""


def own_command(python: str = sys.executable, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the command that starts this installation of Retinue from any directory.

    For `uvx` and `pipx run` it is the command that fetches the package, as their environments may be deleted.
    """
    known = os.environ if environ is None else environ
    folder = Path(python).parent
    # On Windows scripts are beside the Python of a virtual environment, and below any other.
    script = shutil.which(PACKAGE, path=os.pathsep.join([str(folder), str(folder / "Scripts")]))
    # Without -P a host's working directory would come first among the places Python imports from.
    command = (script,) if script else (python, "-P", "-m", PACKAGE)
    if runner := _find_runner(python):
        program = _find_program(runner, known)
        return _runner_command(runner, program) if program else command
    return (_find_link(script, known) or script,) if script else command


def temporary_problem(python: str = sys.executable, environ: Mapping[str, str] | None = None) -> str | None:
    """Return why no command of this installation would last, with what to do; None if one does."""
    runner = _find_runner(python)
    if runner is None or _find_program(runner, os.environ if environ is None else environ):
        return None
    keep = f"uv tool install {PACKAGE}" if runner == "uvx" else f"pipx install {PACKAGE}"
    return (
        f"this Retinue runs from a temporary environment ({Path(python).parent}), and no `{runner}` is on the PATH. "
        f"Install Retinue first: {keep}"
    )


def _find_runner(python: str) -> str | None:
    return next((name for name, pattern in _TEMPORARY.items() if pattern.search(python)), None)


def _find_program(runner: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of uvx or pipx; uv names itself to what it runs."""
    if runner == "uvx" and (uv := environ.get("UV")) and (beside := shutil.which("uvx", path=str(Path(uv).parent))):
        return beside
    return shutil.which(runner, path=environ.get("PATH"))


def _runner_command(runner: str, program: str) -> tuple[str, ...]:
    spec = _requirement()
    if runner == "uvx":
        return (program, PACKAGE) if spec == PACKAGE else (program, "--from", spec, PACKAGE)
    return (program, "run", PACKAGE) if spec == PACKAGE else (program, "run", "--spec", spec, PACKAGE)


def _requirement() -> str:
    """Return how this package is installed: with its extras, and its address if it came from no index."""
    extras = ",".join(extra for extra, module in _EXTRAS.items() if find_spec(module))
    name = f"{PACKAGE}[{extras}]" if extras else PACKAGE
    address = _direct_address()
    return f"{name} @ {address}" if address else name


def _direct_address() -> str | None:
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
        url, source = str(origin["url"]), origin.get("vcs_info")
        return f"{source['vcs']}+{url}@{source['commit_id']}" if source else url
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return None


def _find_link(script: str, environ: Mapping[str, str]) -> str | None:
    """Return the link on the PATH that pipx and `uv tool` keep up to date; None if there is none to our script."""
    found = shutil.which(PACKAGE, path=environ.get("PATH"))
    return os.path.abspath(found) if found and os.path.realpath(found) == os.path.realpath(script) else None  # noqa: PTH100 - resolves no link
