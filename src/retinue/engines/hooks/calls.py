"""Tool calls as hooks see them: in Claude Code's names of tools and arguments, and back.

What a hook sees is what is executed: paths are made absolute first, as the tools themselves would resolve them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from retinue.model.runs import ToolArguments, ToolUse
from retinue.model.tool_names import is_delegation, to_claude_name

_KEYS: Mapping[str, Mapping[str, str]] = {
    "read": {"path": "file_path"},
    "write": {"path": "file_path"},
    "edit": {"path": "file_path", "oldText": "old_string", "newText": "new_string"},
    "grep": {"ignoreCase": "-i", "context": "-C", "limit": "head_limit"},
    "spawn_subagent": {"agent": "subagent_type", "task": "prompt"},
}
"""Claude's names of the arguments that have others here, by tool."""
_KNOWN_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "bash": frozenset({"command", "timeout"}),
    "edit": frozenset({"path", "oldText", "newText"}),
}
"""Arguments of tools that have more of them in Claude Code."""
PATH_TOOLS = frozenset({"read", "write", "edit", "grep", "find", "ls"})
DELEGATION_NAMES = ("Agent", "Task")
"""Claude Code's names of its delegation tool: the present one, and that of most hooks."""
_EDITS = "edits"
"""The argument of pi's `edit` with several replacements."""
_replace_spaces = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]").sub


class ClaudeCall(Struct, frozen=True, kw_only=True):
    """One call as a hook sees it."""

    names: tuple[str, ...]
    """The names by which hooks may know the tool; the first is used unless only another one is matched."""
    input: dict[str, Any]


def resolve_paths(use: ToolUse, cwd: str) -> ToolArguments:
    """Return the arguments with an absolute path, where the tool takes one."""
    path = use.args.get("path")
    if use.name not in PATH_TOOLS or not isinstance(path, str) or not path:
        return use.args
    # As pi and our own tools read a path.
    plain = _replace_spaces(" ", path.removeprefix("@"))
    named = os.path.expanduser(plain) if plain.startswith("~") else plain  # noqa: PTH111 - texts, as arguments are
    return {**use.args, "path": os.path.normpath(os.path.join(cwd, named))}  # noqa: PTH118


def to_claude_calls(tool: str, args: ToolArguments) -> tuple[ClaudeCall, ...]:
    """Return a call in Claude's form; an `edit` with several replacements is as many calls of `Edit`."""
    names = list_names(tool)
    edits = args.get(_EDITS)
    if tool == "edit" and isinstance(edits, list) and edits:
        shared = {name: value for name, value in args.items() if name != _EDITS}
        parts = [{**shared, **edit} if isinstance(edit, dict) else shared for edit in edits]
        return tuple(ClaudeCall(names=names, input=_rename(part, _KEYS["edit"])) for part in parts)
    return (ClaudeCall(names=names, input=_to_claude_input(tool, args)),)


def with_input(tool: str, args: ToolArguments, index: int, given: Mapping[str, Any]) -> ToolArguments:
    """Return the arguments of a call after a hook gave one of its Claude calls another input."""
    back = {claude: own for own, claude in _KEYS.get(tool, {}).items()}
    changed = _rename(given, back)
    edits = args.get(_EDITS)
    if tool == "edit" and isinstance(edits, list) and edits:
        kept = [*edits]
        kept[index] = {name: changed[name] for name in ("oldText", "newText") if name in changed}
        return {**args, "path": changed.get("path", args.get("path")), _EDITS: kept}
    known = _KNOWN_ARGUMENTS.get(tool, changed.keys())
    changed = {name: value for name, value in changed.items() if name in known}
    if tool == "bash" and isinstance(milliseconds := changed.get("timeout"), int | float):
        changed["timeout"] = milliseconds / 1000
    return changed


def list_names(tool: str) -> tuple[str, ...]:
    """Return the names by which hooks may know a tool."""
    return (*DELEGATION_NAMES, tool) if is_delegation(tool) else (to_claude_name(tool),)


def _to_claude_input(tool: str, args: ToolArguments) -> dict[str, Any]:
    found = _rename(args, _KEYS.get(tool, {}))
    if tool == "bash" and isinstance(seconds := found.get("timeout"), int | float):
        found["timeout"] = round(seconds * 1000)
    return found


def _rename(args: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    return {keys.get(name, name): value for name, value in args.items()}
