"""Conversations that became too long: a summary in the place of their earlier messages. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.model.runs import Message

SUMMARY_TEXT = (
    "[The earlier part of this conversation was too long and has been replaced by this summary of it.]\n\n{summary}"
)


class Compaction(Struct, frozen=True, kw_only=True, rename="camel"):
    """The summary that replaced all messages of a conversation but its last turns."""

    summary: str
    kept_turns: int
    """Assistant messages at the end that were kept, with what follows each of them."""


def apply_compaction(messages: Sequence[Message], task: str, compaction: Compaction) -> list[Message]:
    """Return a conversation with the task, the summary, and the turns that were kept, byte for byte."""
    kept = messages[find_turn(messages, compaction.kept_turns) :]
    head = SUMMARY_TEXT.format(summary=compaction.summary)
    if not any(message.role == "user" and task in message.text for message in kept):
        head = f"{task}\n\n{head}"
    if kept and kept[0].role == "user":
        # Providers refuse two messages of the user in a row.
        head, kept = f"{head}\n\n{kept[0].text}", kept[1:]
    return [Message(role="user", text=head), *kept]


def find_turn(messages: Sequence[Message], count: int) -> int:
    """Return the index at which the last `count` assistant messages begin; for 0, what follows the last one."""
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if count:
        return turns[max(len(turns) - count, 0)] if turns else 0
    last = max((number for number, message in enumerate(messages) if message.role != "user"), default=-1)
    return last + 1
