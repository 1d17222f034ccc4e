"""The real pi, both versions: what `make test` installed, or a skip that says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engines_real.install import STAMP, node_and_npm, required
from tests.engines_real.pi_install import PiInstall, find_pi

from retinue.testing.model_server import ModelServer

TOOLS = Path(__file__).parents[2] / ".tools"


@pytest.fixture(scope="session")
def node_scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="session")
def pi_0_87(node_scratch: Path) -> PiInstall:
    return installed("pi-0.87", node_scratch)


@pytest.fixture(scope="session")
def pi_1_5(node_scratch: Path) -> PiInstall:
    return installed("pi-1.5", node_scratch)


@pytest.fixture(scope="session", params=["pi_0_87", "pi_1_5"])
def pi(request: pytest.FixtureRequest) -> PiInstall:
    """Each version in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PiInstall)
    return found


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("the secret word is XYZZY\n")
    return folder


def installed(name: str, scratch: Path) -> PiInstall:
    if not (TOOLS / STAMP).exists():
        sentence = "There is no real pi. `make test` installs it where a package registry can be reached."
        if required():
            pytest.fail(sentence)
        pytest.skip(sentence)
    node, _ = node_and_npm()
    return find_pi(TOOLS, name, node, scratch)
