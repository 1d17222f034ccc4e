"""Which tools a run gets: the engine's ∩ authority ∩ the agent's ∩ policy. Authority only shrinks.

What an agent forbids and its engine cannot enforce is refused; what it prefers and its engine does not know is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from retinue.engines.base import Capabilities
from retinue.tool_names import (
    FINALIZE,
    is_covered,
    is_delegation,
    is_known,
    is_pattern,
    nearest,
    pi_names,
    split_pattern,
)
from retinue.types import Code, Failure, Grant, Limits, Removed, Subagent

READ_ONLY = (
    "read",
    "grep",
    "find",
    "ls",
    "web_search",
    "fetch_content",
    "get_search_content",
    "convert_content",
    "lsp",
)
"""All that a `readonly` agent can have; `lsp` because its writing actions are off in children."""

TOOL_PATTERNS = "tool_patterns"
"""In `Capabilities.enforces`: keeps patterns such as `bash(git:*)` and `mcp__github__*`."""

RESTRICTIONS = {"no_extensions": "noExtensions", "no_skills": "noSkills", "no_context_files": "noContextFiles"}
"""Fields that forbid, with their usual spelling; an engine names in `enforces` those it keeps."""

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
"""Fields that wish, and what an engine must know to follow each."""


def effective(
    agent: Subagent,
    *,
    engine: str,
    capabilities: Capabilities,
    authority: frozenset[str] | None = None,
    inherited: Sequence[str] | None = None,
    allow_write: bool = True,
    delegation_tools: Sequence[str] = (),
) -> Grant | Failure:
    """The tools of a run in the agent's order, with who took the others; or why it cannot have what it needs.

    `authority` is what the run may have at most (None: unbounded), `inherited` the base for an agent without an allow
    list (None: what the engine has). Without `allow_write` nothing outside the read-only set is had. The
    `delegation_tools` are those a run at this depth could use: it gets them only if its agent asks.
    """
    is_bounded = authority is not None or not allow_write
    failure = (
        conflict(agent)
        or _loose(agent, engine, capabilities, bounded=is_bounded)
        or _misspelt(agent, engine, capabilities)
    )
    if failure:
        return failure
    policy = agent.tools
    sieve = _Sieve(_wanted(agent, capabilities, inherited, delegation_tools))
    if policy.delegates and not delegation_tools:
        sieve.removed.append(Removed("subagent", "depth"))
    if policy.nothing:
        sieve.keep("no_tools", lambda _: False)
    if policy.deny:
        sieve.keep("denied", lambda tool: not _says(policy.deny, tool))
    if policy.readonly:
        sieve.keep("readonly", _only_reads)
    if not allow_write:
        sieve.keep("allow_write", _only_reads)
    if authority is not None:
        sieve.keep("authority", lambda tool: tool in authority or split_pattern(tool)[0] in authority)
    return _offered(agent, sieve, engine, capabilities)


def authority_below(agent: Subagent, grant: Grant) -> frozenset[str]:
    """What the children of a run may have at most: its own grant, or what its agent passes on of it."""
    grants = agent.tools.grants
    return frozenset(tool for tool in grant.tools if grants is None or _says(grants, tool))


def conflict(agent: Subagent) -> Failure | None:
    """Why an agent contradicts itself, named by its file; None if it does not."""
    policy = agent.tools
    # `bash(rm:*)` denied beside `bash` allowed is no contradiction: it narrows.
    if policy.allow is not None and any("(" not in name for name in policy.deny):
        return _contradiction(agent, "tools", "an allow list and a deny list of tools")
    if agent.no_skills and agent.suggested_skills:
        return _contradiction(agent, "suggested_skills", "suggestedSkills and noSkills")
    if agent.no_skills and agent.load_skills:
        return _contradiction(agent, "load_skills", "loadSkills and noSkills")
    return None


def unenforceable(
    agent: Subagent, *, engine: str, capabilities: Capabilities, limits: Limits | None = None
) -> Failure | None:
    """Why the engine cannot keep what the agent, or its limits, forbid beside tools; None if it can."""
    forbidden = [RESTRICTIONS[field] for field in RESTRICTIONS if getattr(agent, field)]
    kept = [RESTRICTIONS[field] for field in RESTRICTIONS if field in capabilities.enforces]
    broken = [name for name in forbidden if name not in kept]
    if limits and not capabilities.states_cost:
        broken += [name for name in ("max_cost", "max_conversation_cost") if getattr(limits, name)]
    return _cannot_enforce(agent, engine, broken) if broken else None


def not_applied(agent: Subagent, capabilities: Capabilities) -> tuple[str, ...]:
    """The preferences of an agent that the engine does not know."""
    return tuple(
        field
        for field, known_as in PREFERENCES.items()
        if getattr(agent, field) and known_as not in capabilities.knows
    )


class _Sieve:
    """Tools on their way from wanted to granted."""

    def __init__(self, tools: Iterable[str]) -> None:
        self.left = list(dict.fromkeys(tools))
        self.removed: list[Removed] = []

    def keep(self, by: str, is_kept: Callable[[str], bool]) -> None:
        kept = [tool for tool in self.left if is_kept(tool)]
        if len(kept) < len(self.left):
            self.removed += [Removed(tool, by) for tool in self.left if tool not in kept]
            self.left = kept


def _wanted(
    agent: Subagent, capabilities: Capabilities, inherited: Sequence[str] | None, delegation_tools: Sequence[str]
) -> Iterable[str]:
    policy = agent.tools
    if policy.allow is not None:
        yield from policy.allow
    elif policy.readonly:
        # The whole read-only set, whatever the host has switched on.
        yield from (tool for tool in READ_ONLY if tool in capabilities.tools)
    else:
        base = sorted(capabilities.tools) if inherited is None else pi_names(inherited)
        yield from (tool for tool in base if not is_delegation(tool) and tool != FINALIZE)
    yield from policy.optional
    if policy.delegates:
        yield from delegation_tools


def _offered(agent: Subagent, sieve: _Sieve, engine: str, capabilities: Capabilities) -> Grant | Failure:
    """The grant of what is left, as far as the engine has it."""
    policy = agent.tools
    tools, missing, lacking = [], [], []
    for tool in sieve.left:
        if tool == FINALIZE:
            continue  # not a tool to be granted: a run that needs it is given it, asked for or not
        if _has(capabilities, tool):
            tools.append(tool)
        elif tool in policy.optional:
            missing.append(tool)
        elif policy.allow is not None and tool in policy.allow:
            lacking.append(tool)
        else:
            sieve.removed.append(Removed(tool, "engine"))
    if lacking:
        return _lacks(agent, lacking, engine, capabilities)
    narrowed = [name for name in policy.deny if "(" in name and split_pattern(name)[0] in tools]
    if narrowed and TOOL_PATTERNS not in capabilities.enforces:
        return _no_patterns(agent, narrowed, engine)
    return Grant(tools=tuple(tools), removed=tuple(sieve.removed), missing=tuple(missing))


def _has(capabilities: Capabilities, tool: str) -> bool:
    if is_pattern(tool):
        known = capabilities.more_tools or split_pattern(tool)[0] in capabilities.tools
        return known and TOOL_PATTERNS in capabilities.enforces
    if is_delegation(tool):
        return capabilities.nests
    return capabilities.more_tools or tool in capabilities.tools


def _only_reads(tool: str) -> bool:
    # Delegation writes nothing by itself, and what it starts has no more authority than this run.
    return split_pattern(tool)[0] in READ_ONLY or is_delegation(tool)


def _says(names: Iterable[str], tool: str) -> bool:
    """Whether a list covers the tool; one delegation tool stands for all of them, as surfaces spell them apart."""
    return is_covered(tool, names) or (is_delegation(tool) and any(map(is_delegation, names)))


def _loose(agent: Subagent, engine: str, capabilities: Capabilities, *, bounded: bool) -> Failure | None:
    """Why the engine cannot be held to a tool list at all; None if it can."""
    policy = agent.tools
    needed = {
        "no_tools": policy.nothing,
        "readonly": policy.readonly,
        "tools": bounded or policy.allow is not None or bool(policy.deny),
    }
    broken = [name for name, is_needed in needed.items() if is_needed and name not in capabilities.enforces]
    return _cannot_enforce(agent, engine, broken) if broken else None


def _misspelt(agent: Subagent, engine: str, capabilities: Capabilities) -> Failure | None:
    """Why the agent cannot have a tool that exists nowhere; None if there is none.

    Asked before anything is taken away: a slip of the pen must not look like a rule.
    """
    policy = agent.tools
    if policy.nothing or capabilities.more_tools:
        return None
    unknown = [tool for tool in policy.allow or () if tool not in capabilities.tools and not is_known(tool)]
    return _lacks(agent, unknown, engine, capabilities) if unknown else None


# -- what is said ----------------------------------------------------------------------------------


def _contradiction(agent: Subagent, reason: str, both: str) -> Failure:
    where = f" ({agent.source})" if agent.source else ""
    message = f'Agent "{agent.name}"{where} has both {both}. Nothing was started. Keep one of the two.'
    return Failure(Code.CONFLICT, message, reason, {"agent": agent.name, "file": agent.source or ""})


def _cannot_enforce(agent: Subagent, engine: str, broken: list[str]) -> Failure:
    message = (
        f'Agent "{agent.name}" is restricted by {", ".join(broken)}, which engine "{engine}" cannot enforce. '
        f"Nothing was started. Choose another engine, or lift the restriction."
    )
    return Failure(Code.UNSUPPORTED, message, "restriction", {"agent": agent.name, "engine": engine})


def _lacks(agent: Subagent, lacking: list[str], engine: str, capabilities: Capabilities) -> Failure:
    patterns = [tool for tool in lacking if is_pattern(tool)]
    if patterns and TOOL_PATTERNS not in capabilities.enforces:
        return _no_patterns(agent, patterns, engine)
    has = ", ".join(sorted(capabilities.tools)) or "none"
    where = f" in {agent.source}" if agent.source else ""
    meant = dict.fromkeys(near for tool in lacking if not is_known(tool) and (near := nearest(tool)))
    hint = f" Did you mean {', '.join(meant)}?" if meant else ""
    message = (
        f'Agent "{agent.name}" needs {_listed(lacking)}, which engine "{engine}" does not have (it has: {has}).'
        f"{hint} Nothing was started. Choose another engine, or list it under optional_tools{where}."
    )
    return Failure(Code.UNSUPPORTED, message, "missing_tool", _detail(agent, lacking, engine))


def _no_patterns(agent: Subagent, patterns: list[str], engine: str) -> Failure:
    message = (
        f'Agent "{agent.name}" limits tools by arguments or wildcards ({", ".join(patterns)}), '
        f'which engine "{engine}" cannot enforce. Nothing was started. Choose another engine, or name whole tools.'
    )
    return Failure(Code.UNSUPPORTED, message, "tool_pattern", _detail(agent, patterns, engine))


def _listed(tools: list[str]) -> str:
    return f"the {'tool' if len(tools) == 1 else 'tools'} {', '.join(tools)}"


def _detail(agent: Subagent, tools: list[str], engine: str) -> dict[str, str | int | float]:
    return {"agent": agent.name, "tools": ", ".join(tools), "engine": engine, "file": agent.source or ""}
