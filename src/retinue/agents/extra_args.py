"""The guard on `extraArgs`: an agent may pass its engine only arguments that cannot widen what it may do."""

from __future__ import annotations

import re
from collections.abc import Collection

from retinue.types import Code, Failure, Subagent

TOOL_FLAGS = frozenset(
    {
        "--tools",
        "-t",
        "--no-tools",
        "-nt",
        "--exclude-tools",
        "-xt",
        "--no-builtin-tools",
        "-nbt",
    },
)
"""They would undo the agent's tool fields."""

SWITCHES = frozenset(
    {
        "--verbose",
        "--offline",
        "--no-approve",
        "-na",
        "--no-context-files",
        "-nc",
        "--no-extensions",
        "-ne",
        "--no-prompt-templates",
        "-np",
        "--no-skills",
        "-ns",
        "--no-themes",
    },
)
"""Flags of pi that stand alone and only take something away, or show more."""

VALUED = frozenset({"--thinking"})
"""Flags of pi that one value follows."""

# A lone value would be a prompt and `@name` a file, so values are plain words.
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:=+/-]*")


def refused_argument(agent: Subagent, *, allowed: Collection[str] = ()) -> Failure | None:
    """Why the agent's extra arguments are refused; None if they may pass.

    Only flags known to be harmless pass, and those the user added in `allowed`, each with at most one value.
    """
    before: str | None = None
    for argument in agent.extra_args:
        if sentence := _objection(argument, before, agent, allowed):
            return Failure(Code.CONFLICT, sentence, "extra_args", {"agent": agent.name, "argument": argument[:40]})
        before = argument
    return None


def _objection(argument: str, before: str | None, agent: Subagent, allowed: Collection[str]) -> str | None:
    if "\0" in argument:
        return "Invalid extraArg: contains null byte"
    # In a list with commas, `--tools read` is one argument: judged by its first word all the same.
    words = argument.split()
    flag = words[0].partition("=")[0] if words else ""
    if flag in TOOL_FLAGS and _restricts_tools(agent):
        return (
            f'Refusing extraArg "{argument}" which would override profile tool restrictions. '
            f"Use the dedicated profile fields instead."
        )
    if argument in SWITCHES or argument in VALUED or argument in allowed:
        return None
    if before is not None and (before in VALUED or before in allowed) and _VALUE.fullmatch(argument):
        return None
    where = f" ({agent.source})" if agent.source else ""
    return (
        f'Refusing extraArg "{argument[:40]}" of agent "{agent.name}"{where}: it is not among the arguments an agent '
        f"may pass ({', '.join(sorted(SWITCHES | VALUED | set(allowed)))}). Nothing was started. Remove it; a flag "
        f"and its value are two entries."
    )


def _restricts_tools(agent: Subagent) -> bool:
    policy = agent.tools
    return policy.nothing or policy.readonly or policy.allow is not None or bool(policy.deny)
