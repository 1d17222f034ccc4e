"""Compute the tools of a run, and check the extra arguments an agent passes to its engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from retinue.engines.base import EngineCapabilities
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.runs import Limits, RemovedTool, ToolGrant
from retinue.model.tool_names import (
    FINALIZE_TOOL,
    MCP_PREFIX,
    find_nearest,
    is_covered,
    is_delegation,
    is_known,
    is_mcp_tool,
    is_on_server,
    is_pattern,
    split_pattern,
    to_pi_names,
)

if TYPE_CHECKING:
    from retinue.model.mcp import McpServer

TOOL_FLAGS = frozenset({"--tools", "-t", "--no-tools", "-nt", "--exclude-tools", "-xt", "--no-builtin-tools", "-nbt"})
"""Flags of pi that would override the agent's tool fields."""

BOOLEAN_FLAGS = frozenset({
    "--verbose", "--offline", "--no-approve", "-na", "--no-context-files", "-nc", "--no-extensions", "-ne",
    "--no-prompt-templates", "-np", "--no-skills", "-ns", "--no-themes",
})  # fmt: skip
"""Flags of pi without a value that only remove something, or print more."""

FLAGS_WITH_VALUE = frozenset({"--thinking"})
"""Flags of pi with one value."""

# A lone value would be a prompt and `@name` a file, so values are plain words.
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:=+/-]*")


def check_extra_args(agent: AgentProfile, *, allowed: Collection[str] = ()) -> Failure | None:
    """Return why the agent's extra arguments are refused; None if they are allowed.

    Only flags known to be harmless are, and those the user added in `allowed`, each with at most one value.
    """
    previous: str | None = None
    for argument in agent.extra_args:
        if sentence := _argument_problem(argument, previous, agent, allowed):
            return Failure(
                ErrorCode.CONFLICT, sentence, "extra_args", {"agent": agent.name, "argument": argument[:40]}
            )
        previous = argument
    return None


def _argument_problem(
    argument: str, previous: str | None, agent: AgentProfile, allowed: Collection[str]
) -> str | None:
    if "\0" in argument:
        return "Invalid extraArg: contains null byte"
    # In a list with commas, `--tools read` is one argument: its first word is the flag.
    words = argument.split()
    flag = words[0].partition("=")[0] if words else ""
    if flag in TOOL_FLAGS and _restricts_tools(agent):
        return (
            f'Refusing extraArg "{argument}" which would override profile tool restrictions. '
            f"Use the dedicated profile fields instead."
        )
    if argument in BOOLEAN_FLAGS or argument in FLAGS_WITH_VALUE or argument in allowed:
        return None
    if previous is not None and (previous in FLAGS_WITH_VALUE or previous in allowed) and _VALUE.fullmatch(argument):
        return None
    where = f" ({agent.source})" if agent.source else ""
    return (
        f'Refusing extraArg "{argument[:40]}" of agent "{agent.name}"{where}: it is not among the arguments an agent '
        f"may pass ({', '.join(sorted(BOOLEAN_FLAGS | FLAGS_WITH_VALUE | set(allowed)))}). Nothing was started. "
        f"Remove it; a flag and its value are two entries."
    )


def _restricts_tools(agent: AgentProfile) -> bool:
    policy = agent.tools
    return policy.nothing or policy.readonly or policy.allow is not None or bool(policy.deny)


READ_ONLY_TOOLS = (
    "read", "grep", "find", "ls", "web_search", "fetch_content", "get_search_content", "convert_content", "lsp",
)  # fmt: skip
"""All that a `readonly` agent can have; `lsp` because its write actions are off in children."""

TOOL_PATTERNS = "tool_patterns"
"""In `EngineCapabilities.enforces`: enforces patterns such as `bash(git:*)` and `mcp__github__*`."""

GATE = "gate"
"""In `EngineCapabilities.enforces`: asks `RunSpec.gate` before each call of a tool that it covers."""

RESTRICTIONS = {"no_extensions": "noExtensions", "no_skills": "noSkills", "no_context_files": "noContextFiles"}
"""Fields that restrict, with their usual spelling; an engine lists in `enforces` those it enforces."""

PREFERENCES = {
    "provider": "provider",
    "model": "model",
    "fallback_models": "model",
    "thinking": "thinking",
    "extensions": "extensions",
    "extra_args": "extra_args",
    "color": "color",
    "output": "output",
}
"""Fields that are preferences, and what an engine must support to follow each."""


def compute_grant(
    agent: AgentProfile,
    *,
    engine: str,
    capabilities: EngineCapabilities,
    authority: frozenset[str] | None = None,
    inherited: Sequence[str] | None = None,
    allow_write: bool = True,
    delegation_tools: Sequence[str] = (),
    servers: Sequence[McpServer] = (),
    own_servers: Sequence[str] = (),
) -> ToolGrant | Failure:
    """Return the tools of a run in the agent's order and what removed the others, or why it cannot run.

    `authority` is the most the run may have (None: unbounded), `inherited` the base for an agent without an allow
    list (None: the engine's tools). Without `allow_write` only the read-only set is granted. The `delegation_tools`
    are those a run at this depth could use: it gets them only if its agent requests them. The `servers` are the MCP
    servers of the agent, also those that cannot be started; of its `own_servers`, by their labels, it has all tools
    unless it lists some.
    """
    is_bounded = authority is not None or not allow_write
    failure = (
        find_conflict(agent)
        or _unbounded_failure(agent, engine, capabilities, bounded=is_bounded)
        or _unknown_tool_failure(agent, engine, capabilities)
    )
    if failure:
        return failure
    policy = agent.tools
    grant_filter = _GrantFilter(_requested_tools(agent, capabilities, inherited, delegation_tools, own_servers))
    if policy.delegates and not delegation_tools:
        grant_filter.removed.append(RemovedTool("subagent", "depth"))
    if policy.nothing:
        grant_filter.keep_tools("no_tools", lambda _: False)
    if policy.deny:
        grant_filter.keep_tools("denied", lambda tool: not _list_covers(policy.deny, tool))
    if policy.readonly:
        grant_filter.keep_tools("readonly", _is_read_only_tool)
    if not allow_write:
        grant_filter.keep_tools("allow_write", _is_read_only_tool)
    if authority is not None:
        grant_filter.narrow_servers(authority)
        grant_filter.keep_tools(
            "authority",
            lambda tool: (
                tool in authority
                or split_pattern(tool)[0] in authority
                or (is_mcp_tool(tool) and is_covered(tool, authority))
            ),
        )
    return _grant_offered_tools(agent, grant_filter, engine, capabilities, servers)


def can_write(grant: ToolGrant) -> bool:
    """Return whether a granted tool may write or execute."""
    return not all(map(_is_read_only_tool, grant.tools))


def child_tool_ceiling(agent: AgentProfile, grant: ToolGrant) -> frozenset[str]:
    """Return the most the children of a run may have: its own grant, or the part its agent passes on."""
    grants = agent.tools.grants
    return frozenset(tool for tool in grant.tools if grants is None or _list_covers(grants, tool))


def find_conflict(agent: AgentProfile) -> Failure | None:
    """Return why an agent contradicts itself; None if it does not."""
    policy = agent.tools
    # `bash(rm:*)` denied beside `bash` allowed is no contradiction: it narrows, as does one tool of a server.
    if policy.allow is not None and any("(" not in name and not is_mcp_tool(name) for name in policy.deny):
        return _conflict_failure(agent, "tools", "an allow list and a deny list of tools")
    if agent.no_skills and agent.suggested_skills:
        return _conflict_failure(agent, "suggested_skills", "suggestedSkills and noSkills")
    if agent.no_skills and agent.load_skills:
        return _conflict_failure(agent, "load_skills", "loadSkills and noSkills")
    return None


def find_unenforceable(
    agent: AgentProfile, *, engine: str, capabilities: EngineCapabilities, limits: Limits | None = None
) -> Failure | None:
    """Return why the engine cannot enforce other restrictions of the agent or its limits; None if it can."""
    forbidden = [RESTRICTIONS[field] for field in RESTRICTIONS if getattr(agent, field)]
    enforced = [RESTRICTIONS[field] for field in RESTRICTIONS if field in capabilities.enforces]
    unenforced = [name for name in forbidden if name not in enforced]
    if agent.has_call_hooks and GATE not in capabilities.enforces:
        unenforced.append("hooks (PreToolUse)")
    if limits and not capabilities.reports_cost:
        unenforced += [name for name in ("max_cost", "max_conversation_cost") if getattr(limits, name)]
    return _unenforceable_failure(agent, engine, unenforced) if unenforced else None


def find_unusable_hook(agent: AgentProfile) -> Failure | None:
    """Return why an agent cannot run whose tool calls or end are decided by a hook that is no command."""
    hook = next((hook for hook in agent.hooks if not hook.is_command and hook.event != "SubagentStart"), None)
    if hook is None:
        return None
    message = (
        f'Agent "{agent.name}" has a {hook.event} hook of type {hook.kind}, and only commands are run here. Nothing '
        f"was started. Write it as a command in {agent.source or 'its definition'}, or remove it."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "restriction", {"agent": agent.name, "file": agent.source or ""})


def find_unsupported_preferences(agent: AgentProfile, capabilities: EngineCapabilities) -> tuple[str, ...]:
    """Return the preferences of an agent that the engine does not support."""
    return tuple(
        field
        for field, known_as in PREFERENCES.items()
        if getattr(agent, field) and known_as not in capabilities.preferences
    )


class _GrantFilter:
    """The requested tools that remain, and what removed the others."""

    def __init__(self, tools: Iterable[str]) -> None:
        self.remaining = list(dict.fromkeys(tools))
        self.removed: list[RemovedTool] = []

    def keep_tools(self, by: str, predicate: Callable[[str], bool]) -> None:
        kept = [tool for tool in self.remaining if predicate(tool)]
        if len(kept) < len(self.remaining):
            self.removed += [RemovedTool(tool, by) for tool in self.remaining if tool not in kept]
            self.remaining = kept

    def narrow_servers(self, authority: frozenset[str]) -> None:
        """Replace `mcp__github__*` by the tools of that server that the authority has, where it has only some."""
        narrowed: list[str] = []
        for tool in self.remaining:
            within = [] if is_covered(tool, authority) else [own for own in authority if is_covered(own, (tool,))]
            narrowed += sorted(within) if is_mcp_tool(tool) and within else [tool]
        self.remaining = list(dict.fromkeys(narrowed))


def _requested_tools(
    agent: AgentProfile,
    capabilities: EngineCapabilities,
    inherited: Sequence[str] | None,
    delegation_tools: Sequence[str],
    own_servers: Sequence[str],
) -> Iterable[str]:
    policy = agent.tools
    if policy.allow is not None:
        yield from policy.allow
    elif policy.readonly:
        # The whole read-only set, independent of the tools active in the host.
        yield from (tool for tool in READ_ONLY_TOOLS if tool in capabilities.tools)
    else:
        base = sorted(capabilities.tools) if inherited is None else to_pi_names(inherited)
        yield from (tool for tool in base if not is_delegation(tool) and tool != FINALIZE_TOOL)
        yield from (f"{MCP_PREFIX}{label}__*" for label in own_servers)
    yield from policy.optional
    if policy.delegates:
        yield from delegation_tools


def _grant_offered_tools(
    agent: AgentProfile,
    grant_filter: _GrantFilter,
    engine: str,
    capabilities: EngineCapabilities,
    servers: Sequence[McpServer],
) -> ToolGrant | Failure:
    """Return the grant of the remaining tools that the engine has, or why the agent cannot run."""
    policy = agent.tools
    tools, missing, lacking = [], [], []
    for tool in grant_filter.remaining:
        if tool == FINALIZE_TOOL:
            continue  # never granted: a run that needs it gets it without a request
        named = [server for server in servers if is_on_server(tool, server.label)]
        if _engine_has(capabilities, tool) if not named else _can_start(capabilities, named):
            tools.append(tool)
        elif tool in policy.optional or named or (is_mcp_tool(tool) and tool in (policy.allow or ())):
            missing.append(tool)
        elif policy.allow is not None and tool in policy.allow:
            lacking.append(tool)
        else:
            grant_filter.removed.append(RemovedTool(tool, "engine"))
    if lacking:
        return _missing_tools_failure(agent, lacking, engine, capabilities)
    narrowed = [name for name in policy.deny if "(" in name and split_pattern(name)[0] in tools]
    if narrowed and TOOL_PATTERNS not in capabilities.enforces:
        return _no_patterns_failure(agent, narrowed, engine)
    return ToolGrant(tools=tuple(tools), removed=tuple(grant_filter.removed), missing=tuple(missing))


def _engine_has(capabilities: EngineCapabilities, tool: str) -> bool:
    if is_pattern(tool):
        known = capabilities.allows_other_tools or split_pattern(tool)[0] in capabilities.tools
        return known and TOOL_PATTERNS in capabilities.enforces
    if is_delegation(tool):
        return capabilities.delegates
    return capabilities.allows_other_tools or tool in capabilities.tools


def _can_start(capabilities: EngineCapabilities, servers: Iterable[McpServer]) -> bool:
    return capabilities.calls_servers and any(not server.problem for server in servers)


def _is_read_only_tool(tool: str) -> bool:
    # Delegation writes nothing by itself, and child runs have no more authority than this run.
    return split_pattern(tool)[0] in READ_ONLY_TOOLS or is_delegation(tool)


def _list_covers(names: Iterable[str], tool: str) -> bool:
    """Return whether a list covers the tool; one delegation tool covers all, as each toolset has its own name."""
    return is_covered(tool, names) or (is_delegation(tool) and any(map(is_delegation, names)))


def _unbounded_failure(
    agent: AgentProfile, engine: str, capabilities: EngineCapabilities, *, bounded: bool
) -> Failure | None:
    """Return why the engine cannot enforce a tool list at all; None if it can."""
    policy = agent.tools
    needed = {
        "no_tools": policy.nothing,
        "readonly": policy.readonly,
        "tools": bounded or policy.allow is not None or bool(policy.deny),
    }
    broken = [name for name, is_needed in needed.items() if is_needed and name not in capabilities.enforces]
    return _unenforceable_failure(agent, engine, broken) if broken else None


def _unknown_tool_failure(agent: AgentProfile, engine: str, capabilities: EngineCapabilities) -> Failure | None:
    """Return why the agent cannot have a tool that exists nowhere; None if all exist.

    Checked before any tool is removed: a typing error must not look like a restriction.
    """
    policy = agent.tools
    if policy.nothing or capabilities.allows_other_tools:
        return None
    unknown = [tool for tool in policy.allow or () if tool not in capabilities.tools and not is_known(tool)]
    return _missing_tools_failure(agent, unknown, engine, capabilities) if unknown else None


# -- failures --------------------------------------------------------------------------------------


def _conflict_failure(agent: AgentProfile, reason: str, both: str) -> Failure:
    where = f" ({agent.source})" if agent.source else ""
    message = f'Agent "{agent.name}"{where} has both {both}. Nothing was started. Keep one of the two.'
    return Failure(ErrorCode.CONFLICT, message, reason, {"agent": agent.name, "file": agent.source or ""})


def _unenforceable_failure(agent: AgentProfile, engine: str, broken: list[str]) -> Failure:
    message = (
        f'Agent "{agent.name}" is restricted by {", ".join(broken)}, which engine "{engine}" cannot enforce. '
        f"Nothing was started. Choose another engine, or lift the restriction."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "restriction", {"agent": agent.name, "engine": engine})


def _missing_tools_failure(
    agent: AgentProfile, lacking: list[str], engine: str, capabilities: EngineCapabilities
) -> Failure:
    patterns = [tool for tool in lacking if is_pattern(tool)]
    if patterns and TOOL_PATTERNS not in capabilities.enforces:
        return _no_patterns_failure(agent, patterns, engine)
    has = ", ".join(sorted(capabilities.tools)) or "none"
    where = f" in {agent.source}" if agent.source else ""
    meant = dict.fromkeys(near for tool in lacking if not is_known(tool) and (near := find_nearest(tool)))
    hint = f" Did you mean {', '.join(meant)}?" if meant else ""
    message = (
        f'Agent "{agent.name}" needs {_join_names(lacking)}, which engine "{engine}" does not have (it has: {has}).'
        f"{hint} Nothing was started. Choose another engine, or list it under optional_tools{where}."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "missing_tool", _failure_detail(agent, lacking, engine))


def _no_patterns_failure(agent: AgentProfile, patterns: list[str], engine: str) -> Failure:
    message = (
        f'Agent "{agent.name}" limits tools by arguments or wildcards ({", ".join(patterns)}), '
        f'which engine "{engine}" cannot enforce. Nothing was started. Choose another engine, or name whole tools.'
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "tool_pattern", _failure_detail(agent, patterns, engine))


def _join_names(tools: list[str]) -> str:
    return f"the {'tool' if len(tools) == 1 else 'tools'} {', '.join(tools)}"


def _failure_detail(agent: AgentProfile, tools: list[str], engine: str) -> dict[str, str | int | float]:
    return {"agent": agent.name, "tools": ", ".join(tools), "engine": engine, "file": agent.source or ""}
