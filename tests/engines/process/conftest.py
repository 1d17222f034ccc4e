"""What tests of processes stand on."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.processes import Watched


@pytest.fixture
def watch() -> Iterator[Callable[[int | bytes], Watched]]:
    """Takes a process in view; what was is given back when the test ends."""
    watched: list[Watched] = []

    def begin(pid: int | bytes) -> Watched:
        watched.append(Watched(int(pid)))
        return watched[-1]

    yield begin
    for one in watched:
        one.close()


@pytest.fixture(autouse=True)
def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves may run under a Retinue."""
    for name in ("RETINUE_INSTANCE", "RETINUE_CHILD"):
        monkeypatch.delenv(name, raising=False)
