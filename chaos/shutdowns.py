"""End `retinue delegate` by a signal while it starts its runs: nothing runs on, and every run has one end."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL

import anyio
from tests.support.fake_pi import action, encode_script, install_fake_pi

from chaos.attack import EXIT_TIMEOUT, Attack, count_left, environment
from chaos.kills import ShownEvent, find_lost

TASKS = 16
MAX_SECONDS = 10.0
"""Seconds from the signal to the exit, for an idle machine."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def attack_with_shutdowns(attack: Attack, *, at_least: int = 4) -> None:
    """Send a signal, or two, at a random moment of a burst of starts."""
    slowest = 0.0
    while attack.goes_on(at_least):
        slowest = max(slowest, await _shut_down(attack, attack.folder()))
    attack.tally.figures |= {"slowest exit, s": round(slowest, 2)}


async def _shut_down(attack: Attack, home: Path) -> float:
    install_fake_pi(home / "bin")
    mark = f"{attack.choose.randrange(10**6, 10**7)}.{attack.choose.randrange(10**6, 10**7)}"
    script = encode_script(
        action("bash", f"env -i setsid sleep {mark} >/dev/null 2>&1 &"),
        action("pause", 0.05),
        action("hang", deaf=True),
    )
    plan = home / "plan.json"
    plan.write_text(json.dumps({"tasks": [{"prompt": f"{number} {script}"} for number in range(TASKS)]}))
    settings = {"RETINUE_MAX_CONCURRENCY": str(TASKS), "RETINUE_STATE": str(home / "state")}
    command = [sys.executable, "-m", "retinue", "delegate", "--engine", "pi", str(plan)]
    number, twice = attack.choose.choice(SIGNALS), attack.choose.random() < 0.3
    moment = attack.choose.uniform(0.3, 2.0)
    environ = environment(home, **settings)
    opened = await anyio.open_process(command, cwd=home, env=environ, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    async with opened as process:
        await anyio.sleep(moment)
        problems = [] if process.returncode is None else [f"ended by itself with exit code {process.returncode}"]
        started = time.monotonic()
        for _ in range(1 + twice):
            if process.returncode is None:
                process.send_signal(number)
                await anyio.sleep(0.1)
        with anyio.move_on_after(3 * MAX_SECONDS):
            await process.wait()
        seconds = time.monotonic() - started
        if process.returncode is None:
            problems.append(f"no exit within {3 * MAX_SECONDS:.0f} s of {number.name}")
    if attack.is_control:
        await anyio.run_process(["sh", "-c", f"setsid sleep {mark} >/dev/null 2>&1 &"])
    left, _ = await count_left(mark, within=1.0 if attack.is_control else EXIT_TIMEOUT)
    left += (await count_left(str(home / "bin")))[0]
    shown = [ShownEvent("0" * 32, "0" * 32, 1, is_end=False)] if attack.is_control else []
    lost, more = await find_lost(home / "state", shown)
    attack.tally.note(*problems, *more, lost=lost, orphans=left)
    return seconds
