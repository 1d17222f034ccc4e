"""The nouns of Retinue: what is asked, by whom, and what runs. What came of it is in `results`.

Frozen values, no I/O. Everything here is snake_case; camelCase begins at surfaces and on the wire.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from retinue.secret import Secret

Args = dict[str, Any]
"""The arguments of a tool call, as the model gave them."""


class Code(StrEnum):
    """Why a call was refused or a run failed; surfaces map these to their own words."""

    INVALID_INPUT = "invalid_input"
    DISABLED = "disabled"
    UNKNOWN_AGENT = "unknown_agent"
    AGENT_DISABLED = "agent_disabled"
    AGENT_UNTRUSTED = "agent_untrusted"
    UNKNOWN_ENGINE = "unknown_engine"
    UNKNOWN_SKILL = "unknown_skill"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    DEPTH_EXCEEDED = "depth_exceeded"
    SPAWN_LIMIT = "spawn_limit"
    SESSION_NOT_FOUND = "session_not_found"
    SESSION_BUSY = "session_busy"
    TIMEOUT = "timeout"
    IDLE_TIMEOUT = "idle_timeout"
    LOOP = "loop"
    BUDGET = "budget"
    OUTPUT_LIMIT = "output_limit"
    NOT_FINALIZED = "not_finalized"
    PROVIDER = "provider"
    ENGINE = "engine"
    SPAWN_FAILED = "spawn_failed"
    SIGNALLED = "signalled"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"
    STORAGE = "storage"


class Failure(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a run did not complete. The message says what happened, what was kept and what to do next."""

    code: Code
    message: str
    reason: str | None = None
    """A finer name beneath the code, such as `no_final_message` or `rate_limit`."""
    detail: Mapping[str, str | int | float] = field(default_factory=dict)
    """Facts a surface needs to say the same thing in its own sentence."""


class Refused(Exception):  # noqa: N818 - it names what happened to the call
    """The whole call was refused before anything started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def refused(code: Code, message: str, reason: str | None = None) -> Refused:
    return Refused(Failure(code, message, reason))


MOST = 10**15
"""Of anything a provider may claim to have used: more is a fault or a lie."""


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the models behind a run consumed, summed over its assistant messages."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """In dollars; None when no provider said."""
    turns: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def credible(self) -> Usage:
        """The same with what no provider can have used, such as negative numbers, brought into range."""
        counts = ("input", "output", "cache_read", "cache_write", "turns")
        found = {name: min(max(getattr(self, name), 0), MOST) for name in counts}
        cost = None if self.cost is None or not math.isfinite(self.cost) else min(max(self.cost, 0.0), float(MOST))
        return Usage(**found, cost=cost)

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        # What was free says nothing of what nobody knows the price of.
        is_unknown = not any(costs) and any(part.cost is None and part.tokens for part in (self, other))
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cost=sum(costs) if costs and not is_unknown else None,
            turns=self.turns + other.turns,
        )


# -- agents, as others may see them ---------------------------------------------------------------


class ToolPolicy(Struct, frozen=True, kw_only=True):
    """What an agent's definition says about its tools, in pi's names."""

    allow: tuple[str, ...] | None = None
    """None: inherits the caller's tools. Empty: no tools."""
    deny: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Wanted where the engine has them, not missed where it does not."""
    readonly: bool = False
    nothing: bool = False
    """`noTools`: beats every list."""
    grants: tuple[str, ...] | None = None
    """What this agent's own children may have at most; None: what it has itself."""
    delegates: bool = False
    """Asks for the delegation tools, which are never inherited."""


class Subagent(Struct, frozen=True, kw_only=True):
    """An agent as another agent may see it: no persona, no memory, no key (decision D9)."""

    name: str
    description: str = ""
    body: str = ""
    """The system prompt."""
    layer: str = "program"
    source: str | None = None
    """The file it was read from."""
    digest: str = ""
    """Hash of that file's content, so a run can say exactly what it ran."""
    tools: ToolPolicy = ToolPolicy()
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
    timeout: float | None = None
    max_turns: int | None = None
    max_subagent_depth: int | None = None
    output: str | None = None
    default_reads: tuple[str, ...] = ()
    color: str | None = None
    avatar_emoji: str | None = None


class FileSlice(Struct, frozen=True, kw_only=True):
    """A file, or a part of it, to be read into a prompt. Lines count from 1, both ends included."""

    path: str
    start: int | None = None
    end: int | None = None
    head: int | None = None
    tail: int | None = None


class Task(Struct, frozen=True, kw_only=True):
    """One piece of work as it was asked for."""

    prompt: str
    agent: str | None = None
    name: str | None = None
    """What to call it on a screen; the agent's name if absent."""
    cwd: str | None = None
    timeout: float | None = None
    session: str | None = None
    """Continue this session instead of beginning one."""
    files: tuple[FileSlice, ...] = ()


class Mode(StrEnum):
    """How the tasks of a plan relate."""

    SINGLE = "single"
    PARALLEL = "parallel"
    CHAIN = "chain"


class Plan(Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    mode: Mode = Mode.SINGLE


class Ancestor(Struct, frozen=True, rename="camel"):
    """One run above this one, as far as recognising the same work again needs."""

    agent: str
    task: str
    cwd: str


class Lineage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where a run stands in the tree of one root conversation.

    Raises:
        ValueError: one of its ids is empty or no printable text: its events would belong to nobody.
    """

    root: str
    parent_call: str
    """Id of the tool call that asked for it; never empty."""
    parent_run: str | None = None
    depth: int = 0
    """0 for the root conversation itself, 1 for its direct runs."""
    ancestors: tuple[Ancestor, ...] = ()

    def __post_init__(self) -> None:
        if not all(name and name.isprintable() for name in (self.root, self.parent_call)):
            raise ValueError("The ids of the root conversation and of the tool call must be printable and not empty.")


class Call(Struct, frozen=True, kw_only=True):
    """Who asks, from where, and with what authority."""

    surface: str
    """Whose defaults apply."""
    cwd: str
    lineage: Lineage
    """The caller's own place; runs stand one level below it."""
    authority: frozenset[str] | None = None
    """Tools a run may have at most; None: unbounded."""
    roots: tuple[str, ...] | None = None
    """Folders below which runs work and files are read; None: wherever this user may."""
    host_tools: tuple[str, ...] | None = None
    """The host's active tools: the base a deny list inherits from."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings given with the call: they win over every other source."""
    max_depth: int | None = None
    """The environment's own maximum: a child cannot raise it."""
    finalize: bool = False
    """Whether runs must end with their finalize tool instead of a last message."""
    native_folder: str = ""
    """Where engines keep their own sessions for this call; empty: in our own state."""
    scoped_sessions: bool = False
    """Whether a session is continued only by its own agent in its own directory."""
    notices: tuple[str, ...] = ()
    """What is to be known of the call itself, such as input that was ignored; its runs tell it."""
    offline_may_answer: bool = False
    """Whether `auto` may fall back to rules: true where a person reads the answer."""
    records_refusals: bool = True
    """Whether a task that fails before it starts leaves a session, as hosts expect of their tools."""


# -- what runs -------------------------------------------------------------------------------------


class Limits(Struct, frozen=True, kw_only=True, rename="camel"):
    """What bounds one run. Seconds and bytes; None and 0 mean the limit is off."""

    timeout: float = 1800.0
    grace: float = 30.0
    """Seconds each tool call after the timeout buys."""
    ceiling: float = 7200.0
    """End of every extension, counted from the start."""
    idle_timeout: float | None = None
    loop_count: int = 5
    pair_count: int = 20
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_conversation_turns: int | None = None
    """Of this run and all others under its root, earlier ones included; likewise the next two."""
    max_conversation_tokens: int | None = None
    max_conversation_cost: float | None = None
    stdout_bytes: int = 64 * 2**20
    stderr_bytes: int = 64 * 2**20
    raw_bytes: int = 2**30
    """All a child wrote, updates and deltas included."""
    retry_attempts: int = 1
    """Whole-run tries in all on transient provider errors."""
    finalize_retries: int = 2
    max_task_bytes: int = 2**20
    """Of a text said to its agent while it works."""


class Removed(Struct, frozen=True):
    """A tool an agent asked for and did not get, and who took it."""

    tool: str
    by: str


class Grant(Struct, frozen=True, kw_only=True):
    """The tools of a run: computed once, only ever smaller than what was asked."""

    tools: tuple[str, ...] = ()
    removed: tuple[Removed, ...] = ()
    missing: tuple[str, ...] = ()
    """Optional tools the engine does not have."""


class Home(Struct, frozen=True):
    """Where a run that may delegate calls: the socket of the process that started it, and who it is there."""

    address: str
    token: Secret


class ToolUse(Struct, frozen=True, rename="camel"):
    """A model's wish to call a tool."""

    id: str
    name: str
    args: Args


class Message(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One message of a conversation, in the shape every provider can be given."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    """Of an assistant message."""
    call: str | None = None
    """Of a tool message: the call it answers."""
    is_error: bool = False


class RunSpec(Struct, frozen=True, kw_only=True):
    """Everything an engine needs to execute one task once; it looks nothing up."""

    run: str
    session: str
    name: str
    surface: str
    agent: Subagent
    task: str
    """The prompt as the caller gave it; what is stored."""
    prompt: str
    """What the engine is given: files and earlier runs before the task."""
    system_prompt: str = ""
    """Stands instead of the engine's own; empty leaves that one."""
    append_prompt: str = ""
    """Stands after the system prompt, whosever that is."""
    history: tuple[Message, ...] = ()
    """Earlier messages of the same session, for engines that continue from messages."""
    native_session: str | None = None
    """The engine's own session to continue."""
    native_folder: str = ""
    """Where the engine keeps its own sessions, if it keeps them in files."""
    cwd: str
    engine: str
    model: str | None = None
    grant: Grant = Grant()
    authority: frozenset[str] = frozenset()
    """Tools its own children may have at most."""
    limits: Limits = Limits()
    lineage: Lineage
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Environment variables whose values are masked wherever text leaves."""
    home: Home | None = None
    """What its delegation tools reach; given when it starts, and only where it may use them."""
    vault: str | None = None
    """The user's vault: its beginning and its end are told there, too."""
    finalize: bool = False
    resumes: bool = False
    warm: bool = True
    """Whether a process that served another run may serve this one."""
    loads: tuple[str, ...] = ()
    """Whose settings of the engine's own program it loads: `user`, `project`."""
    not_applied: tuple[str, ...] = ()
    """Preferences of the agent this engine does not know."""
    notices: tuple[str, ...] = ()
    """What was known before it started: ignored input, what of the agent's definition was not taken as written."""

    @property
    def instructions(self) -> str:
        """The whole system prompt, for engines that have none of their own."""
        return "\n\n".join(part for part in (self.system_prompt, self.append_prompt) if part)


FOREVER = math.inf
"""A deadline that never comes."""
