"""`python -m chaos [SECTIONS…]`: attack Retinue from outside, print a table, and write the result as JSON.

Everything happens in temporary folders and on the loopback interface. Each section gets its share of the time and at
least one round. Exits with 1 if anything was lost, left running or leaked, or did not hold.

`--control` breaks something on purpose in each section that checks for it, and exits with 0 only if that was noticed.
"""

from __future__ import annotations

import argparse
import os
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
from chaos.figures import (
    COMMITTED,
    LATEST,
    ChaosResult,
    commit_results,
    make_result,
    read_result,
    write_result,
)
from chaos.junk import attack_with_junk
from chaos.kills import attack_with_kills
from chaos.repository import attack_with_a_repository
from chaos.shutdowns import attack_with_shutdowns
from chaos.storage import attack_with_power_cuts, attack_with_storage_faults
from chaos.users import run_as_user, user_name
from chaos.web import attack_over_http, attack_with_schemathesis
from retinue.engines.process.supervisor import ContainmentKind, detect_containment

DEFAULT_MINUTES = 5.0
COLUMNS = "{:34}{:>8}{:>8}{:>8}{:>9}{:>8}{:>9}"


class Section(Struct, frozen=True):
    """One kind of attack and its share of the time."""

    name: str
    attack: Callable[[Attack], Awaitable[None]]
    share: float
    hides_control_groups: bool | None = None
    """Whether it runs with or without control groups, if that matters."""


SECTIONS = (
    Section("kills", attack_with_kills, 4, hides_control_groups=False),
    Section(
        "kills without control groups",
        partial(attack_with_kills, hides_control_groups=True),
        4,
        hides_control_groups=True,
    ),
    Section("shutdowns in a burst", attack_with_shutdowns, 2),
    Section("power cuts", attack_with_power_cuts, 3),
    Section("storage faults", attack_with_storage_faults, 2),
    Section("200 children at once", attack_with_children, 1),
    Section("junk on every input", attack_with_junk, 2),
    Section("canaries", attack_with_canaries, 2),
    Section("hostile repository", attack_with_a_repository, 2),
    Section("HTTP attacks", attack_over_http, 1),
    Section("schemathesis", attack_with_schemathesis, 2),
)


def main() -> None:
    chosen = _parse_arguments()
    if chosen.add:
        sys.exit(_add_results(chosen.add))
    if chosen.without_control_groups:
        _hide_control_groups()
    if chosen.user and chosen.user != user_name():
        sys.exit(_attack_as_user(chosen))
    sections = _choose_sections(chosen.sections)
    print(f"seed {chosen.seed}, {chosen.minutes:g} minutes, as {user_name()}")
    print(COLUMNS.format("", "tried", "held", "lost", "orphans", "leaks", "seconds"), flush=True)
    result = make_result(
        chosen.seed, chosen.minutes, [_run_section(section, chosen, sections) for section in sections]
    )
    _write(result, chosen)
    sys.exit(_judge(result.rows, is_control=chosen.control))


def _attack_as_user(chosen: argparse.Namespace) -> int:
    """Let another process attack as `--user`; return its exit code."""
    arguments = [*chosen.sections, "--minutes", str(chosen.minutes), "--seed", str(chosen.seed)]
    arguments += ["--control"] if chosen.control else []
    with tempfile.TemporaryDirectory(prefix="retinue-chaos-user-") as scratch:
        code, written = run_as_user(chosen.user, arguments, Path(scratch))
        if written.exists():
            _write(read_result(written), chosen)
    return code


def _write(result: ChaosResult, chosen: argparse.Namespace) -> None:
    """Write the result where the arguments say; a control attack is no result."""
    if chosen.control:
        return
    write_result(Path(chosen.json or LATEST), result)
    if not chosen.json:
        print(f"\nwritten to {LATEST}")
    if chosen.commit:
        commit_results([result])
        print(f"added to {COMMITTED}; `make docs` shows the sum of all results there")


def _add_results(names: list[str]) -> int:
    """Add results of earlier runs to those that the documents show; return the exit code."""
    try:
        results = [read_result(Path(name)) for name in names]
    except (OSError, msgspec.MsgspecError) as problem:
        print(f"error: --add: no result of `make chaos` was read: {problem}", file=sys.stderr)
        return 2
    new = commit_results(results)
    print(f"added {new} of {len(results)} results to {COMMITTED}; `make docs` shows the sum of all results there")
    return 0


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
    parser.add_argument("--commit", action="store_true", help="add the result to those that the documents show")
    parser.add_argument("--add", nargs="+", metavar="FILE", help="only add results of earlier attacks")
    chosen = parser.parse_args()
    if not 0 < chosen.minutes <= 24 * 60:
        parser.error(f"--minutes {chosen.minutes:g}: use more than 0 and at most 1440")
    unknown = [word for word in chosen.sections if not any(word in section.name for section in SECTIONS)]
    if unknown:
        parser.error(f"no section is named {unknown[0]!r}; choose from {names}")
    return chosen


def _choose_sections(words: list[str]) -> list[Section]:
    """Return the sections that the words choose and this machine can run."""
    found = [section for section in SECTIONS if not words or any(word in section.name for word in words)]
    if detect_containment()[0] is not ContainmentKind.CGROUP:
        return [section for section in found if section.hides_control_groups is not False]
    if not can_hide_control_groups():
        return [section for section in found if section.hides_control_groups is not True]
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


# -- control groups ---------------------------------------------------------------------------------


def _hide_control_groups() -> None:
    """Run this command again as on a machine without control groups."""
    if detect_containment()[0] is not ContainmentKind.CGROUP:
        return
    if not can_hide_control_groups():
        sys.exit("error: --without-control-groups: only root can hide them, with unshare and mount")
    os.execvp(HIDE_CONTROL_GROUPS[0], [*HIDE_CONTROL_GROUPS, sys.executable, "-m", "chaos", *sys.argv[1:]])


if __name__ == "__main__":
    main()
