"""The input of a call: tasks, plans, and the context of the call. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy


class FileSlice(Struct, frozen=True, kw_only=True):
    """A file, or a part of it, to be read into a prompt. Lines count from 1, both ends included."""

    path: str
    start: int | None = None
    end: int | None = None
    head: int | None = None
    tail: int | None = None


class Task(Struct, frozen=True, kw_only=True):
    """One task for one agent, as the caller wrote it."""

    prompt: str
    agent: str | None = None
    name: str | None = None
    """What to call it on a screen; the agent's name if absent."""
    cwd: str | None = None
    timeout: float | None = None
    session: str | None = None
    """Continue this session instead of beginning one."""
    files: tuple[FileSlice, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of its result; wins over that of the agent."""
    model: str | None = None
    """The model to use, as `provider/model`; wins over that of the agent and of the settings."""
    effort: str | None = None
    """The thinking level; wins over that of the agent and of the settings."""
    isolation: str | None = None
    """`worktree`: work in a git worktree of its own; wins over that of the agent, and `none` undoes that."""
    sandbox: str | None = None
    """`workspace` or `strict`: the least sandbox it has; settings, caller and agent may ask for a stricter one."""


class Mode(StrEnum):
    """The relation of the tasks of a plan."""

    SINGLE = "single"
    PARALLEL = "parallel"
    CHAIN = "chain"


class Plan(Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    mode: Mode = Mode.SINGLE


class AncestorTask(Struct, frozen=True, rename="camel"):
    """An ancestor of a run, with what identifies its task."""

    agent: str
    task: str
    cwd: str


class Lineage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The position of a run in the tree of one root conversation.

    Raises:
        ValueError: one of its ids is empty or no printable text: its events would belong to nobody.
    """

    root: str
    parent_call: str
    """Id of the tool call that asked for it; never empty."""
    parent_run: str | None = None
    depth: int = 0
    """0 for the root conversation itself, 1 for its direct runs."""
    ancestors: tuple[AncestorTask, ...] = ()

    def __post_init__(self) -> None:
        if not all(name and name.isprintable() for name in (self.root, self.parent_call)):
            raise ValueError("The ids of the root conversation and of the tool call must be printable and not empty.")


class CallContext(Struct, frozen=True, kw_only=True):
    """The caller of a plan: its directory, its lineage and its authority."""

    toolset: str
    """The toolset whose defaults apply."""
    cwd: str
    lineage: Lineage
    """The caller's own position; its runs are one level below."""
    authority: frozenset[str] | None = None
    """Tools a run may have at most; None: unbounded."""
    servers: frozenset[str] | None = None
    """The MCP servers its runs may have at most, by the digest of what is started; None: any."""
    roots: tuple[str, ...] | None = None
    """Folders below which runs work and files are read; None: wherever this user may."""
    host_tools: tuple[str, ...] | None = None
    """The host's active tools: the base a deny list inherits from."""
    sandbox: SandboxPolicy = NO_SANDBOX
    """The caller's own sandbox: a run below it has none that is laxer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings given with the call: they win over every other source."""
    max_depth: int | None = None
    """The environment's own maximum: a child cannot raise it."""
    callable_agents: tuple[str, ...] | None = None
    """The only agents it may call; None: any."""
    uncallable_agents: tuple[str, ...] = ()
    """Agents it may not call."""
    finalize: bool = False
    """Whether runs must end with their finalize tool instead of a last message."""
    native_folder: str = ""
    """Where engines keep their own sessions for this call; empty: in our own state."""
    scoped_sessions: bool = False
    """Whether a session is continued only by its own agent in its own directory."""
    notices: tuple[str, ...] = ()
    """Notices about the call itself, such as ignored input, which its runs report."""
    offline_may_answer: bool = False
    """Whether `auto` may fall back to rules: true where a person reads the answer."""
    bounded_prompt: bool = False
    """Whether the system prompt frames the agent's own: that it is a subagent, what it may do, which tools it has."""
    resume_as_transcript: bool = False
    """Whether a session is continued from its transcript, on every engine, instead of by the engine."""
    records_refusals: bool = True
    """Whether a task that fails before it starts leaves a session, as hosts expect of their tools."""

    def may_call(self, agent: str | None, resolve_name: Callable[[str], str] = str) -> bool:
        """Return whether the caller's own definition lets it call an agent, which may have several names."""
        name = agent and resolve_name(agent)
        if name in {resolve_name(each) for each in self.uncallable_agents}:
            return False
        return self.callable_agents is None or name in {resolve_name(each) for each in self.callable_agents}
