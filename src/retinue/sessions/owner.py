"""Who carries out a session's current run: what a lease says."""

from __future__ import annotations

from msgspec import Struct


class Owner(Struct, frozen=True, kw_only=True):
    """Who carries out a session's current run."""

    session: str
    run: str
    pid: int
    host: str
    started: float
    """Wall clock."""
    boot: str | None = None
    """Tells a process from one with the same number before the machine started anew."""
    control: str | None = None
    """Socket on which the process takes orders."""
