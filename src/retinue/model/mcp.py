"""MCP servers that an agent asks for, as they are started. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from retinue.model.runs import Secret
from retinue.model.tool_names import MCP_PREFIX, is_covered, make_label, shorten_name

ServerTransport = Literal["stdio", "http", "sse"]

MAX_TOOL_NAME_CHARS = 64
"""Characters of a tool's name that every provider accepts."""
RESERVED_LABELS = frozenset({"retinue"})
"""Names of Retinue's own servers in its hosts and engines."""

NamedSecrets = tuple[tuple[str, Secret], ...]


class McpServer(Struct, frozen=True, kw_only=True):
    """One MCP server: a program to start or an address to connect to, or the name of a configured one."""

    name: str
    transport: ServerTransport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    cwd: str = ""
    """Where its program is started; empty for the working directory of the run."""
    environment: NamedSecrets = ()
    """Variables that its program gets besides the usual ones. Their values are never shown."""
    url: str = ""
    headers: NamedSecrets = ()
    """HTTP headers. Their values are never shown."""
    start_timeout: float | None = None
    call_timeout: float | None = None
    only_tools: tuple[str, ...] | None = None
    """Tools that its definition allows, in the server's own names; None: all."""
    excluded_tools: tuple[str, ...] = ()
    source: str = ""
    """The file of its definition; empty for the agent's own file."""
    problem: str = ""
    """Why it cannot be started, and what to do; empty if it can."""

    @property
    def label(self) -> str:
        """Its name in the names of its tools."""
        return make_label(self.name)

    @property
    def is_reference(self) -> bool:
        """Whether it only names a server that is configured elsewhere."""
        return not (self.command or self.url or self.problem)

    @property
    def digest(self) -> str:
        """A digest of its definition, which identifies the server for the runs below one that has it.

        It covers the name and the allowed tools: the rules of a run are about the tools of this server by this name.
        """
        from hashlib import sha256

        hidden = [(name, secret.reveal()) for name, secret in (*self.environment, *self.headers)]
        started = (self.transport, self.command, self.args, self.cwd, self.url, hidden)
        allowed = (self.label, self.only_tools, self.excluded_tools)
        return sha256(repr((*started, *allowed)).encode("utf-8", "surrogatepass")).hexdigest()

    def offers(self, tool: str) -> bool:
        """Return whether its definition allows a tool, by the server's own name."""
        return tool not in self.excluded_tools and (self.only_tools is None or tool in self.only_tools)

    def describe(self) -> str:
        """Return how it is reached, without the values of its variables and headers."""
        where = self.url or " ".join((self.command, *self.args)).strip() or "configured elsewhere"
        named = [f"{kind} {name}" for kind, pairs in self._named_values() for name, _ in pairs]
        values = f" [{', '.join(named)}]" if named else ""
        source = f" from {self.source}" if self.source else ""
        return f"{self.name}: {where}{values}{source}{f' (not started: {self.problem})' if self.problem else ''}"

    def __str__(self) -> str:
        return self.describe()

    def _named_values(self) -> tuple[tuple[str, NamedSecrets], ...]:
        return ("variable", self.environment), ("header", self.headers)


def name_tools(label: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the server's own names by those under which models call them: unique, and of a length all accept."""
    named: dict[str, str] = {}
    for tool in tools:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
        name = f"{MCP_PREFIX}{label}__{plain}"
        if len(name) > MAX_TOOL_NAME_CHARS or name in named:
            name = shorten_name(name, MAX_TOOL_NAME_CHARS, tool)
        named[name] = tool
    return named


def is_granted(name: str, *, rules: Iterable[str], denied: Iterable[str]) -> bool:
    """Return whether a tool of a server may be called: a rule covers it, and nothing denies it."""
    return is_covered(name, rules) and not is_covered(name, denied)
