"""What the system refuses: root is refused nothing, so a small process shows it that gives root's rights up."""

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
    """A folder an ordinary user can work in; pytest's own are closed to all but whoever runs it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


def drop_rights() -> None:
    """Makes this process an ordinary user's, for good: for a process that was started for it alone.

    What it needs must be imported by then, as the interpreter itself may lie where only root can look.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def as_ordinary_user(code: str, *args: str) -> Any:
    """What a program prints as JSON; it calls `drop_rights` itself, and `sys.argv[1:]` are the arguments."""
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
