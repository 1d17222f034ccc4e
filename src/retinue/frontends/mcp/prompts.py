"""The agents as a host shows them to its user: a prompt each."""

from __future__ import annotations

from msgspec import Struct

from retinue.agents.roster import Status
from retinue.app import Retinue
from retinue.output.frame import neutralise, one_line

MOST_PROMPTS = 100
MOST_DESCRIPTION = 200
"""Characters of what an agent's file says of it."""
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
        Shown(agent.name, neutralise(one_line(retinue.masked(agent.description), MOST_DESCRIPTION)))
        for agent in agents[:MOST_PROMPTS]
    ]


def delegating(agent: str, task: str, tool: str) -> str:
    """What a user says to have a task given to an agent."""
    return (
        f'Give this task to the agent "{agent}" with the tool {tool}, with all the context it needs, '
        f"and tell me what it found.\n\n{task}"
    )
