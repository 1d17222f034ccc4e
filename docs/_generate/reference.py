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
from docs._generate.reliability import PAGES as PAGES_WITH_BLOCKS
from docs._generate.reliability import faults_page, fill_blocks
from docs._generate.tables import class_description, code, fields_table, table, type_text
from docs._generate.texts import FAILURES, KEYS, RESERVED, UNUSED, VALUES, VALUES_BY_KEY
from docs._generate.usage import unreported_codes, unused_agent_fields, unused_settings
from msgspec import structs

# The alias table is private to the agents; only its documentation reads it.
from retinue.agents.fields import _FIELD_SPECS
from retinue.composition import TOOLSET_DEFAULTS
from retinue.config import settings
from retinue.model import errors, event_codec, events, results, runs
from retinue.model.results import REFUSAL_CODES, REFUSED_EXIT_CODE
from retinue.output.redaction.patterns import SECRET_PATTERNS
from retinue.output.redaction.tokens import SecretPattern
from retinue.toolsets.single import ERROR_CODES, FAILED_CODE

FOLDER = Path(__file__).parents[1] / "reference"
GENERATED_NOTE = "<!-- Made by `make docs`: change the code, not this page. -->\n\n"


def main() -> None:
    root = FOLDER.parents[1]
    made = [(FOLDER / name, page(name)) for name in PAGES]
    made += [(path, fill_blocks(path.read_text("utf-8"))) for path in PAGES_WITH_BLOCKS]
    for path, text in [*made, (TOOLSETS, toolsets_file())]:
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

This page lists all settings. The first of these sources that has a value is used: the call (an option or
argument), the environment (`RETINUE_` and the name in upper case), the project's `.retinue/config.toml` from the
working directory up to the repository root, your `~/.config/retinue/config.toml`, the default. `retinue doctor
--all` shows every value with its source; `retinue config set` changes your file.

Defaults differ by *toolset*: `retinue run` and `retinue call` use those of `single`, `retinue delegate` those of
`fanout`, `retinue chain` those of `nested`. In a file, a table with the name of a toolset applies only to it:

```toml
timeout = 1200

[single]
timeout = 300
```

A project's file may only lower limits or change the display; its other settings are ignored. Values out of range are
clamped, values of a wrong type are ignored. `retinue doctor` reports all of these. Of your own settings, a value of
`enabled`, `isolation`, `allow_write`, `project_agents` or of a budget that cannot be read stops all runs.

{table(["setting", "default", "range", "in a project's file", "meaning"], rows)}
Settings of pi's subagent extensions (`~/.pi/agent/settings.json` and `.pi/settings.json`, key `subagents`;
`~/.pi/agent/extensions/devkit-pi/config.json`) are read, too. Retinue's own file in the same place has
precedence.
{_unused_settings()}"""


def _unused_settings() -> str:
    names = ", ".join(code(name) for name in settings.SETTING_RULES if name in unused_settings())
    return f"\nThese are accepted and have no effect: {names}.\n" if names else ""


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
# Keys of an agent file

This page lists the keys of an agent file's header. Case, `_` and `-` do not matter: `fallback_models`,
`fallbackModels` and `fallback-models` are the same key. Lists may be YAML lists or text with commas. If two keys
have the same meaning, the first is used and the second is reported; deny lists are added together.

*Required to be valid*: if the value is invalid, the file is not used, because the key restricts the agent. Other
invalid values are reported, and the default is used. `retinue agents check` reports unknown keys, which are
ignored.

{table(["key", "value", "required to be valid", "meaning"], rows)}
How to write an agent: [agents](../agents.md).
"""


# -- events ----------------------------------------------------------------------------------------


def events_page() -> str:
    return f"""\
# Events

This page lists all events and their keys. An event is one JSON object per line: the keys of every event, then
`type`, then the keys of that type. Keys with their default value are omitted, except those marked *always
present*. The order of events and how to read them: [events](../events.md). JSON schema of a line:
[events.schema.json](events.schema.json).

## Every event

{fields_table(event_codec.EventSource)}
Before these keys come `v` (the version of the format, {event_codec.VERSION}), `seq` and `time` (seconds since the
epoch, by the wall clock). `seq` increases with every event of a run. Live events are numbered, too, so stored
events may have gaps. Order is by `seq`, not by `time`.

## Durable events

Stored before subscribers receive them. Those marked *synced* are on the disk by then.

{_events(get_args(events.PersistedEvent))}
## Live events

Sent while they happen, never stored.

{_events(get_args(events.EphemeralEvent))}"""


def events_schema() -> str:
    return msgspec.json.format(msgspec.json.encode(event_codec.event_schema(), order="sorted")).decode()


def _events(kinds: Iterable[Any]) -> str:
    return "\n".join(_event(kind) for kind in kinds)


def _event(kind: Any) -> str:
    mark = " (synced)" if kind in events.SYNCED_EVENTS else ""
    description = f"{class_description(kind)}\n\n" if class_description(kind) else ""
    keys = fields_table(kind) if structs.fields(kind) else "No further keys.\n"
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

This page lists the values inside a result, by their names in JSON; in Python the names are in snake case. The
result itself is described in [results](../results.md). With `--json` every key is present; in events and files,
keys with
their default value are omitted, except those marked *always present*.

{parts}"""


def failures_page() -> str:
    rows = [
        (code(each), _status(each), code(ERROR_CODES.get(each, FAILED_CODE)), *_advice(each))
        for each in errors.ErrorCode
    ]
    return f"""\
# Failure codes

This page lists the codes of `failure.code` and what to do. *Exit code* is that of `retinue run`;
{REFUSED_EXIT_CODE} means that nothing ran. *Code in `single`* is the code in the answer of the `subagent` tool.

{table(["code", "exit code", "code in `single`", "what happened", "what to do"], rows)}"""


def _status(code: errors.ErrorCode) -> str:
    if code in REFUSAL_CODES or FAILURES[code].refuses:
        return str(REFUSED_EXIT_CODE)
    return str(results.compute_exit_code(errors.Failure(code, "")))


def _advice(code: errors.ErrorCode) -> tuple[str, str]:
    reserved = f" {RESERVED}" if code in unreported_codes() else ""
    return FAILURES[code].happened + reserved, FAILURES[code].do


# -- benchmarks ------------------------------------------------------------------------------------


def benchmarks_page() -> str:
    return (
        "# Benchmarks\n\nThis page has the last committed figures. What is measured, and how: "
        f"[performance](../performance.md).\n\n{_figures()}"
    )


def _figures() -> str:
    if not COMMITTED.exists():
        return "No result has been committed yet. `make bench` measures on your machine and prints the table.\n"
    result = msgspec.json.decode(COMMITTED.read_bytes(), type=BenchmarkResult)
    rows = [(row.name, _figure(row, row.ours), _figure(row, row.floor), *_ratio(row)) for row in result.rows]
    return (
        f"Python {result.python}, {result.machine}, {result.cores} cores.\n\n"
        f"{table(['work', 'ours', 'floor', 'ratio', 'goal', 'met'], rows)}"
    )


def _figure(row: CaseResult, value: float) -> str:
    per = f"/{row.per}" if row.per else ""
    return f"{value:.2f} {row.unit}{per}"


def _ratio(row: CaseResult) -> tuple[str, str, str]:
    return f"{row.ratio:.2f}", f"{'≥' if row.is_rate else '≤'} {row.goal:g}", "yes" if row.met else "no"


# -- secrets ---------------------------------------------------------------------------------------


def secrets_page() -> str:
    marks: dict[str, str] = {row.name: row.mark for row in SECRET_PATTERNS}
    tokens = {row.name: code(row.mark) for row in SECRET_PATTERNS if _is_token(row)}
    named = [name for name in marks if name not in tokens]
    return f"""\
# Secrets

This page lists the {len(marks)} kinds of secrets that [redaction](../results.md#redaction) recognizes by their form.
The exact values of secret environment variables and provider keys are redacted as well, also in base64 and URL
encoding.

## Secrets that the text around them reveals

They become `[REDACTED]`, or the marker in the second column.

{table(["secret", "marker"], [(name, code(marks[name])) for name in named])}
## Tokens that identify themselves

{table(["token", "marker"], sorted(tokens.items(), key=lambda row: row[0].lower()))}"""


def _is_token(row: SecretPattern) -> bool:
    return bool(row.prefix or row.shape) or row.name == "Azure client secret"


PAGES: Mapping[str, Callable[[], str]] = {
    "secrets.md": secrets_page,
    "agent-keys.md": agent_keys_page,
    "benchmarks.md": benchmarks_page,
    "cli.md": cli_page,
    "events.md": events_page,
    "events.schema.json": events_schema,
    "failures.md": failures_page,
    "faults.md": faults_page,
    "results.md": results_page,
    "settings.md": settings_page,
}
"""Generators of the reference pages, by file name."""


if __name__ == "__main__":
    main()
