"""The flags that every command has under which something runs, and the kinds of values they take."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from msgspec import Struct

from retinue.frontends.cli.completion import engine_names
from retinue.frontends.cli.inputs import Unreadable, as_typed

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class Options(Struct, frozen=True, kw_only=True):
    """The common flags, as given; None: not given."""

    engine: str | None = None
    model: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    max_depth: int | None = None
    max_concurrency: int | None = None
    max_turns: int | None = None
    max_cost: float | None = None
    allow_write: bool | None = None
    project_agents: str | None = None
    policy: bool | None = None
    as_json: bool = False
    quiet: bool = False

    def settings(self) -> dict[str, Any]:
        """The settings among them, by their names."""
        return {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}


_SETTINGS = (
    "engine",
    "model",
    "timeout",
    "max_depth",
    "max_concurrency",
    "max_turns",
    "max_cost",
    "allow_write",
    "project_agents",
    "policy",
)


class Word(click.ParamType[str]):
    """A name or an id: some text, in any case."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():
            self.fail("It is empty: say what is meant.", param, ctx)
        try:
            return as_typed(value)
        except Unreadable:
            return str(value)  # a name that is no text is shown broken, and breaks nothing


WORD = Word()


class HostId(click.ParamType[str]):
    """An id of another program: any text that can be printed."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip() or not value.isprintable():
            self.fail("It is empty, or no text that can be printed.", param, ctx)
        return str(value)


HOST_ID = HostId()


class Seconds(click.ParamType[float]):
    """A length of time: `90`, `90s`, `15m`, `2h`, `30d`, `4w`."""

    name = "time"

    def __init__(self, low: float, high: float = 7 * 86400.0) -> None:
        self._low = low
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no length of time: write 90, 90s, 15m, 2h or 30d.", param, ctx)
        seconds = float(found[1]) * _UNITS[found[2]]
        if not self._low <= seconds <= self._high or not math.isfinite(seconds):
            self.fail(f"{value!r} is out of range: {self._low:g} to {self._high:g} seconds.", param, ctx)
        return seconds


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Say nothing but answers and errors.")
cwd_option = click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    help="Work in this directory.  [default: where you are]",
)


_OPTIONS = (
    click.option(
        "--engine",
        type=WORD,
        metavar="ENGINE",
        shell_complete=engine_names,
        help="What executes the runs: auto, offline, …; `retinue doctor` lists them.",
    ),
    click.option("--model", type=WORD, metavar="MODEL", help="The model to use, in the engine's own words."),
    cwd_option,
    click.option("--timeout", type=Seconds(1), metavar="TIME", help="How long a run may take: 90, 15m, 2h."),
    click.option(
        "--max-depth", type=click.IntRange(0, 64), metavar="N", help="Levels of runs; agents delegate from 2 on."
    ),
    click.option("--max-concurrency", type=click.IntRange(1), metavar="N", help="Runs at once; others queue."),
    click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Assistant messages a run may take."),
    click.option(
        "--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="Dollars a run may cost."
    ),
    click.option(
        "--allow-write/--no-allow-write",
        default=None,
        help="Whether agents may have tools that write or execute.",
    ),
    click.option(
        "--project-agents",
        type=click.Choice(["ask", "allow", "deny"]),
        help="Whether the project's own agents run before you accepted them.",
    ),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the common flags, collected into one `options`."""
    return _collecting(command, (*_OPTIONS, json_option, quiet_option))


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that prints no answer of its own: it serves a host, which has a model."""
    policy = click.option(
        "--policy/--no-policy",
        default=None,
        help="Whether the host's model is told when to delegate, and to whom: `retinue tools --policy`.",
    )
    return _collecting(command, (policy, *_OPTIONS))


def _collecting(
    command: Callable[..., None], wanted: Iterable[Callable[..., Callable[..., None]]]
) -> Callable[..., None]:
    @functools.wraps(command)
    def collected(**given: Any) -> None:
        options = Options(**{name: given.pop(name) for name in Options.__struct_fields__ if name in given})
        command(options=options, **given)

    for option in reversed(tuple(wanted)):
        collected = option(collected)
    return collected


EXIT_CODES = (
    "Exit codes: 0 completed, 1 failed, 2 refused before anything ran, 124 the only failure was a timeout, "
    "130 cancelled."
)
