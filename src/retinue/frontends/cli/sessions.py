"""`retinue sessions`: what earlier runs did, and going on from there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import click

from retinue.app import Retinue
from retinue.events import RunEnded, RunQueued, Stamped, Text, to_line
from retinue.frontends.cli import session_text
from retinue.frontends.cli.completions import agent_names, session_ids
from retinue.frontends.cli.finding import find_session, within
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import json_option
from retinue.frontends.cli.prune import prune
from retinue.frontends.cli.resume import resume
from retinue.frontends.cli.talk import answer, answer_json, fault, lines, note
from retinue.output.frame import plain
from retinue.results import AnswerKind
from retinue.sessions.store import SessionSummary, State
from retinue.sessions.transcript import Transcript

LATEST = 20
"""Sessions that are listed unless asked otherwise."""
NO_OUTPUT = "No output captured from this session."


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


sessions.add_command(resume)
sessions.add_command(prune)


@sessions.command(
    "list",
    epilog=examples("retinue sessions list --agent explorer --state error", "retinue sessions list --search retry"),
)
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

    found = within(listed)
    if as_json:
        answer_json({"sessions": [session_text.summary_json(summary) for summary in found]})
    elif found:
        lines(session_text.list_lines(found, time.time()))
    else:
        note("There are no such sessions. `retinue demo` makes some.")


@sessions.command(
    epilog=examples("retinue sessions show 1a2b3c4d", "retinue sessions show 1a2b3c4d --events --tail 5")
)
@click.argument("session", metavar="ID", shell_complete=session_ids)
@click.option("--events", is_flag=True, help="Print the stored events as JSON lines.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N events.")
@json_option
@click.pass_context
def show(ctx: click.Context, session: str, events: bool, tail: int | None, as_json: bool) -> None:
    """Show what is known of a session and what was said in it."""

    async def told(retinue: Retinue) -> int:
        summary = await find_session(retinue, session)
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

    ctx.exit(within(told))


@sessions.command(
    epilog=examples(
        "retinue sessions output 1a2b3c4d > answer.md",
        then="Exit codes: 0 there is an answer, 1 there is none, 2 there is no such session.",
    )
)
@click.argument("session", metavar="ID", shell_complete=session_ids)
@json_option
@click.pass_context
def output(ctx: click.Context, session: str, as_json: bool) -> None:
    """Print the latest answer of a session, and nothing else."""

    async def told(retinue: Retinue) -> int:
        summary = await find_session(retinue, session)
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

    ctx.exit(within(told))


# -- reading ---------------------------------------------------------------------------------------


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
