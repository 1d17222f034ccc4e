"""Sessions grouped by the root conversation they stand under, where no index does it."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.sessions.store import ALL, Conversation, SessionSummary, Wanted


def in_order(summaries: Iterable[SessionSummary], wanted: Wanted) -> list[SessionSummary]:
    """The wanted ones among sessions, last changed first."""
    found = sorted(filter(wanted.matches, summaries), key=lambda each: (-each.updated, each.session))
    return [each for each in found if _is_after(wanted, each.updated, each.session)][: wanted.limit]


def grouped(summaries: Iterable[SessionSummary], wanted: Wanted, most: int) -> list[Conversation]:
    """The root conversations of the wanted ones, each with at most so many of its sessions."""
    groups: dict[str, list[SessionSummary]] = {}
    for each in in_order(summaries, ALL):
        groups.setdefault(each.root, []).append(each)
    found = []
    for root, sessions in groups.items():
        sessions.sort(key=lambda each: not wanted.matches(each))
        first = sessions[0]
        if wanted.matches(first) and _is_after(wanted, first.updated, root):
            group = Conversation(root=root, updated=first.updated, count=len(sessions), sessions=sessions[:most])
            found.append(group)
    return sorted(found, key=lambda group: (-group.updated, group.root))[: wanted.limit]


def _is_after(wanted: Wanted, updated: float, name: str) -> bool:
    return wanted.before is None or (-updated, name) > (-wanted.before[0], wanted.before[1])
