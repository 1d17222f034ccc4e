"""The spec of one run, with its limits, tool grant, messages, delegation tools and budget. No I/O."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from retinue.model.agents import AgentProfile
from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy
from retinue.model.tasks import Lineage

SUMMARY_TEXT = (
    "[The earlier part of this conversation was too long and has been replaced by this summary of it.]\n\n{summary}"
)


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


class ServerAnswer(Struct, frozen=True):
    """The answer of a tool of an MCP server: redacted, marked as foreign, and bounded."""

    text: str
    is_error: bool = False
    images: tuple[ImageBlock, ...] = ()


class ToolServers(Protocol):
    """The MCP servers of one run, and the granted tools of them as functions."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the servers as the names of their tools have them; known before they have started."""

    async def list_tools(self) -> tuple[ToolDescription, ...]:
        """Return the granted tools, called `mcp__server__tool`, once each server has started or has failed."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> ServerAnswer:
        """Call a tool; a failure is an answer. Cancelling it cancels the call."""


class RequestSize(Struct, frozen=True, kw_only=True):
    """The estimated size of a request to a model, and its price."""

    input: int
    """Tokens of the conversation."""
    least_input: int
    """The same without the results of the last tool calls."""
    output: int
    """Most tokens of the reply."""
    input_price: float = 0.0
    """Dollars for a token; 0 if it is free or its price is unknown."""
    output_price: float = 0.0


class RequestGrant(Struct, frozen=True):
    """The part of the budgets of a run that one request may use."""

    output: int | None = None
    """Most tokens of the reply, if that is less than was asked for."""
    last_reason: str | None = None
    """Why the request must be the last one of the run; None if another one will fit."""
    leaves_out_results: bool = False
    """Whether the request fits only without the results of the last tool calls."""


class RequestBudget(Protocol):
    """The budgets that hold for one run: its own, those of its ancestors and that of its conversation."""

    @property
    def is_limited(self) -> bool:
        """Whether a limit of turns, tokens or money holds for the run; else sizes are not needed."""

    @property
    def limits_cost(self) -> bool:
        """Whether a limit of money holds for the run; else prices are not needed."""

    @property
    def calls_end(self) -> float:
        """When tool calls must end so that time for the answer is left. `extend` moves it."""

    def reserve(
        self, size: RequestSize | None, on_wait: Callable[[bool], Awaitable[None]]
    ) -> AbstractAsyncContextManager[RequestGrant]:
        """Reserve the size of a request for the block, which ends when the usage of the reply has been emitted.

        A request that does not fit waits until others have given back what they did not use. A request of unknown
        size waits until it is the only one. `on_wait` is called with True before a wait and with False after it.

        Raises:
            EngineError: `budget`: the request cannot fit any more.
        """


class Secret:
    """A value that must not be shown; its repr hides it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(****)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash(self._value)


WorktreeBase = Literal["tree", "head"]
"""What a worktree starts from: the files as they are, uncommitted and untracked ones included, or the last commit."""


class WorktreeSpec(Struct, frozen=True, kw_only=True):
    """A git worktree of its own that a run works in."""

    repository: str
    """The top folder of the repository it is made from."""
    folder: str = ""
    """The working directory of the run below the top; empty for the top."""
    git_dir: str = ""
    """The folder with the objects and branches of the repository."""
    base: WorktreeBase = "tree"


ToolFunction = Callable[..., Any]
"""A function of the program that models call as a tool; plain or asynchronous."""
ToolArguments = dict[str, Any]
"""The arguments of a tool call, as the model gave them."""


class Limits(Struct, frozen=True, kw_only=True, rename="camel"):
    """The limits of one run. Seconds and bytes; None and 0 mean the limit is off."""

    timeout: float = 1800.0
    grace: float = 30.0
    """Seconds that each tool call past the timeout adds."""
    ceiling: float = 7200.0
    """Hard limit of all extensions, in seconds from the start."""
    idle_timeout: float | None = None
    loop_count: int = 5
    pair_count: int = 20
    pattern_count: int = 12
    text_count: int = 10
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_memory_bytes: int | None = None
    """Bytes of memory of the processes of an engine or command together, without pages of files."""
    max_processes: int | None = None
    """Processes of an engine or command at once."""
    max_disk_bytes: int | None = None
    """Bytes that these processes wrote to storage and did not delete."""
    max_conversation_turns: int | None = None
    """Assistant messages of all runs of the conversation together."""
    max_conversation_tokens: int | None = None
    max_conversation_cost: float | None = None
    stdout_bytes: int = 64 * 2**20
    stderr_bytes: int = 64 * 2**20
    raw_bytes: int = 2**30
    """All bytes that a child process wrote, updates and deltas included."""
    retry_attempts: int = 1
    """Attempts of a run in total on temporary provider errors."""
    finalize_retries: int = 2
    max_task_bytes: int = 2**20
    """Maximum bytes of a steering message."""


def process_limits(limits: Limits) -> dict[str, int]:
    """Return the limits on what the processes of a run use, by name."""
    named = {
        "max_memory_bytes": limits.max_memory_bytes,
        "max_processes": limits.max_processes,
        "max_disk_bytes": limits.max_disk_bytes,
    }
    return {name: limit for name, limit in named.items() if limit}


class RemovedTool(Struct, frozen=True):
    """A tool of the agent that the run did not get, and the rule that removed it."""

    tool: str
    by: str


class ToolGrant(Struct, frozen=True, kw_only=True):
    """The tools of a run: computed once, never more than was asked for."""

    tools: tuple[str, ...] = ()
    removed: tuple[RemovedTool, ...] = ()
    missing: tuple[str, ...] = ()
    """Optional tools the engine does not have."""


class CallbackAddress(Struct, frozen=True):
    """The control socket by which a run delegates, and the token that identifies the run there."""

    address: str
    token: Secret


class ToolUse(Struct, frozen=True, rename="camel"):
    """A tool call that a model requests."""

    id: str
    name: str
    args: ToolArguments


class ProviderBlock(Struct, frozen=True):
    """What a provider needs back unchanged with one of its messages, such as signatures of its thinking.

    It lives as long as its run: it is not stored, and other wires and models never get it. A message that is
    compacted loses it.
    """

    wire: str
    content: dict[str, Any]


class ImageBlock(Struct, frozen=True, rename="camel"):
    """An image that a tool returned. It lives as long as its run: the record has only the text beside it."""

    media_type: str
    data: str
    """The file's bytes, as base64."""


class Message(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One message of a conversation, in a form that every provider accepts."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    """Of an assistant message."""
    call: str | None = None
    """Of a tool message: the call it answers."""
    is_error: bool = False
    images: tuple[ImageBlock, ...] = ()
    """Of a tool message of this run."""
    provider_block: ProviderBlock | None = None
    """Of an assistant message of this run."""


class Compaction(Struct, frozen=True, kw_only=True, rename="camel"):
    """The summary that replaced all messages of a conversation but its last turns."""

    summary: str
    kept_turns: int
    """Assistant messages at the end that were kept, with what follows each of them."""


def apply_compaction(messages: Sequence[Message], task: str, compaction: Compaction) -> list[Message]:
    """Return a conversation with the task, the summary, and the turns that were kept, byte for byte."""
    kept = messages[find_turn(messages, compaction.kept_turns) :]
    head = SUMMARY_TEXT.format(summary=compaction.summary)
    if not any(message.role == "user" and task in message.text for message in kept):
        head = f"{task}\n\n{head}"
    if kept and kept[0].role == "user":
        # Providers refuse two messages of the user in a row.
        head, kept = f"{head}\n\n{kept[0].text}", kept[1:]
    return [Message(role="user", text=head), *kept]


def find_turn(messages: Sequence[Message], count: int) -> int:
    """Return the index at which the last `count` assistant messages begin; for 0, what follows the last one."""
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if count:
        return turns[max(len(turns) - count, 0)] if turns else 0
    last = max((number for number, message in enumerate(messages) if message.role != "user"), default=-1)
    return last + 1


class GateDecision(Struct, frozen=True, kw_only=True):
    """What becomes of a tool call."""

    denied: str | None = None
    """Why it is not executed, for the model; None if it is."""
    args: ToolArguments | None = None
    """The arguments to execute it with instead of its own."""
    context: str = ""
    """What the model reads after its result."""


class ToolGate(Protocol):
    """Decides about tool calls before they are executed."""

    def covers(self, tool: str) -> bool:
        """Return whether calls of this tool, in pi's name, must be decided; others are executed unasked."""

    async def check(self, use: ToolUse) -> GateDecision:
        """Return what becomes of a call of a covered tool. It does not raise."""

    async def check_native(self, use: ToolUse) -> GateDecision:
        """Return the same for a call of Claude Code, in its names of tools and arguments."""


class RunSpec(Struct, frozen=True, kw_only=True):
    """Everything an engine needs to execute one task once; it looks nothing up."""

    run: str
    session: str
    name: str
    toolset: str
    agent: AgentProfile
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
    worktree: WorktreeSpec | None = None
    """The worktree that `cwd` is in, made when the run starts."""
    engine: str
    model: str | None = None
    model_file: str | None = None
    """The agent's file, if its `model` line chose the model."""
    grant: ToolGrant = ToolGrant()
    functions: tuple[ToolFunction, ...] = ()
    """Functions of the program that are tools of this run besides the granted ones."""
    authority: frozenset[str] = frozenset()
    """Tools its own children may have at most."""
    limits: Limits = Limits()
    lineage: Lineage
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Environment variables whose values are masked wherever text leaves."""
    callback: CallbackAddress | None = None
    """What the delegation tools of its process reach; given when it starts, and only where it may use them."""
    delegation: Delegation | None = None
    """The same for engines of this process, as functions; likewise."""
    tool_servers: ToolServers | None = None
    """The MCP servers of its agent; given when it starts, and only where one of their tools is granted."""
    gate: ToolGate | None = None
    """What decides about its tool calls; given when it starts, and only if something does."""
    gate_address: CallbackAddress | None = None
    """The same for engines whose tools run in a process of their own; likewise."""
    budget: RequestBudget | None = None
    """Where engines of this process reserve each request; given when it starts."""
    vault_path: str | None = None
    """The user's vault: its beginning and its end are told there, too."""
    fetch_private_addresses: bool = False
    """Whether `fetch_content` may use addresses that are not public."""
    sandbox: SandboxPolicy = NO_SANDBOX
    """What its tools and processes may reach."""
    finalize: bool = False
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the result that the finalize tool takes."""
    resumes: bool = False
    allow_process_reuse: bool = True
    """Whether a process that served another run may serve this one."""
    setting_sources: tuple[str, ...] = ()
    """Whose settings of the engine's own program it loads: `user`, `project`."""
    unsupported_preferences: tuple[str, ...] = ()
    """Preferences of the agent this engine does not know."""
    notices: tuple[str, ...] = ()
    """What was known before it started: ignored input, what of the agent's definition was not taken as written."""

    @property
    def instructions(self) -> str:
        """The whole system prompt, for engines without one of their own."""
        return "\n\n".join(part for part in (self.system_prompt, self.append_prompt) if part)


NO_DEADLINE = math.inf
"""A deadline that never comes."""
