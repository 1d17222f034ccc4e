"""Git repositories for tests, and an engine whose agents change files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from retinue.engines.base import Emit, EngineInfo
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, TextStep
from retinue.model.runs import RunSpec

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def git(folder: Path, *arguments: str, config: tuple[str, ...] = IDENTITY) -> str:
    """Run git as the user would and return its output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *config, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Return a repository with one commit of these files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write_files(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return all files of a repository but its objects and its log of branches, with the index."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith((".git/objects", ".git/logs", ".git/refs", ".git/worktrees")):
            found[name] = path.read_bytes()
    return found


class WritingEngine:
    """An engine whose agents call a function with their directory and answer with a text."""

    def __init__(self, work: Callable[[Path, RunSpec], None]) -> None:
        self._work = work
        self._answering = ScriptedEngine(TextStep(text="done"))

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        self._work(Path(spec.cwd), spec)
        await self._answering.run(spec, emit)


def writing(work: Callable[[Path, RunSpec], None]) -> Mapping[str, EngineInfo]:
    """Return a table of engines with a writing one only."""
    engine = WritingEngine(work)
    return {
        "scripted": EngineInfo(
            name="scripted", capabilities=CAPABILITIES, make=lambda: engine, not_installed_reason=lambda: None
        )
    }
