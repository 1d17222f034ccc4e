"""Let the power fail and the disk refuse: what was reported as saved is there, and nothing is made up."""

from __future__ import annotations

import errno
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs
from tests.support.power_cuts import SessionsScript, find_losses, without_syncs
from tests.support.recorded_disk import plan_cuts, rebuild
from tests.support.storage_faults import FaultOutcome, StorageFault, find_lies, run_under_fault

from chaos.attack import Attack

MEMORY = Path("/dev/shm")
CUTS_PER_RECORDING = 200
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES)


async def attack_with_power_cuts(attack: Attack, *, at_least: int = 200) -> None:
    """Record sessions of every kind and open what a power cut at any moment could leave of them."""
    recordings = 0
    with _memory_folder() as scratch:
        while attack.goes_on(at_least):
            recorded = await SessionsScript(scratch / f"recording-{recordings}").play()
            history = without_syncs(recorded.history) if attack.is_control else recorded.history
            for cut in plan_cuts(history, CUTS_PER_RECORDING, attack.choose.getrandbits(32)):
                if not attack.goes_on(at_least):
                    break
                root = scratch / "cut"
                losses = await find_losses(root, rebuild(history, cut), recorded.written)
                attack.tally.note(*(f"{cut}: {loss}" for loss in losses[:2]), lost=len(losses))
                shutil.rmtree(root)
            recordings += 1
    attack.tally.counts["recordings"] = recordings


async def attack_with_storage_faults(attack: Attack, *, at_least: int = 60) -> None:
    """Let every storage call of a run fail in turn, once or from then on, with six errors."""
    logging.getLogger("retinue.sessions.conversation_log").setLevel(logging.ERROR)  # one warning for each fault
    with _memory_folder() as scratch:
        turns = 0
        while attack.goes_on(at_least):
            number = ERRORS[turns // 2 % len(ERRORS)]
            forever = bool(turns % 2)
            turns += 1
            for nth in range(1, 1000):
                fault = StorageFault(number, nth=nth, forever=forever)
                if not attack.goes_on(at_least):
                    break
                home = scratch / "home"
                home.mkdir()
                outcome = await run_under_fault(home, fault)
                _note(attack, outcome, f"{errno.errorcode[number]} at call {nth}{' and after' if forever else ''}")
                shutil.rmtree(home)
                if not fault.has_struck:
                    break


def _note(attack: Attack, outcome: FaultOutcome, fault: str) -> None:
    if attack.is_control:
        outcome = structs.replace(outcome, stored=outcome.stored[:-1])
    lies = find_lies(outcome)
    attack.tally.note(*(f"{fault}: {lie}" for lie in lies), lost=len(lies))


@contextmanager
def _memory_folder() -> Iterator[Path]:
    """Create an empty folder, in memory if possible: a disk would take most of the time."""
    with tempfile.TemporaryDirectory(prefix="retinue-chaos-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
