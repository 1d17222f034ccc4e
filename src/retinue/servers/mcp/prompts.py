"""The agents as a host shows them to its user: a prompt each."""

from __future__ import annotations

from msgspec import Struct

from retinue.agents.registry import DefinitionStatus
from retinue.client import Retinue
from retinue.output.untrusted_text import defang_markup, to_one_line

MAX_PROMPTS = 100
MAX_DESCRIPTION_CHARS = 200
"""Characters of what an agent's file says of it."""
DELEGATION_TOOLS = ("subagent", "spawn_subagent", "delegate_to_subagents", "subagent_start")
"""With which an agent is given a task, the plainest first."""


class PromptAgent(Struct, frozen=True):
    """An agent as others may see it."""

    name: str
    description: str


def list_prompt_agents(retinue: Retinue) -> list[PromptAgent]:
    """The agents that would run if they were called. What a file says of itself is one line of plain text."""
    agents = [entry.agent for entry in retinue.roster().list_definitions() if entry.status is DefinitionStatus.USED]
    return [
        PromptAgent(agent.name, defang_markup(to_one_line(retinue.redact(agent.description), MAX_DESCRIPTION_CHARS)))
        for agent in agents[:MAX_PROMPTS]
    ]


def delegation_prompt(agent: str, task: str, tool: str) -> str:
    """What a user says to have a task given to an agent."""
    return (
        f'Give this task to the agent "{agent}" with the tool {tool}, with all the context it needs, '
        f"and tell me what it found.\n\n{task}"
    )
