"""When to delegate and to whom: a few lines a host can show its model.

Off unless the user wants it, because it costs tokens in every conversation.
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
"""That are looked at; there is never room for as many."""
MAX_DESCRIPTION_TOKENS = 230
"""Tokens, as they are counted here, of what comes from agents' files; with all else the policy stays below 300."""
DESCRIPTION_BUDGETS = (45, 35, 25)
"""The same of one agent, so that none takes the place of others: less where not all have a place otherwise."""
MAX_WORD_LETTERS = 50
"""Of a description: the beginning says what an agent is for."""
MAX_NAME_CHARS = 200

WHEN_TO_DELEGATE = (
    "Delegate focused work that needs much reading or can go on beside yours. Do not delegate what takes a step or "
    "two, or what needs this conversation: an agent sees nothing of it, so give it the goal, the paths and what is "
    "known. Start independent tasks together. Check what comes back."
)
AGENTS_HEADING = "Agents, in their own words:"
MORE_AGENTS = "- and {} more"

_TOKEN_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x20-\x7e]|[!-/:-@\[-`{-~]")


def is_hint_enabled(retinue: Retinue, toolsets: Collection[str]) -> bool:
    """Whether the user wants a host with these surfaces to show its model the policy."""
    return any(retinue.settings(name).settings.policy for name in toolsets)


def render_hint(retinue: Retinue) -> str:
    """The policy for the agents that can be called from here, the user's own before those that everyone has.

    What a project says of its own agents is left out until the user has accepted them: a host's model reads this
    before anything else.
    """
    used = [
        entry
        for entry in retinue.roster().list_definitions()
        if entry.status is DefinitionStatus.USED and _is_accepted(entry)
    ]
    agents = sorted((entry.agent for entry in used), key=lambda agent: agent.layer is SourceLayer.BUILTIN)
    return render_agents_hint([(agent.name, retinue.redact(agent.description)) for agent in agents])


def render_agents_hint(agents: Sequence[tuple[str, str]]) -> str:
    """The policy for agents of these names and descriptions; as many as there is room for are named."""
    lines: list[str] = []
    for room in DESCRIPTION_BUDGETS:
        lines = _agent_lines(agents, room)
        if len(lines) == len(agents):
            break
    if not lines:
        return WHEN_TO_DELEGATE
    left = len(agents) - len(lines)
    return "\n".join([WHEN_TO_DELEGATE, AGENTS_HEADING, *lines, *([MORE_AGENTS.format(left)] if left else [])])


def estimate_max_tokens(text: str) -> int:
    """More tokens than a model makes of a text, however little sense it makes.

    Ordinary English has a third of them. Letters at random have one for every 1.6, signs one each, and what is not
    ASCII at most one for every byte.
    """
    return sum(_max_tokens(piece) for piece in _TOKEN_PATTERN.findall(text))


def _max_tokens(piece: str) -> int:
    if not piece.isascii():
        return len(piece.encode("utf-8", "replace"))
    return math.ceil(len(piece) / (2 if piece.isdigit() else 1.6))


def _agent_lines(agents: Sequence[tuple[str, str]], most_of_one: int) -> list[str]:
    lines, room = [], MAX_DESCRIPTION_TOKENS
    for name, description in agents[:MAX_AGENTS]:
        line = _agent_line(name, description, most_of_one)
        cost = estimate_max_tokens(line)
        if cost > most_of_one:
            continue  # a name cannot be cut: nobody could be called by it
        if cost > room:
            break
        lines.append(line)
        room -= cost
    return lines


def _agent_line(name: str, description: str, most: int) -> str:
    """An agent on a line, its description cut to the room there is, between two words."""
    head = f"- {defang_markup(to_one_line(name, MAX_NAME_CHARS))}: "
    # Some tokenizers normalise first, and one character may become eighteen.
    text = defang_markup(to_one_line(unicodedata.normalize("NFKC", description), 2 * MAX_WORD_LETTERS))
    words = text[:MAX_WORD_LETTERS]
    while words and estimate_max_tokens(f"{head}{words}…") > most:
        words = words[:-1]
    if not words:
        return head.removesuffix(": ")
    return head + (text if words == text else f"{words.rpartition(' ')[0] or words}…")


def _is_accepted(entry: AgentListing) -> bool:
    return entry.agent.layer is not SourceLayer.PROJECT or entry.accepted
