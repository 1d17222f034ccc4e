"""`retinue sessions`: list, show, resume and prune sessions.

All commands but `resume` and `prune` only read: they recover no interrupted run, so the next run can report it.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import takewhile
from typing import Any

import anyio
import click

from retinue.cli.commands.completion import complete_agents, complete_sessions
from retinue.cli.commands.serve import show_in_dashboard
from retinue.cli.group import CommandGroup, SectionedCommand
from retinue.cli.html_export import NAMED_BY_SESSION, STDOUT, export_html
from retinue.cli.json_output import to_json
from retinue.cli.options import (
    EXIT_CODES,
    HOST_ID,
    TEXT,
    DurationType,
    RunOptions,
    WholeNumberType,
    for_users_only,
    json_option,
    run_options,
)
from retinue.cli.printing import (
    INDENT,
    Cell,
    StyledCell,
    help_examples,
    is_interactive,
    print_answer,
    print_error,
    print_hint,
    print_json,
    print_json_line,
    print_lines,
    print_progress,
    print_warning,
    render_table,
    stdout_columns,
)
from retinue.cli.session_lookup import LAST, find_session, run_in_session
from retinue.client import Retinue
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import RunEnded, RunQueued, Text
from retinue.model.results import AnswerStatus, Attempt, ExecutionReport, ProcessUsage, Usage, describe_changes
from retinue.model.runs import Limits
from retinue.model.sandbox import describe_sandbox
from retinue.output.truncate import format_size, select_lines
from retinue.output.untrusted_text import strip_control_characters
from retinue.sessions.store import (
    RunOutcome,
    SearchField,
    SessionFilter,
    SessionState,
    SessionSummary,
    describe_outcome,
)
from retinue.support.formatting import SHORT_ID_LENGTH, UNKNOWN_TIME, format_limit, format_time, pluralize
from retinue.transcripts.text import TextTranscript
from retinue.tui.tree import TreeNode, build_tree
from retinue.tui.widths import fit_text
from retinue.worktrees.store import Worktree

CHILD_MARK = "↳ "
"""Marks the agent of a session that another run started."""
MAX_COLUMNS = 500
"""Columns of a fact, which is not cut to the screen: half a path is useless."""
SHOWN_FIELDS = (SearchField.NAME, SearchField.AGENT, SearchField.TASK)
"""Parts of a session that its row shows: where a search found them is not repeated."""
_AGE_UNITS = ((60.0, 1.0, "s"), (3600.0, 60.0, "m"), (86400.0, 3600.0, "h"), (14 * 86400.0, 86400.0, "d"))
_WEEK = 7 * 86400.0
_MAX_AGE = 100 * 365 * 86400.0


def render_list(summaries: Sequence[SessionSummary], now: float, guides: Sequence[str] = ()) -> list[str]:
    """Render one line per session; its agent has the guide of the tree, or a mark if another run started it.

    A session that a search found has a second line with the place, unless the first shows it.
    """
    drawn = guides or [""] * len(summaries)
    rows = [_format_row(one, guide, now) for one, guide in zip(summaries, drawn, strict=True)]
    lines = render_table([["SESSION", "CHANGED", "STATE", "AGENT", "TASK → ANSWER"], *rows], has_headings=True)
    height = len(lines) // (len(rows) + 1)  # lines of a row: more than one on a narrow terminal
    rendered = [lines[at : at + height] for at in range(height, len(lines), height)]
    below = zip(rendered, map(_format_match, summaries), strict=True)
    return [*lines[:height], *(line for row, found in below for line in (*row, *found))]


def _format_row(one: SessionSummary, guide: str, now: float) -> list[Cell]:
    agent = (guide or (CHILD_MARK if one.parent_run else ""), one.agent)
    return [
        StyledCell(one.session[:SHORT_ID_LENGTH], "cyan"),
        StyledCell(format_age(one.updated, now), "bright_black"),
        _state_cell(one),
        agent,
        f"{one.task} → {one.preview}" if one.preview else one.task,
    ]


def _format_match(one: SessionSummary) -> Iterator[str]:
    """Yield the line with the place where a search found its text."""
    if one.match and one.match.field not in SHOWN_FIELDS:
        line = f"{INDENT}{one.match.field.replace('_', ' ')}: {one.match.snippet}"
        yield click.style(fit_text(line, stdout_columns()), fg="bright_black")


def render_facts(
    summary: SessionSummary, parent: SessionSummary | None = None, worktree: Worktree | None = None
) -> list[str]:
    """Render the facts of a session: agent, state, times, usage, files."""
    return _render_rows(
        ["session", summary.session],
        ["agent", f"{summary.agent} ({'/'.join(filter(None, (summary.engine, summary.model)))})"],
        ["state", describe_state(summary)],
        ["directory", summary.cwd],
        ["worktree", f"{worktree.state}, branch {worktree.branch} of {worktree.repository}" if worktree else ""],
        ["started", format_time(summary.created)],
        ["changed", format_time(summary.updated)],
        ["runs", str(summary.runs)],
        ["usage", _format_usage(summary.latest.usage)],
        ["conversation", summary.root],
        ["asked by", f"{parent.agent} ({parent.session[:SHORT_ID_LENGTH]})" if parent else ""],
        ["file", f"{summary.file} ({format_size(summary.size_bytes)})" if summary.file else ""],
        ["damaged", f"skipped {pluralize(summary.damaged, 'unreadable record')}" if summary.damaged else ""],
    )


def summary_json(summary: SessionSummary) -> dict[str, Any]:
    """Return a session as JSON: the fields of `SessionSummary` and `RunSummary`, in camelCase.

    `match` is among them in the results of a search.
    """
    fields = {**to_json(summary), "latest": _camel_keys(to_json(summary.latest))}
    if summary.match is None:
        del fields["match"]
    return _camel_keys(fields)


def describe_state(summary: SessionSummary) -> str:
    """Return the state of the latest run in words."""
    return describe_outcome(summary.latest.outcome, summary.latest.failure)


STATE_COLORS = {
    RunOutcome.RUNNING: "cyan",
    RunOutcome.COMPLETED: "green",
    RunOutcome.FAILED: "red",
    RunOutcome.TIMED_OUT: "red",
    RunOutcome.CANCELLED: "yellow",
    RunOutcome.INTERRUPTED: "yellow",
}


def _state_cell(summary: SessionSummary) -> StyledCell:
    return StyledCell(describe_state(summary), STATE_COLORS.get(summary.latest.outcome))


def format_age(when: float, now: float) -> str:
    """Format an age as one number: `12s`, `5m`, `3h`, `2d`, or weeks."""
    seconds = now - when
    if not -_WEEK < seconds < _MAX_AGE or when <= 0:
        return UNKNOWN_TIME
    for below, unit, letter in _AGE_UNITS:
        if seconds < below:
            return f"{max(seconds, 0) / unit:.0f}{letter} ago"
    return f"{seconds / _WEEK:.0f}w ago"


# -- the execution report --------------------------------------------------------------------------


def render_report(actual: ExecutionReport) -> list[str]:
    """Render the execution report of a run beside what its definition declares."""
    process = actual.process
    return _render_rows(
        ["engine", actual.engine],
        ["model", f"{actual.declared_model or 'default'} declared, {actual.model or 'none'} answered"],
        ["tools granted", ", ".join(actual.tools_granted) or "none"],
        ["tools removed", ", ".join(f"{removed.tool} (by {removed.by})" for removed in actual.tools_removed)],
        ["tools missing", ", ".join(actual.tools_missing)],
        ["tools used", ", ".join(f"{name} × {count}" for name, count in actual.tools_used.items()) or "none"],
        ["not applied", ", ".join(actual.not_applied)],
        ["sandbox", describe_sandbox(actual.sandbox)],
        ["worktree", describe_changes(actual.worktree) if actual.worktree else ""],
        ["limits", ", ".join(_format_limits(actual.limits))],
        ["attempts", "; ".join(map(_format_attempt, actual.attempts))],
        ["usage below", _format_usage(actual.nested_usage) if actual.nested_usage.turns else ""],
        ["masked", f"{actual.masks} secrets"],
        ["dropped", format_size(actual.dropped_bytes)],
        ["process", f"exit code {process.code}" if process and process.code is not None else ""],
        ["process", f"signal {process.signal}" if process and process.signal is not None else ""],
        ["process usage", _format_process_usage(actual.process_usage) if actual.process_usage else ""],
        *(["notice", notice] for notice in actual.notices),
        ["stored", "" if actual.saved else "incomplete"],
    )


def _format_process_usage(usage: ProcessUsage) -> str:
    return f"{usage.cpu_seconds:.1f}s CPU, {format_size(usage.peak_memory_bytes)} memory at most"


def _format_limits(limits: Limits) -> Iterator[str]:
    """Yield the limits in force by the names of the settings, without those that are off."""
    yield f"timeout {format_limit(limits.timeout)}, at most {format_limit(limits.ceiling)}"
    named = {
        "idle": limits.idle_timeout and format_limit(limits.idle_timeout),
        "same call": limits.loop_count,
        "same pair": limits.pair_count,
        "same pattern": limits.pattern_count,
        "same text": limits.text_count,
        "turns": limits.max_turns,
        "tokens": limits.max_tokens,
        "cost": limits.max_cost and f"${limits.max_cost:g}",
        "memory": limits.max_memory_bytes and format_size(limits.max_memory_bytes),
        "processes": limits.max_processes,
        "disk": limits.max_disk_bytes and format_size(limits.max_disk_bytes),
        "turns of the conversation": limits.max_conversation_turns,
        "tokens of the conversation": limits.max_conversation_tokens,
        "cost of the conversation": limits.max_conversation_cost and f"${limits.max_conversation_cost:g}",
    }
    yield from (f"{name} {value}" for name, value in named.items() if value)


def _format_attempt(attempt: Attempt) -> str:
    model = f" with {attempt.model}" if attempt.model else ""
    failure = attempt.failure
    why = f" ({failure.reason})" if failure and failure.reason else ""
    return f"{attempt.number} {attempt.reason}{model}: {failure.code if failure else 'completed'}{why}"


def _format_usage(usage: Usage) -> str:
    cost = f", ${usage.cost:.4f}" if usage.cost is not None else ""
    return f"{pluralize(usage.tokens, 'token')}, {pluralize(usage.turns, 'turn')}{cost}"


def _render_rows(*rows: list[str]) -> list[str]:
    return render_table([row for row in rows if row[1]], columns=MAX_COLUMNS)


def _camel_keys(fields: dict[str, Any]) -> dict[str, Any]:
    return {re.sub(r"_(\w)", lambda match: match[1].upper(), name): value for name, value in fields.items()}


ACTIVE_STATES = (SessionState.QUEUED, SessionState.RUNNING)

SessionTree = list[TreeNode[SessionSummary]]


async def load_tree(retinue: Retinue, top: SessionSummary) -> SessionTree:
    """Return a session and its child sessions at any depth, oldest first."""
    wanted = [
        one
        for root in await _find_roots(retinue, top)
        for one in (SessionFilter(root=root), SessionFilter(begun_in=root))
    ]
    found = [one for each in wanted for one in await retinue.sessions(each)]
    others = [*{one.session: one for one in found}.values()]
    parents = await find_parents(retinue, others)
    parents.pop(top.session, None)
    ordered = [top, *sorted(others, key=lambda one: one.created)]
    first, *rest = build_tree(ordered, _session_id, lambda one: parents.get(one.session))
    return [first, *takewhile(lambda branch: branch.level > 1, rest)]


async def find_parents(retinue: Retinue, sessions: Sequence[SessionSummary]) -> dict[str, str]:
    """Return the parent session of each session that has one."""
    # The first run of a session has its id; others are looked up.
    known = {run: one.session for one in sessions for run in (one.session, one.latest.run)}
    parents: dict[str, str] = {}
    for one in sessions:
        if run := one.parent_run:
            if run not in known:
                above = await retinue.session(run)
                known[run] = above.session if above else run
            parents[one.session] = known[run]
    return parents


def arrange_as_tree(sessions: Sequence[SessionSummary], parents: dict[str, str]) -> SessionTree:
    """Arrange listed sessions as a tree, each below its parent."""
    return build_tree(sessions, _session_id, lambda one: parents.get(one.session))


async def index_sessions(retinue: Retinue, *, for_search: bool = False) -> None:
    """Read new and changed sessions into the index; report on a terminal how far it is if that takes long."""
    progress = await retinue.advance_index(INDEX_STEP, for_search=for_search)
    while progress and not progress.is_complete:
        print_progress(f"Indexing {progress.done:,} of {progress.total:,} sessions…")
        progress = await retinue.advance_index(INDEX_STEP, for_search=for_search)
    print_progress("")
    if progress and progress.scans_records:
        print_warning(NO_TEXT_INDEX)


async def load_trees(retinue: Retinue, wanted: SessionFilter) -> tuple[SessionTree, int]:
    """Return the latest trees of matching sessions, as many as the limit, and how many sessions are left out of them.

    Each tree is whole, unless its conversation has more than `MAX_CONVERSATION_SESSIONS`.
    """
    if wanted.limit is None:
        found, left = list(await retinue.sessions(wanted, look=False)), 0
    else:
        groups = await retinue.conversations(wanted, most=MAX_CONVERSATION_SESSIONS, look=False)
        found = [one for group in groups for one in group.sessions if wanted.matches(one)]
        # Matching sessions come first: only where all match may more be left out.
        left = sum(group.count - len(group.sessions) for group in groups if all(map(wanted.matches, group.sessions)))
    tree = arrange_as_tree(found, await find_parents(retinue, found))
    tops = [index for index, branch in enumerate(tree) if branch.level == 1]
    end = len(tree) if wanted.limit is None or len(tops) <= wanted.limit else tops[wanted.limit]
    return tree[:end], left


def render_tree(tree: SessionTree, now: float) -> list[str]:
    """Render one line per session: agent, engine, state, time, tools, task."""
    rows: list[list[Cell]] = [
        [
            (branch.guide, branch.item.agent),
            branch.item.engine,
            _state_cell(branch.item),
            f"{elapsed_seconds(branch.item, now):.1f}s",
            _format_tool_count(branch.item),
            StyledCell(branch.item.session[:SHORT_ID_LENGTH], "cyan"),
            branch.item.task,
        ]
        for branch in tree
    ]
    return render_table([["AGENT", "ENGINE", "STATE", "TIME", "TOOLS", "SESSION", "TASK"], *rows], has_headings=True)


def tree_json(tree: SessionTree, now: float) -> dict[str, Any]:
    """Return the first session of the tree as JSON with the others as nested `children`."""
    nodes: list[dict[str, Any]] = []
    for branch in tree:
        one = branch.item
        node: dict[str, Any] = {
            "session": one.session,
            "run": one.latest.run,
            "parentRun": one.parent_run,
            "depth": one.depth,
            "agent": one.agent,
            "engine": one.engine,
            "model": one.model,
            "task": one.task,
            "state": one.latest.state,
            "elapsed": round(elapsed_seconds(one, now), 3),
            "tools": None if one.latest.state in ACTIVE_STATES else one.latest.tools,
            "children": [],
        }
        del nodes[branch.level - 1 :]
        if nodes:
            nodes[-1]["children"].append(node)
        nodes.append(node)
    return nodes[0]


def elapsed_seconds(summary: SessionSummary, now: float) -> float:
    """Return the seconds the latest run took, or has taken so far."""
    latest = summary.latest
    return max(now - latest.started, 0.0) if latest.state is SessionState.RUNNING else latest.elapsed


def _format_tool_count(summary: SessionSummary) -> str:
    return "" if summary.latest.state in ACTIVE_STATES else str(summary.latest.tools)


def _session_id(summary: SessionSummary) -> str:
    return summary.session


async def _find_roots(retinue: Retinue, summary: SessionSummary) -> list[str]:
    """Return the conversations of the runs of a session: a resumed session may have several."""
    if summary.runs <= 1:
        return [summary.root]
    found = [
        stamped.origin.root
        async for stamped in retinue.history(summary.session)
        if isinstance(stamped.event, RunQueued)
    ]
    return list(dict.fromkeys([*found, summary.root]))


INDEX_STEP = 0.5
"""Seconds of indexing before its progress is reported."""
NO_TEXT_INDEX = (
    "no full-text index: SQLite has no FTS5 with trigrams here, or the index cannot be written. "
    "Searched every record instead, which takes longer."
)
MAX_CONVERSATION_SESSIONS = 1_000
"""Sessions of one conversation in a list of trees."""
DEFAULT_LIMIT = 20
"""Sessions that are listed by default."""
MAX_NAMED = 5
"""Sessions named in the error for an unknown one."""
NO_OUTPUT = "No output captured from this session."
MAX_AGE = 100 * 365 * 86400.0


class StateType(click.Choice[str]):
    """A state by the word that lists show; `error`, as JSON has it, is any run that did not complete."""

    def __init__(self) -> None:
        super().__init__([outcome.replace("_", "-") for outcome in RunOutcome])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> RunOutcome | SessionState:
        if value == SessionState.ERROR:
            return SessionState.ERROR
        return RunOutcome(super().convert(str(value).replace("_", "-"), param, ctx).replace("-", "_"))


_session_argument = click.argument("session", type=TEXT, metavar="ID", shell_complete=complete_sessions)
_optional_session_argument = click.argument(
    "session", type=TEXT, metavar="[ID]", default=LAST, required=False, shell_complete=complete_sessions
)


@click.group(
    cls=CommandGroup,
    similar={"export": "show ID --html", "open": "show ID --web", "delete": "prune", "rm": "prune", "ls": "list"},
    invoke_without_command=True,
    epilog=help_examples(
        "retinue sessions",
        "retinue sessions show 1a2b3c4d",
        'retinue sessions resume 1a2b3c4d "And the tests?"',
        "retinue sessions prune --older-than 30d",
    ),
)
@json_option
@click.pass_context
def sessions(ctx: click.Context, as_json: bool) -> None:
    """List, show, resume and prune earlier runs.

    Without a command, list the latest sessions. An ID is the id of a session or of one of its runs, or at least its
    first 8 digits.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, as_json=as_json)


@sessions.command(
    "list",
    epilog=help_examples(
        "retinue sessions list --agent explorer --state failed",
        "retinue sessions list --search retry",
        "retinue sessions list --tree",
    ),
)
@click.option(
    "--limit",
    type=WholeNumberType(1),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Maximum number of sessions, or with --tree of trees.",
)
@click.option("--all", "everything", is_flag=True, help="List all sessions.")
@click.option(
    "--agent", type=TEXT, metavar="NAME", shell_complete=complete_agents, help="Only sessions of this agent."
)
@click.option("--state", type=StateType(), help="Only sessions in this state.")
@click.option("--search", type=TEXT, metavar="TEXT", help="Only with this text in a task, answer or tool call.")
@click.option("--root", type=HOST_ID, metavar="ID", help="Only sessions of this conversation.")
@click.option("--tree", "as_a_tree", is_flag=True, help="Show child runs below their parent runs.")
@json_option
def list_sessions(
    limit: int,
    everything: bool,
    agent: str | None,
    state: RunOutcome | SessionState | None,
    search: str | None,
    root: str | None,
    as_a_tree: bool,
    as_json: bool,
) -> None:
    """List sessions, the last changed first. A ↳ marks child runs."""
    most = None if everything else limit
    wanted = SessionFilter(
        limit=most,
        root=root,
        agent=agent,
        state=state if isinstance(state, SessionState) else None,
        outcome=state if isinstance(state, RunOutcome) else None,
        text=search,
    )
    retinue = Retinue()

    async def load() -> tuple[Sequence[SessionSummary], Sequence[str], int]:
        await index_sessions(retinue, for_search=search is not None)
        if not as_a_tree:
            return await retinue.sessions(wanted, look=False), (), 0
        tree, left = await load_trees(retinue, wanted)
        return [branch.item for branch in tree], [branch.guide for branch in tree], left

    found, guides, left = anyio.run(load)
    if as_json:
        print_json({"sessions": [summary_json(summary) for summary in found]})
    elif found:
        print_lines([*render_list(found, time.time(), guides), *([f"… {left:,} more"] if left else [])])
    else:
        is_chosen = any((agent, state, search, root))
        print_hint(
            "No session matches the filter."
            if is_chosen
            else "There are no sessions yet. `retinue demo` creates some."
        )


@sessions.command(
    epilog=help_examples(
        "retinue sessions show 1a2b3c4d",
        "retinue sessions show last --web",
        "retinue sessions show last --html report.html",
        "retinue sessions show 1a2b3c4d --events --tail 5",
    )
)
@_optional_session_argument
@click.option("--events", is_flag=True, help="Print the stored events as JSON lines.")
@click.option("--tail", type=WholeNumberType(1), metavar="N", help="Only the last N events.")
@click.option("--web", is_flag=True, help="Open the dashboard at this session; serve it if no server runs.")
@click.option("--no-browser", is_flag=True, help="With --web: only print the link.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, allow_dash=True),
    is_flag=False,
    flag_value=NAMED_BY_SESSION,
    metavar="[FILE]",
    help="Write one HTML file that can be mailed; - is stdout.  [default: AGENT-ID.html]",
)
@click.option("--force", is_flag=True, help="With --html: replace an existing file without asking.")
@json_option
@click.pass_context
def show(
    ctx: click.Context,
    session: str,
    events: bool,
    tail: int | None,
    web: bool,
    no_browser: bool,
    html: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show a session: summary, child runs, transcript and tool calls.

    Without ID it is the last session of this directory that no agent started.

    With --json: session, tree (the session with its child runs), report (declared values compared with actual ones;
    null while the session is running) and transcript.
    """
    retinue = Retinue()
    _check_outputs(
        html, force=force, web=web, no_browser=no_browser, as_json=as_json, prints_events=bool(events or tail)
    )
    if html is not None:
        ctx.exit(export_html(retinue, session, html, replaces=force, as_json=as_json))
    if web:
        summary = anyio.run(find_session, retinue, session)
        ctx.exit(show_in_dashboard(f"/runs/{summary.latest.run}", opens=not no_browser, as_json=as_json))

    async def print_session() -> None:
        summary = await find_session(retinue, session)
        if events:
            async for stamped in _iter_events(retinue, summary.session, tail):
                print_json_line(to_line(stamped))
        else:
            await _print_session(retinue, summary, tail, as_json=as_json)

    anyio.run(print_session)


async def _print_session(retinue: Retinue, summary: SessionSummary, tail: int | None, *, as_json: bool) -> None:
    report, transcript = await _load_report(retinue, summary.session), TextTranscript()
    tree = await load_tree(retinue, summary)
    if as_json:
        lines = [
            strip_control_characters(line)
            async for stamped in _iter_events(retinue, summary.session, tail)
            for line in transcript.render(stamped)
        ]
        print_json(
            {
                "session": summary_json(summary),
                "tree": tree_json(tree, time.time()),
                "report": to_json(report),
                "transcript": lines,
            }
        )
        return
    parent = await retinue.session(summary.parent_run) if summary.parent_run else None
    worktree = retinue.worktrees.find(summary.session)
    print_lines([*render_facts(summary, parent, worktree), ""])
    if len(tree) > 1:
        print_lines(["=== Child runs ===", *render_tree(tree, time.time()), ""])
    async for stamped in _iter_events(retinue, summary.session, tail):
        print_lines(map(strip_control_characters, transcript.render(stamped)))
    if report:
        print_lines(["", "=== Last run: declared and actual ===", *render_report(report)])


def _check_outputs(
    html: str | None, *, force: bool, web: bool, no_browser: bool, as_json: bool, prints_events: bool
) -> None:
    if force and html is None:
        raise click.UsageError("--force is for --html.")
    if as_json and html == STDOUT:
        raise click.UsageError("--html - and --json both print on stdout: give --html a file.")
    if html is not None and (web or prints_events):
        raise click.UsageError("--html takes neither --web nor --events nor --tail.")
    if (no_browser and not web) or (web and prints_events):
        raise click.UsageError("--no-browser is for --web, and --web takes neither --events nor --tail.")


@sessions.command(
    epilog=help_examples(
        "retinue sessions output 1a2b3c4d > answer.md",
        "retinue sessions output 1a2b3c4d --start 5001 --lines 100",
        then="Exit codes: 0 printed, 1 the session has no answer, 2 session not found.",
    )
)
@_optional_session_argument
@click.option("--start", type=WholeNumberType(1), metavar="N", help="Start at line N.")
@click.option("--lines", "count", type=WholeNumberType(1), metavar="N", help="Print at most N lines.")
@json_option
@click.pass_context
def output(ctx: click.Context, session: str, start: int | None, count: int | None, as_json: bool) -> None:
    """Print only the latest answer of a session.

    Without ID it is the last session of this directory that no agent started.
    """
    retinue = Retinue()

    async def print_output() -> int:
        summary = await find_session(retinue, session)
        text = await _latest_text(retinue, summary.session)
        has_answer = bool(text)
        if has_answer and (start or count):
            text = _select_lines(text, start, count)
        if as_json:
            facts = {"session": summary.session, "state": summary.latest.state}
            print_json({**facts, "text": strip_control_characters(text)})
        elif has_answer:
            print_answer(text)
        if failure := summary.latest.failure:
            print_hint(f"Its last run failed: {failure.message}")
        if not has_answer:
            print_error(NO_OUTPUT)
        return 0 if has_answer else 1

    ctx.exit(anyio.run(print_output))


@sessions.command(
    cls=SectionedCommand, epilog=help_examples('retinue sessions resume 1a2b3c4d "And the tests?"', then=EXIT_CODES)
)
@_session_argument
@click.argument("task", required=False)
@run_options
@click.pass_context
@for_users_only
def resume(ctx: click.Context, /, session: str, task: str | None, **flags: Any) -> None:
    """Resume a session: give its agent another task.

    TASK is the text itself, @FILE, or - for stdin, which is also read if TASK is missing. The agent works in the
    directory of the session, unless --cwd is given.
    """
    options = RunOptions(**flags)
    run_in_session(ctx, anyio.run(find_session, Retinue(cwd=options.cwd), session), task, options)


@sessions.command(
    epilog=help_examples(
        "retinue sessions prune --dry-run", "retinue sessions prune --older-than 12w --results --yes"
    )
)
@click.option(
    "--older-than",
    type=DurationType(0, MAX_AGE),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Select sessions that have not changed for TIME.",
)
@click.option("--results", is_flag=True, help="Delete whole sessions, including their results.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_context
@for_users_only
def prune(ctx: click.Context, older_than: float, results: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the event details of old sessions, or with --results whole sessions.

    By default only event details are deleted; sessions can still be listed, read and resumed.
    """
    retinue, before = Retinue(), time.time() - older_than
    removable = [summary for summary in anyio.run(retinue.sessions) if summary.updated < before]
    freed = format_size(sum(summary.size_bytes for summary in removable))
    extent = "whole" if results else "except their results"
    print_hint(f"To delete: {pluralize(len(removable), 'session')}, {freed}, {extent}.")
    if dry_run:
        _print_removable(removable, as_json=as_json)
        return
    asks = bool(removable) and not yes
    if asks and not is_interactive():
        raise click.UsageError("Not a terminal: pass --yes to delete or --dry-run to preview.")
    if asks and not click.confirm("Delete them?", default=False, err=True):
        ctx.exit(1)

    async def prune_sessions() -> None:
        done = await retinue.prune(older_than=older_than, keep_results=not results)
        if as_json:
            counts = {"thinned": done.thinned, "removed": done.removed, "skipped": done.skipped, "logs": done.logs}
            print_json({**counts, "freedBytes": done.freed_bytes})
        skipped = f", skipped {done.skipped:,}" if done.skipped else ""
        print_hint(
            f"Deleted {pluralize(done.removed, 'whole session')} and the event details of "
            f"{pluralize(done.thinned, 'session')}{skipped}; {format_size(done.freed_bytes)} freed."
        )

    anyio.run(prune_sessions)


def _print_removable(removable: list[SessionSummary], *, as_json: bool) -> None:
    if as_json:
        print_json({"sessions": [summary.session for summary in removable]})
    elif removable:
        print_lines(render_list(removable, time.time()))


# -- queries ---------------------------------------------------------------------------------------


async def _latest_text(retinue: Retinue, session: str) -> str:
    """Return the answer of the latest run, or its text so far."""
    text = ""
    async for stamped in retinue.history(session):
        match stamped.event:
            case RunQueued():
                text = ""
            case Text(text=message) if message.strip():
                text = message
            case RunEnded(text=answer, answer=AnswerStatus.FINAL | AnswerStatus.PARTIAL):
                text = answer or text
            case _:
                pass
    return text


def _select_lines(text: str, start: int | None, count: int | None) -> str:
    try:
        return select_lines(text, start, count).text
    except IndexError as error:
        raise click.UsageError(f"--{error}.") from None


async def _load_report(retinue: Retinue, session: str) -> ExecutionReport | None:
    """Return the execution report of the last run; None while it runs."""
    last = await retinue.tail(session, 1)
    return last[-1].event.actual if last and isinstance(last[-1].event, RunEnded) else None


async def _iter_events(retinue: Retinue, session: str, last: int | None) -> AsyncIterator[EventRecord]:
    """Yield the events of a session, or its last ones."""
    if last is None:
        async for stamped in retinue.history(session):
            yield stamped
    else:
        for stamped in await retinue.tail(session, last):
            yield stamped
