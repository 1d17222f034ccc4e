"""The agents as a host shows them: a prompt each for its user, and a short policy for its model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from retinue.agents.roster import Status
from retinue.app import Retinue
from retinue.output.frame import one_line

MOST_PROMPTS = 100
MOST_DESCRIPTION = 200
"""Characters of what an agent's file says of it."""
MOST_TOKENS = 280
"""Of the policy, which costs every conversation of the host: with what is said to every host it stays below 300."""
MOST_WORDS = 60
"""Characters of an agent's name, and of its description, in the policy."""

POLICY = (
    "Delegate work that is focused, needs much reading, or can go on beside yours; do small things yourself. "
    "An agent sees nothing of this conversation: give it the goal, the paths and what is known. "
    "Start independent tasks together. Check what comes back before you rely on it."
)
MORE = "- and {} more"

_PIECES = re.compile(r"(?P<word>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<signs>[!-/:-@\[-`{-~]+)|(?P<other>[^\x00-\x7f]+)")
_SIZES = {"word": 8, "digits": 3, "signs": 2, "other": 0.5}

TOOLS = ("subagent", "spawn_subagent", "delegate_to_subagents", "subagent_start")
"""With which an agent is given a task, the plainest first."""


class Shown(Struct, frozen=True):
    """An agent as others may see it."""

    name: str
    description: str


def shown_agents(retinue: Retinue) -> list[Shown]:
    """The agents that would run if they were called. What a file says of itself is one line of plain text."""
    agents = [entry.agent for entry in retinue.roster().listing() if entry.status is Status.USED]
    return [
        Shown(agent.name, one_line(retinue.masked(agent.description), MOST_DESCRIPTION))
        for agent in agents[:MOST_PROMPTS]
    ]


def policy(agents: Sequence[Shown], most_tokens: int = MOST_TOKENS) -> str:
    """When to delegate and to whom, for a host's model; as many agents as there is room for are named."""
    lines = [POLICY]
    for number, agent in enumerate(agents):
        line = f"- {one_line(agent.name, MOST_WORDS)}: {one_line(agent.description, MOST_WORDS)}"
        if tokens("\n".join([*lines, line, MORE])) > most_tokens:
            return "\n".join([*lines, MORE.format(len(agents) - number)])
        lines.append(line)
    return "\n".join(lines)


def tokens(text: str) -> int:
    """Rather more tokens than any model makes of a text: words in pieces, digits in threes, signs in pairs."""
    return sum(math.ceil(len(found[0]) / _SIZES[found.lastgroup or ""]) for found in _PIECES.finditer(text))


def delegating(agent: str, task: str, tool: str) -> str:
    """What a user says to have a task given to an agent."""
    return (
        f'Give this task to the agent "{agent}" with the tool {tool}, with all the context it needs, '
        f"and tell me what it found.\n\n{task}"
    )
