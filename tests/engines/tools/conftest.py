"""A working directory, and its tools called as a model calls them."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from anyio import CapacityLimiter

from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools.call_budget import MAX_READERS
from retinue.engines.tools.local import make_local_toolbox
from retinue.model.runs import ToolUse

Call = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Beneath another folder, so that there is an outside."""
    root = tmp_path / "outside" / "tree"
    root.mkdir(parents=True)
    return root


@pytest.fixture
def call(tree: Path) -> Call:
    async def call(name: str, **args: object) -> ToolOutcome:
        return await make_local_toolbox(str(tree), CapacityLimiter(MAX_READERS)).call(ToolUse("1", name, args))

    return call


@pytest.fixture
def plant(tree: Path) -> Callable[..., Path]:
    """Writes files: `plant({"a/b.py": "text"})`."""

    def plant(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tree

    return plant
