"""Bounds the runs that agents start: a tree of agents that delegates without end comes to one."""

from __future__ import annotations

from retinue.model.errors import ErrorCode, refuse


class SpawnCount:
    """Counts the runs that agents have started below one root call."""

    def __init__(self) -> None:
        self._started = 0

    def add(self, runs: int, limit: int) -> None:
        """Counts runs that an agent wants to start.

        Raises:
            Refused: `spawn_limit`: the agents below this root call would have started more than `limit` runs.
        """
        if self._started + runs > limit:
            started = f"{self._started} run{'s' * (self._started != 1)}"
            raise refuse(
                ErrorCode.SPAWN_LIMIT,
                f"The agents below this call have started {started} and may start {limit} (max_spawns); {runs} more "
                f"{'was' if runs == 1 else 'were'} refused and nothing was started. Do the rest without delegating, "
                "or raise max_spawns in your config.toml.",
            )
        self._started += runs

    def give_back(self, runs: int) -> None:
        """Uncounts runs that were not started after all."""
        self._started -= runs
