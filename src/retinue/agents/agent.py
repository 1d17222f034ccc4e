"""The definition of an agent: one frozen value for all file formats."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from retinue.model.agents import AgentProfile, AgentSettings, ToolPolicy
from retinue.model.runs import Secret, ToolFunction
from retinue.model.tool_names import is_delegation, is_known, is_pattern, split_mcp_name, split_pattern, to_pi_names

if TYPE_CHECKING:
    from retinue.model.mcp import McpServer

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

NAME_RULE = 'letters, digits, "_", "-", "." (max 64, starting with a letter or digit)'


class SourceLayer(StrEnum):
    """The origin of a definition, the weakest first."""

    BUILTIN = "builtin"
    USER = "user"
    VAULT = "vault"
    PROJECT = "project"
    PROGRAM = "program"


class Diagnostic(Struct, frozen=True):
    """A problem in a file, with its line if that is known."""

    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class Agent(AgentSettings, frozen=True, kw_only=True, cache_hash=True):
    """A definition: `Agent(name="auditor", body="You audit …", tools=("read", "grep"), readonly=True)`.

    Tools may have pi's names or Claude's. Other agents see only its profile.

    Raises:
        ValueError: the name is invalid, or a limit is out of range.
        TypeError: one string where several names are expected, or a function that cannot be a tool.
    """

    enabled: bool = True

    tools: Sequence[str | ToolFunction] | None = None
    """None: inherits the caller's tools. Empty: no tools. Functions are moved to `functions`."""
    functions: tuple[ToolFunction, ...] = ()
    """Functions of the program that are tools of this agent, and of no agent below it."""
    denied_tools: tuple[str, ...] = ()
    """Removed from the inherited tools; contradicts `tools`, which is refused when the agent is used."""
    optional_tools: tuple[str, ...] = ()
    """Granted if the engine has them; no error if it does not."""
    readonly: bool = False
    no_tools: bool = False
    """Overrides every list."""
    grants: tuple[str, ...] | None = None
    """The most its own children may have; None: what it has itself."""
    delegates: bool = False
    """Requests the delegation tools; so does naming one in `tools`."""
    allowed_subagents: tuple[str, ...] | None = None
    """The only agents it may delegate to; so does a pattern in `tools`: `Agent(explorer, tester)`."""

    mcp_servers: Sequence[McpServer | str] | Mapping[str, Mapping[str, Any]] = ()
    """Servers whose tools it may have: names of configured ones, or definitions as in `.mcp.json`."""
    api_key: Secret | None = None
    persona: str = ""
    """`SOUL.md`: for its own conversations, never for its work as a subagent."""
    memory: str = ""
    """`MEMORY.md`: the same."""

    layer: SourceLayer = SourceLayer.PROGRAM
    level: str | None = None
    """The project directory it belongs to."""
    plugin: str = ""
    """The plugin of Claude Code it comes from; its name then has the form `plugin:name`."""
    named_files: tuple[str, ...] = ()
    """Files of its project that it names; its digest covers them."""
    unknown: tuple[str, ...] = ()
    """Keys of its file that are not supported."""
    notices: tuple[Diagnostic, ...] = ()
    """Values of its file that were replaced, and by what."""

    def __post_init__(self) -> None:
        parts = self.name.split(":") if self.plugin else (self.name,)
        if not all(map(is_valid_name, parts)):
            raise ValueError(f"Agent name {self.name!a} is invalid: use {NAME_RULE}")
        for field in _SEQUENCE_FIELDS:
            value = getattr(self, field)
            if isinstance(value, str):
                raise TypeError(f"Agent {self.name}: {field} must be a list of names, not one string")
            if isinstance(value, list):
                force_setattr(self, field, tuple(value))
        self._separate_functions()
        if self.mcp_servers != ():
            self._parse_servers()
        if self.output_schema is not None and not isinstance(self.output_schema, str):  # agents are hashed
            force_setattr(self, "output_schema", msgspec.json.encode(self.output_schema).decode())
        for field, minimum in _MINIMUMS.items():
            value = getattr(self, field)
            if value is not None and not minimum <= value < math.inf:
                raise ValueError(f"Agent {self.name}: {field} must be at least {minimum} and finite, not {value}")

    def _separate_functions(self) -> None:
        found = tuple(tool for tool in self.tools or () if not isinstance(tool, str))
        if found and self.tools is not None:
            force_setattr(self, "tools", tuple(tool for tool in self.tools if isinstance(tool, str)))
            force_setattr(self, "functions", (*self.functions, *found))
        names = [_check_function(self.name, function) for function in self.functions]
        if len({*names}) < len(names):
            raise ValueError(f"Agent {self.name}: two functions in tools have the same name")

    def _parse_servers(self) -> None:
        from retinue.agents.mcp_servers import parse_servers

        force_setattr(self, "mcp_servers", parse_servers(self.mcp_servers))

    def aliases(self) -> tuple[str, ...]:
        """Return what else may call it, unless others have it, too: its title, and `agent` for `plugin:agent`."""
        plugin, *_, name = self.name.split(":") if self.plugin else ("", self.name)
        short = (f"{plugin}:{name}", name) if plugin else ()
        return tuple(alias for alias in (*short, self.title) if alias and alias != self.name)

    @property
    def parsed_servers(self) -> tuple[McpServer, ...]:
        """Its MCP servers, as they were parsed."""
        return tuple(server for server in self.mcp_servers if not isinstance(server, str))

    @property
    def servers_of_tools(self) -> tuple[str, ...]:
        """The servers that it names by tools such as `mcp__github__search`, each as in names of tools."""
        policy = self.to_profile().tools
        names = (split_mcp_name(tool) for tool in (*(policy.allow or ()), *policy.optional))
        return tuple(dict.fromkeys(parts[0] for parts in names if parts and "*" not in parts[0]))

    @property
    def has_servers(self) -> bool:
        """Whether it has MCP servers, its own or some that are configured elsewhere."""
        return bool(self.mcp_servers or self.servers_of_tools)

    def to_profile(self) -> AgentProfile:
        """Return what another agent, and a run, may see of this one: no persona, no memory, no key."""
        return _make_profile(self)


_SEQUENCE_FIELDS = tuple(
    name
    for name, kind in (AgentSettings.__annotations__ | Agent.__annotations__).items()
    if kind.startswith(("tuple[str", "tuple[ToolFunction", "Sequence[str"))
)
"""Fields that hold names."""
_MINIMUMS = {"timeout": 1, "max_turns": 1, "max_subagent_depth": 0}


@lru_cache(maxsize=1024)
def _make_profile(agent: Agent) -> AgentProfile:
    # Only the fields of the type that leaves: a field it does not have cannot leak.
    shared = {name: getattr(agent, name) for name in AgentProfile.__struct_fields__ if name != "tools"}
    return AgentProfile(**shared, tools=_make_tool_policy(agent))


def _make_tool_policy(agent: Agent) -> ToolPolicy:
    """Return the tool fields in pi's names; a delegation tool in a list requests delegation."""
    tools = None if agent.tools is None else tuple(tool for tool in agent.tools if isinstance(tool, str))
    requested = (*(tools or ()), *agent.optional_tools)
    callable_agents = agent.allowed_subagents
    if named := [*_list_named_agents(requested)]:
        callable_agents = tuple(name for name in named if callable_agents is None or name in callable_agents)
    return ToolPolicy(
        allow=None if tools is None else _without_delegation(tools),
        deny=to_pi_names(name for name in agent.denied_tools if not (is_delegation(name) and is_pattern(name))),
        optional=_without_delegation(agent.optional_tools),
        readonly=agent.readonly,
        nothing=agent.no_tools,
        grants=None if agent.grants is None else to_pi_names(agent.grants),
        delegates=agent.delegates or any(is_delegation(name) for name in requested),
        callable_agents=callable_agents,
        uncallable_agents=tuple(_list_named_agents(agent.denied_tools)),
    )


def _check_function(agent: str, function: object) -> str:
    """Return the name of a function that can be a tool.

    Raises:
        TypeError: it is none, or its parameters cannot be described to a model.
        ValueError: its name cannot be that of a tool, or is taken.
    """
    import inspect

    name = getattr(function, "__name__", "")
    if inspect.isclass(function) or not callable(function) or not name:
        raise TypeError(f"Agent {agent}: tools takes names and functions, not {function!r}")
    if not _FUNCTION_NAME.fullmatch(name) or is_known(name):
        raise ValueError(f"Agent {agent}: a function in tools needs a unique name, not {name!r}")
    for parameter in inspect.signature(function).parameters.values():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if parameter.annotation is parameter.empty or not is_named:
            raise TypeError(f"Agent {agent}: {name}: parameter {parameter.name} needs an annotation and a name")
    return str(name)


def is_valid_name(name: str) -> bool:
    """Return whether an agent can have this name: plain ASCII, so that no two look alike and none is a path."""
    return _NAME.fullmatch(name) is not None


def _without_delegation(names: tuple[str, ...]) -> tuple[str, ...]:
    return to_pi_names(name for name in names if not is_delegation(name))


def _list_named_agents(tools: Iterable[str]) -> Iterator[str]:
    """Yield the agents that patterns such as `Agent(explorer, tester)` name."""
    for tool in tools:
        _, pattern = split_pattern(tool)
        if pattern is not None and is_delegation(tool):
            yield from (name.strip() for name in pattern.split(",") if name.strip())
