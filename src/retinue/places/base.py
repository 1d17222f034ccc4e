"""Where runs are carried out."""

from __future__ import annotations

from typing import Protocol

from retinue.engines.base import Emit
from retinue.types import Failure, RunSpec


class Place(Protocol):
    async def carry(self, spec: RunSpec, emit: Emit) -> None:
        """Has the spec executed by its engine, here or elsewhere; stopped by cancellation only.

        Raises:
            EngineError: the engine could not start or go on, or crashed.
        """

    async def steer(self, spec: RunSpec, text: str) -> Failure | None:
        """Hands a text to the agent of a run that is being carried out; why it cannot, or None."""
