"""Install programs that tests need from the packages of the system: on Debian and its derivatives, as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.real.install import MissingError, required

INSTALL_TIMEOUT = 600.0
"""Seconds for installing packages; the largest takes about a minute."""


def install_packages(names: Sequence[str], advice: str) -> None:
    """Install packages.

    Raises:
        MissingError: they cannot be installed here; the advice is part of the message.
    """
    apt = shutil.which("apt-get")
    if not apt or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise MissingError(f"this needs root on a system with apt-get. {advice}")
    for command in (["update"], ["install", "-y", "--no-install-recommends", *names]):
        _run([apt, "-qq", *command], advice)


def _run(command: list[str], advice: str) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"apt-get did not run to its end ({error}). {advice}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise MissingError(f"apt-get {command[2]} failed ({last[:200]}). {advice}")


def run_installation(name: str, install: Callable[[Path], None], arguments: Sequence[str]) -> int:
    """Install into the folder of the arguments and return the exit code; a missing program fails only if required."""
    try:
        install(Path(arguments[0] if arguments else ".tools").absolute())
    except MissingError as why:
        fate = "" if required() else " The tests that run it are skipped."
        sys.stderr.write(f"{name} could not be installed: {why}{fate}\n")
        return 1 if required() else 0
    return 0
