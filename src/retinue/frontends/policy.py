"""When to delegate and to whom: a few lines a host can show its model.

Off unless the user wants it, because it costs tokens in every conversation.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Sequence

from retinue.agents.definition import Layer
from retinue.agents.roster import Entry, Status
from retinue.app import Retinue
from retinue.output.frame import neutralise, one_line

MOST_AGENTS = 100
"""That are looked at; there is never room for as many."""
MOST_FOREIGN = 230
"""Tokens, as they are counted here, of what comes from agents' files; with all else the policy stays below 300."""
ROOMS = (45, 35, 25)
"""The same of one agent, so that none takes the place of others: less where not all have a place otherwise."""
MOST_LETTERS = 50
"""Of a description: the beginning says what an agent is for."""
MOST_NAME = 200

WHEN = (
    "Delegate focused work that needs much reading or can go on beside yours. Do not delegate what takes a step or "
    "two, or what needs this conversation: an agent sees nothing of it, so give it the goal, the paths and what is "
    "known. Start independent tasks together. Check what comes back."
)
WHOM = "Agents, in their own words:"
MORE = "- and {} more"

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x20-\x7e]|[!-/:-@\[-`{-~]")


def is_wanted(retinue: Retinue, surfaces: Collection[str]) -> bool:
    """Whether the user wants a host with these surfaces to show its model the policy."""
    return any(retinue.settings(name).settings.policy for name in surfaces)


def policy(retinue: Retinue) -> str:
    """The policy for the agents that can be called from here, the user's own before those that everyone has.

    What a project says of its own agents is left out until the user has accepted them: a host's model reads this
    before anything else.
    """
    used = [entry for entry in retinue.roster().listing() if entry.status is Status.USED and _is_accepted(entry)]
    agents = sorted((entry.agent for entry in used), key=lambda agent: agent.layer is Layer.BUILTIN)
    return told([(agent.name, retinue.masked(agent.description)) for agent in agents])


def told(agents: Sequence[tuple[str, str]]) -> str:
    """The policy for agents of these names and descriptions; as many as there is room for are named."""
    lines: list[str] = []
    for room in ROOMS:
        lines = _lines(agents, room)
        if len(lines) == len(agents):
            break
    if not lines:
        return WHEN
    left = len(agents) - len(lines)
    return "\n".join([WHEN, WHOM, *lines, *([MORE.format(left)] if left else [])])


def most_tokens(text: str) -> int:
    """More tokens than a model makes of a text, however little sense it makes.

    Ordinary English has a third of them. Letters at random have one for every 1.6, signs one each, and what is not
    ASCII at most one for every byte.
    """
    return sum(_tokens(piece) for piece in _PIECES.findall(text))


def _tokens(piece: str) -> int:
    if not piece.isascii():
        return len(piece.encode("utf-8", "replace"))
    return math.ceil(len(piece) / (2 if piece.isdigit() else 1.6))


def _lines(agents: Sequence[tuple[str, str]], most_of_one: int) -> list[str]:
    lines, room = [], MOST_FOREIGN
    for name, description in agents[:MOST_AGENTS]:
        line = _line(name, description, most_of_one)
        cost = most_tokens(line)
        if cost > most_of_one:
            continue  # a name cannot be cut: nobody could be called by it
        if cost > room:
            break
        lines.append(line)
        room -= cost
    return lines


def _line(name: str, description: str, most: int) -> str:
    """An agent on a line, its description cut to the room there is, between two words."""
    head = f"- {neutralise(one_line(name, MOST_NAME))}: "
    # Some tokenizers normalise first, and one character may become eighteen.
    said = neutralise(one_line(unicodedata.normalize("NFKC", description), 2 * MOST_LETTERS))
    kept = said[:MOST_LETTERS]
    while kept and most_tokens(f"{head}{kept}…") > most:
        kept = kept[:-1]
    if not kept:
        return head.removesuffix(": ")
    return head + (said if kept == said else f"{kept.rpartition(' ')[0] or kept}…")


def _is_accepted(entry: Entry) -> bool:
    return entry.agent.layer is not Layer.PROJECT or entry.accepted
