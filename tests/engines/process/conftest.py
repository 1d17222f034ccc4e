"""Fixtures of the process tests."""

import resource
from collections.abc import Callable, Iterator

import pytest
from tests.support.processes import Watched


@pytest.fixture
def watch() -> Iterator[Callable[[int | bytes], Watched]]:
    """Return a function that opens a process for watching; all are closed when the test ends."""
    watched: list[Watched] = []

    def start_watching(pid: int | bytes) -> Watched:
        watched.append(Watched(int(pid)))
        return watched[-1]

    yield start_watching
    for one in watched:
        one.close()


@pytest.fixture(autouse=True)
def no_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the markers of a Retinue that runs the tests."""
    for name in ("RETINUE_INSTANCE", "RETINUE_CHILD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def restore_limits() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
