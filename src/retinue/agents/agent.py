"""What an agent is: one frozen value, whichever file or program it came from."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import force_setattr

from retinue.model.agents import AgentProfile, ToolPolicy
from retinue.model.runs import Secret
from retinue.model.tool_names import is_delegation, is_pattern, to_pi_names

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

NAME_RULE = 'letters, digits, "_", "-" and ".", at most 64, the first a letter or digit'


class SourceLayer(StrEnum):
    """Where a definition comes from, the weakest first."""

    BUILTIN = "builtin"
    USER = "user"
    VAULT = "vault"
    PROJECT = "project"
    PROGRAM = "program"


class Diagnostic(Struct, frozen=True):
    """Something to know about a file: where, and what."""

    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class Agent(Struct, frozen=True, kw_only=True, cache_hash=True):
    """A definition: `Agent(name="auditor", body="You audit …", tools=("read", "grep"), readonly=True)`.

    Tools may be named in pi's words or Claude's. Other agents see it `as_subagent`.

    Raises:
        ValueError: the name could not be called, or a limit cannot be kept.
        TypeError: one string where several names are expected.
    """

    name: str
    description: str = ""
    body: str = ""
    """The system prompt; empty means the description serves."""
    enabled: bool = True

    tools: tuple[str, ...] | None = None
    """None: inherits the caller's tools. Empty: no tools."""
    denied_tools: tuple[str, ...] = ()
    """Taken from the inherited tools; contradicts `tools`, which is said when the agent is used."""
    optional_tools: tuple[str, ...] = ()
    """Wanted where the engine has them, not missed where it does not."""
    readonly: bool = False
    no_tools: bool = False
    """Beats every list."""
    grants: tuple[str, ...] | None = None
    """What its own children may have at most; None: what it has itself."""
    delegates: bool = False
    """Asks for the delegation tools; so does naming one in `tools`."""

    engine: str | None = None
    provider: str | None = None
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    thinking: str | None = None
    append_system_prompt: str = ""
    extensions: tuple[str, ...] = ()
    no_extensions: bool = False
    load_skills: tuple[str, ...] = ()
    suggested_skills: tuple[str, ...] = ()
    no_skills: bool = False
    no_context_files: bool = False
    extra_args: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Names of environment variables it asks to see."""
    api_key: Secret | None = None

    timeout: float | None = None
    max_turns: int | None = None
    max_subagent_depth: int | None = None
    output: str | None = None
    default_reads: tuple[str, ...] = ()
    color: str | None = None
    avatar_emoji: str | None = None

    persona: str = ""
    """`SOUL.md`: for its own conversations, never for its work as a subagent."""
    memory: str = ""
    """`MEMORY.md`: the same."""

    layer: SourceLayer = SourceLayer.PROGRAM
    source: str | None = None
    """The file it was read from."""
    level: str | None = None
    """The project directory it belongs to."""
    digest: str = ""
    """SHA-256 of the file's content."""
    unknown: tuple[str, ...] = ()
    """Keys of its file that mean nothing here."""
    notices: tuple[Diagnostic, ...] = ()
    """What was not taken as it was written, and what was done instead."""

    def __post_init__(self) -> None:
        if not is_valid_name(self.name):
            raise ValueError(f"Agent name {self.name!a} cannot be called: use {NAME_RULE}")
        for field in _SEQUENCE_FIELDS:
            value = getattr(self, field)
            if isinstance(value, str):
                raise TypeError(f"Agent {self.name}: {field} takes several names, not one string")
            if isinstance(value, list):
                force_setattr(self, field, tuple(value))
        for field, minimum in _MINIMUMS.items():
            value = getattr(self, field)
            if value is not None and not minimum <= value < math.inf:
                raise ValueError(f"Agent {self.name}: {field} must be at least {minimum} and finite, not {value}")

    def to_profile(self) -> AgentProfile:
        """What another agent, and a run, may see of this one: no persona, no memory, no key (decision D9)."""
        return _make_profile(self)


_SEQUENCE_FIELDS = tuple(name for name, kind in Agent.__annotations__.items() if kind.startswith("tuple[str"))
"""Fields that hold names."""
_MINIMUMS = {"timeout": 1, "max_turns": 1, "max_subagent_depth": 0}


@lru_cache(maxsize=1024)
def _make_profile(agent: Agent) -> AgentProfile:
    # Field by field of the type that leaves: what it does not have cannot, and none of its own is forgotten.
    shared = {name: getattr(agent, name) for name in AgentProfile.__struct_fields__ if name != "tools"}
    return AgentProfile(**shared, tools=_make_tool_policy(agent))


def _make_tool_policy(agent: Agent) -> ToolPolicy:
    """The tool fields in pi's names; a delegation tool named in a list is a wish to delegate."""
    requested = (*(agent.tools or ()), *agent.optional_tools)
    return ToolPolicy(
        allow=None if agent.tools is None else _without_delegation(agent.tools),
        deny=to_pi_names(agent.denied_tools),
        optional=_without_delegation(agent.optional_tools),
        readonly=agent.readonly,
        nothing=agent.no_tools,
        grants=None if agent.grants is None else to_pi_names(agent.grants),
        delegates=agent.delegates or any(_is_plain_delegation(name) for name in requested),
    )


def is_valid_name(name: str) -> bool:
    """Whether an agent can have this name: plain ASCII, so that no two names look alike and none is a path."""
    return _NAME.fullmatch(name) is not None


def _without_delegation(names: tuple[str, ...]) -> tuple[str, ...]:
    return to_pi_names(name for name in names if not _is_plain_delegation(name))


def _is_plain_delegation(name: str) -> bool:
    # `Agent(explorer)` restricts whom to call: that stays a pattern, for the policy to judge.
    return is_delegation(name) and not is_pattern(name)
