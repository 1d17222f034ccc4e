"""`retinue agents edit` and `delete`: the files of agents that are the user's or the project's own."""

from __future__ import annotations

from pathlib import Path, PurePath

import click

from retinue.agents.definition import Agent, Layer
from retinue.agents.roster import Roster, Status
from retinue.app import Retinue
from retinue.frontends.cli import trusting
from retinue.frontends.cli.agent_check import check_files
from retinue.frontends.cli.completion import agent_names
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.options import WORD, cwd_option, json_option
from retinue.frontends.cli.results import whole
from retinue.frontends.cli.table import MOST
from retinue.frontends.cli.talk import answer_json, examples, lines, note
from retinue.frontends.wording import did_you_mean
from retinue.output.frame import one_line
from retinue.types import Code, Failure


@click.command(
    epilog=examples(
        "retinue agents edit auditor",
        "EDITOR=nano retinue agents edit auditor",
        then="Exit codes: 0 the file is in order, 1 it is not, 2 there is no file to edit.",
    )
)
@click.argument("name", type=WORD, shell_complete=agent_names)
@json_option
@cwd_option
@click.pass_context
def edit(ctx: click.Context, name: str, as_json: bool, cwd: str | None) -> None:
    """Open an agent's file in your editor, and check it afterwards.

    The editor is $VISUAL or $EDITOR. Of several files of the name it is the one that is used. A broken file is found
    by its own name.
    """
    retinue = Retinue(cwd=cwd)
    path = _file_of(retinue.roster(), name)
    click.edit(filename=str(path))
    _, found = check_files(retinue, [path]) if path.exists() else (0, [])
    if as_json:
        answer_json({"name": name, "file": str(path), "problems": [whole(remark) for remark in found]})
    else:
        # One line each, or the name of a file could pass for a line of ours.
        lines(one_line(str(remark), MOST) for remark in found)
    note(f"{one_line(str(path), MOST)} {_state(path, len(found))}.")
    if waiting := retinue.roster().needs_trust(name):
        note(f"It is the project's own: accept it as it is written now with `retinue agents trust {waiting.name}`.")
    ctx.exit(1 if found else 0)


@click.command(
    epilog=examples(
        "retinue agents delete auditor",
        "retinue agents delete auditor --yes",
        then="Exit codes: 0 it is gone, 1 it was kept, 2 there is no file to delete.",
    )
)
@click.argument("name", type=WORD, shell_complete=agent_names)
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@json_option
@cwd_option
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool, as_json: bool, cwd: str | None) -> None:
    """Delete an agent's file: one of your own, or of this project.

    Of several files of the name it is the one that is used.
    """
    retinue = Retinue(cwd=cwd)
    path = _file_of(retinue.roster(), name)
    if not yes and not trusting.is_interactive():
        raise click.UsageError(f"There is nobody to ask here: give --yes to delete {one_line(str(path), MOST)}.")
    is_wanted = yes or click.confirm(f"Delete {one_line(str(path), MOST)}?", default=False, err=True)
    if is_wanted:
        try:
            path.unlink()
        except OSError as error:
            raise Unreadable(f"{path} was not deleted: {error.strerror}.") from error
    if as_json:
        answer_json({"name": name, "file": str(path), "deleted": is_wanted})
    note(f"{one_line(str(path), MOST)} is {'deleted' if is_wanted else 'kept'}.")
    after = retinue.roster().find(name)
    if is_wanted and isinstance(after, Agent):
        note(f"The {after.layer} agent {name} is used now ({one_line(after.source or after.layer, MOST)}).")
    ctx.exit(0 if is_wanted else 1)


def _file_of(roster: Roster, name: str) -> Path:
    """The file that defines the agent of this name, or should.

    Raises:
        Declined: there is none, or it is nobody's own.
    """
    entries = [entry for entry in roster.listing() if entry.agent.name == name]
    own = [entry for entry in entries if entry.agent.layer in {Layer.USER, Layer.PROJECT}]
    used_first = sorted(own, key=lambda entry: entry.status is not Status.USED)
    sound = [Path(entry.agent.source) for entry in used_first if entry.agent.source]
    broken = [Path(remark.file) for remark in roster.problems if PurePath(remark.file).stem == name]
    if files := [path for path in (*sound, *broken) if path.is_file()]:
        return files[0]
    if not entries:
        unknown = roster.find(name)
        assert isinstance(unknown, Failure)  # it is in no list
        raise Declined(unknown, did_you_mean(name, roster.names()).strip() or "`retinue agents` lists them.")
    raise Declined(Failure(Code.INVALID_INPUT, _whose(entries[0].agent)))


def _whose(agent: Agent) -> str:
    """Why an agent is not to be changed from here."""
    if agent.layer is Layer.BUILTIN:
        hint = f"`retinue agents new {agent.name}` begins one of your own, which is then used instead."
        return f"{agent.name} is built in, so it has no file of yours. {hint}"
    place = Path(agent.source).parent if agent.source else agent.layer
    return f"{agent.name} is of the {agent.layer} ({place}): change it there."


def _state(path: Path, problems: int) -> str:
    if not path.exists():
        return "is gone"
    return f"has {problems} to mend" if problems else "is in order"
