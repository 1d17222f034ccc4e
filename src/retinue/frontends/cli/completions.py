"""What a shell may complete beside commands and flags: names of agents and of sessions."""

from __future__ import annotations

from click import Context, Parameter


def agent_names(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """The agents that can be called from here."""
    from retinue.app import Retinue

    return [name for name in Retinue().roster().names() if name.startswith(incomplete)]


def session_ids(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """The latest sessions."""
    import anyio

    from retinue.app import Retinue

    async def latest() -> list[str]:
        async with Retinue() as retinue:
            return [summary.session[:8] for summary in await retinue.sessions(limit=50)]

    return [found for found in anyio.run(latest) if found.startswith(incomplete)]
