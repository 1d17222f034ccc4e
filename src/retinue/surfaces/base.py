"""A family of tools: decodes input into a plan, renders results in its own words, decides nothing itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import anyio
from msgspec import Struct, structs

from retinue.agents.definition import Layer
from retinue.agents.roster import Entry, Status
from retinue.bus import Lagged
from retinue.events import Stamped
from retinue.orchestrator import Orchestrator
from retinue.output.frame import neutralise, one_line, plain
from retinue.output.texts import changed_texts
from retinue.progress import Progress
from retinue.results import RunResult
from retinue.types import Call, Code, Failure, Refused, ToolPolicy, ToolUse, refused

JsonObject = Mapping[str, Any]
Value = TypeVar("Value")

LAST_SHOW = 1.0
"""Seconds a reader has for the last partial result before it gets the whole one."""
PACE = 0.05
"""Seconds between two partial results: each repeats the whole so far, and no eye follows more."""

MOST_AGENTS = 100
"""Told of in a tool's description."""
MOST_DESCRIPTION = 200
"""Characters of one agent's description."""
MAX_IGNORED_CHARS = 200
"""Of the names of input fields that were ignored."""

REFUSED = 2
"""Exit status of a call that was refused before anything ran."""
CANCELLED = 130
"""Exit status of what was stopped from outside."""

BEFORE_THE_RUN = frozenset(
    {
        Code.INVALID_INPUT,
        Code.UNKNOWN_AGENT,
        Code.AGENT_DISABLED,
        Code.AGENT_UNTRUSTED,
        Code.UNKNOWN_ENGINE,
        Code.UNKNOWN_SKILL,
        Code.CONFLICT,
        Code.UNSUPPORTED,
        Code.SPAWN_FAILED,
        Code.SESSION_NOT_FOUND,
        Code.SESSION_BUSY,
        Code.STORAGE,
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
        found: dict[str, Any] = {"content": [{"type": "text", "text": self.text}], "details": self.details}
        if self.is_error:
            found["isError"] = True
        return found


Clean = Callable[[str], str]
"""Makes child text what may leave."""


Update = Callable[[ToolResult], Awaitable[None]]
"""Takes a partial result while the work goes on. A slow one misses some; one that cannot go on (`OSError`) gets no
more. Neither holds up the work."""


ToolRun = Callable[[Any, Call, Update | None], Awaitable[ToolResult]]
"""Takes the arguments as they were given; answers whatever they are."""


class Tool(Struct, frozen=True, kw_only=True):
    """One tool as a host registers it."""

    name: str
    description: str
    input_schema: JsonObject
    run: ToolRun


class Surface(Protocol):
    name: str

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        """Every tool by its name, also where none may be registered: calling it there is answered, too."""

    def tools(self, call: Call) -> tuple[Tool, ...]:
        """The tools a host at this place may register; none where none may be used."""

    def unreadable(self, tool: str, problem: str, call: Call) -> ToolResult:
        """The answer to input that is not even JSON; what keeps the call from any answer at all comes first."""


class Toolset(Surface, Protocol):
    """A surface whose calls start runs, with what a host needs to draw them in the surface's own words."""

    def failure_text(self, failure: Failure, call: Call) -> str:
        """Return why a run of the call failed, in the words of the toolset and safe to show."""

    def tool_session_id(self, session: str) -> str | None:
        """Return the id by which tools of the toolset find the session; None if none of them takes one."""


def unreadable_input(orchestrator: Orchestrator, tool: str, problem: str, call: Call) -> Failure:
    """Why a call whose input is not even JSON is refused; what keeps it from any answer at all comes first."""
    unreadable = Failure(Code.INVALID_INPUT, f"The input of {tool} is not a JSON object: {problem}")
    return first_refusal(orchestrator, call) or unreadable


def first_refusal(orchestrator: Orchestrator, call: Call) -> Failure | None:
    """What keeps a call from any answer at all, whatever its input; None: nothing."""
    try:
        orchestrator.admit(call)
    except Refused as refusal:
        return refusal.failure
    return None


def add_skipped_file(failure: Failure, sentence: str) -> str:
    """Return the sentence, and why a file that was found for an unknown agent was skipped."""
    broken = failure.detail.get("broken")
    return f"{sentence}. Its file was found and skipped: {broken}" if broken else sentence


def required_text(arguments: JsonObject, name: str) -> str:
    """A field of the input that must be there.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    value = arguments.get(name)
    if value is None or value == "":
        raise refused(Code.INVALID_INPUT, f"Missing required parameter: {name}")
    if not isinstance(value, str):
        raise refused(Code.INVALID_INPUT, f"Parameter {name} must be a string")
    return value


def optional_text(arguments: JsonObject, name: str) -> str | None:
    """Return a field of the input that may be left out; models leave one out as null or as an empty string, too.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise refused(Code.INVALID_INPUT, f"Parameter {name} must be a string")
    return value or None


def ignored_notice(names: Iterable[object], supported: str = "") -> tuple[str, ...]:
    """Return the sentence that names ignored input fields, as a tuple; an empty one if there are none."""
    named = one_line(", ".join(dict.fromkeys(map(str, names))), MAX_IGNORED_CHARS)
    more = f". Supported parameters: {supported}" if supported else ""
    return (f"Ignored parameters: {named}{more}",) if named else ()


def append_notices(orchestrator: Orchestrator, result: ToolResult, notices: Iterable[str]) -> ToolResult:
    """Return the result with the notices as the last lines of its text. They may quote input: secrets are masked."""
    lines = [neutralise(plain(orchestrator.masked(notice))) for notice in notices]
    return structs.replace(result, text="\n\n".join([result.text, *lines]))


def agent_lines(orchestrator: Orchestrator, call: Call) -> list[str]:
    """The agents that would run if they were called, a line each, for a tool's description."""
    agents = usable(orchestrator, call)
    lines = [f"- {entry.agent.name}: {purpose(orchestrator, entry)}" for entry in agents[:MOST_AGENTS]]
    if len(agents) > MOST_AGENTS:
        lines.append(f"- … and {len(agents) - MOST_AGENTS} more")
    return lines


def usable(orchestrator: Orchestrator, call: Call) -> list[Entry]:
    """The agents that would run if they were called."""
    return [entry for entry in orchestrator.roster(call).listing() if entry.status is Status.USED]


def purpose(orchestrator: Orchestrator, entry: Entry) -> str:
    """What an agent's file says of it. It reaches a model here: a line of plain text, whatever it holds."""
    said = neutralise(one_line(orchestrator.masked(entry.agent.description), MOST_DESCRIPTION))
    is_unaccepted = entry.agent.layer is Layer.PROJECT and not entry.accepted
    return said + (" (the project's own, not accepted by the user)" if is_unaccepted else "")


def named_tools(policy: ToolPolicy) -> tuple[str, ...] | None:
    """The tools an agent asks for by name; None: those of its caller."""
    if policy.nothing:
        return ()
    return None if policy.allow is None else tuple(dict.fromkeys((*policy.allow, *policy.optional)))


def display_items(items: Iterable[str | ToolUse], clean: Clean) -> list[dict[str, Any]]:
    """What a host shows of a run; it prints the arguments of tool calls, too."""
    return [
        {"type": "text", "text": clean(item)}
        if isinstance(item, str)
        else {"type": "toolCall", "name": plain(item.name), "args": changed_texts(item.args, plain)}
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


def exit_status(results: Sequence[RunResult]) -> int:
    """The exit status of a call: 0 all completed, 130 cancelled, 124 nothing but timeouts, else 1."""
    codes = {result.failure.code for result in results if result.failure}
    if Code.ABORTED in codes:
        return CANCELLED
    if codes and codes <= {Code.TIMEOUT, Code.IDLE_TIMEOUT}:
        return 124
    return 1 if codes else 0


async def streamed(
    orchestrator: Orchestrator,
    call: Call,
    work: Callable[[], Awaitable[ToolResult]],
    partial: Callable[[Progress], ToolResult],
    update: Update | None,
) -> ToolResult:
    """Does the work, and meanwhile hands partial results to `update`; the last of them tells of all that happened."""
    return await work() if update is None else (await followed(orchestrator, call, work, partial, update))[0]


async def followed(
    orchestrator: Orchestrator,
    call: Call,
    work: Callable[[], Awaitable[Value]],
    partial: Callable[[Progress], ToolResult],
    update: Update | None,
) -> tuple[Value, Progress]:
    """The same for work of any kind; returns, too, what became of the runs of the call."""
    progress = Progress()
    is_shown = update is not None

    def fold(news: Iterable[Stamped]) -> bool:
        """Whether there was anything of this call."""
        nonlocal progress
        mine = [stamped for stamped in news if _is_of(call, stamped)]
        for stamped in mine:
            progress = progress.after(stamped)
        return bool(mine)

    async def show(news: Iterable[Stamped]) -> None:
        nonlocal is_shown
        if not fold(news) or update is None or not is_shown:
            return
        try:
            await update(partial(progress))
        except OSError:
            is_shown = False  # nobody looks any more

    async def keep_showing() -> None:
        with suppress(Lagged):  # shown too slowly to follow: the result tells the rest
            async for stamped in watcher:
                await show((stamped, *watcher.waiting()))
                await anyio.sleep(PACE)

    async with orchestrator.watch(deltas=update is not None) as watcher:
        async with anyio.create_task_group() as group:
            group.start_soon(keep_showing)
            result = await work()
            group.cancel_scope.cancel()
        with anyio.move_on_after(LAST_SHOW), suppress(Lagged):
            await show(watcher.waiting())
    return result, progress


def _is_of(call: Call, stamped: Stamped) -> bool:
    """Whether it happened in a run of this call; the calls of two models may have the same id."""
    theirs, ours = stamped.origin, call.lineage
    return (
        theirs.parent_tool_use_id == ours.parent_call
        and theirs.parent_run == ours.parent_run
        and theirs.root == ours.root
    )
