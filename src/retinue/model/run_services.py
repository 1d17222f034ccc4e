"""What the process of a run does for an engine of the same process; set when the run starts, and never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct


class ToolDescription(Struct, frozen=True, rename="camel"):
    """One tool, as a host or an engine registers it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class AgentDescription(Struct, frozen=True):
    """An agent that a run may delegate to, without persona and memory (decision D9)."""

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None
    """In pi's names; None for those of its caller."""


class DelegationAnswer(Struct, frozen=True):
    """The answer to a delegation call, bounded, with where to read the rest."""

    text: str
    is_error: bool = False


class Delegation(Protocol):
    """The delegation tools of one run, as functions. A process of its own has a `CallbackAddress` instead."""

    def list_tools(self) -> tuple[ToolDescription, ...]:
        """Return the tools that the run delegates with."""

    def list_agents(self) -> tuple[AgentDescription, ...]:
        """Return the agents that the run may delegate to, for engines that announce them."""

    async def call(self, tool: str, call: str, arguments: dict[str, Any]) -> DelegationAnswer:
        """Call a tool in the tool call of this id; a failure is an answer. Cancelling it stops the child runs."""
