"""Names of tools: pi's are ours, Claude's are mapped to them and back by one table.

A name may carry an argument pattern, `Bash(git:*)`: the tool, but only for some arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

SPAWN_TOOL = "spawn_subagent"
"""Gives an agent a task; runs have it, and so have clients."""

DELEGATION_TOOL_NAMES = frozenset(
    {
        "subagent",
        "delegate_to_subagents",
        "get_subagent_output",
        "get_subagent_session",
        "list_subagent_profiles",
        SPAWN_TOOL,
        "agent_info",
    }
)
"""Tools that start or look into other runs; Claude's `Task` and `Agent` are `subagent` here."""

FINALIZE_TOOL = "subagent_finalize"
"""Ends a run; granted by its caller, never inherited."""

HOUSEKEEPING_TOOLS = frozenset({
    "askuserquestion", "bashoutput", "enterplanmode", "exitplanmode", "killbash", "killshell", "listmcpresourcestool",
    "notebookread", "readmcpresourcetool", "skill", "slashcommand", "taskoutput", "taskstop", "todoread", "todowrite",
    "activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode", "question", "save_memory", "todo",
    "write_todos",
})  # fmt: skip
"""Helper tools of Claude Code, Gemini CLI, Copilot and opencode, in lower case."""

_OTHER_KNOWN_TOOLS = frozenset({FINALIZE_TOOL, "notebookedit"})
"""Tools of other hosts that have no counterpart here, in lower case."""

_CLAUDE_NAMES = {
    "Read": "read",
    "Write": "write",
    "Edit": "edit",
    "Bash": "bash",
    "Grep": "grep",
    "Glob": "find",
    "LS": "ls",
    "WebSearch": "web_search",
    "WebFetch": "fetch_content",
    "Task": "subagent",
    "MultiEdit": "edit",
    "Agent": "subagent",
}
_OTHER_NAMES = {
    "read_file": "read",
    "read_many_files": "read",
    "write_file": "write",
    "replace": "edit",
    "apply_patch": "edit",
    "patch": "edit",
    "run_shell_command": "bash",
    "shell": "bash",
    "grep_search": "grep",
    "search_file_content": "grep",
    "list_directory": "ls",
    "list": "ls",
    "web_fetch": "fetch_content",
    "google_web_search": "web_search",
}
"""Names in Gemini CLI, Codex and opencode that are not those of Claude in another case."""
MCP_PREFIX = "mcp__"
"""Start of the names of tools that belong to an MCP server: `mcp__server__tool`."""
MAX_LABEL_CHARS = 32
"""Characters of a server's name in the names of its tools."""
HASH_DIGITS = 6
_PI_MCP_PREFIX = "mcp:"
"""The same in agents of pi extensions: `mcp:server/tool`, `mcp:server`."""
_PI_ONLY_TOOLS = ("get_search_content", "convert_content", "lsp")
_TO_PI = (
    {claude.lower(): pi for claude, pi in _CLAUDE_NAMES.items()}
    | _OTHER_NAMES
    | {pi: pi for pi in (*_CLAUDE_NAMES.values(), *_PI_ONLY_TOOLS)}
)
# Several Claude names may map to one pi name: the first is used for the way back.
_TO_CLAUDE = {pi: claude for claude, pi in reversed(_CLAUDE_NAMES.items())}


def to_pi_name(name: str) -> str:
    """Return pi's name of a tool; names outside the table unchanged."""
    tool, pattern = split_pattern(name)
    known = _TO_PI.get(tool.lower(), tool)
    if known.startswith(_PI_MCP_PREFIX):
        known = MCP_PREFIX + "__".join(part for part in known.removeprefix(_PI_MCP_PREFIX).split("/", 1) if part)
    return f"{known}({pattern})" if pattern is not None else known


def to_claude_name(name: str) -> str:
    """Return Claude's name of a tool; names outside the table unchanged."""
    tool, pattern = split_pattern(name)
    known = _TO_CLAUDE.get(tool, tool)
    return f"{known}({pattern})" if pattern is not None else known


def to_pi_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return pi's names of tools, each once, in their order."""
    return tuple(dict.fromkeys(to_pi_name(name) for name in names))


def is_known(name: str) -> bool:
    """Return whether a tool of this name exists: here, in Claude, or behind a server (`mcp__…`)."""
    tool = split_pattern(name)[0].lower()
    return (
        tool in _TO_PI
        or tool in DELEGATION_TOOL_NAMES | HOUSEKEEPING_TOOLS | _OTHER_KNOWN_TOOLS
        or tool.startswith((MCP_PREFIX, _PI_MCP_PREFIX))
    )


def find_nearest(name: str) -> str | None:
    """Return the tool with the most similar name, in pi's names; None if none is similar."""
    from difflib import get_close_matches

    alike = get_close_matches(split_pattern(name)[0].lower(), _TO_PI, n=1)
    return _TO_PI[alike[0]] if alike else None


@lru_cache(maxsize=512)
def split_pattern(name: str) -> tuple[str, str | None]:
    """Return the tool and its argument pattern: `Bash(git:*)` → `Bash`, `git:*`."""
    tool, parenthesis, rest = name.partition("(")
    return (tool.strip(), rest.removesuffix(")")) if parenthesis else (name.strip(), None)


def is_pattern(name: str) -> bool:
    """Return whether the name covers only some calls, or several tools: `Bash(git:*)`, `mcp__github__*`."""
    return "(" in name or "*" in name


@lru_cache(maxsize=512)
def is_delegation(name: str) -> bool:
    return split_pattern(to_pi_name(name))[0] in DELEGATION_TOOL_NAMES


def is_covered(name: str, by: Iterable[str]) -> bool:
    """Return whether one of these names covers `name`, all in pi's names.

    `bash` covers `bash(git:*)`; `mcp__github` and `mcp__*` cover `mcp__github__search`; `bash(git:*)` covers only
    itself.
    """
    if (wanted := split_mcp_name(name)) is not None:
        return any(_covers_mcp_tool(other, wanted) for other in by)
    tool, whole = split_pattern(name)[0].lower(), name.lower()
    return any(other == whole or ("(" not in other and fnmatchcase(tool, other)) for other in map(str.lower, by))


@lru_cache(maxsize=512)
def split_mcp_name(name: str) -> tuple[str, str] | None:
    """Return the server and the tool of `mcp__server__tool`, `*` for all of its tools; None for any other name.

    Both are folded, since programs spell the same name with `-` or `_`.
    """
    if not name.lower().startswith(MCP_PREFIX):
        return None
    server, _, tool = name[len(MCP_PREFIX) :].partition("__")
    return _fold_mcp_name(server), _fold_mcp_name(tool) or "*"


def is_mcp_tool(name: str) -> bool:
    """Return whether a name is that of a tool of an MCP server, or of all its tools."""
    return split_mcp_name(name) is not None


def is_on_server(name: str, label: str) -> bool:
    """Return whether a name is that of a tool, or of all tools, of the MCP server of this label."""
    parts = split_mcp_name(name)
    return parts is not None and fnmatchcase(_fold_mcp_name(label), parts[0])


def _fold_mcp_name(name: str) -> str:
    return re.sub(r"[^a-z0-9*]+", "_", name.lower())


def _covers_mcp_tool(rule: str, wanted: tuple[str, str]) -> bool:
    found = split_mcp_name(rule)
    if found is None:
        return "(" not in rule and fnmatchcase(f"{MCP_PREFIX}{'__'.join(wanted)}", rule.lower())
    return all(fnmatchcase(part, pattern) for part, pattern in zip(wanted, found, strict=True))


def make_label(name: str) -> str:
    """Return a server's name as the names of its tools have it: letters, digits, `-` and single `_`."""
    label = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_") or "server"
    return label if len(label) <= MAX_LABEL_CHARS else shorten_name(label, MAX_LABEL_CHARS)


def shorten_name(name: str, limit: int, whole: str = "") -> str:
    """Return the start of a name with a digest of the whole, which keeps it unique."""
    from hashlib import sha256

    digest = sha256((whole or name).encode()).hexdigest()[:HASH_DIGITS]
    return f"{name[: limit - HASH_DIGITS - 1]}_{digest}"
