"""After a power cut at any moment, everything that was reported as durable is there, and nothing else was made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.power_cuts import SessionsScript, find_losses, without_syncs
from tests.support.recorded_disk import History, plan_cuts, rebuild

CUTS = 300
"""For each of four seeds: 1,200 in all."""


async def find_losses_of_cuts(folder: Path, history: History, written, *, count: int, seed: int) -> list[str]:
    return [
        f"{cut}: {loss}"
        for number, cut in enumerate(plan_cuts(history, count, seed))
        for loss in await find_losses(folder / f"cut-{number}", rebuild(history, cut), written)
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_power_cut_at_any_moment_loses_nothing_durable(seed, memory_path):
    recorded = await SessionsScript(memory_path / "recorded").play()
    losses = await find_losses_of_cuts(memory_path, recorded.history, recorded.written, count=CUTS, seed=seed)
    assert losses == []


async def test_power_cuts_of_a_store_that_syncs_nothing_are_noticed(memory_path):
    recorded = await SessionsScript(memory_path / "recorded").play()
    history = without_syncs(recorded.history)
    assert len(await find_losses_of_cuts(memory_path, history, recorded.written, count=50, seed=0)) > 50
