"""Fixtures for agent tests: agent files, a repository, and registries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.agents.agent import Agent
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore

Write = Callable[..., Path]


@pytest.fixture
def write() -> Write:
    """Return a writer of agent files: `write(folder / "x.md", "tools: read", body="…")`, named by the file by default."""

    def write(path: Path, *lines: str, body: str = "Do it.") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        named = any(line.startswith("name:") for line in lines)
        header = [*lines] if named else [f"name: {path.stem}", *lines]
        path.write_text("\n".join(["---", *header, "---", body, ""]))
        return path

    return write


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return an empty repository."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    return root


@pytest.fixture
def trust(scratch_home: Path) -> TrustStore:
    return TrustStore(scratch_home / "state" / "trust.json")


@pytest.fixture
def registry_with(scratch_home: Path, trust: TrustStore) -> Callable[..., AgentRegistry]:
    """Return a maker of registries with agents of a program."""

    def make(
        *program: Agent,
        environ: dict[str, str] | None = None,
        bundle: Path | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> AgentRegistry:
        folders = SearchPaths({"HOME": str(scratch_home), **(environ or {})}, bundle=bundle)
        return AgentRegistry(folders, trust, program=program, clock=clock)

    return make


@pytest.fixture
def registry(registry_with: Callable[..., AgentRegistry]) -> AgentRegistry:
    return registry_with()


@pytest.fixture
def later_registry(registry_with: Callable[..., AgentRegistry]) -> AgentRegistry:
    """Return a registry whose clock is an hour ahead, so that every file stamp is settled."""
    return registry_with(clock=lambda: time.time_ns() + 3600 * 10**9)
