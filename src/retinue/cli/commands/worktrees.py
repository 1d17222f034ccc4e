"""`retinue worktrees`: list, show, merge, discard and prune the git worktrees of runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import anyio
import click

from retinue.cli.commands.completion import complete_worktrees
from retinue.cli.commands.sessions import MAX_AGE, format_age
from retinue.cli.group import CommandGroup
from retinue.cli.json_output import to_json
from retinue.cli.options import TEXT, CommandRefusedError, DurationType, for_users_only, json_option
from retinue.cli.printing import (
    Cell,
    StyledCell,
    help_examples,
    is_interactive,
    print_answer,
    print_hint,
    print_json,
    print_lines,
    print_tip,
    print_warning,
    render_table,
)
from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure
from retinue.sessions.store import SessionState
from retinue.support.formatting import SHORT_ID_LENGTH, format_time, normalize_id, pluralize
from retinue.worktrees.store import Worktree, WorktreeError, WorktreeState

STATE_COLORS = {
    WorktreeState.CHANGED: "green",
    WorktreeState.ACTIVE: "cyan",
    WorktreeState.CREATING: "yellow",
}
HIDDEN_STATES = frozenset({WorktreeState.UNCHANGED, WorktreeState.MERGED})
"""Worktrees that are gone; their records let a resumed session have them again."""
WORKING_STATES = frozenset({SessionState.RUNNING, SessionState.QUEUED})
Outcome = TypeVar("Outcome")


@click.group(
    cls=CommandGroup,
    similar={"apply": "merge", "delete": "discard", "diff": "show ID --patch", "ls": "list", "rm": "discard"},
    invoke_without_command=True,
    epilog=help_examples(
        'retinue run implementer "Fix the parser" --isolation worktree --allow-write',
        "retinue worktrees list",
        "retinue worktrees merge 1a2b3c4d",
    ),
)
@json_option
@click.pass_context
def worktrees(ctx: click.Context, as_json: bool) -> None:
    """List, show, merge and discard the git worktrees of runs.

    A run with `--isolation worktree` works in a copy of your files, uncommitted ones included. What it changes is
    committed on a branch; a worktree without changes is removed.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_worktrees, as_json=as_json)


@worktrees.command("list", epilog=help_examples("retinue worktrees list --all"))
@click.option("--all", "everything", is_flag=True, help="Also list those that were removed.")
@json_option
def list_worktrees(everything: bool, as_json: bool) -> None:
    """List worktrees, the oldest first."""
    found = [each for each in Retinue().worktrees.list_all() if everything or each.state not in HIDDEN_STATES]
    if as_json:
        print_json({"worktrees": [to_json(each) for each in found]})
    elif found:
        rows: Sequence[Sequence[Cell]] = [
            ["SESSION", "CREATED", "STATE", "AGENT", "CHANGES", "BRANCH"],
            *(_render_row(each, time.time()) for each in found),
        ]
        print_lines(render_table(rows, has_headings=True))
    else:
        print_hint("There are no worktrees. `retinue run … --isolation worktree` creates one.")


def _render_row(record: Worktree, now: float) -> list[Cell]:
    return [
        StyledCell(record.id, "cyan"),
        StyledCell(format_age(record.created, now), "bright_black"),
        StyledCell(record.state, STATE_COLORS.get(record.state)),
        record.agent,
        _format_counts(record),
        record.branch,
    ]


def _format_counts(record: Worktree) -> str:
    changes = record.changes
    return f"{pluralize(changes.files, 'file')} +{changes.insertions:,} -{changes.deletions:,}" if changes else "-"


@worktrees.command(epilog=help_examples("retinue worktrees show 1a2b3c4d", "retinue worktrees show 1a2b3c4d --patch"))
@click.argument("name", metavar="ID", type=TEXT, shell_complete=complete_worktrees)
@click.option("--patch", is_flag=True, help="Print only the changes, as a patch.")
@json_option
def show(name: str, patch: bool, as_json: bool) -> None:
    """Show a worktree and its changes.

    ID is the id of the session, or at least its first 8 digits.
    """
    retinue = Retinue()
    record = _find(retinue, name)
    if as_json:
        print_json(to_json(record))
        return
    if not patch:
        facts = {
            "session": record.session,
            "agent": record.agent,
            "task": record.task,
            "state": str(record.state),
            "created": format_time(record.created),
            "repository": record.repository,
            "folder": record.path if Path(record.path).exists() else "(removed)",
            "branch": record.branch,
            "base": record.base,
            "changes": _format_counts(record),
        }
        rows: Sequence[Sequence[Cell]] = [[StyledCell(key, "bright_black"), value] for key, value in facts.items()]
        print_lines([*render_table(rows), ""])
    print_answer(_attempt(lambda: retinue.worktrees.read_patch(record)).decode(errors="replace"))


@worktrees.command(epilog=help_examples("retinue worktrees merge 1a2b3c4d"))
@click.argument("name", metavar="ID", type=TEXT, shell_complete=complete_worktrees)
@json_option
@for_users_only
def merge(name: str, as_json: bool) -> None:
    """Apply the changes of a worktree to your files and remove it.

    ID is the id of the session, or at least its first 8 digits. All changes are applied, or none. Nothing is
    committed: inspect the changes with `git diff`.
    """
    retinue = Retinue()
    record = _find_idle(retinue, name)
    if record.changes is None or record.state is not WorktreeState.CHANGED:
        _refuse(f"Worktree {record.id} has no changes to merge (state: {record.state}).")
    merged = _attempt(lambda: retinue.worktrees.merge(record))
    if as_json:
        print_json(to_json(merged))
    print_hint(f"Applied {_format_counts(record)} to {record.repository}; the worktree was removed.")


@worktrees.command(epilog=help_examples("retinue worktrees discard 1a2b3c4d --yes"))
@click.argument("name", metavar="ID", type=TEXT, shell_complete=complete_worktrees)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
@for_users_only
def discard(ctx: click.Context, name: str, yes: bool) -> None:
    """Delete a worktree with its branch and its changes.

    ID is the id of the session, or at least its first 8 digits.
    """
    retinue = Retinue()
    record = _find_idle(retinue, name)
    print_hint(f"To delete: {record.path}, branch {record.branch}, {_format_counts(record)}.")
    if not yes and not is_interactive():
        raise click.UsageError("Not a terminal: pass --yes to delete.")
    if not yes and not click.confirm("Delete it?", default=False, err=True):
        ctx.exit(1)
    _attempt(lambda: retinue.worktrees.discard(record))


@worktrees.command(epilog=help_examples("retinue worktrees prune", "retinue worktrees prune --older-than 30d --yes"))
@click.option(
    "--older-than",
    type=DurationType(0, MAX_AGE),
    metavar="TIME",
    help="Also delete worktrees with changes that were created more than TIME ago.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_context
@for_users_only
def prune(ctx: click.Context, older_than: float | None, yes: bool, as_json: bool) -> None:
    """Remove worktrees that are not needed any more.

    Removes worktrees without changes, and those whose changes are also on another branch. Commits the changes of
    interrupted runs to the branch of their worktree. Changes that are nowhere else are kept, unless --older-than is
    given.
    """
    retinue = Retinue()
    store, before = retinue.worktrees, time.time() - (older_than or 0.0)
    idle = [each for each in store.list_all() if not _is_working(retinue, each)]
    old = [each for each in idle if older_than is not None and each.created < before and _is_unmerged(retinue, each)]
    if old and not yes:
        print_warning(f"{pluralize(len(old), 'worktree')} with changes will be deleted: {_join_ids(old)}.")
        if not is_interactive():
            raise click.UsageError("Not a terminal: pass --yes to delete.")
        if not click.confirm("Delete them?", default=False, err=True):
            ctx.exit(1)
    removed, kept = [], []
    for record in idle:
        closed = record
        if record.state in {WorktreeState.ACTIVE, WorktreeState.CREATING}:
            closed = _close_interrupted(retinue, record)
        if record in old or not _is_unmerged(retinue, closed):
            _attempt(partial(store.discard, closed))
            removed.append(record)
        else:
            kept.append(closed)
    if as_json:
        print_json({"removed": [each.session for each in removed], "kept": [each.session for each in kept]})
    print_hint(f"{len(removed):,} removed, {len(kept):,} kept.")
    if kept:
        print_tip(
            "`retinue worktrees merge ID` applies the changes of a worktree, "
            "`retinue worktrees discard ID` deletes them with it."
        )


def _close_interrupted(retinue: Retinue, record: Worktree) -> Worktree:
    """Return the worktree of a run that was killed, its changes committed; as it is if that cannot be done."""
    if record.state is WorktreeState.CREATING:
        return record
    try:
        return retinue.worktrees.close(record)
    except WorktreeError as error:
        print_warning(f"{record.id}: {error}")
        return record


def _is_unmerged(retinue: Retinue, record: Worktree) -> bool:
    """Return whether a worktree has changes that are nowhere else."""
    if record.state is WorktreeState.ACTIVE:
        return True
    return record.state is WorktreeState.CHANGED and not retinue.worktrees.is_contained(record)


def _is_working(retinue: Retinue, record: Worktree) -> bool:
    summary = anyio.run(retinue.session, record.session)
    return summary is not None and summary.latest.state in WORKING_STATES


def _find(retinue: Retinue, name: str) -> Worktree:
    """Return the worktree of a session.

    Raises:
        CommandRefusedError: there is none.
    """
    digits = normalize_id(name)[:SHORT_ID_LENGTH]
    found = next((each for each in retinue.worktrees.list_all() if each.id == digits), None)
    return found or _refuse(f'Session "{name}" has no worktree. `retinue worktrees list` shows those that exist.')


def _find_idle(retinue: Retinue, name: str) -> Worktree:
    record = _find(retinue, name)
    if _is_working(retinue, record):
        _refuse(
            f"A run works in worktree {record.id}. Wait until it has ended, or cancel it: "
            f"`retinue cancel {record.id}`."
        )
    return record


def _attempt(work: Callable[[], Outcome]) -> Outcome:
    """Return what the work returns.

    Raises:
        CommandRefusedError: git failed, or the state of the files does not allow it.
    """
    try:
        return work()
    except WorktreeError as error:
        raise CommandRefusedError(Failure(ErrorCode.CONFLICT, str(error), "worktree")) from error


def _refuse(message: str) -> NoReturn:
    raise CommandRefusedError(Failure(ErrorCode.CONFLICT, message, "worktree"))


def _join_ids(records: Sequence[Worktree]) -> str:
    return ", ".join(each.id for each in records)
