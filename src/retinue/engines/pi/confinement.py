"""Start a pi in the sandbox of its run, with a configuration of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct, structs

from retinue.engines.pi.launch import PiLaunch
from retinue.engines.pi.private_config import PrivatePiConfig, open_private_config
from retinue.engines.process.command import ChildCommand
from retinue.engines.sandbox.launch import open_sandbox
from retinue.engines.sandbox.proxy import SandboxProxy


class ConfinedPi(Struct, frozen=True):
    """A pi to start, and what belongs to its sandbox."""

    command: ChildCommand
    session: str | None
    """The file of its session, as pi sees it."""
    config: PrivatePiConfig | None = None
    """None without a sandbox."""
    proxy: SandboxProxy | None = None


@asynccontextmanager
async def confine_pi(launch: PiLaunch, build: Callable[[PiLaunch], ChildCommand]) -> AsyncIterator[ConfinedPi]:
    """Provide the command that starts pi as the sandbox of the launch wants it.

    Raises:
        EngineError: the sandbox cannot be built (`unsupported`).
    """
    if not launch.sandbox.is_on:
        yield ConfinedPi(build(launch), launch.session)
        return
    async with open_private_config(launch.environ, launch.providers) as config:
        session = await config.import_session(launch.session)
        # Of a cache in its own temporary folder nothing would be left for the next start.
        cache = {"NODE_COMPILE_CACHE": launch.compile_cache} if launch.compile_cache else {}
        environ = {**launch.environ, **cache, "PI_CODING_AGENT_DIR": str(config.folder)}
        command = build(structs.replace(launch, session=session, environ=environ))
        needs = structs.replace(launch.needs, write=(str(config.folder),))
        async with open_sandbox(command, launch.sandbox, needs) as sandboxed:
            yield ConfinedPi(sandboxed.command, session, config, sandboxed.proxy)
