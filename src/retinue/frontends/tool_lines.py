"""A tool call told in a line or two: seed 003's condensed forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from retinue.frontends.wording import counted
from retinue.output.texts import first_line
from retinue.progress import Called
from retinue.tool_names import FINALIZE
from retinue.types import Args

DELEGATION = "delegate_to_subagents"
OTHER_ARGUMENTS = 120
"""Characters of the arguments of a tool that has no form of its own."""

_NOTICE = re.compile(r"(?:(?:\A|\n\n)\[[^\n]*\]|(?:\A|\n)\([^\n]*\))\s*\Z")
"""What tools add about their own result, such as that it was cut: ours and pi's in brackets below a blank line,
Claude Code's `Glob` in parentheses on the last line."""
_CUT = re.compile(r"limit reached|truncated|lines are shown|\bshowing \d+ of \d+", re.IGNORECASE)
_EMPTY = frozenset({"", "(empty directory)", "(empty)", "No files found matching pattern", "No files found"})


def call_line(name: str, args: Args) -> str:
    """The call in one line: `grep → /pattern/ → *.py`."""
    try:
        if name == DELEGATION:
            return f"{name} {_delegation(args)}"
        told = _CALLS.get(name, _any)(args)
    except (TypeError, ValueError, RecursionError):  # a model gives what it likes; no screen may break on it
        told = "(arguments that cannot be shown)"
    return f"{name} → {told}" if told else name


def result_line(called: Called) -> str | None:
    """What came of the call in a few words, where a number says it all; None otherwise."""
    if called.result is None or called.is_error or called.name not in _RESULTS:
        return None
    return _RESULTS[called.name](called.result)


def error_line(called: Called) -> str | None:
    """Why the call failed; None if it did not."""
    if not called.is_error:
        return None
    return first_line(called.result or "") or "failed"


# -- calls -----------------------------------------------------------------------------------------


def _read(args: Args) -> str:
    path, offset, limit = _text(args, "path", "file_path"), args.get("offset"), args.get("limit")
    if limit is not None:
        return f"{path}:{offset or 1}+{limit}"
    return f"{path}:{offset}" if offset is not None else path


def _grep(args: Args) -> str:
    where = _text(args, "glob") or _place(args)
    return f"/{_text(args, 'pattern')}/" + (f" → {where}" if where else "")


def _find(args: Args) -> str:
    where = _place(args)
    return _text(args, "pattern") + (f" in {where}" if where else "")


def _ls(args: Args) -> str:
    return _text(args, "path") or "."


def _bash(args: Args) -> str:
    return first_line(_text(args, "command"))


def _edit(args: Args) -> str:
    edits = args.get("edits")
    changes = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [args]
    added = sum(_lines(_text(edit, "newText", "new_string")) for edit in changes)
    removed = sum(_lines(_text(edit, "oldText", "old_string")) for edit in changes)
    count = f" ({len(changes)} edits)" if len(changes) > 1 else ""
    return f"{_text(args, 'path', 'file_path')}{count}" + (f" +{added}/-{removed}" if added or removed else "")


def _write(args: Args) -> str:
    lines = _lines(_text(args, "content"))
    return _text(args, "path", "file_path") + (f" +{lines}" if lines else "")


def _delegated(args: Args) -> str:
    task = first_line(_text(args, "task"))
    return ": ".join(filter(None, (_text(args, "agent"), task)))


def _spawned(args: Args) -> str:
    """`explorer: Where is it?`, or `parallel: explorer, reviewer`."""
    tasks = args.get("tasks")
    if not isinstance(tasks, list):
        return _delegated(args)
    agents = ", ".join(_text(task, "agent") for task in tasks if isinstance(task, dict))
    return ": ".join(filter(None, (_text(args, "mode"), agents)))


def _delegation(args: Args) -> str:
    """`3 sub-agents (default profile: researcher) profiles: [writer, researcher]`, as seed 003 draws this call."""
    tasks = args.get("tasks")
    given = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    default = _text(args, "profile")
    profiles = dict.fromkeys(name for task in given if (name := _text(task, "profile")))
    told = counted(len(given), "sub-agent")
    told += f" (default profile: {default})" if default else ""
    return told + (f" profiles: [{', '.join(profiles)}]" if profiles else "")


def _finalized(args: Args) -> str:
    """`SUCCESS: It is in src/bus.py.`."""
    answer = first_line(
        _text(args, "result") if _text(args, "status") == "SUCCESS" else _text(args, "error", "result")
    )
    return ": ".join(filter(None, (_text(args, "status"), answer)))


def _written_todos(args: Args) -> str:
    todos = args.get("todos")
    return f"{counted(len(todos), 'todo')} written" if isinstance(todos, list) else ""


def _edited_todos(args: Args) -> str:
    indices = args.get("indices")
    which = f" [{', '.join(map(str, indices))}]" if isinstance(indices, list) else ""
    return f"{_text(args, 'action')}{which}"


def _any(args: Args) -> str:
    told = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr) if args else ""
    return told[:OTHER_ARGUMENTS]


_CALLS: Mapping[str, Callable[[Args], str]] = {
    "read": _read,
    "grep": _grep,
    "find": _find,
    "ls": _ls,
    "bash": _bash,
    "edit": _edit,
    "write": _write,
    "web_search": lambda args: _text(args, "query"),
    "fetch_content": lambda args: _text(args, "url"),
    "subagent": _delegated,
    "spawn_subagent": _spawned,
    "get_subagent_output": lambda args: _text(args, "sessionId"),
    "get_subagent_session": lambda args: _text(args, "sessionId"),
    FINALIZE: _finalized,
    "write_todos": _written_todos,
    "edit_todos": _edited_todos,
}


def _place(args: Args) -> str:
    """Where a search was made, unless that is the working directory."""
    path = _text(args, "path")
    return "" if path in {".", "./"} else path


def _text(args: Mapping[str, Any], *names: str) -> str:
    """The first of these arguments that is there; models give other things than text, too."""
    return next((str(args[name]) for name in names if args.get(name) is not None), "")


def _lines(text: str) -> int:
    return len(text.splitlines())


# -- results ---------------------------------------------------------------------------------------


def _listed(result: str) -> str:
    entries, more = _entries(result)
    folders = sum(entry.endswith("/") for entry in entries)
    files = len(entries) - folders
    counts = [counted(files, "file") if files else "", counted(folders, "dir") if folders else ""]
    return (", ".join(filter(None, counts)) or "(empty)") + more


def _matched(result: str) -> str:
    entries, more = _entries(result)
    return counted(len(entries), "match", "matches") + more


def _entries(result: str) -> tuple[list[str], str]:
    """The lines of a listing, and `+` if there would be more."""
    notice = _NOTICE.search(result)
    is_cut = bool(notice and _CUT.search(notice[0]))
    # A file may be called `(draft)`: in parentheses stands a notice only if it says that the result was cut.
    if notice and (is_cut or notice[0].lstrip().startswith("[")):
        result = result[: notice.start()]
    body = result.strip("\n")
    return [] if body in _EMPTY else body.split("\n"), "+" if is_cut else ""


_RESULTS: Mapping[str, Callable[[str], str]] = {"ls": _listed, "find": _matched}
