"""Fixtures: an MCP server and the SDK's client in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.support.retinue_factory import stage

from retinue.engines.scripted import Script, Step
from retinue.model.runs import RunSpec
from retinue.servers.mcp import sdk, toolset_server

MODERN, LEGACY = "auto", "legacy"
"""The current revision of the protocol and the previous one, over memory streams."""

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=[MODERN, LEGACY])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def connect(workplace: Path, mode: str) -> Connect:
    """Return `connect(*script, …)`, which opens a client of a server whose agents follow the script."""

    @asynccontextmanager
    async def connected(
        *script: Step | Callable[[RunSpec], Script],
        surfaces: tuple[str, ...] = ("single", "fanout"),
        background: bool = False,
        most_calls: int = toolset_server.MAX_CALLS,
        client: dict[str, Any] | None = None,
        client_name: str | None = None,
        **options: Any,
    ) -> AsyncIterator[Client]:
        async with (
            stage(workplace, *script, client=client_name, **options) as retinue,
            toolset_server.open_tool_server(
                retinue, surfaces, roots=[str(workplace)], background=background, max_calls=most_calls
            ) as opened,
            Client(sdk.build_server(opened, "Be kind."), mode=mode, **(client or {})) as host,
        ):
            yield host

    return connected
