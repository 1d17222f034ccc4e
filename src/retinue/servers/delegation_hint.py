"""Render a hint for the model of a host: when to delegate, and to which agents.

Off by default, because it costs tokens in every conversation.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Sequence

from retinue.agents.agent import SourceLayer
from retinue.agents.registry import AgentListing, DefinitionStatus
from retinue.client import Retinue
from retinue.output.untrusted_text import defang_markup, to_one_line

MAX_AGENTS = 100
"""Agents that are considered; there is never room for as many."""
MAX_DESCRIPTION_TOKENS = 230
"""Estimated tokens of all agent lines; the whole hint stays below 300."""
DESCRIPTION_BUDGETS = (45, 35, 25)
"""Estimated tokens of one agent line, tried in this order until all agents fit."""
MAX_DESCRIPTION_CHARS = 50
"""Characters of a description: its beginning says what an agent is for."""
MAX_NAME_CHARS = 200

WHEN_TO_DELEGATE = (
    "Delegate focused work that needs much reading or can run in parallel with yours. Do not delegate work of one "
    "or two steps, or work that needs this conversation: agents do not see it, so give them the goal, the paths and "
    "what is known. Start independent tasks together. Check the results."
)
AGENTS_HEADING = "Agents, with their own descriptions:"
MORE_AGENTS = "- and {} more"

_TOKEN_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x20-\x7e]|[!-/:-@\[-`{-~]")


def is_hint_enabled(retinue: Retinue, toolsets: Collection[str]) -> bool:
    """Return true if the user enabled the hint for one of these toolsets."""
    return any(retinue.settings(name).settings.policy for name in toolsets)


def render_hint(retinue: Retinue) -> str:
    """Return the hint for the agents that can be called from here, the user's own before the built-in ones.

    Agents of a project are left out until the user has accepted them: a host's model reads this before anything else.
    """
    used = [
        entry
        for entry in retinue.roster().list_definitions()
        if entry.status is DefinitionStatus.USED and _is_accepted(entry)
    ]
    agents = sorted((entry.agent for entry in used), key=lambda agent: agent.layer is SourceLayer.BUILTIN)
    return render_agents_hint([(agent.name, retinue.redact(agent.description)) for agent in agents])


def render_agents_hint(agents: Sequence[tuple[str, str]]) -> str:
    """Return the hint for agents of these names and descriptions; it names as many as there is room for."""
    lines: list[str] = []
    for budget in DESCRIPTION_BUDGETS:
        lines = _agent_lines(agents, budget)
        if len(lines) == len(agents):
            break
    if not lines:
        return WHEN_TO_DELEGATE
    left = len(agents) - len(lines)
    return "\n".join([WHEN_TO_DELEGATE, AGENTS_HEADING, *lines, *([MORE_AGENTS.format(left)] if left else [])])


def estimate_max_tokens(text: str) -> int:
    """Return an upper bound of the tokens that any model makes of a text.

    Ordinary English has a third of that. Random letters have one token for every 1.6, punctuation one each, and
    characters that are not ASCII at most one for every byte.
    """
    return sum(_max_tokens(piece) for piece in _TOKEN_PATTERN.findall(text))


def _max_tokens(piece: str) -> int:
    if not piece.isascii():
        return len(piece.encode("utf-8", "replace"))
    return math.ceil(len(piece) / (2 if piece.isdigit() else 1.6))


def _agent_lines(agents: Sequence[tuple[str, str]], line_budget: int) -> list[str]:
    lines, budget = [], MAX_DESCRIPTION_TOKENS
    for name, description in agents[:MAX_AGENTS]:
        line = _agent_line(name, description, line_budget)
        cost = estimate_max_tokens(line)
        if cost > line_budget:
            continue  # a cut name would not find its agent
        if cost > budget:
            break
        lines.append(line)
        budget -= cost
    return lines


def _agent_line(name: str, description: str, budget: int) -> str:
    """Return the line of an agent, its description cut between two words to fit the budget of tokens."""
    head = f"- {defang_markup(to_one_line(name, MAX_NAME_CHARS))}: "
    # Some tokenizers normalize first, and one character may become eighteen.
    text = defang_markup(to_one_line(unicodedata.normalize("NFKC", description), 2 * MAX_DESCRIPTION_CHARS))
    prefix = text[:MAX_DESCRIPTION_CHARS]
    while prefix and estimate_max_tokens(f"{head}{prefix}…") > budget:
        prefix = prefix[:-1]
    if not prefix:
        return head.removesuffix(": ")
    return head + (text if prefix == text else f"{prefix.rpartition(' ')[0] or prefix}…")


def _is_accepted(entry: AgentListing) -> bool:
    return entry.agent.layer is not SourceLayer.PROJECT or entry.accepted
