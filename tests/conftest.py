"""What every test stands on: asyncio unless it says otherwise, and a home that is nobody's."""

import signal
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from retinue.engines.claude.installation import LOGIN_VARIABLES as KEYS_OF_CLAUDE
from retinue.engines.pi.installation import API_KEY_VARIABLES as KEYS_OF_PI


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """asyncio; or, where a test asks for `virtual` time, a clock that jumps whenever everyone waits."""
    if getattr(request, "param", None) == "virtual":
        return "trio", {"clock": MockClock(autojump_threshold=0)}
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A job in the background is started with SIGINT ignored, which its children inherit: Ctrl-C would mean nothing."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def scratch_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for each test: nothing of the person running the tests is read or written."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "RETINUE_STATE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PI_CODING_AGENT_DIR", "CLAUDE_CONFIG_DIR", "RETINUE_VAULT"):
        monkeypatch.delenv(name, raising=False)
    for name in (*KEYS_OF_PI, *KEYS_OF_CLAUDE):  # with one of them `auto` would ask a model of theirs
        monkeypatch.delenv(name, raising=False)
    for name in ("COLUMNS", "LINES"):  # of the terminal the tests are run from, which is no part of them
        monkeypatch.delenv(name, raising=False)
    return home
