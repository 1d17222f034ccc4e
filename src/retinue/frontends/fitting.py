"""Which runs a screen has room for, in which order, and how many lines each of them gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from retinue.frontends.trees import as_tree
from retinue.progress import Phase, RunView


def tree_of(views: Iterable[RunView]) -> list[RunView]:
    """Nested runs right after the run that asked for them; their depth is counted from the first that is shown."""
    branches = as_tree(views, lambda view: view.run, lambda view: view.parent_run)
    return [_at(branch.item, branch.level) for branch in branches]


def _at(view: RunView, level: int) -> RunView:
    return view if view.depth == level else structs.replace(view, depth=level)


def that_fit(views: Sequence[RunView], rows: int, chosen: str | None = None) -> tuple[list[RunView], int]:
    """The runs there is a row for, and how many are left out: those at work and in error stay longest.

    One that someone has chosen stays in any case, and so do its neighbours: choosing the next one scrolls.
    """
    if len(views) <= rows:
        return list(views), 0
    order = [Phase.RUNNING, Phase.ERROR, Phase.QUEUED, Phase.DONE]
    places = {view.run: place for place, view in enumerate(views)}
    if chosen in places:
        first = min(max(places[chosen] - (rows - 1) // 2, 0), max(len(views) - (rows - 1), 0))
        kept = {view.run for view in views[first : first + max(rows - 1, 1)]}
    else:
        kept = {view.run for view in sorted(views, key=lambda view: order.index(view.phase))[: max(rows - 1, 0)]}
    return [view for view in views if view.run in kept], len(views) - len(kept)


def shares(views: Sequence[RunView], bodies: list[int], errors: list[int], room: int) -> list[tuple[int, int]]:
    """How many of its lines each run gets, of its body and of its error, where it has so many.

    Errors come first, then those at work, then the rest.
    """
    is_live = [view.phase is Phase.RUNNING for view in views]
    given_errors = _shared(errors, room)
    room -= sum(given_errors)
    live = _shared([lines * at_work for lines, at_work in zip(bodies, is_live, strict=True)], room)
    room -= sum(live)
    rest = _shared([lines * (not at_work) for lines, at_work in zip(bodies, is_live, strict=True)], room)
    return [(one + other, error) for one, other, error in zip(live, rest, given_errors, strict=True)]


def _shared(wanted: list[int], room: int) -> list[int]:
    """As many as everyone wants or, where there is too little, the same for all who want more."""
    given = [0] * len(wanted)
    while room > 0 and (open_ones := [i for i, want in enumerate(wanted) if given[i] < want]):
        each = max(room // len(open_ones), 1)
        for i in open_ones[:room]:
            more = min(each, wanted[i] - given[i])
            given[i] += more
            room -= more
    return given
