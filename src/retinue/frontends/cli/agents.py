"""`retinue agents`: which there are, what they are, whether they are in order, and which to trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from retinue.agents.definition import Agent
from retinue.agents.roster import Entry, Roster, Status
from retinue.app import Retinue
from retinue.frontends.cli import agent_text, trusting
from retinue.frontends.cli.agent_check import check_files, check_roster
from retinue.frontends.cli.agent_files import delete, edit
from retinue.frontends.cli.completion import agent_names
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.options import WORD, cwd_option, json_option
from retinue.frontends.cli.results import whole
from retinue.frontends.cli.table import MOST, table
from retinue.frontends.cli.talk import answer_json, examples, lines, note
from retinue.frontends.cli.template import write_template
from retinue.frontends.wording import counted, did_you_mean
from retinue.output.frame import one_line, plain
from retinue.types import Code, Failure


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "retinue agents",
        "retinue agents show explorer",
        "retinue agents new auditor --project",
        "retinue agents edit auditor",
        "retinue agents trust auditor",
    ),
)
@json_option
@cwd_option
@click.pass_context
def agents(ctx: click.Context, as_json: bool, cwd: str | None) -> None:
    """List, show, check, accept, begin, edit and delete agents.

    Without a command it lists them.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_agents, as_json=as_json, cwd=cwd)


@agents.command("list", epilog=examples("retinue agents list", "retinue agents list --json"))
@json_option
@cwd_option
def list_agents(as_json: bool, cwd: str | None) -> None:
    """List every agent that is found from here."""
    roster = Retinue(cwd=cwd).roster()
    if as_json:
        problems = [whole(remark) for remark in roster.problems]
        answer_json({"agents": [_entry_json(entry) for entry in roster.listing()], "problems": problems})
        return
    lines(table([["NAME", "LAYER", "TOOLS", "DESCRIPTION"], *(_row(entry) for entry in roster.listing())]))
    if count := len(roster.problems):
        note(f"{counted(count, 'file')} could not be used:")
        for remark in roster.problems:
            note(f"  {one_line(str(remark), MOST)}")


@agents.command(epilog=examples("retinue agents show explorer"))
@click.argument("name", type=WORD, shell_complete=agent_names)
@json_option
@cwd_option
def show(name: str, as_json: bool, cwd: str | None) -> None:
    """Show everything about an agent but its secrets."""
    roster = Retinue(cwd=cwd).roster()
    entries = [entry for entry in roster.listing() if entry.agent.name == name]
    if not entries:
        raise _unknown(roster, name)
    if as_json:
        answer_json({"definitions": [_whole_json(entry) for entry in entries]})
        return
    for number, entry in enumerate(sorted(entries, key=lambda entry: entry.status is not Status.USED)):
        lines([*([""] if number else []), *agent_text.whole_lines(entry)])


@agents.command(
    epilog=examples(
        "retinue agents check",
        "retinue agents check .retinue/agents",
        then="Exit codes: 0 all in order, 1 something is not, 2 a file is not there.",
    )
)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@json_option
@cwd_option
@click.pass_context
def check(ctx: click.Context, paths: tuple[Path, ...], as_json: bool, cwd: str | None) -> None:
    """Check agent files: all that are found from here, or those given.

    A PATH is a file, or a folder of them. It tells what is broken, contradictory, unknown or not taken as written.
    """
    retinue = Retinue(cwd=cwd)
    checked, found = check_files(retinue, paths) if paths else check_roster(retinue.roster())
    if as_json:
        answer_json({"checked": checked, "problems": [whole(remark) for remark in found]})
    else:
        # One line each, or the name of a file could pass for a line of ours.
        lines(one_line(str(remark), MOST) for remark in found)
        note(f"{counted(checked, 'agent')} checked, {len(found)} to mend.")
    ctx.exit(1 if found else 0)


@agents.command(
    epilog=examples(
        "retinue agents trust auditor",
        "retinue agents trust auditor --revoke",
        then="Exit codes: 0 done, 1 not accepted, 2 there is nothing to accept.",
    )
)
@click.argument("name", type=WORD, shell_complete=agent_names)
@click.option("--yes", "-y", is_flag=True, help="Accept without asking.")
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
@json_option
@cwd_option
@click.pass_context
def trust(ctx: click.Context, name: str, yes: bool, revoke: bool, as_json: bool, cwd: str | None) -> None:
    """Accept one of the project's own agents, as it is written now.

    A project's agents come with its files, so they run only once you accepted them. Whoever changes the file has to
    ask you again.
    """
    retinue = Retinue(cwd=cwd)
    agent = _project_agent(retinue.roster(), name)
    if agent is None:
        raise _unknown(retinue.roster(), name)
    if not revoke and not yes and not trusting.is_interactive():
        raise click.UsageError("There is nobody to ask here: look at it, and give --yes to accept it.")
    trusting.show(agent)
    if revoke:
        is_done = trusting.revoke(retinue, agent)
    else:
        is_done = (yes or trusting.is_wanted()) and trusting.accept(retinue, agent)
    is_trusted = is_done is not revoke
    if as_json:
        answer_json({"name": name, "file": agent.source, "digest": agent.digest, "trusted": is_trusted})
    file = one_line(agent.source or "", MOST)
    note(f"{name} is {'trusted as it is written now' if is_trusted else 'not trusted'} ({file}).")
    ctx.exit(0 if is_done else 1)


@agents.command(epilog=examples("retinue agents new auditor", "retinue agents new auditor --project"))
@click.argument("name", type=WORD)
@click.option("--project", is_flag=True, help="For this project (.retinue/agents) instead of for you.")
@json_option
@cwd_option
def new(name: str, project: bool, as_json: bool, cwd: str | None) -> None:
    """Begin an agent from a commented template.

    It never overwrites a file.
    """
    retinue = Retinue(cwd=cwd)
    before = retinue.roster().find(name)
    try:
        path = write_template(name, Path(retinue.cwd), for_project=project)
    except (ValueError, OSError) as error:
        reason = "it is there already" if isinstance(error, FileExistsError) else getattr(error, "strerror", error)
        raise Unreadable(f"{getattr(error, 'filename', None) or name} was not written: {reason}.") from error
    if as_json:
        answer_json({"name": name, "file": str(path)})
    else:
        lines([str(path)])
    for sentence in _rank(before, retinue.roster().find(name), str(path)):
        note(sentence)
    note(f"Edit it, look at it with `retinue agents show {name}`, then: retinue run {name} TASK")


agents.add_command(edit)
agents.add_command(delete)


# -- one agent -------------------------------------------------------------------------------------


def _row(entry: Entry) -> list[str]:
    agent, mark = entry.agent, agent_text.MARKS[entry.status]
    name = f"{agent.name} ({mark})" if mark else agent.name
    return [name, agent.layer, agent_text.tools_text(agent), agent.description]


def _entry_json(entry: Entry) -> dict[str, Any]:
    agent = entry.agent
    return {
        "name": agent.name,
        "layer": agent.layer,
        "status": entry.status,
        "description": plain(agent.description),
        "tools": agent.tools,
        "file": agent.source,
        "accepted": entry.accepted,
        "shadowedBy": entry.shadowed_by,
        "shadows": entry.shadows,
    }


def _whole_json(entry: Entry) -> dict[str, Any]:
    agent = entry.agent
    return {
        **_entry_json(entry),
        "fields": dict(agent_text.fields(agent)),
        "body": agent.body,
        "digest": agent.digest,
        "unknown": agent.unknown,
        "notices": [str(remark) for remark in agent.notices],
    }


def _unknown(roster: Roster, name: str) -> Declined:
    """Why there is no agent of this name, or none to accept."""
    found = roster.find(name)
    if isinstance(found, Failure):
        return Declined(found, did_you_mean(name, roster.names()).strip() or "`retinue agents` lists them.")
    whose = found.source or found.layer
    message = f"{name} is not this project's own ({whose}), so there is nothing to accept."
    return Declined(Failure(Code.INVALID_INPUT, message))


def _rank(before: Agent | Failure, after: Agent | Failure, path: str) -> Iterator[str]:
    """Which of two agents of the same name is used, where there was one before a file was written."""
    if isinstance(before, Agent) and isinstance(after, Agent):
        if after.source == path:
            yield f"It is used instead of the {before.layer} agent {before.name}."
        else:
            yield f"Here the {after.layer} agent {after.name} is used instead of it."


def _project_agent(roster: Roster, name: str) -> Agent | None:
    return next(
        (entry.agent for entry in roster.listing() if entry.agent.name == name and entry.agent.layer == "project"),
        None,
    )
