"""The part of an agent that leaves the registry for a run: its profile and tool policy. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.model.sandbox import SandboxMode

if TYPE_CHECKING:
    from retinue.model.hooks import Hook


class ToolPolicy(Struct, frozen=True, kw_only=True):
    """The tools an agent's definition asks for, in pi's names."""

    allow: tuple[str, ...] | None = None
    """None: inherits the caller's tools. Empty: no tools."""
    deny: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Granted if the engine has them, else not reported as missing."""
    readonly: bool = False
    nothing: bool = False
    """`noTools`: beats every list."""
    grants: tuple[str, ...] | None = None
    """Tools that child runs of this agent may have at most; None: its own."""
    delegates: bool = False
    """Asks for the delegation tools, which are never inherited."""
    callable_agents: tuple[str, ...] | None = None
    """The only agents it may delegate to; None: any."""
    uncallable_agents: tuple[str, ...] = ()
    """Agents it may not delegate to."""

    @property
    def requested(self) -> tuple[str, ...] | None:
        """The tools it asks for, optional ones included; None if it inherits those of its caller."""
        if self.nothing:
            return ()
        return None if self.allow is None else tuple(dict.fromkeys((*self.allow, *self.optional)))


class AgentSettings(Struct, frozen=True, kw_only=True):
    """The settings of an agent that its definition and its profile share."""

    name: str
    description: str = ""
    title: str | None = None
    """A name to show that cannot be called."""
    is_foreign: bool = False
    """Whether another tool's file defines it: its tools, models and skills are optional."""
    body: str = ""
    """The system prompt; empty means the description serves."""

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
    hooks: tuple[Hook, ...] = ()
    """Commands that are run when it starts, before its tool calls, and when it ends."""

    sandbox: SandboxMode | None = None
    """The least its runs are confined."""
    isolation: str | None = None
    """`worktree`: its runs work in a git worktree of their own; `none`: in their caller's directory."""
    timeout: float | None = None
    max_turns: int | None = None
    max_subagent_depth: int | None = None
    output: str | None = None
    output_schema: str | Mapping[str, Any] | None = None
    """JSON Schema of its results; a mapping becomes JSON text."""
    default_reads: tuple[str, ...] = ()
    color: str | None = None
    avatar_emoji: str | None = None

    source: str | None = None
    """The file it was read from."""
    digest: str = ""
    """SHA-256 of the file's content, so a run can record exactly what it ran."""

    @property
    def has_call_hooks(self) -> bool:
        """Whether a hook decides about its tool calls, so that no call may pass it by."""
        return any(hook.event == "PreToolUse" for hook in self.hooks)


class AgentProfile(AgentSettings, frozen=True, kw_only=True):
    """An agent as another agent may see it: no persona, no memory, no key."""

    layer: str = "program"
    level: str | None = None
    """The project directory it belongs to."""
    tools: ToolPolicy = ToolPolicy()
