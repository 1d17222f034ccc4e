"""`retinue sessions`: what earlier runs did, going on from there, and forgetting.

All but `resume` only look: they end no interrupted run, and keep no news from whoever dispatches next.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import click
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.events import RunEnded, RunQueued, Stamped, Text, to_line
from retinue.frontends.cli import session_text, session_tree
from retinue.frontends.cli.completion import agent_names, session_ids
from retinue.frontends.cli.dispatching import task_text
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import EXIT_CODES, HOST_ID, WORD, Options, Seconds, json_option, run_options
from retinue.frontends.cli.outcome import dispatch
from retinue.frontends.cli.results import whole
from retinue.frontends.cli.talk import answer, answer_json, answer_line, examples, fault, lines, note
from retinue.frontends.cli.trusting import is_interactive
from retinue.frontends.wording import SHORT, counted
from retinue.output.frame import plain
from retinue.output.truncate import human_size, select_lines
from retinue.results import Actual, AnswerKind
from retinue.sessions.store import SessionSummary, State, Wanted
from retinue.sessions.transcript import Transcript
from retinue.types import Code, Failure, Plan, Task

LATEST = 20
"""Sessions that are listed unless asked otherwise."""
NAMED = 5
"""Sessions named where the one asked for is not known."""
NO_OUTPUT = "No output captured from this session."
NOBODY = "default"
"""What a run is called that had no agent: the engine's own prompt and tools."""
SURFACE = "single"
"""Whose defaults hold for another run."""
A_CENTURY = 100 * 365 * 86400.0

_session = click.argument("session", type=WORD, metavar="ID", shell_complete=session_ids)


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "retinue sessions",
        "retinue sessions show 1a2b3c4d",
        'retinue sessions resume 1a2b3c4d "And the tests?"',
        "retinue sessions prune --older-than 30d",
    ),
)
@json_option
@click.pass_context
def sessions(ctx: click.Context, as_json: bool) -> None:
    """List, read, continue and forget earlier runs.

    Without a command it lists the latest. An ID may be given in any form that was shown, of the session or of one of
    its runs, from its first 8 digits on.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, as_json=as_json)


@sessions.command(
    "list",
    epilog=examples(
        "retinue sessions list --agent explorer --state error",
        "retinue sessions list --search retry",
        "retinue sessions list --tree",
    ),
)
@click.option(
    "--limit", type=click.IntRange(1), default=LATEST, show_default=True, metavar="N", help="At most so many."
)
@click.option("--all", "everything", is_flag=True, help="However many there are.")
@click.option("--agent", type=WORD, metavar="NAME", shell_complete=agent_names, help="Only of this agent.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only in this state.")
@click.option("--search", type=WORD, metavar="TEXT", help="Only with this text in name, agent, task or answer.")
@click.option("--root", type=HOST_ID, metavar="ID", help="Only of this conversation.")
@click.option("--tree", "as_a_tree", is_flag=True, help="Put those that another asked for below that one.")
@json_option
def list_sessions(
    limit: int,
    everything: bool,
    agent: str | None,
    state: str | None,
    search: str | None,
    root: str | None,
    as_a_tree: bool,
    as_json: bool,
) -> None:
    """List sessions, the last changed first. A ↳ marks those that another run asked for."""
    most = None if everything else limit
    wanted = Wanted(limit=most, root=root, agent=agent, state=State(state) if state else None, text=search)
    retinue = Retinue()
    found, guides = anyio.run(retinue.sessions, wanted), list[str]()
    if as_a_tree:
        tree = session_tree.in_tree(found, anyio.run(session_tree.parents_of, retinue, found))
        found, guides = [branch.item for branch in tree], [branch.guide for branch in tree]
    if as_json:
        answer_json({"sessions": [session_text.summary_json(summary) for summary in found]})
    elif found:
        lines(session_text.list_lines(found, time.time(), guides))
    else:
        is_chosen = any((agent, state, search, root))
        note("There are no such sessions." if is_chosen else "There are no sessions yet. `retinue demo` makes some.")


@sessions.command(
    epilog=examples("retinue sessions show 1a2b3c4d", "retinue sessions show 1a2b3c4d --events --tail 5")
)
@_session
@click.option("--events", is_flag=True, help="Print the stored events as JSON lines.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N events.")
@json_option
def show(session: str, events: bool, tail: int | None, as_json: bool) -> None:
    """Show whom a session asked, what was said and what was done.

    Before that stands what else is known of it. With --json: session, tree (the same session with those it asked as
    children, and so on), report (what was declared against what happened; null while it runs) and transcript.
    """
    retinue = Retinue()

    async def told() -> None:
        summary = await _found(retinue, session)
        if events:
            async for stamped in _events(retinue, summary.session, tail):
                answer_line(to_line(stamped))
            return
        report, transcript = await _report(retinue, summary.session), Transcript()
        tree = await session_tree.tree_below(retinue, summary)
        if as_json:
            said = [
                plain(line)
                async for stamped in _events(retinue, summary.session, tail)
                for line in transcript.lines(stamped)
            ]
            answer_json(
                {
                    "session": session_text.summary_json(summary),
                    "tree": session_tree.tree_json(tree, time.time()),
                    "report": whole(report),
                    "transcript": said,
                }
            )
            return
        asked_by = await retinue.session(summary.parent_run) if summary.parent_run else None
        lines([*session_text.fact_lines(summary, asked_by), ""])
        if len(tree) > 1:
            lines(["=== Whom it asked ===", *session_tree.tree_lines(tree, time.time()), ""])
        async for stamped in _events(retinue, summary.session, tail):
            lines(map(plain, transcript.lines(stamped)))
        if report:
            lines(["", "=== What the last run really did ===", *session_text.report_lines(report)])

    anyio.run(told)


@sessions.command(
    epilog=examples(
        "retinue sessions output 1a2b3c4d > answer.md",
        "retinue sessions output 1a2b3c4d --start 5001 --lines 100",
        then="Exit codes: 0 there is an answer, 1 there is none, 2 there is no such session.",
    )
)
@_session
@click.option("--start", type=click.IntRange(1), metavar="N", help="Print from line N on.")
@click.option("--lines", "count", type=click.IntRange(1), metavar="N", help="Print at most N lines.")
@json_option
@click.pass_context
def output(ctx: click.Context, session: str, start: int | None, count: int | None, as_json: bool) -> None:
    """Print the latest answer of a session, and nothing else."""
    retinue = Retinue()

    async def told() -> int:
        summary = await _found(retinue, session)
        text = await _latest_text(retinue, summary.session)
        if text and (start or count):
            text = _selected(text, start, count)
        if as_json:
            answer_json({"session": summary.session, "state": summary.latest.state, "text": plain(text)})
        elif text:
            answer(text)
        if failure := summary.latest.failure:
            note(f"Its last run failed: {failure.message}")
        if not text:
            fault(NO_OUTPUT)
        return 0 if text else 1

    ctx.exit(anyio.run(told))


@sessions.command(epilog=examples('retinue sessions resume 1a2b3c4d "And the tests?"', then=EXIT_CODES))
@_session
@click.argument("task")
@run_options
@click.pass_context
def resume(ctx: click.Context, session: str, task: str, options: Options) -> None:
    """Give the same agent another task in the same session.

    TASK is the text itself, - for stdin, or @FILE. The agent works where it did, unless --cwd says otherwise.
    """
    summary = anyio.run(_found, Retinue(), session)
    if options.cwd is None and Path(summary.cwd).is_dir():
        options = replace(options, cwd=summary.cwd)
    retinue = opened(options)
    had_none = summary.agent == NOBODY and NOBODY not in retinue.roster().names()
    asked = Task(
        prompt=task_text(task, retinue, SURFACE),
        agent=None if had_none else summary.agent,
        session=summary.session,
    )
    dispatch(ctx, retinue, Plan(tasks=(asked,)), SURFACE, options)


@sessions.command(
    epilog=examples("retinue sessions prune --dry-run", "retinue sessions prune --older-than 12w --results --yes")
)
@click.option(
    "--older-than",
    type=Seconds(0, A_CENTURY),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Unchanged so long.",
)
@click.option("--results", is_flag=True, help="Forget the sessions whole, their results too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be forgotten.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def prune(ctx: click.Context, older_than: float, results: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget old sessions: their detail, or with --results all of them.

    Without --results, what remains lists them, shows their answers and continues them.
    """
    retinue, before = Retinue(), time.time() - older_than
    doomed = [summary for summary in anyio.run(retinue.sessions) if summary.updated < before]
    freed = human_size(sum(summary.size_bytes for summary in doomed))
    note(f"To forget: {counted(len(doomed), 'session')}, {freed}, {'whole' if results else 'but for their results'}.")
    if dry_run:
        _list_doomed(doomed, as_json=as_json)
        return
    if not yes and not is_interactive():
        raise click.UsageError("There is nobody to ask here: give --yes, or --dry-run to only look.")
    if not yes and not click.confirm("Forget that?", default=False, err=True):
        ctx.exit(1)

    async def pruned() -> None:
        done = await retinue.prune(older_than=older_than, keep_results=not results)
        if as_json:
            answer_json(
                {
                    "thinned": done.thinned,
                    "removed": done.removed,
                    "skipped": done.skipped,
                    "logs": done.logs,
                    "freedBytes": done.freed_bytes,
                }
            )
        told = f"{done.thinned} thinned, {done.removed} removed, {done.skipped} left alone"
        note(f"{told}, {human_size(done.freed_bytes)} freed.")

    anyio.run(pruned)


def _list_doomed(doomed: list[SessionSummary], *, as_json: bool) -> None:
    if as_json:
        answer_json({"sessions": [summary.session for summary in doomed]})
    elif doomed:
        lines(session_text.list_lines(doomed, time.time()))


# -- reading ---------------------------------------------------------------------------------------


async def _found(retinue: Retinue, name: str) -> SessionSummary:
    """The session of an id.

    Raises:
        Declined: there is none.
    """
    summary = await retinue.session(name)
    if summary is None:
        latest = ", ".join(one.session[:SHORT] for one in await retinue.sessions(Wanted(limit=NAMED)))
        message = (
            f'Session "{name}" not found. The session may have expired or the ID is incorrect. '
            f"The latest sessions: {latest or '(none)'}"
        )
        raise Declined(Failure(Code.SESSION_NOT_FOUND, message))
    return summary


async def _latest_text(retinue: Retinue, session: str) -> str:
    """The answer of the latest run, or what it has said so far."""
    text = ""
    async for stamped in retinue.history(session):
        match stamped.event:
            case RunQueued():
                text = ""
            case Text(text=said) if said.strip():
                text = said
            case RunEnded(text=said, answer=AnswerKind.FINAL | AnswerKind.PARTIAL):
                text = said or text
            case _:
                pass
    return text


def _selected(text: str, start: int | None, count: int | None) -> str:
    try:
        return select_lines(text, start, count).text
    except IndexError as error:
        raise click.UsageError(f"--{error}.") from None


async def _report(retinue: Retinue, session: str) -> Actual | None:
    """What really happened in the last run, once it has ended."""
    last = await retinue.tail(session, 1)
    return last[-1].event.actual if last and isinstance(last[-1].event, RunEnded) else None


async def _events(retinue: Retinue, session: str, last: int | None) -> AsyncIterator[Stamped]:
    """The events of a session, or the last so many."""
    if last is None:
        async for stamped in retinue.history(session):
            yield stamped
    else:
        for stamped in await retinue.tail(session, last):
            yield stamped
