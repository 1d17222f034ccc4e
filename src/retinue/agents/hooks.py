"""Parse the `hooks` of an agent file, in Claude Code's form, and find the files that their commands name.

hooks:
PreToolUse:
- matcher: Bash
hooks:
- {type: command, command: ./check.sh, timeout: 10}
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from retinue.agents.parse import HeaderValue
from retinue.model.hooks import COMMAND_KIND, DEFAULT_HOOK_TIMEOUT, MAX_HOOK_TIMEOUT, Hook, HookEvent

EVENTS: Mapping[str, HookEvent] = {
    "PreToolUse": "PreToolUse",
    "SubagentStart": "SubagentStart",
    "SubagentStop": "SubagentStop",
    # In the file of an agent, Claude Code takes the end of the agent for its stop.
    "Stop": "SubagentStop",
}
"""Events whose hooks are run, by their names in files."""
UNUSED_EVENTS = frozenset({
    "ConfigChange", "CwdChanged", "Elicitation", "ElicitationResult", "FileChanged", "InstructionsLoaded",
    "Notification", "PermissionDenied", "PermissionRequest", "PostCompact", "PostToolBatch", "PostToolUse",
    "PostToolUseFailure", "PreCompact", "SessionEnd", "SessionStart", "Setup", "StopFailure", "TaskCompleted",
    "TaskCreated", "TeammateIdle", "UserPromptExpansion", "UserPromptSubmit", "WorktreeCreate", "WorktreeRemove",
})  # fmt: skip
"""Other events of Claude Code. None of them decides about a tool call of a run that asks nobody."""
HANDLED_KEYS = frozenset({"type", "command", "timeout", "statusMessage", "description", "once"})
MAX_HOOKS = 32
MAX_COMMAND_CHARS = 16_384
PROJECT_VARIABLE = "CLAUDE_PROJECT_DIR"
"""The variable by which commands name the project, as in Claude Code."""
_find_project_variable = re.compile(rf"\$(?:{PROJECT_VARIABLE}\b|\{{{PROJECT_VARIABLE}\}})").sub


class HookFormatError(ValueError):
    """The value is not in the form of hooks; the message is what was expected."""


def parse_hooks(value: HeaderValue) -> tuple[Hook, ...]:
    """Return the hooks of the events that are run here, in their order.

    Raises:
        HookFormatError: an event is unknown, or the form is another.
    """
    if value == "":
        return ()
    if not isinstance(value, Mapping):
        raise HookFormatError("a mapping of events to hooks")
    if unknown := [name for name in value if name not in EVENTS and name not in UNUSED_EVENTS]:
        raise HookFormatError(f"known: there is no event {unknown[0][:40]!a} (events: {', '.join(EVENTS)})")
    hooks = tuple(
        hook
        for name, groups in value.items()
        if name in EVENTS
        for group in _list_items(groups, name)
        for hook in _parse_group(EVENTS[name], group)
    )
    if len(hooks) > MAX_HOOKS:
        raise HookFormatError(f"at most {MAX_HOOKS} hooks")
    return hooks


def list_unused(value: HeaderValue) -> list[str]:
    """Return the events of a valid value whose hooks are not run."""
    return [name for name in value if name in UNUSED_EVENTS] if isinstance(value, Mapping) else []


def _list_items(value: HeaderValue, name: str) -> tuple[Mapping[str, HeaderValue], ...]:
    items = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, Mapping) for item in items):
        raise HookFormatError(f"a list of mappings below {name}")
    return tuple(item for item in items if isinstance(item, Mapping))


def _parse_group(event: HookEvent, group: Mapping[str, HeaderValue]) -> Iterator[Hook]:
    matcher = group.get("matcher", "")
    if not isinstance(matcher, str):
        raise HookFormatError("one text as matcher")
    pattern = "" if matcher.strip() in {"", "*"} else str(matcher).strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise HookFormatError(f"a regular expression as matcher ({error})") from None
    if unknown := group.keys() - {"matcher", "hooks", "description"}:
        raise HookFormatError(f"without {min(unknown)[:40]!a}, which is not supported")
    for entry in _list_items(group.get("hooks", ()), "hooks"):
        yield _parse_hook(event, pattern, entry)


def _parse_hook(event: HookEvent, matcher: str, entry: Mapping[str, HeaderValue]) -> Hook:
    kind, command = entry.get("type", COMMAND_KIND), entry.get("command", "")
    if not isinstance(kind, str) or not isinstance(command, str) or (kind == COMMAND_KIND and not command.strip()):
        raise HookFormatError("a command in each hook")
    if len(command) > MAX_COMMAND_CHARS:
        raise HookFormatError(f"commands of at most {MAX_COMMAND_CHARS} characters")
    unsupported = sorted(entry.keys() - HANDLED_KEYS) if kind == COMMAND_KIND else []
    return Hook(
        event=event,
        command=str(command),
        matcher=matcher,
        timeout=_parse_timeout(entry.get("timeout")),
        kind=f"{COMMAND_KIND} with {unsupported[0]}" if unsupported else str(kind),
    )


def _parse_timeout(value: HeaderValue | None) -> float:
    if value is None:
        return DEFAULT_HOOK_TIMEOUT
    try:
        seconds = float(value) if isinstance(value, str) else 0.0
    except ValueError:
        seconds = 0.0
    if not seconds > 0:  # false for NaN, too
        raise HookFormatError("a timeout above 0 seconds")
    return min(seconds, MAX_HOOK_TIMEOUT)


def list_command_files(hooks: tuple[Hook, ...], folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the existing files that the commands name, relative to any of the folders or absolute within one."""
    found = (path for folder in folders for hook in hooks for path in _list_named_paths(hook.command, folder))
    return tuple(dict.fromkeys(path for path in found if os.path.isfile(path)))  # noqa: PTH113 - odd names do not raise


def _list_named_paths(command: str, folder: Path) -> Iterator[str]:
    for word in _split_words(_find_project_variable(lambda _: str(folder), command)):
        if (path := folder / word).is_relative_to(folder):
            yield os.path.normpath(path)


def _split_words(command: str) -> list[str]:
    """Return the words of a command, those within quoted scripts, too."""
    words: list[str] = []
    for text in (command, command.replace("'", " ").replace('"', " ")):
        try:
            words += shlex.split(text.replace(";", " ").replace("&", " ").replace("|", " "), comments=False)
        except ValueError:
            words += text.split()
    return [word.lstrip("<>") for word in words if word and "\0" not in word]
