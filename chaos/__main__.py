"""`python -m chaos [SECTIONS…]`: attack Retinue from outside, print a table, and write the result as JSON.

Everything happens in temporary folders and on the loopback interface. Each section gets its share of the time and at
least one round. Exits with 1 if anything was lost, left running or leaked, or did not hold.

`--control` breaks something on purpose in each section that checks for it, and exits with 0 only if that was noticed.
"""

from __future__ import annotations

import argparse
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from chaos.attack import HIDE_CONTROL_GROUPS, Attack, SectionResult, can_hide_control_groups
from chaos.canaries import attack_with_canaries
from chaos.children import attack_with_children
from chaos.junk import attack_with_junk
from chaos.kills import attack_with_kills
from chaos.repository import attack_with_a_repository
from chaos.shutdowns import attack_with_shutdowns
from chaos.storage import attack_with_power_cuts, attack_with_storage_faults
from chaos.web import attack_over_http, attack_with_schemathesis
from retinue.engines.process.supervisor import ContainmentKind, detect_containment

RESULTS = Path(__file__).parent / "results"
COMMITTED = RESULTS / "committed.json"
LATEST = RESULTS / "latest.local.json"
DEFAULT_MINUTES = 5.0
COLUMNS = "{:34}{:>8}{:>8}{:>8}{:>9}{:>8}{:>9}"


class Section(Struct, frozen=True):
    """One kind of attack and its share of the time."""

    name: str
    attack: Callable[[Attack], Awaitable[None]]
    share: float
    has_control: bool = False
    hides_control_groups: bool = False


SECTIONS = (
    Section("kills", attack_with_kills, 4, has_control=True),
    Section(
        "kills without control groups",
        partial(attack_with_kills, hides_control_groups=True),
        4,
        has_control=True,
        hides_control_groups=True,
    ),
    Section("shutdowns in a burst", attack_with_shutdowns, 2),
    Section("power cuts", attack_with_power_cuts, 3, has_control=True),
    Section("storage faults", attack_with_storage_faults, 2, has_control=True),
    Section("200 children at once", attack_with_children, 1, has_control=True),
    Section("junk on every input", attack_with_junk, 2),
    Section("canaries", attack_with_canaries, 2, has_control=True),
    Section("hostile repository", attack_with_a_repository, 2, has_control=True),
    Section("HTTP attacks", attack_over_http, 1, has_control=True),
    Section("schemathesis", attack_with_schemathesis, 2),
)


class ChaosResult(Struct, frozen=True, kw_only=True):
    date: str
    seed: int
    minutes: float
    python: str
    system: str
    cores: int
    user: str
    containment: str
    rows: list[SectionResult]


def main() -> None:
    chosen = _parse_arguments()
    if chosen.user:
        _become_user(chosen.user)
    if chosen.without_control_groups:
        _hide_control_groups()
    sections = _choose_sections(chosen.sections, is_control=chosen.control)
    print(f"seed {chosen.seed}, {chosen.minutes:g} minutes, as {_user_name()}")
    print(COLUMNS.format("", "tried", "held", "lost", "orphans", "leaks", "seconds"))
    rows = [_run_section(section, chosen, sections) for section in sections]
    result = ChaosResult(
        date=time.strftime("%Y-%m-%d"),
        seed=chosen.seed,
        minutes=chosen.minutes,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        cores=os.cpu_count() or 1,
        user=_user_name(),
        containment=detect_containment()[0],
        rows=rows,
    )
    if not chosen.control:
        path = Path(chosen.json) if chosen.json else COMMITTED if chosen.commit else LATEST
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        print(f"\nwritten to {path}")
    sys.exit(_judge(rows, is_control=chosen.control))


def _parse_arguments() -> argparse.Namespace:
    names = ", ".join(section.name for section in SECTIONS)
    parser = argparse.ArgumentParser(prog="python -m chaos", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("sections", nargs="*", help=f"only sections whose name contains one of these: {names}")
    minutes = os.environ.get("CHAOS_MINUTES") or DEFAULT_MINUTES
    parser.add_argument("--minutes", type=float, default=minutes, help="for all sections; or CHAOS_MINUTES")
    seed = os.environ.get("CHAOS_SEED") or int(time.time())
    parser.add_argument("--seed", type=int, default=seed, help="repeats the same choices; or CHAOS_SEED")
    parser.add_argument("--user", metavar="NAME", help="attack as this user; needs root")
    parser.add_argument("--without-control-groups", action="store_true", help="hide control groups; needs root")
    parser.add_argument("--control", action="store_true", help="break something on purpose: it must be noticed")
    parser.add_argument("--json", metavar="FILE", help=f"where the result is written; default {LATEST}")
    parser.add_argument("--commit", action="store_true", help="write the result that the documents show")
    chosen = parser.parse_args()
    if not 0 < chosen.minutes <= 24 * 60:
        parser.error(f"--minutes {chosen.minutes:g}: use more than 0 and at most 1440")
    unknown = [word for word in chosen.sections if not any(word in section.name for section in SECTIONS)]
    if unknown:
        parser.error(f"no section is named {unknown[0]!r}; choose from {names}")
    return chosen


def _choose_sections(words: list[str], *, is_control: bool) -> list[Section]:
    found = [section for section in SECTIONS if not words or any(word in section.name for word in words)]
    if is_control:
        found = [section for section in found if section.has_control]
    has_groups = detect_containment()[0] is ContainmentKind.CGROUP
    if not has_groups or not can_hide_control_groups():
        found = [section for section in found if not section.hides_control_groups]
    return found


def _run_section(section: Section, chosen: argparse.Namespace, sections: list[Section]) -> SectionResult:
    seconds = chosen.minutes * 60 * section.share / sum(each.share for each in sections)
    with tempfile.TemporaryDirectory(prefix="retinue-chaos-", ignore_cleanup_errors=True) as scratch:
        attack = Attack(section.name, chosen.seed, seconds, Path(scratch), is_control=chosen.control)
        anyio.run(section.attack, attack)
    row = attack.tally.result()
    print(COLUMNS.format(row.name, row.tried, row.held, row.lost, row.orphans, row.leaks, row.seconds), flush=True)
    for problem in [] if chosen.control else row.problems:
        print(f"    {problem}", flush=True)
    return row


def _judge(rows: list[SectionResult], *, is_control: bool) -> int:
    """Return the exit code."""
    if is_control:
        missed = [row.name for row in rows if row.is_clean]
        print(f"\nnot noticed: {', '.join(missed)}" if missed else "\nevery fault made on purpose was noticed")
        return 1 if missed else 0
    return 0 if all(row.is_clean for row in rows) else 1


# -- users and control groups ----------------------------------------------------------------------


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _become_user(name: str) -> None:
    """Run this command again as another user, who must be able to read the interpreter and the repository."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        sys.exit(f"error: --user {name}: there is no such user")
    if user.pw_uid == os.geteuid():
        return
    if os.geteuid() != 0:
        sys.exit(f"error: --user {name}: only root can become another user; run it as {name} instead")
    rights = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--bounding-set=-all"]
    rights += ["--inh-caps=-all", "--ambient-caps=-all"]
    # What this process may read, the processes it starts may not.
    start = "import chaos.victim, subprocess, sys; subprocess.run([sys.executable, '-c', 'import anyio'], check=True)"
    probe = ["setpriv", *rights, sys.executable, "-c", start]
    if not shutil.which("setpriv") or subprocess.run(probe, capture_output=True, check=False).returncode:
        sys.exit(
            f"error: --user {name}: {name} cannot run {sys.executable} in {Path.cwd()}. Copy the repository to a "
            f"folder that {name} can read, and run `make .venv/.dev PYTHON=/usr/bin/python3` there."
        )
    os.environ |= {"HOME": user.pw_dir}
    os.execvp(probe[0], ["setpriv", *rights, sys.executable, "-m", "chaos", *sys.argv[1:]])


def _hide_control_groups() -> None:
    """Run this command again as on a machine without control groups."""
    if detect_containment()[0] is not ContainmentKind.CGROUP:
        return
    if not can_hide_control_groups():
        sys.exit("error: --without-control-groups: only root can hide them, with unshare and mount")
    os.execvp(HIDE_CONTROL_GROUPS[0], [*HIDE_CONTROL_GROUPS, sys.executable, "-m", "chaos", *sys.argv[1:]])


if __name__ == "__main__":
    main()
