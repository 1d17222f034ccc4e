"""Run code without root's rights, because the system refuses root nothing."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534


@contextmanager
def open_folder() -> Iterator[Path]:
    """Create a folder that an ordinary user can work in; pytest's own are private to the user who runs it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


def drop_rights() -> None:
    """Give up root's rights in this process for good.

    Everything it needs must be imported by then, as the interpreter itself may be readable by root only.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def as_ordinary_user(code: str, *args: str) -> Any:
    """Run a program that calls `drop_rights` itself, with `sys.argv[1:]`, and return the JSON it prints."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *args],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
