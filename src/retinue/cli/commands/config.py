"""`retinue config`: show and change settings in the user's file, and display settings in a project's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from retinue.cli.group import CommandGroup
from retinue.cli.json_output import to_json
from retinue.cli.options import InvalidInputError, for_users_only, json_option
from retinue.cli.printing import help_examples, print_hint, print_json, print_lines, print_warning
from retinue.cli.run_output import format_setting_problem
from retinue.client import Retinue
from retinue.composition import TOOLSET_DEFAULTS
from retinue.config.directories import config_folder
from retinue.config.settings import SETTING_RULES, ProjectPolicy, SettingsLayer, resolve_settings
from retinue.hosts.changes import ConfigChange, apply_change, read_config
from retinue.hosts.config_editors import UnsupportedConfigError, set_toml_values
from retinue.output.untrusted_text import to_one_line
from retinue.support.formatting import unknown_name_message

TOOLSET = "single"
"""The toolset whose values are shown."""
MAX_VALUE_CHARS = 500

_project_option = click.option("--project", is_flag=True, help="Use the file of this directory's project.")


@click.group(
    cls=CommandGroup,
    similar={"list": "get", "ls": "get", "open": "edit", "show": "get"},
    epilog=help_examples(
        "retinue config path",
        "retinue config get timeout",
        "retinue config set model anthropic/claude-sonnet-5-5",
        "retinue config edit",
    ),
)
def config() -> None:
    """Show and change your settings.

    Your settings are in ~/.config/retinue/config.toml. `retinue doctor --all` shows every setting with its source.
    """


@config.command(epilog=help_examples("retinue config path", "retinue config path --project"))
@_project_option
def path(project: bool) -> None:
    """Print the path of your settings file."""
    print_lines([str(_settings_file(project=project))])


@config.command(epilog=help_examples("retinue config get timeout", "retinue config get --json"))
@click.argument("name", required=False)
@json_option
def get(name: str | None, as_json: bool) -> None:
    """Print the value of a setting, or all settings with their values.

    The value is the one that applies here for `retinue run`; its source is printed on stderr.
    """
    sources = Retinue().settings(TOOLSET).sources
    if name is None:
        if as_json:
            print_json({key: to_json(found.value) for key, found in sources.items()})
        else:
            print_lines(f"{key} = {_format_value(found.value)}" for key, found in sources.items())
        return
    found = sources[_find_setting(name)]
    if as_json:
        print_json({"name": name, "value": to_json(found.value), "source": found.source})
    else:
        print_lines([_format_value(found.value)])
        print_hint(f"from {found.source}")


@config.command("set", epilog=help_examples("retinue config set timeout 600", "retinue config set engine api"))
@click.argument("name")
@click.argument("value")
@_project_option
@for_users_only
def set_value(name: str, value: str, project: bool) -> None:
    """Write a setting into your settings file.

    Comments and other settings are not changed. With --project only display settings can be written, because a
    project's file cannot change other settings.
    """
    rule = SETTING_RULES[_find_setting(name)]
    if project and rule.in_project is not ProjectPolicy.DISPLAY:
        allowed = ", ".join(key for key, each in SETTING_RULES.items() if each.in_project is ProjectPolicy.DISPLAY)
        raise InvalidInputError(f"{name} is not a display setting: a project's file can contain {allowed}.")
    file, before = _read_settings(_settings_file(project=project))
    try:
        after = set_toml_values(before or "", {name: _parse_value(name, value)})
        apply_change(ConfigChange(file=file, before=before, after=after, keeps_backup=False))
    except UnsupportedConfigError as error:
        raise InvalidInputError(f"{file} was not changed: {error}. `retinue config edit` opens the file.") from error
    print_hint(f"{name} = {_format_value(_parse_value(name, value))} is written to {file}")
    applied = Retinue().settings(TOOLSET).sources[name]
    if applied.source != str(file):
        print_warning(f"It has no effect here: {name} = {_format_value(applied.value)} from {applied.source}.")


@config.command(
    epilog=help_examples(
        "retinue config edit",
        "EDITOR=nano retinue config edit",
        then="Exit codes: 0 the file is valid, 1 some settings are ignored.",
    )
)
@_project_option
@click.pass_context
@for_users_only
def edit(ctx: click.Context, project: bool) -> None:
    """Open your settings file in your editor, then check the file.

    The editor is $VISUAL or $EDITOR.
    """
    file = _settings_file(project=project)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    click.edit(filename=str(file))
    problems = [each for each in Retinue().settings(TOOLSET).problems if each.source == str(file)]
    for problem in problems:
        print_warning(format_setting_problem(problem))
    ctx.exit(1 if problems else 0)


def _settings_file(*, project: bool) -> Path:
    folder = Path.cwd() / ".retinue" if project else config_folder(os.environ)
    return folder / "config.toml"


def _read_settings(file: Path) -> tuple[Path, str | None]:
    """Return the file behind links, and its text; None if there is no file.

    Raises:
        InvalidInputError: it cannot be read.
    """
    try:
        return read_config(file)
    except UnsupportedConfigError as error:
        raise InvalidInputError(f"{file} was not changed: {error}.") from error


def _find_setting(name: str) -> str:
    """Return the name of a setting.

    Raises:
        InvalidInputError: there is none of this name.
    """
    if name not in SETTING_RULES:
        message = unknown_name_message("setting", name, tuple(SETTING_RULES))
        raise InvalidInputError(message if message.endswith("?") else f"{message}.")
    return name


def _parse_value(name: str, value: str) -> Any:
    """Return the value in the type of the setting.

    Raises:
        InvalidInputError: the setting cannot have it.
    """
    found = resolve_settings(TOOLSET, [SettingsLayer(name="call", values={name: value})], TOOLSET_DEFAULTS)
    for problem in found.problems:
        raise InvalidInputError(f"{problem.message.replace(' ignored', '', 1)}. Nothing was written.")
    parsed = found.sources[name].value
    return list(parsed) if isinstance(parsed, tuple) else parsed


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return to_one_line(", ".join(value), MAX_VALUE_CHARS)
    return (
        ""
        if value is None
        else to_one_line(f"{value:g}" if isinstance(value, float) else str(value), MAX_VALUE_CHARS)
    )
