"""`retinue demo`: run five agents on the files of a directory, without an API key and without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

import click

from retinue.cli.options import RunOptions, cwd_option, for_users_only, json_option, quiet_option
from retinue.cli.printing import MAX_COLUMNS, help_examples, print_lines, stdout_columns
from retinue.cli.run_output import hint_stored_answers, print_failures, print_results
from retinue.cli.runner import make_retinue, run_plan
from retinue.model.results import RunResult, compute_exit_status
from retinue.model.tasks import Mode, Plan, Task
from retinue.output.untrusted_text import to_one_line
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.tui.widths import fit_text, text_width, wrap_text

TOOLSET = "fanout"
ENGINE = "offline"

RETINUE_QUESTIONS = (
    ("explorer", "Where is loop detection implemented?"),
    ("reviewer", "Review lease.py for stale locks"),
    ("implementer", "Plan a limit on the tasks of a chain"),
    ("tester", "Which tests cover the redaction of secrets?"),
    ("researcher", "What do the documents say about trust?"),
)
GENERAL_QUESTIONS = (
    ("explorer", "Where is the configuration read?"),
    ("reviewer", "Review how errors and exceptions are handled"),
    ("implementer", "Plan another key in the configuration"),
    ("tester", "Which tests cover errors?"),
    ("researcher", "What does the README say about installation and usage?"),
)

MAX_EVIDENCE_LINES = 4
"""Lines of evidence per answer."""
MAX_FILES_SCANNED = 5_000
"""Directory entries searched for a source file."""
SOURCE_SUFFIXES = frozenset({
    ".c", ".cc", ".clj", ".cpp", ".cs", ".dart", ".ex", ".go", ".h", ".hs", ".java", ".jl", ".js", ".jsx", ".kt",
    ".lua", ".m", ".ml", ".php", ".pl", ".py", ".r", ".rb", ".rs", ".scala", ".sh", ".swift", ".ts", ".tsx", ".vue",
    ".zig",
})  # fmt: skip
SKIPPED_FOLDERS = frozenset({"node_modules", "venv", "__pycache__", "dist", "build", "target"})

_OWN_PATHS = ("src/retinue/cli/", "cli/")
_EVIDENCE = re.compile(
    r"(?:-|\d+\.) `(?P<place>[^`]+:\d+)`(?: (?P<fence>`+) ?(?P<code>.*?) ?(?P=fence))?(?P<note>.*)"
)


@click.command(epilog=help_examples("retinue demo", "retinue demo --cwd ~/some/project"))
@cwd_option
@json_option
@quiet_option
@click.pass_context
@for_users_only
def demo(ctx: click.Context, cwd: str | None, as_json: bool, quiet: bool) -> None:
    """Run five agents in this directory, without a key or network.

    The built-in agents search and read the files of this directory in parallel, on the offline engine (rules, not a
    language model). A directory without source files is replaced by Retinue's own. Their sessions are kept.
    """
    here = Path(cwd) if cwd else Path.cwd()
    folder = _choose_folder(here)
    options = RunOptions(engine=ENGINE, cwd=str(folder), as_json=as_json, quiet=quiet)
    questions = RETINUE_QUESTIONS if _is_retinue_checkout(folder) else GENERAL_QUESTIONS
    plan = Plan(tasks=tuple(Task(agent=agent, prompt=task) for agent, task in questions), mode=Mode.PARALLEL)
    if not quiet:
        place = to_one_line(str(folder), MAX_COLUMNS)
        what = place if folder.samefile(here) else f"the source of Retinue, as this directory has none ({place})"
        click.secho(f"Five agents search {what}, with rules instead of a language model.\n", err=True, bold=True)
    retinue = make_retinue(options)
    results = run_plan(retinue, plan, TOOLSET, options, asks_for_trust=False)
    if as_json:
        print_results(results, retinue, plan.mode, options)
    else:
        with hint_stored_answers([result.session for result in results]):
            print_lines(_render_answers(results, stdout_columns()))
        print_failures(results, retinue, plan.mode)
    ctx.exit(compute_exit_status(results))


# -- the directory ---------------------------------------------------------------------------------


def _choose_folder(here: Path) -> Path:
    """Return this directory, or Retinue's own if it has no sources."""
    return here if _has_sources(here) else Path(__file__).parents[2]


def _has_sources(folder: Path) -> bool:
    seen = 0
    for _, folders, files in os.walk(folder):
        if any(PurePath(name).suffix.lower() in SOURCE_SUFFIXES for name in files):
            return True
        seen += len(files) + len(folders)
        if seen > MAX_FILES_SCANNED:
            return False
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
    return False


def _is_retinue_checkout(folder: Path) -> bool:
    return any((folder / inside / "runtime" / "orchestrator.py").exists() for inside in ("src/retinue", "."))


# -- the answers -----------------------------------------------------------------------------------


def _render_answers(results: Sequence[RunResult], columns: int) -> Iterator[str]:
    for result in results:
        if result.text and not result.failure:
            yield from _render_essentials(result, columns)
            yield ""
    session = results[0].session[:SHORT_ID_LENGTH]
    yield "Each run is a session that you can read and resume:"
    for command in ("list", f"show {session}", f"resume {session} TASK"):
        yield f"  {click.style(f'retinue sessions {command}', fg='cyan')}"


def _render_essentials(result: RunResult, columns: int) -> Iterator[str]:
    """Render the question, the first sentence of the answer, and its best evidence."""
    session = result.session[:SHORT_ID_LENGTH]
    question = f"{result.spec.name}: {to_one_line(result.spec.task, columns)}"
    title = click.style(fit_text(question, columns - SHORT_ID_LENGTH - 2), bold=True)
    yield f"{title}  {click.style(session, fg='bright_black')}"
    text = result.text.split("\n")
    headline = text[0].partition("; ")[2] or text[0]
    yield from (f"  {line}" for line in wrap_text(_strip_backticks(headline, columns), columns - 2, 2))
    found = (match for line in text if (match := _EVIDENCE.fullmatch(line.strip())))
    # The questions are in this file and in the help, so these are found too.
    others = (match for match in found if not match["place"].startswith(_OWN_PATHS))
    for match in islice(others, MAX_EVIDENCE_LINES):
        yield _format_evidence(match, columns - 2)


def _format_evidence(match: re.Match[str], columns: int) -> str:
    place, code = fit_text(to_one_line(match["place"], columns), columns), to_one_line(match["code"] or "", columns)
    note = _strip_backticks(match["note"].lstrip(" —"), columns)
    rest = fit_text("  ".join(filter(None, (code, note))), columns - text_width(place) - 2)
    code, note = rest[: len(code)], rest[len(code) :]
    return f"  {click.style(place, fg='cyan')}  {code}{click.style(note, fg='bright_black')}"


def _strip_backticks(text: str, columns: int) -> str:
    return to_one_line(text, 2 * columns).replace("`", "")
