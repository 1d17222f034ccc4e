"""The api engine: the agent loop over a provider's API, with tools that run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import CapacityLimiter
from anyio.abc import TaskStatus

from retinue.engines.api.connections import HttpClients
from retinue.engines.api.extra_providers import EXTRA_WIRE
from retinue.engines.api.http import ApiModel, Endpoint
from retinue.engines.api.pricing import PriceList
from retinue.engines.api.providers import PROVIDERS, WIRES, ModelChoice, Provider, choose_model, remove_keys
from retinue.engines.api.wire import ModelOptions
from retinue.engines.base import RUN_NOT_ACTIVE, Emit
from retinue.model.errors import Failure
from retinue.model.events import Notice
from retinue.model.runs import RunSpec, process_limits

if TYPE_CHECKING:
    from retinue.engines.agent_loop import ChatModel
    from retinue.engines.api.pydantic_models import PydanticModels
    from retinue.engines.compaction import ContextWindow
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.engines.toolbox import AgentToolbox
    from retinue.engines.tools.bash import CommandContext
    from retinue.engines.tools.fetch import FetchContext


class ApiEngine:
    """An engine that runs specs on provider APIs over one pool of connections."""

    def __init__(self, *, providers: Mapping[str, Provider] = PROVIDERS) -> None:
        self._providers = providers
        self._stack = AsyncExitStack()
        """Closes what the first run that needs it opens: the supervisor of commands, models of pydantic-ai."""
        self._supervisor: ProcessSupervisor | None = None
        self._clients = HttpClients()
        self._pydantic_models: PydanticModels | None = None
        self._prices: PriceList | None = None
        self._readers: CapacityLimiter | None = None
        self._steering: dict[str, list[str]] = {}
        """Texts for the agents of active runs, by run."""

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        async with self._stack, aclosing(self._clients), anyio.create_task_group() as group:
            self._prices = PriceList(group)
            task_status.started()
            await anyio.sleep_forever()

    async def steer(self, run: str, text: str) -> Failure | None:
        if run not in self._steering:
            return RUN_NOT_ACTIVE
        self._steering[run].append(text)
        return None

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        self._steering[spec.run] = []
        try:
            await self._run(spec, emit, self._steering[spec.run])
        finally:
            del self._steering[spec.run]

    async def _run(self, spec: RunSpec, emit: Emit, steering: list[str]) -> None:
        from retinue.engines.agent_loop import run_agent_loop
        from retinue.engines.compaction import Compactor

        assert self._prices is not None
        choice = self._choose_model(spec)
        if choice.notice:
            await emit(Notice("not_applied", choice.notice, preference="model"))
        options = ModelOptions(model=choice.model, effort=spec.agent.thinking)
        model = await self._make_model(choice, options, spec.environment)
        compactor = Compactor(model, partial(find_window, self._prices, choice), emit, spec.budget)
        await run_agent_loop(
            model, spec, self._make_toolbox(spec, emit), emit, steering=steering, compactor=compactor
        )

    def _choose_model(self, spec: RunSpec) -> ModelChoice:
        environ = {**spec.environment, **{name: secret.reveal() for name, secret in spec.secrets.items()}}
        return choose_model(spec.model, spec.agent.provider, environ, self._providers)

    def _make_toolbox(self, spec: RunSpec, emit: Emit) -> AgentToolbox:
        """Return the tools of a run, of which it is granted some."""
        from retinue.engines.tools import make_local_toolbox
        from retinue.engines.tools.base import MAX_READERS

        self._readers = self._readers or CapacityLimiter(MAX_READERS)
        return make_local_toolbox(
            spec.cwd,
            self._readers,
            search_path=spec.environment.get("PATH"),
            commands=self._command_context(spec, emit),
            network=_fetch_context(spec),
            sandbox=spec.sandbox,
        )

    async def _make_model(self, choice: ModelChoice, options: ModelOptions, environ: Mapping[str, str]) -> ChatModel:
        """Return the chosen model, behind one of our wires or behind pydantic-ai."""
        assert self._prices is not None
        provider = choice.provider
        if provider.wire != EXTRA_WIRE:
            wire = WIRES[provider.wire](provider.name)
            endpoint = Endpoint(provider=provider.name, wire=wire, base_url=choice.base_url, key=choice.key)
            return ApiModel(self._clients.get_client(choice.base_url, environ), endpoint, options, self._prices)
        from retinue.engines.api.pydantic_models import PydanticModel, PydanticModels

        self._pydantic_models = self._pydantic_models or PydanticModels(self._clients, self._stack)
        model = await self._pydantic_models.get_model(provider.name, choice.model, choice.arguments, environ)
        return PydanticModel(model, provider.name, options, self._prices)

    def _command_context(self, spec: RunSpec, emit: Emit) -> CommandContext | None:
        """Return where the commands of a run are executed; None if it may not execute any."""
        if "bash" not in spec.grant.tools:
            return None
        from retinue.engines.process_reporter import usage_reporter
        from retinue.engines.tools.bash import CommandContext

        return CommandContext(
            cwd=spec.cwd,
            environ=remove_keys(spec.environment, spec.secrets, self._providers),
            open_supervisor=self._open_supervisor,
            sandbox=spec.sandbox,
            limits=process_limits(spec.limits),
            run=spec.run,
            on_usage=usage_reporter(emit),
        )

    async def _open_supervisor(self) -> ProcessSupervisor:
        """Return the supervisor of the commands of all runs, opened on first use."""
        from retinue.engines.process.supervisor import ProcessSupervisor

        if self._supervisor is None:
            # Set before anything is awaited: commands of several runs share one supervisor.
            self._supervisor = ProcessSupervisor()
            await self._stack.enter_async_context(self._supervisor)
        return self._supervisor


async def find_window(prices: PriceList, choice: ModelChoice, tokens: int) -> ContextWindow | None:
    """Return the window of a run's model; None if it is not needed yet for a conversation of so many tokens."""
    from retinue.engines.compaction import ASSUMED_WINDOW, ContextWindow

    provider, model = choice.provider, choice.model
    configured = provider.configured_window(model)
    # The price lists are waited for only where it matters: the first request must not.
    is_long = tokens > min(configured or ASSUMED_WINDOW, ASSUMED_WINDOW) // 2
    known = await prices.find_window(provider.name, model, wait=is_long) or configured
    if known is None and not is_long:
        return None
    return ContextWindow(known or ASSUMED_WINDOW, is_assumed=known is None)


def _fetch_context(spec: RunSpec) -> FetchContext | None:
    """Return the network as a run may use it; None if it may not fetch anything."""
    if "fetch_content" not in spec.grant.tools:
        return None
    from retinue.engines.tools.fetch import FetchContext

    hosts = spec.sandbox.hosts if spec.sandbox.is_strict else None
    return FetchContext(allow_private=spec.fetch_private_addresses, hosts=hosts)
