"""`retinue demo`: five agents at work on the files around you, without a key and without a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

import click

from retinue.frontends.cells import fit, width, wrap
from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import Options, cwd_option, json_option, quiet_option
from retinue.frontends.cli.outcome import carry_out, kept, tell, tell_failures
from retinue.frontends.cli.table import MOST, screen_columns
from retinue.frontends.cli.talk import examples, lines
from retinue.frontends.wording import SHORT
from retinue.output.frame import one_line
from retinue.results import RunResult
from retinue.surfaces.base import exit_status
from retinue.types import Mode, Plan, Task

SURFACE = "fanout"
ENGINE = "offline"

OF_RETINUE = (
    ("explorer", "Where is loop detection implemented?"),
    ("reviewer", "Review bus.py for slow watchers"),
    ("implementer", "Plan a limit on the length of a chain"),
    ("tester", "Which tests cover the masking of secrets?"),
    ("researcher", "What do the documents say about trust?"),
)
OF_ANYTHING = (
    ("explorer", "Where is the configuration read?"),
    ("reviewer", "Review how errors and exceptions are handled"),
    ("implementer", "Plan another key in the configuration"),
    ("tester", "Which tests cover errors?"),
    ("researcher", "What does the README say about installation and usage?"),
)

SHOWN = 4
"""Lines of evidence per answer."""
LOOKED_AT = 5_000
"""Directory entries, before a place counts as one without sources."""
SOURCES = frozenset({
    ".c", ".cc", ".clj", ".cpp", ".cs", ".dart", ".ex", ".go", ".h", ".hs", ".java", ".jl", ".js", ".jsx", ".kt",
    ".lua", ".m", ".ml", ".php", ".pl", ".py", ".r", ".rb", ".rs", ".scala", ".sh", ".swift", ".ts", ".tsx", ".vue",
    ".zig",
})  # fmt: skip
SKIPPED = frozenset({"node_modules", "venv", "__pycache__", "dist", "build", "target"})

_OWN_PLACES = ("src/retinue/frontends/cli/", "frontends/cli/")
_EVIDENCE = re.compile(
    r"(?:-|\d+\.) `(?P<place>[^`]+:\d+)`(?: (?P<fence>`+) ?(?P<code>.*?) ?(?P=fence))?(?P<note>.*)"
)


@click.command(epilog=examples("retinue demo", "retinue demo --cwd ~/some/project"))
@cwd_option
@json_option
@quiet_option
@click.pass_context
def demo(ctx: click.Context, cwd: str | None, as_json: bool, quiet: bool) -> None:
    """See five agents at work here: no key, no network.

    The built-in agents search and read the files around you side by side, on the offline engine: rules, not a
    language model. Their sessions are kept like any others.
    """
    folder = _folder(Path(cwd) if cwd else Path.cwd())
    options = Options(engine=ENGINE, cwd=str(folder), as_json=as_json, quiet=quiet)
    questions = OF_RETINUE if _is_retinue(folder) else OF_ANYTHING
    plan = Plan(tasks=tuple(Task(agent=agent, prompt=task) for agent, task in questions), mode=Mode.PARALLEL)
    if not quiet:
        place = one_line(str(folder), MOST)
        click.secho(f"Five agents look at {place}, on rules instead of a language model.\n", err=True, bold=True)
    retinue = opened(options)
    results = carry_out(retinue, plan, SURFACE, options)
    if as_json:
        tell(results, retinue, plan.mode, options)
    else:
        with kept([result.session for result in results]):
            lines(_answers(results, screen_columns()))
        tell_failures(results, retinue, plan.mode, options)
    ctx.exit(exit_status(results))


# -- what to look at -------------------------------------------------------------------------------


def _folder(here: Path) -> Path:
    """The directory to show: this one, or where it has no sources, Retinue's own."""
    return here if _has_sources(here) else Path(__file__).parents[2]


def _has_sources(folder: Path) -> bool:
    seen = 0
    for _, folders, files in os.walk(folder):
        if any(PurePath(name).suffix.lower() in SOURCES for name in files):
            return True
        seen += len(files) + len(folders)
        if seen > LOOKED_AT:
            return False
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
    return False


def _is_retinue(folder: Path) -> bool:
    return any((folder / inside / "orchestrator.py").exists() for inside in ("src/retinue", "."))


# -- what is told ----------------------------------------------------------------------------------


def _answers(results: Sequence[RunResult], columns: int) -> Iterator[str]:
    for result in results:
        if result.text and not result.failure:
            yield from _essentials(result, columns)
            yield ""
    session = results[0].session[:SHORT]
    yield "Each is a session you can read, and go on with:"
    for command in ("list", f"show {session}", f"resume {session} TASK"):
        yield f"  {click.style(f'retinue sessions {command}', fg='cyan')}"


def _essentials(result: RunResult, columns: int) -> Iterator[str]:
    """The question, the answer's first sentence, and its best evidence."""
    session = result.session[:SHORT]
    question = f"{result.spec.name}: {one_line(result.spec.task, columns)}"
    yield f"{click.style(fit(question, columns - SHORT - 2), bold=True)}  {click.style(session, fg='bright_black')}"
    told = result.text.split("\n")
    headline = told[0].partition("; ")[2] or told[0]
    yield from (f"  {line}" for line in wrap(_without_marks(headline, columns), columns - 2, 2))
    found = (match for line in told if (match := _EVIDENCE.fullmatch(line.strip())))
    # The questions themselves stand here and in the help, so these are found, too.
    others = (match for match in found if not match["place"].startswith(_OWN_PLACES))
    for match in islice(others, SHOWN):
        yield _evidence(match, columns - 2)


def _evidence(match: re.Match[str], columns: int) -> str:
    place, code = fit(one_line(match["place"], columns), columns), one_line(match["code"] or "", columns)
    note = _without_marks(match["note"].lstrip(" —"), columns)
    rest = fit("  ".join(filter(None, (code, note))), columns - width(place) - 2)
    code, note = rest[: len(code)], rest[len(code) :]
    return f"  {click.style(place, fg='cyan')}  {code}{click.style(note, fg='bright_black')}"


def _without_marks(text: str, columns: int) -> str:
    return one_line(text, 2 * columns).replace("`", "")
