"""`retinue sessions`: what earlier runs did, and going on from there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import click
from msgspec.structs import replace

from retinue.app import Retinue
from retinue.events import RunEnded, RunQueued, Stamped, Text, to_line
from retinue.frontends.cli import session_text
from retinue.frontends.cli.completions import agent_names, session_ids
from retinue.frontends.cli.dispatch import carry_out, task_text, tell
from retinue.frontends.cli.options import EXIT_CODES, Options, Seconds, json_option, run_options
from retinue.frontends.cli.talk import answer, answer_json, fault, lines, note
from retinue.frontends.cli.trusting import is_interactive
from retinue.frontends.cli.work import opened
from retinue.frontends.event_lines import SHORT
from retinue.output.frame import plain
from retinue.results import AnswerKind
from retinue.sessions.store import SessionSummary, State
from retinue.sessions.transcript import Transcript
from retinue.types import Failure, Plan, Task

LATEST = 20
"""Sessions that are listed unless asked otherwise."""
NAMED = 5
"""Sessions named where the one asked for is not known."""
A_CENTURY = 100 * 365 * 86400.0
NO_OUTPUT = "No output captured from this session."

Found = TypeVar("Found")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  retinue sessions
  retinue sessions show 1a2b3c4d
  retinue sessions resume 1a2b3c4d "And the tests?"
  retinue sessions prune --older-than 30d""",
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


@sessions.command("list")
@click.option("--limit", type=click.IntRange(1), default=LATEST, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="However many there are.")
@click.option("--agent", metavar="NAME", shell_complete=agent_names, help="Only of this agent.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only in this state.")
@click.option("--search", metavar="TEXT", help="Only with this text in name, agent, task or answer.")
@json_option
def list_sessions(
    limit: int, everything: bool, agent: str | None, state: str | None, search: str | None, as_json: bool
) -> None:
    """List sessions, the last changed first."""

    async def listed(retinue: Retinue) -> list[SessionSummary]:
        wanted = State(state) if state else None
        most = None if everything else limit
        return list(await retinue.sessions(limit=most, agent=agent, state=wanted, text=search))

    found = _within(listed)
    if as_json:
        answer_json({"sessions": [session_text.summary_json(summary) for summary in found]})
    elif found:
        lines(session_text.list_lines(found, time.time()))
    else:
        note("There are no such sessions. `retinue demo` makes some.")


@sessions.command()
@click.argument("session", metavar="ID", shell_complete=session_ids)
@click.option("--events", is_flag=True, help="Print the stored events as JSON lines.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N events.")
@json_option
@click.pass_context
def show(ctx: click.Context, session: str, events: bool, tail: int | None, as_json: bool) -> None:
    """Show what is known of a session and what was said in it."""

    async def told(retinue: Retinue) -> int:
        summary = await _find(retinue, session)
        if summary is None:
            return 2
        transcript = Transcript()
        said: list[str] = []
        if not events and not as_json:
            lines([*session_text.fact_lines(summary), ""])
        async for stamped in _events(retinue, summary.session, tail):
            if events:
                click.echo(to_line(stamped), nl=False)
            elif as_json:
                said += map(plain, transcript.lines(stamped))
            else:
                lines(map(plain, transcript.lines(stamped)))
        if as_json and not events:
            answer_json({"session": session_text.summary_json(summary), "transcript": said})
        return 0

    ctx.exit(_within(told))


@sessions.command(epilog="Exit codes: 0 there is an answer, 1 there is none, 2 there is no such session.")
@click.argument("session", metavar="ID", shell_complete=session_ids)
@json_option
@click.pass_context
def output(ctx: click.Context, session: str, as_json: bool) -> None:
    """Print the latest answer of a session, and nothing else."""

    async def told(retinue: Retinue) -> int:
        summary = await _find(retinue, session)
        if summary is None:
            return 2
        text = await _latest_text(retinue, summary.session)
        if as_json:
            answer_json({"session": summary.session, "state": summary.latest.state, "text": plain(text)})
        elif text:
            answer(text)
        if failure := summary.latest.failure:
            note(f"Its last run failed: {failure.message}")
        if not text:
            fault(NO_OUTPUT)
        return 0 if text else 1

    ctx.exit(_within(told))


@sessions.command(epilog=EXIT_CODES)
@click.argument("session", metavar="ID", shell_complete=session_ids)
@click.argument("task")
@run_options
@click.pass_context
def resume(ctx: click.Context, session: str, task: str, options: Options) -> None:
    """Give the same agent another task in the same session.

    TASK is the text itself, - for stdin, or @FILE. The agent works where it did, unless --cwd says otherwise.
    """

    async def found(retinue: Retinue) -> SessionSummary | None:
        return await _find(retinue, session)

    summary = _within(found)
    if summary is None:
        ctx.exit(2)
    if options.cwd is None and Path(summary.cwd).is_dir():
        options = replace(options, cwd=summary.cwd)
    retinue = opened(options)
    agent = (
        None if isinstance(retinue.roster().find(summary.agent), Failure) and _had_none(summary) else summary.agent
    )
    asked = Task(prompt=task_text(task, retinue, "single"), agent=agent, session=summary.session)
    plan = Plan(tasks=(asked,))
    outcome = carry_out(retinue, plan, "single", options)
    tell(outcome, retinue, plan, options)
    ctx.exit(outcome.exit_code)


@sessions.command()
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

    async def old(retinue: Retinue) -> list[SessionSummary]:
        before = time.time() - older_than
        return [summary for summary in await retinue.sessions() if summary.updated < before]

    async def pruned(retinue: Retinue) -> dict[str, int]:
        done = await retinue.prune(older_than=older_than, keep_results=not results)
        return {
            "thinned": done.thinned,
            "removed": done.removed,
            "skipped": done.skipped,
            "logs": done.logs,
            "freedBytes": done.freed_bytes,
        }

    doomed = _within(old)
    what = f"{len(doomed)} {'session' if len(doomed) == 1 else 'sessions'}"
    size = session_text.size(sum(one.size_bytes for one in doomed))
    note(
        f"To forget: {what} whole ({size})."
        if results
        else f"To forget: the detail of {what} ({size}); results stay."
    )
    if dry_run:
        if as_json:
            answer_json({"sessions": [one.session for one in doomed]})
        else:
            lines(session_text.list_lines(doomed, time.time()) if doomed else [])
        return
    if not yes and not is_interactive():
        raise click.UsageError("There is nobody to ask here: give --yes, or --dry-run to only look.")
    if not yes and not click.confirm("Forget them?", default=False, err=True):
        ctx.exit(1)
    done = _within(pruned)
    if as_json:
        answer_json(done)
    note(
        f"{done['thinned']} thinned, {done['removed']} removed, {done['skipped']} left alone, "
        f"{session_text.size(done['freedBytes'])} freed."
    )


# -- finding ---------------------------------------------------------------------------------------


def _within(work: Callable[[Retinue], Awaitable[Found]]) -> Found:
    """Does something in an open Retinue."""

    async def opened_for() -> Found:
        async with Retinue() as retinue:
            return await work(retinue)

    return anyio.run(opened_for)


async def _find(retinue: Retinue, name: str) -> SessionSummary | None:
    """The session of an id; says so if there is none."""
    summary = await retinue.session(name)
    if summary is None:
        latest = ", ".join(one.session[:SHORT] for one in await retinue.sessions(limit=NAMED))
        fault(
            f'Session "{name}" not found. The session may have expired or the ID is incorrect. '
            f"The latest sessions: {latest or '(none)'}"
        )
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


async def _events(retinue: Retinue, session: str, last: int | None) -> AsyncIterator[Stamped]:
    """The events of a session, or the last so many."""
    if last is None:
        async for stamped in retinue.history(session):
            yield stamped
    else:
        for stamped in await retinue.tail(session, last):
            yield stamped


def _had_none(summary: SessionSummary) -> bool:
    """Whether the session's runs were nobody's in particular: the engine's own prompt and tools."""
    return summary.agent == "default"
