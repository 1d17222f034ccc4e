"""Fixtures of every test: asyncio by default, an empty home folder, and Ctrl-C."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from retinue.engines.claude.installation import LOGIN_VARIABLES as CLAUDE_KEYS
from retinue.engines.pi.installation import API_KEY_VARIABLES as PI_KEYS

MEMORY = Path("/dev/shm")
MIN_MEMORY_BYTES = 2**30
"""Free bytes without which tests use the disk: containers often have less."""


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """Return asyncio or, for `virtual` time, trio with a clock that jumps whenever all tasks wait."""
    if getattr(request, "param", None) == "virtual":
        return "trio", {"clock": MockClock(autojump_threshold=0)}
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Handle SIGINT, which a job in the background ignores together with its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def scratch_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home folder: no file of the person who runs the tests is read or written."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "RETINUE_STATE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PI_CODING_AGENT_DIR", "CLAUDE_CONFIG_DIR", "RETINUE_VAULT"):
        monkeypatch.delenv(name, raising=False)
    for name in (*PI_KEYS, *CLAUDE_KEYS):  # with one of them `auto` would choose that engine
        monkeypatch.delenv(name, raising=False)
    for name in ("COLUMNS", "LINES"):  # of the terminal that runs the tests
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Return an empty folder, in memory where the system has enough: for tests that sync more often than a disk can."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MIN_MEMORY_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="retinue-test-", dir=MEMORY) as folder:
        yield Path(folder)
