"""How a run on Claude Code delegates: by our own tools, and by Claude Code's `Agent`, which stands for one of them.

Claude Code announces the agents it is told of and lets its model call them. Such a call is carried out by our
`spawn_subagent`: an ordinary run below this one, admitted and counted first, on any engine, in a session of its own.
Nothing runs as an agent within Claude Code.
"""

from __future__ import annotations

from collections.abc import Mapping

from retinue.tool_names import is_delegation
from retinue.types import Args, RunSpec

SPAWN = "spawn_subagent"
NATIVE = ("Agent", "Task")
"""What Claude Code calls its own: to models, and in its lists and older versions."""
CALL = "retinueCall"
"""The argument by which our gate tells a tool of ours the id of its call."""

_SPELLED = {"subagent_type": "agent", "prompt": "task"}
_IN_A_FEW_WORDS = "description"
"""What `Agent` takes beside the task."""


def delegation_tools(spec: RunSpec) -> tuple[str, ...]:
    """The names of our tools to delegate with, as far as the run has them."""
    return tuple(filter(is_delegation, spec.grant.tools)) if spec.home else ()


def aliases(spawn: str) -> Mapping[str, str]:
    """What is carried out by our tool, which Claude Code knows by this name."""
    return dict.fromkeys(NATIVE, spawn)


def as_ours(given: Args) -> Args:
    """The arguments of `Agent` as `spawn_subagent` takes them; its own stay as they are."""
    if not _SPELLED.keys() & given.keys():
        return given
    return {_SPELLED.get(name, name): value for name, value in given.items() if name != _IN_A_FEW_WORDS}
