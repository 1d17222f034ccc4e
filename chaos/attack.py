"""What every section of the attack has: seeded choices, a time limit, an empty folder, and a tally."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import anyio
from msgspec import Struct

MAX_PROBLEMS = 20
"""Problems of one section that are printed and written."""
EXIT_TIMEOUT = 10.0
"""Seconds after which a process that should have ended counts as left; an idle machine needs 0.1."""
HIDE_CONTROL_GROUPS = (
    "unshare", "--mount", "--propagation", "private",
    "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh",
)  # fmt: skip
"""A prefix with which a command sees no control groups; needs root."""


class SectionResult(Struct, frozen=True, kw_only=True):
    """The outcome of one section."""

    name: str
    tried: int
    held: int
    lost: int
    """Events or answers that were reported and are gone, or were made up."""
    orphans: int
    """Processes that outlived their Retinue."""
    leaks: int
    """Secrets that came out, and requests that had an effect they must not have."""
    seconds: float
    counts: dict[str, int] = {}
    """Numbers that several runs add to."""
    figures: dict[str, float] = {}
    """Sizes and times, of which several runs have a largest."""
    problems: list[str]

    @property
    def is_clean(self) -> bool:
        return self.held == self.tried and not (self.lost or self.orphans or self.leaks)


class Tally:
    """Counts the attempts of one section."""

    def __init__(self, name: str) -> None:
        self.tried = self.held = self.lost = self.orphans = self.leaks = 0
        self.counts: dict[str, int] = {}
        self.figures: dict[str, float] = {}
        self.problems: list[str] = []
        self.name = name
        self._started = time.monotonic()

    def note(self, *problems: str, lost: int = 0, orphans: int = 0, leaks: int = 0) -> None:
        """Count one attempt, which held if nothing is wrong."""
        self.tried += 1
        self.held += not (problems or lost or orphans or leaks)
        self.lost += lost
        self.orphans += orphans
        self.leaks += leaks
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]

    def result(self) -> SectionResult:
        return SectionResult(
            name=self.name,
            tried=self.tried,
            held=self.held,
            lost=self.lost,
            orphans=self.orphans,
            leaks=self.leaks,
            seconds=round(time.monotonic() - self._started, 1),
            counts=self.counts,
            figures=self.figures,
            problems=self.problems,
        )


class Attack:
    """The means of one section."""

    def __init__(self, name: str, seed: int, seconds: float, scratch: Path, *, is_control: bool = False) -> None:
        self.choose = random.Random(f"{seed} {name}")
        self.tally = Tally(name)
        self.scratch = scratch
        self.is_control = is_control
        """The section breaks something on purpose, which it must then report."""
        self._end = time.monotonic() + seconds
        self._folders = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def goes_on(self, at_least: int) -> bool:
        """Return whether there is time for one more attempt, or too few were made."""
        return self.tally.tried < at_least or not self.is_over

    def folder(self) -> Path:
        """Create an empty folder; its path is in the command line or the environment of everything started there."""
        self._folders += 1
        folder = self.scratch / f"{self.tally.name.replace(' ', '-')}-{self._folders}"
        folder.mkdir(parents=True)
        return folder


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of an attacked process: an empty home, a pi stand-in on the PATH, a provider's key."""
    path = os.pathsep.join((str(home / "bin"), os.environ.get("PATH", os.defpath)))
    return {"HOME": str(home), "PATH": path, "PYTHONPATH": os.getcwd(), "ANTHROPIC_API_KEY": "sk-not-a-key", **more}


def find_processes(mark: str) -> list[int]:
    """Return the live processes whose command line has the mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():  # empty for zombies
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile
                continue
    return found


async def count_left(mark: str, within: float = EXIT_TIMEOUT) -> tuple[int, float]:
    """Wait until no process has the mark; return how many are left, which are then ended, and the seconds it took."""
    started = time.monotonic()
    while (left := find_processes(mark)) and time.monotonic() - started < within:
        await anyio.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left), time.monotonic() - started


def can_hide_control_groups() -> bool:
    """Return whether a command can be run as on a machine without control groups."""
    try:
        return subprocess.run([*HIDE_CONTROL_GROUPS, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
