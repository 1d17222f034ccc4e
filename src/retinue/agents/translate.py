"""Translate the headers of other tools' agent files into ours.

What adds a capability becomes optional, what restricts one is kept: as a field that is enforced, or under its own
name, which fails the run because it looks like a restriction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from retinue.agents.parse import AgentFileError, AgentHeader, HeaderValue, PlainText
from retinue.model.tool_names import MCP_PREFIX, make_label, to_pi_names

Values = dict[str, HeaderValue]
Note = tuple[str, str]
"""A key, and what happened to it."""
Translate = Callable[[Values], Iterator[Note]]
"""Changes the values of a header and yields notes on them."""

COPILOT_TOOLS: Mapping[str, tuple[str, ...]] = {
    "read": ("read",),
    "readfile": ("read",),
    "view": ("read",),
    "edit": ("edit", "write"),
    "editfiles": ("edit", "write"),
    "create": ("write",),
    "createfile": ("write",),
    "new": ("write",),
    "search": ("grep", "find"),
    "codebase": ("grep", "find"),
    "textsearch": ("grep",),
    "filesearch": ("find",),
    "usages": ("grep",),
    "findtestfiles": ("find",),
    "listdirectory": ("ls",),
    "execute": ("bash",),
    "shell": ("bash",),
    "bash": ("bash",),
    "powershell": ("bash",),
    "terminal": ("bash",),
    "runcommands": ("bash",),
    "runinterminal": ("bash",),
    "runtasks": ("bash",),
    "runtests": ("bash",),
    "web": ("web_search", "fetch_content"),
    "fetch": ("fetch_content",),
    "agent": ("subagent",),
    "runsubagent": ("subagent",),
}
"""Tools and sets of tools of GitHub Copilot, in lower case and without the set before a slash."""
OPENCODE_PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    "read": ("read",),
    "edit": ("edit", "write"),
    "write": ("write",),
    "bash": ("bash",),
    "glob": ("find",),
    "grep": ("grep",),
    "list": ("ls",),
    "webfetch": ("fetch_content",),
    "websearch": ("web_search",),
    "lsp": ("lsp",),
    "task": ("subagent",),
}
"""Tools that a permission of opencode covers; others cover nothing that exists here."""
ALLOW, ASK, DENY = "allow", "ask", "deny"


def translate_header(header: AgentHeader, translate: Translate) -> AgentHeader:
    """Return the header in our keys, with notes on what changed its meaning.

    Raises:
        AgentFileError: the agent cannot run here at all.
    """
    values = dict(header.values)
    notes = [(header.lines.get(key, 1), f"{key}: {text}") for key, text in translate(values)]
    return AgentHeader(values, header.lines, (*header.notes, *notes))


def _take(values: Values, *keys: str) -> HeaderValue | None:
    """Remove the first of the keys that is there and return its value; keys are compared as in our own files."""
    wanted = {_normalize(key) for key in keys}
    found = next((key for key in values if _normalize(key) in wanted), None)
    return values.pop(found) if found else None


def _normalize(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def translate_claude(values: Values) -> Iterator[Note]:
    """Claude Code: `permissionMode`."""
    mode = values.get("permissionMode")
    if mode in {"plan", "default", "acceptEdits", "dontAsk", "bypassPermissions", "auto", ""}:
        del values["permissionMode"]
        if mode == "plan":
            values["readonly"] = PlainText("true")
        elif mode:
            yield "permissionMode", f"{mode} is not applied: nobody is asked during a run"


def translate_plugin(values: Values) -> Iterator[Note]:
    """Claude Code, agents of plugins: as there, nothing is started that their files name."""
    hooks = _take(values, "hooks")
    if isinstance(hooks, Mapping) and "PreToolUse" in hooks:
        raise AgentFileError(
            "has hooks before tool calls, which agents of plugins cannot have; copy it to ~/.claude/agents to use it"
        )
    if hooks:
        yield "hooks", "not run for agents of plugins, as in Claude Code"
    if _take(values, "mcpServers", "mcp_servers"):
        yield "mcpServers", "not started for agents of plugins, as in Claude Code"
    yield from translate_claude(values)


def translate_gemini(values: Values) -> Iterator[Note]:
    """Gemini CLI: `kind`, `display_name`, `timeout_mins`."""
    if _take(values, "kind") == "remote":
        raise AgentFileError("is a remote agent (A2A), which cannot be run here")
    if isinstance(minutes := _take(values, "timeout_mins"), str):
        values["timeout"] = str(_seconds(minutes))
    if isinstance(title := _take(values, "display_name"), str):
        values["title"] = title
    if isinstance(tools := values.get("tools"), tuple):
        values["tools"] = tuple(_gemini_tool(str(name)) for name in tools)
    return iter(())


def _gemini_tool(name: str) -> str:
    """Return a tool of an MCP server as Claude Code names it: `mcp_github_search` is `mcp__github__search`."""
    if name.startswith(MCP_PREFIX) or not name.startswith("mcp_"):
        return name
    # Where the server's name ends is unknown: Gemini CLI's own names have no `_`.
    server, _, tool = name.removeprefix("mcp_").partition("_")
    return f"{MCP_PREFIX}{server}__{tool}" if tool else f"{MCP_PREFIX}{server}"


def _seconds(minutes: str) -> float:
    try:
        return float(minutes) * 60
    except ValueError:
        raise AgentFileError(f"timeout_mins: {minutes[:20]!a} is not a number") from None


def translate_copilot(values: Values) -> Iterator[Note]:
    """GitHub Copilot and VS Code: sets of tools, models with their seller, `agents`."""
    if (tools := values.get("tools")) is not None:
        values["tools"] = tuple(_copilot_tools(_names(tools), _server_names(values)))
    model = values.get("model")
    if isinstance(model, tuple):
        model = model[0] if model else None
    if isinstance(model, str):
        values["model"] = model.partition("(")[0].strip()
    agents = _take(values, "agents")
    if agents is not None and _names(agents) != ["*"]:
        values["allowed_subagents"] = tuple(_names(agents))
    return iter(())


def _server_names(values: Values) -> frozenset[str]:
    servers = next((value for key, value in values.items() if _normalize(key) == "mcpservers"), ())
    return frozenset(servers) if isinstance(servers, Mapping) else frozenset()


def _copilot_tools(names: list[str], servers: frozenset[str]) -> Iterator[str]:
    for name in names:
        if name == "*":
            yield name
        elif (server := name.partition("/")[0]) in servers and server != name:
            yield f"{MCP_PREFIX}{make_label(server)}__{name.partition('/')[2]}"
        else:
            known = COPILOT_TOOLS.get(name.rpartition("/")[2].lower())
            # A name such as `github/search_issues` belongs to a server, unless its set is one of Copilot's own.
            yield from known or to_pi_names([name])


def _names(value: HeaderValue) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def translate_opencode(values: Values) -> Iterator[Note]:
    """opencode: `tools` with booleans, `permission`, `steps`."""
    denied: list[str] = []
    tools = values.get("tools")
    if isinstance(tools, Mapping):
        del values["tools"]
        denied += (name for name, allowed in tools.items() if str(allowed).lower() == "false")
    permission = _take(values, "permission")
    rules = {"*": permission} if isinstance(permission, str) else permission
    if isinstance(rules, Mapping):
        denied += (tool for name, rule in rules.items() if rule in (ASK, DENY) for tool in _covered_tools(name))
        if asked := ", ".join(name for name, rule in rules.items() if rule == ASK):
            yield "permission", f"{asked} is asked for in opencode; nobody is asked here, so it is denied"
        values |= _translate_patterns(rules)
    if denied:
        values["denied_tools"] = tuple(dict.fromkeys(denied))
    if (steps := _take(values, "steps", "maxSteps")) is not None:
        values["max_turns"] = steps


def _covered_tools(name: str) -> tuple[str, ...]:
    return OPENCODE_PERMISSIONS.get(name, (name,))


def _translate_patterns(rules: Mapping[str, HeaderValue]) -> Values:
    """Return the agents that may be called, and the rules that nothing here enforces: the run fails by their name."""
    found: Values = {}
    left = {name: rule for name, rule in rules.items() if rule not in (ALLOW, ASK, DENY)}
    task = left.get("task")
    if isinstance(task, Mapping) and (names := _allowed_agents(task)) is not None:
        found["allowed_subagents"] = names
        del left["task"]
    if left:
        found["permission"] = left
    return found


def _allowed_agents(rules: Mapping[str, HeaderValue]) -> tuple[str, ...] | None:
    """Return the agents that rules allow by name; None if a pattern decides more than the rest."""
    names = [name for name, rule in rules.items() if name != "*"]
    if str(rules.get("*", ALLOW)) == ALLOW or any("*" in name or "?" in name for name in names):
        return None
    return tuple(name for name in names if rules[name] == ALLOW)


def translate_codex(values: Values) -> Iterator[Note]:
    """Codex: `model_reasoning_effort`, `sandbox_mode`."""
    if (effort := _take(values, "model_reasoning_effort")) is not None:
        values["thinking"] = effort
    match values.get("sandbox_mode"):
        case "read-only":
            del values["sandbox_mode"]
            values |= {"readonly": PlainText("true"), "sandbox": "workspace"}
        case "workspace-write":
            del values["sandbox_mode"]
            values["sandbox"] = "workspace"
        case "danger-full-access":
            del values["sandbox_mode"]
            yield "sandbox_mode", "danger-full-access is not applied: it would add rights"
    for key in ("approval_policy", "nickname_candidates"):
        _take(values, key)


def translate_cursor(_values: Values) -> Iterator[Note]:
    """Cursor: nothing beyond the keys it shares with others."""
    return iter(())


def convert_toml(table: Mapping[str, Any]) -> Values:
    """Return a TOML table as values of a header."""
    return {str(key): _convert_toml_value(value) for key, value in table.items()}


def _convert_toml_value(value: Any) -> HeaderValue:
    match value:
        case bool():
            return PlainText(str(value).lower())
        case str():
            return value
        case Mapping():
            return convert_toml(value)
        case list():
            return tuple(map(_convert_toml_value, value))
        case _:
            return PlainText(str(value))
