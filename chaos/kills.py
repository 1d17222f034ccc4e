"""Kill a whole Retinue at a random moment: no shown event is lost, every run has one end, nothing runs on."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

import anyio
from anyio.abc import Process
from msgspec import Struct
from tests.support.fake_pi import install_fake_pi

from chaos.attack import EXIT_TIMEOUT, HIDE_CONTROL_GROUPS, Attack, count_left, environment
from retinue.engines.process.supervisor import ContainmentKind, detect_containment
from retinue.model.events import RunEnded
from retinue.sessions.jsonl import JsonlStore
from retinue.testing.stores import read_all

PARALLEL = 3
START_TIMEOUT = 60.0
DRAIN_TIMEOUT = 5.0
"""Seconds in which the output of a killed process is read: a daemon may hold it open."""


class ShownEvent(Struct, frozen=True, array_like=True):
    session: str
    run: str
    seq: int
    is_end: bool


async def attack_with_kills(attack: Attack, *, hides_control_groups: bool = False, at_least: int = 3) -> None:
    """Kill programs that run pi stand-ins, which start daemons, some without an environment."""
    has_groups = detect_containment()[0] is ContainmentKind.CGROUP
    prefix = HIDE_CONTROL_GROUPS if hides_control_groups and has_groups else ()
    slowest = 0.0
    shown = runs = 0

    async def kill_repeatedly() -> None:
        nonlocal slowest, shown, runs
        while attack.goes_on(at_least):
            home = attack.folder()
            seconds, events, count = await _kill_one(attack, home, prefix)
            slowest, shown, runs = max(slowest, seconds), shown + events, runs + count

    async with anyio.create_task_group() as group:
        for _ in range(1 if attack.is_control else PARALLEL):
            group.start_soon(kill_repeatedly)
    attack.tally.counts |= {"runs": runs, "events shown": shown}
    attack.tally.figures |= {"slowest cleanup, s": round(slowest, 2)}


async def _kill_one(attack: Attack, home: Path, prefix: tuple[str, ...]) -> tuple[float, int, int]:
    """Kill one Retinue, check what is left of it; return the seconds of its cleanup, its events and its runs."""
    install_fake_pi(home / "bin")
    mark = f"{attack.choose.randrange(10**6, 10**7)}.{attack.choose.randrange(10**6, 10**7)}"
    seed = attack.choose.getrandbits(32)
    moment = attack.choose.uniform(0.0, 2.5)
    command = [*prefix, sys.executable, "-m", "chaos.victim", str(home), mark, str(seed)]
    output = bytearray()
    opened = await anyio.open_process(command, env=environment(home), stdin=DEVNULL, stderr=DEVNULL)
    async with opened as process:
        await _read_for(START_TIMEOUT, process, output, at_least=1)
        await _read_for(moment, process, output)
        ended = process.returncode
        if ended is None:
            process.send_signal(signal.SIGKILL)
        await _read_for(DRAIN_TIMEOUT, process, output)
        await process.wait()
    if attack.is_control:
        await anyio.run_process(["sh", "-c", f"setsid sleep {mark} >/dev/null 2>&1 &"])
        output += b'["%s","%s",1,false]\n' % (b"0" * 32, b"0" * 32)
    left, seconds = await count_left(mark, within=1.0 if attack.is_control else EXIT_TIMEOUT)
    left += (await count_left(str(home / "bin")))[0]
    lines = bytes(output).split(b"\n")[:-1]  # a line without its end was not shown
    events = [ShownEvent(*json.loads(line)) for line in lines]
    lost, problems = await find_lost(home / "state", events)
    if ended is not None:
        problems.append(f"the program ended by itself with exit code {ended} (seed {seed})")
    if left:
        problems.append(f"{left} processes were left running after a kill {moment:.2f} s in (seed {seed})")
    attack.tally.note(*problems, lost=lost, orphans=left)
    return seconds, len(events), len({event.run for event in events})


async def _read_for(seconds: float, process: Process, output: bytearray, *, at_least: int | None = None) -> None:
    """Read what a process prints, for so many seconds, until its end, or until there are so many bytes."""
    assert process.stdout
    with anyio.move_on_after(seconds), suppress(anyio.EndOfStream):
        while at_least is None or len(output) < at_least:
            output += await process.stdout.receive()


async def find_lost(state: Path, shown: list[ShownEvent]) -> tuple[int, list[str]]:
    """Return how many shown events a later process does not read, and what else is wrong with the state folder."""
    store = JsonlStore(state)
    await store.recover()
    summaries = await store.list()
    read: Counter[tuple[str, int]] = Counter()
    ends: Counter[str] = Counter()
    for summary in summaries:
        for record in await read_all(store, summary.session):
            read[record.origin.run, record.seq] += 1
            ends[record.origin.run] += isinstance(record.event, RunEnded)
    lost = [event for event in shown if not read[event.run, event.seq]]
    problems = [f"event {event.seq} of run {event.run} was shown and is lost" for event in lost[:3]]
    problems += [f"run {run} has {count} ends" for run, count in ends.items() if count != 1]
    problems += [f"event {seq} of run {run} is stored {n} times" for (run, seq), n in read.items() if n > 1]
    (state / "index.sqlite").unlink(missing_ok=True)
    if await JsonlStore(state).list() != summaries:
        problems.append("the index is not rebuilt as it was")
    return len(lost), problems
