"""Notices about what the sandbox of a run kept from it."""

from __future__ import annotations

from retinue.engines.base import Emit
from retinue.engines.sandbox.proxy import SandboxProxy
from retinue.model.events import Notice


async def report_refused_hosts(proxy: SandboxProxy | None, emit: Emit) -> None:
    """Emit a notice about the hosts that the run asked for and did not reach."""
    refused = proxy.take_refused() if proxy else []
    if refused:
        message = (
            f"The sandbox did not allow {', '.join(refused)}. To allow hosts, add them to the setting sandbox_hosts."
        )
        await emit(Notice("sandbox", message))
