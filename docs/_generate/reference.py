"""Write the reference pages from the code they describe: `python -m docs._generate.reference`, or `make docs`.

A test fails if a page is not up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from benchmarks.__main__ import COMMITTED, BenchmarkResult, CaseResult
from docs._generate.command_page import cli_page
from docs._generate.pi_extension import FILE as TOOLSETS
from docs._generate.pi_extension import toolsets_file
from docs._generate.tables import class_description, code, fields_table, table, type_text
from docs._generate.texts import FAILURES, KEYS, RESERVED, UNUSED, VALUES, VALUES_BY_KEY
from docs._generate.usage import unreported_codes, unused_agent_fields, unused_settings
from msgspec import structs

# The alias table is private to the agents; only its documentation reads it.
from retinue.agents.fields import _FIELD_SPECS
from retinue.composition import TOOLSET_DEFAULTS
from retinue.config import settings
from retinue.model import errors, event_codec, events, results, runs
from retinue.toolsets.base import REFUSAL_CODES, REFUSED_EXIT_CODE
from retinue.toolsets.single import ERROR_CODES, FAILED_CODE

FOLDER = Path(__file__).parents[1] / "reference"
GENERATED_NOTE = "<!-- Made by `make docs`: change the code, not this page. -->\n\n"


def main() -> None:
    root = FOLDER.parents[1]
    for path, text in [*((FOLDER / name, page(name)) for name in PAGES), (TOOLSETS, toolsets_file())]:
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            click.echo(str(path.relative_to(root)))


def page(name: str) -> str:
    """Return the text of a page."""
    text = PAGES[name]().rstrip("\n") + "\n"
    return GENERATED_NOTE + text if name.endswith(".md") else text


# -- settings --------------------------------------------------------------------------------------


def settings_page() -> str:
    rows = [
        (code(name), _default(name), _range(name), _in_project(key), key.note)
        for name, key in settings.SETTING_RULES.items()
    ]
    return f"""\
# Settings

A value is looked for in this order: the call (a flag, an argument), the environment (`RETINUE_` and the name in upper
case), the project's `.retinue/config.toml` from the working directory up to the repository root, your
`~/.config/retinue/config.toml`, the default. `retinue doctor` shows every value with its source.

The defaults differ by *toolset*: `retinue run` and `retinue call` take those of `single`, `retinue delegate` those of
`fanout`, `retinue chain` those of `nested`. In a file a table of the toolset's name holds for it alone:

```toml
timeout = 1200

[single]
timeout = 300
```

A project's file may only lower a limit or change what is displayed. Everything else in it is ignored and named by
`retinue doctor`. Values out of range are clamped, values of a wrong type are ignored; both are named there, too.

{table(["setting", "default", "range", "in a project's file", "meaning"], rows)}
Settings of pi's subagent extensions (`~/.pi/agent/settings.json` and `.pi/settings.json`, key `subagents`;
`~/.pi/agent/extensions/devkit-pi/config.json`) are read as well, just below our own file of the same place.
{_unused_settings()}"""


def _unused_settings() -> str:
    names = ", ".join(code(name) for name in settings.SETTING_RULES if name in unused_settings())
    return f"\nAccepted and without effect: {names}.\n" if names else ""


def _default(name: str) -> str:
    general = _value(getattr(settings.Settings(), name))
    own = [f"{toolset} {_value(own[name])}" for toolset, own in TOOLSET_DEFAULTS.items() if name in own]
    return f"{general} ({', '.join(own)})" if own else general


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "–"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _range(name: str) -> str:
    key, kind = settings.SETTING_RULES[name], type(getattr(settings.Settings(), name))
    if key.choices:
        return ", ".join(map(code, key.choices))
    if kind not in (int, float):
        return type_text(kind) if kind is bool else "text"
    return f"{key.low:g} and more" if key.high == settings.SettingRule().high else f"{key.low:g} to {key.high:.0f}"


def _in_project(key: settings.SettingRule) -> str:
    return {
        settings.ProjectPolicy.LOWER: "may lower it",
        settings.ProjectPolicy.DISPLAY: "may set it",
        settings.ProjectPolicy.IGNORED: "ignored",
    }[key.in_project]


# -- agents ----------------------------------------------------------------------------------------


def agent_keys_page() -> str:
    unused = unused_agent_fields()
    rows = [
        (
            ", ".join(map(code, key.spellings)),
            VALUES_BY_KEY.get(key.spellings[0]) or VALUES[key.parse.__name__],
            "yes" if key.essential else "",
            KEYS[key.spellings[0]] + (f" {UNUSED}" if key.field in unused else ""),
        )
        for key in _FIELD_SPECS
    ]
    return f"""\
# Keys of an agent's file

Keys are compared without case, `_` and `-`: `fallback_models`, `fallbackModels` and `fallback-models` are one key.
Lists may be YAML lists or texts with commas. Of two keys with one meaning the first counts, and the second is
reported; deny lists add up.

*Must be readable*: the file is not used if the value cannot be read, because a restriction must not be guessed away.
Any other value that cannot be read is reported and its default used. Keys not in this table are ignored and named by
`retinue agents check`.

{table(["key", "value", "must be readable", "meaning"], rows)}
How to write an agent: [agents.md](../agents.md).
"""


# -- events ----------------------------------------------------------------------------------------


def events_page() -> str:
    return f"""\
# Events

One JSON object per line. First stand the keys of every event, then `type`, then the keys of that type. Keys whose
value is the default are left out, unless *always* says otherwise. The order of events and how to read them:
[events.md](../events.md). JSON schema of a line: [events.schema.json](events.schema.json).

## Every event

{fields_table(event_codec.EventSource)}
Before these stand `v` (the version of the format, {event_codec.VERSION}), `seq` and `time` (seconds since the epoch,
by the wall clock). `seq` rises with every event of a run. Live events are counted, too, so stored ones may have gaps.
Order is by `seq`, never by `time`.

## Durable events

Stored before anyone is shown them. Those marked *synced* are on the disk by then.

{_events(get_args(events.PersistedEvent))}
## Live events

Shown or counted while they happen, never stored.

{_events(get_args(events.EphemeralEvent))}"""


def events_schema() -> str:
    return msgspec.json.format(msgspec.json.encode(event_codec.event_schema(), order="sorted")).decode()


def _events(kinds: Iterable[Any]) -> str:
    return "\n".join(_event(kind) for kind in kinds)


def _event(kind: Any) -> str:
    mark = " (synced)" if kind in events.SYNCED_EVENTS else ""
    description = f"{class_description(kind)}\n\n" if class_description(kind) else ""
    keys = fields_table(kind) if structs.fields(kind) else "No keys of its own.\n"
    return f"### {kind.__struct_config__.tag}{mark}\n\n{description}{keys}"


# -- results and failures --------------------------------------------------------------------------


def results_page() -> str:
    kinds = (results.ExecutionReport, results.Attempt, errors.Failure, results.Usage, runs.Limits, runs.RemovedTool)
    parts = "\n".join(
        f"## {kind.__name__}\n\n{class_description(kind)}\n\n{fields_table(kind)}"
        for kind in (*kinds, results.Finalization, results.ProcessEnd)
    )
    return f"""\
# Values inside a result

What `retinue … --json` prints is described in [results.md](../results.md). These are the values within it, by the
names they have in JSON; in Python the names are in snake case. With `--json` every key is always there; in events and
files a key whose value is the default is left out, unless *always* says otherwise.

{parts}"""


def failures_page() -> str:
    rows = [
        (code(each), _status(each), code(ERROR_CODES.get(each, FAILED_CODE)), *_advice(each))
        for each in errors.ErrorCode
    ]
    return f"""\
# Failure codes

*Exit* is the exit code of `retinue run` when this is the failure; {REFUSED_EXIT_CODE} means that nothing ran. *In
`single`* is the code in the answer of the `subagent` tool.

{table(["code", "exit", "in `single`", "what happened", "what to do"], rows)}"""


def _status(code: errors.ErrorCode) -> str:
    if code in REFUSAL_CODES or FAILURES[code].refuses:
        return str(REFUSED_EXIT_CODE)
    return str(results.compute_exit_code(errors.Failure(code, "")))


def _advice(code: errors.ErrorCode) -> tuple[str, str]:
    reserved = f" {RESERVED}" if code in unreported_codes() else ""
    return FAILURES[code].happened + reserved, FAILURES[code].do


# -- benchmarks ------------------------------------------------------------------------------------


def benchmarks_page() -> str:
    return f"# Benchmarks\n\nWhat is measured and how: [performance.md](../performance.md).\n\n{_figures()}"


def _figures() -> str:
    if not COMMITTED.exists():
        return "No result has been committed yet. `make bench` measures on your machine and prints the table.\n"
    result = msgspec.json.decode(COMMITTED.read_bytes(), type=BenchmarkResult)
    rows = [(row.name, _figure(row, row.ours), _figure(row, row.floor), *_ratio(row)) for row in result.rows]
    return (
        f"The last committed result: Python {result.python}, {result.machine}, {result.cores} cores.\n\n"
        f"{table(['work', 'ours', 'floor', 'ratio', 'goal', 'met'], rows)}"
    )


def _figure(row: CaseResult, value: float) -> str:
    per = f"/{row.per}" if row.per else ""
    return f"{value:.2f} {row.unit}{per}"


def _ratio(row: CaseResult) -> tuple[str, str, str]:
    return f"{row.ratio:.2f}", f"{'≥' if row.is_rate else '≤'} {row.goal:g}", "yes" if row.met else "no"


PAGES: Mapping[str, Callable[[], str]] = {
    "agent-keys.md": agent_keys_page,
    "benchmarks.md": benchmarks_page,
    "cli.md": cli_page,
    "events.md": events_page,
    "events.schema.json": events_schema,
    "failures.md": failures_page,
    "results.md": results_page,
    "settings.md": settings_page,
}
"""Generators of the reference pages, by file name."""


if __name__ == "__main__":
    main()
