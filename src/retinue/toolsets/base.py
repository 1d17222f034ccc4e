"""A family of tools: decodes input into a plan, renders results in its own words, decides nothing itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import anyio
from msgspec import Struct, structs

from retinue.agents.agent import SourceLayer
from retinue.agents.registry import AgentListing, DefinitionStatus
from retinue.model.agents import ToolPolicy
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.event_codec import EventRecord
from retinue.model.results import RunResult
from retinue.model.runs import ToolUse
from retinue.model.tasks import CallContext
from retinue.output.untrusted_text import defang_markup, map_strings, strip_control_characters, to_one_line
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.runtime.orchestrator import Orchestrator
from retinue.runtime.progress import CallProgress

JsonObject = Mapping[str, Any]
Value = TypeVar("Value")

FINAL_UPDATE_TIMEOUT = 1.0
"""Seconds a reader has for the last partial result before it gets the whole one."""
MIN_UPDATE_INTERVAL = 0.05
"""Seconds between two partial results: each repeats the whole so far, and no eye follows more."""

MAX_AGENTS = 100
"""Told of in a tool's description."""
MAX_DESCRIPTION_CHARS = 200
"""Characters of one agent's description."""
MAX_IGNORED_CHARS = 200
"""Of the names of input fields that were ignored."""

REFUSED_EXIT_CODE = 2
"""Exit status of a call that was refused before anything ran."""
CANCELLED_EXIT_CODE = 130
"""Exit status of what was stopped from outside."""

REFUSAL_CODES = frozenset(
    {
        ErrorCode.INVALID_INPUT,
        ErrorCode.UNKNOWN_AGENT,
        ErrorCode.AGENT_DISABLED,
        ErrorCode.AGENT_UNTRUSTED,
        ErrorCode.UNKNOWN_ENGINE,
        ErrorCode.UNKNOWN_SKILL,
        ErrorCode.CONFLICT,
        ErrorCode.UNSUPPORTED,
        ErrorCode.SPAWN_FAILED,
        ErrorCode.SESSION_NOT_FOUND,
        ErrorCode.SESSION_BUSY,
        ErrorCode.STORAGE,
    }
)
"""Failures of a run that never was: where its task is the whole call, the call was refused."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool call answers: text for the model, details for programs."""

    text: str
    details: JsonObject
    is_error: bool = False
    """Only where the surface's own system throws."""
    exit_code: int = 0
    """For a command line that makes the call; hosts do not see it."""

    def as_json(self) -> dict[str, Any]:
        """The tool result as hosts expect it."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": self.text}], "details": self.details}
        if self.is_error:
            result["isError"] = True
        return result


Sanitize = Callable[[str], str]
"""Makes child text what may leave."""


OnPartialResult = Callable[[ToolResult], Awaitable[None]]
"""Takes a partial result while the work goes on. A slow one misses some; one that cannot go on (`OSError`) gets no
more. Neither holds up the work."""


RunTool = Callable[[Any, CallContext, OnPartialResult | None], Awaitable[ToolResult]]
"""Takes the arguments as they were given; answers whatever they are."""


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """One tool as a host registers it."""

    name: str
    description: str
    input_schema: JsonObject
    run: RunTool


class ToolProvider(Protocol):
    name: str

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        """Every tool by its name, also where none may be registered: calling it there is answered, too."""

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        """The tools a host at this place may register; none where none may be used."""

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        """The answer to input that is not even JSON; what keeps the call from any answer at all comes first."""


class Toolset(ToolProvider, Protocol):
    """A surface whose calls start runs, with what a host needs to draw them in the surface's own words."""

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        """Return why a run of the call failed, in the words of the toolset and safe to show."""

    def tool_session_id(self, session: str) -> str | None:
        """Return the id by which tools of the toolset find the session; None if none of them takes one."""


def invalid_json_failure(orchestrator: Orchestrator, tool: str, problem: str, call: CallContext) -> Failure:
    """Why a call whose input is not even JSON is refused; what keeps it from any answer at all comes first."""
    failure = Failure(ErrorCode.INVALID_INPUT, f"The input of {tool} is not a JSON object: {problem}")
    return find_refusal(orchestrator, call) or failure


def find_refusal(orchestrator: Orchestrator, call: CallContext) -> Failure | None:
    """What keeps a call from any answer at all, whatever its input; None: nothing."""
    try:
        orchestrator.authorize(call)
    except RefusedError as refusal:
        return refusal.failure
    return None


def add_skipped_file(failure: Failure, sentence: str) -> str:
    """Return the sentence, and why a file that was found for an unknown agent was skipped."""
    broken = failure.detail.get("broken")
    return f"{sentence}. Its file was found and skipped: {broken}" if broken else sentence


def require_text(arguments: JsonObject, name: str) -> str:
    """A field of the input that must be there.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    value = arguments.get(name)
    if value is None or value == "":
        raise refuse(ErrorCode.INVALID_INPUT, f"Missing required parameter: {name}")
    if not isinstance(value, str):
        raise refuse(ErrorCode.INVALID_INPUT, f"Parameter {name} must be a string")
    return value


def optional_text(arguments: JsonObject, name: str) -> str | None:
    """Return a field of the input that may be left out; models leave one out as null or as an empty string, too.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise refuse(ErrorCode.INVALID_INPUT, f"Parameter {name} must be a string")
    return value or None


def ignored_notice(names: Iterable[object], supported: str = "") -> tuple[str, ...]:
    """Return the sentence that names ignored input fields, as a tuple; an empty one if there are none."""
    named = to_one_line(", ".join(dict.fromkeys(map(str, names))), MAX_IGNORED_CHARS)
    more = f". Supported parameters: {supported}" if supported else ""
    return (f"Ignored parameters: {named}{more}",) if named else ()


def append_notices(orchestrator: Orchestrator, result: ToolResult, notices: Iterable[str]) -> ToolResult:
    """Return the result with the notices as the last lines of its text. They may quote input: secrets are masked."""
    lines = [defang_markup(strip_control_characters(orchestrator.redact(notice))) for notice in notices]
    return structs.replace(result, text="\n\n".join([result.text, *lines]))


def render_agent_lines(orchestrator: Orchestrator, call: CallContext) -> list[str]:
    """The agents that would run if they were called, a line each, for a tool's description."""
    agents = available_agents(orchestrator, call)
    lines = [f"- {entry.agent.name}: {describe_agent(orchestrator, entry)}" for entry in agents[:MAX_AGENTS]]
    if len(agents) > MAX_AGENTS:
        lines.append(f"- … and {len(agents) - MAX_AGENTS} more")
    return lines


def available_agents(orchestrator: Orchestrator, call: CallContext) -> list[AgentListing]:
    """The agents that would run if they were called."""
    return [
        entry for entry in orchestrator.load_agents(call).list_definitions() if entry.status is DefinitionStatus.USED
    ]


def describe_agent(orchestrator: Orchestrator, entry: AgentListing) -> str:
    """What an agent's file says of it. It reaches a model here: a line of plain text, whatever it holds."""
    description = defang_markup(to_one_line(orchestrator.redact(entry.agent.description), MAX_DESCRIPTION_CHARS))
    is_unaccepted = entry.agent.layer is SourceLayer.PROJECT and not entry.accepted
    return description + (" (the project's own, not accepted by the user)" if is_unaccepted else "")


def requested_tools(policy: ToolPolicy) -> tuple[str, ...] | None:
    """The tools an agent asks for by name; None: those of its caller."""
    if policy.nothing:
        return ()
    return None if policy.allow is None else tuple(dict.fromkeys((*policy.allow, *policy.optional)))


def to_display_items(items: Iterable[str | ToolUse], clean: Sanitize) -> list[dict[str, Any]]:
    """What a host shows of a run; it prints the arguments of tool calls, too."""
    return [
        {"type": "text", "text": clean(item)}
        if isinstance(item, str)
        else {
            "type": "toolCall",
            "name": strip_control_characters(item.name),
            "args": map_strings(item.args, strip_control_characters),
        }
        for item in items
    ]


def storage_warning(results: Sequence[RunResult]) -> str | None:
    """Return what a model must know of results that could not be stored; None if all of them are stored."""
    unsaved = sum(not result.actual.saved for result in results)
    if not unsaved:
        return None
    if len(results) == 1:
        return "Warning: this session could not be stored. It is kept in memory until this process ends."
    them = "It is" if unsaved == 1 else "They are"
    return f"Warning: {unsaved} of these sessions could not be stored. {them} kept in memory until this process ends."


def compute_exit_status(results: Sequence[RunResult]) -> int:
    """The exit status of a call: 0 all completed, 130 cancelled, 124 nothing but timeouts, else 1."""
    codes = {result.failure.code for result in results if result.failure}
    if ErrorCode.ABORTED in codes:
        return CANCELLED_EXIT_CODE
    if codes and codes <= {ErrorCode.TIMEOUT, ErrorCode.IDLE_TIMEOUT}:
        return 124
    return 1 if codes else 0


async def with_partial_results(
    orchestrator: Orchestrator,
    call: CallContext,
    work: Callable[[], Awaitable[ToolResult]],
    partial: Callable[[CallProgress], ToolResult],
    update: OnPartialResult | None,
) -> ToolResult:
    """Does the work, and meanwhile hands partial results to `update`; the last of them tells of all that happened."""
    return await work() if update is None else (await follow_call(orchestrator, call, work, partial, update))[0]


async def follow_call(
    orchestrator: Orchestrator,
    call: CallContext,
    work: Callable[[], Awaitable[Value]],
    partial: Callable[[CallProgress], ToolResult],
    update: OnPartialResult | None,
) -> tuple[Value, CallProgress]:
    """The same for work of any kind; returns, too, what became of the runs of the call."""
    progress = CallProgress()
    is_shown = update is not None

    def fold(news: Iterable[EventRecord]) -> bool:
        """Whether there was anything of this call."""
        nonlocal progress
        mine = [stamped for stamped in news if _belongs_to_call(call, stamped)]
        for stamped in mine:
            progress = progress.apply(stamped)
        return bool(mine)

    async def publish(news: Iterable[EventRecord]) -> None:
        nonlocal is_shown
        if not fold(news) or update is None or not is_shown:
            return
        try:
            await update(partial(progress))
        except OSError:
            is_shown = False  # nobody looks any more

    async def keep_publishing() -> None:
        with suppress(SubscriberLaggedError):  # shown too slowly to follow: the result tells the rest
            async for stamped in subscription:
                await publish((stamped, *subscription.drain()))
                await anyio.sleep(MIN_UPDATE_INTERVAL)

    async with orchestrator.subscribe(deltas=update is not None) as subscription:
        async with anyio.create_task_group() as group:
            group.start_soon(keep_publishing)
            result = await work()
            group.cancel_scope.cancel()
        with anyio.move_on_after(FINAL_UPDATE_TIMEOUT), suppress(SubscriberLaggedError):
            await publish(subscription.drain())
    return result, progress


def _belongs_to_call(call: CallContext, stamped: EventRecord) -> bool:
    """Whether it happened in a run of this call; the calls of two models may have the same id."""
    theirs, ours = stamped.origin, call.lineage
    return (
        theirs.parent_tool_use_id == ours.parent_call
        and theirs.parent_run == ours.parent_run
        and theirs.root == ours.root
    )
