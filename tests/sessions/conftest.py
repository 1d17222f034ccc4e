"""Fixtures of the session tests: a state folder, and a process that is killed at a chosen storage call."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


class CrashLab:
    """The process of `crash_child.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "crash_child.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, scenario: str, folder: Path, kill_at: int = 0) -> dict[str, Any]:
        """Run a scenario and return its acknowledgements and whether it was killed; never with `kill_at` 0."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([scenario, str(folder), kill_at]), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def crash_lab() -> Iterator[CrashLab]:
    lab = CrashLab()
    yield lab
    lab.close()
