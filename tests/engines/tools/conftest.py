"""A working directory and calls of its tools as a model makes them, with and without ripgrep."""

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anyio import CapacityLimiter

from retinue.engines.claude.installation import find_claude
from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.base import MAX_READERS
from retinue.model.runs import ToolUse

Call = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a working directory beneath another folder, so that there is an outside."""
    root = tmp_path / "outside" / "tree"
    root.mkdir(parents=True)
    return root


@pytest.fixture(scope="session")
def ripgrep_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with a real `rg`: the installed one, or Claude Code, which contains ripgrep under that name."""
    found = shutil.which("rg") or find_claude({"PATH": os.environ["PATH"]})
    if found is None:
        pytest.skip("There is neither ripgrep nor a Claude Code that contains it.")
    folder = tmp_path_factory.mktemp("ripgrep")
    (folder / "rg").symlink_to(found)
    return str(folder)


@pytest.fixture(params=["ripgrep", "walk"])
def search_path(request: pytest.FixtureRequest) -> str | None:
    """Return the PATH on which the tools look for ripgrep; None for the plain search."""
    return str(request.getfixturevalue("ripgrep_folder")) if request.param == "ripgrep" else None


@pytest.fixture
def call(tree: Path, search_path: str | None) -> Call:
    async def call(name: str, **args: object) -> ToolOutcome:
        toolbox = make_local_toolbox(str(tree), CapacityLimiter(MAX_READERS), search_path=search_path)
        return await toolbox.call(ToolUse("1", name, args))

    return call


@pytest.fixture
def write_files(tree: Path) -> Callable[..., Path]:
    """Write files into the working directory: `write_files({"a/b.py": "text"})`."""

    def write_files(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tree

    return write_files
