"""Finds agents: reads the folders around a working directory, again only what has changed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from retinue.agents.definition import Agent, Remark
from retinue.agents.dialects import read_agent
from retinue.agents.folders import Contents, Folder, Folders, Stamp, contents
from retinue.agents.roster import ProjectAgents, Roster
from retinue.agents.trust import Trust
from retinue.remembered import MOST, Remembered

_FRESH = 100_000_000
"""Nanoseconds in which a second change can leave a file's stamp as it was: file systems have coarse clocks."""


class _Read(NamedTuple):
    """What was found at a path in one state of it."""

    stamp: Stamp
    is_settled: bool
    """Whether the same stamp will mean the same content."""
    found: Agent | Remark | None


class _Shelf(Struct, frozen=True):
    """One folder as it was last read."""

    contents: Contents
    read: dict[str, _Read]
    is_settled: bool

    def agents(self) -> list[Agent]:
        return [read.found for read in self.read.values() if isinstance(read.found, Agent)]

    def remarks(self) -> list[Remark]:
        broken = (read.found for read in self.read.values() if isinstance(read.found, Remark))
        return [*self.contents.remarks, *broken]


class Catalog:
    """Every agent there is, for any working directory. An unchanged tree costs one look at each file.

    May be asked from several threads at once: what it remembers are whole values, put in place in one step.
    """

    def __init__(
        self,
        folders: Folders,
        trust: Trust,
        *,
        program: Iterable[Agent] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folders = folders
        self._trust = trust
        self._program = tuple(program)
        self._clock = clock
        self._shelves: dict[Folder, _Shelf] = {}
        self._rosters = Remembered[tuple[object, ...], Roster]()

    def at(self, cwd: Path, *, project_agents: ProjectAgents = "ask", vault: Path | None = None) -> Roster:
        """The agents of a working directory as their files are now; later changes do not reach the answer."""
        shelves = [self._shelf(folder) for folder in self._folders.around(cwd, vault=vault)]
        accepted, doubt = self._trust.look()
        make = partial(self._roster, shelves, accepted, doubt, project_agents)
        return self._rosters.made_of((cwd, project_agents, vault), (*shelves, accepted, doubt), make)

    def _roster(
        self,
        shelves: Sequence[_Shelf],
        accepted: Mapping[str, str],
        doubt: Remark | None,
        project_agents: ProjectAgents,
    ) -> Roster:
        found = [remark for shelf in shelves for remark in shelf.remarks()]
        return Roster(
            (*self._program, *(agent for shelf in shelves for agent in shelf.agents())),
            # Each once: a link that goes round may be on the way to several folders.
            remarks=tuple(dict.fromkeys((*found, doubt) if doubt else found)),
            accepted=accepted,
            project_agents=project_agents,
        )

    def _shelf(self, folder: Folder) -> _Shelf:
        known = self._shelves.get(folder)
        if known and folder.is_fixed:
            return known
        now = contents(folder)
        if known and known.is_settled and known.contents == now:
            return known
        earlier = known.read if known else {}
        settled = self._clock() - _FRESH
        read: dict[str, _Read] = {}
        for path, stamp in now.files:
            before = earlier.get(path)
            if before is None or before.stamp != stamp or not before.is_settled:
                # Times are the largest numbers of a stamp. Without one there is nothing to compare later.
                is_settled = max(stamp, default=math.inf) < settled
                before = _Read(stamp, is_settled, read_agent(Path(path), folder.origin))
            read[path] = before
        shelf = _Shelf(now, read, all(one.is_settled for one in read.values()))
        if len(self._shelves) >= MOST:
            self._shelves.clear()
        self._shelves[folder] = shelf
        return shelf
