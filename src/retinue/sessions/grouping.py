"""Sessions grouped by the root conversation they stand under, where no index does it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from retinue.sessions.store import Conversation, SessionSummary, Wanted


def in_order(summaries: Iterable[SessionSummary], wanted: Wanted) -> list[SessionSummary]:
    """The wanted ones among sessions, last changed first."""
    found = sorted(filter(wanted.matches, summaries), key=lambda each: (-each.updated, each.session))
    return [each for each in found if _is_after(wanted, each.updated, each.session)][: wanted.limit]


def grouped(summaries: Iterable[SessionSummary], wanted: Wanted, most: int) -> list[Conversation]:
    """The root conversations of the wanted ones, each with at most so many of its sessions."""
    every = in_order(summaries, Wanted())
    latest: dict[str, float] = {}
    for each in in_order(every, replace(wanted, limit=None, before=None)):
        latest.setdefault(each.root, each.updated)
    found = []
    for root, updated in sorted(latest.items(), key=lambda pair: (-pair[1], pair[0])):
        sessions = sorted((each for each in every if each.root == root), key=lambda each: not wanted.matches(each))
        group = Conversation(root=root, updated=updated, count=len(sessions), sessions=sessions[:most])
        found += [group] if _is_after(wanted, updated, root) else []
    return found[: wanted.limit]


def _is_after(wanted: Wanted, updated: float, name: str) -> bool:
    return wanted.before is None or (-updated, name) > (-wanted.before[0], wanted.before[1])
