"""An index of agents in SQLite, for programs that list agents without parsing every dialect.

It is derived from the files, which stay authoritative: it is rewritten whenever it differs from them or from the
state of the engines, and may be deleted at any time. It has the agents that belong to no working directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.registry import AgentSet
from retinue.engines.base import EngineInfo

_LAYERS = (SourceLayer.BUILTIN, SourceLayer.USER, SourceLayer.VAULT)
_CREATE = """
CREATE TABLE agents (
    name TEXT PRIMARY KEY, description TEXT, sourceLayer TEXT, source TEXT, digest TEXT, model TEXT, tools TEXT,
    enabled INTEGER, engine TEXT, cannotRun TEXT)
"""
_WRITE = "INSERT INTO agents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = "SELECT * FROM agents ORDER BY name"


class IndexRow(NamedTuple):
    """One agent as other agents may see it: no prompt, no persona, no memory, no key."""

    name: str
    description: str
    layer: str
    source: str
    digest: str
    model: str | None
    tools: str | None
    """A JSON list of pi's names; None if it inherits the caller's tools."""
    enabled: int
    engine: str
    """The engine it requests, or the configured one; `auto` is the first usable engine."""
    cannot_run: str | None
    """The reason why that engine cannot be used now, such as a missing login."""


class AgentIndex:
    """The index in one file. Errors of that file never fail a run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._basis: tuple[object, ...] = ()
        """The inputs and the stamp of the file when it was last correct."""

    def reconcile(self, agent_set: AgentSet, engine_infos: Mapping[str, EngineInfo], engine: str) -> bool:
        """Update the index to the current files and credentials; return whether it had to be written."""
        missing = {name: kind.not_installed_reason() for name, kind in engine_infos.items()}
        missing["auto"] = _missing_engines(engine_infos, missing)
        # Unchanged files give the same AgentSet object, so this costs nothing if nothing has changed.
        basis = (agent_set, tuple(missing.values()), engine)
        if (*basis, self._file_stamp()) == self._basis:
            return False
        rows = list(_build_rows(agent_set, missing, engine))
        is_stale = self.rows() != rows
        if is_stale:
            self._write(rows)
        self._basis = (*basis, self._file_stamp())
        return is_stale

    def rows(self) -> list[IndexRow] | None:
        """Return the rows of the index by name; None if there is no readable one."""
        import sqlite3

        try:
            # A file that another program has locked is rewritten rather than waited for: runs would wait, too.
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=0)) as database:
                return [IndexRow(*row) for row in database.execute(_READ)]
        except (sqlite3.Error, TypeError):
            return None

    def _file_stamp(self) -> object:
        """Return the stamp of the file; without a file, one that equals no other."""
        try:
            found = self._path.stat()
        except (OSError, ValueError):
            return object()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _write(self, rows: list[IndexRow]) -> None:
        import sqlite3

        new = self._path.with_name(f"{self._path.name}.{os.urandom(4).hex()}")
        try:
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(new, isolation_level=None)) as database:
                database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN; {_CREATE}")
                database.executemany(_WRITE, rows)
                database.execute("COMMIT")
            # In one step: a reader sees the old file or the new one.
            new.replace(self._path)
        except (OSError, sqlite3.Error):
            with suppress(OSError):
                new.unlink(missing_ok=True)


def _build_rows(agent_set: AgentSet, missing: Mapping[str, str | None], engine: str) -> Iterator[IndexRow]:
    import json

    strongest: dict[str, Agent] = {}
    for entry in agent_set.list_definitions():
        if entry.agent.layer in _LAYERS:
            strongest.setdefault(entry.agent.name, entry.agent)
    for _, agent in sorted(strongest.items()):
        tools = agent.to_profile().tools.requested
        requested = agent.engine or engine
        yield IndexRow(
            name=agent.name,
            description=agent.description,
            layer=str(agent.layer),
            source=os.fsencode(agent.source or "").decode(errors="replace"),  # file names need not be text
            digest=agent.digest,
            model=agent.model,
            tools=None if tools is None else json.dumps(tools),
            enabled=int(agent.enabled),
            engine=requested,
            cannot_run=missing.get(requested, f'Unknown engine "{requested}".'),
        )


def _missing_engines(engine_infos: Mapping[str, EngineInfo], missing: Mapping[str, str | None]) -> str | None:
    """Return the reason why `auto` finds no engine with a language model; None if it finds one."""
    reasons = [missing[name] for name, kind in engine_infos.items() if kind.automatic and kind.uses_models]
    return (
        None
        if None in reasons
        else " ".join(filter(None, reasons)) or "No engine with a language model is configured."
    )
