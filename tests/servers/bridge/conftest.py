from __future__ import annotations

from typing import Any

import pytest
from tests.support.bridge_extension import Extension


@pytest.fixture
def extension(tmp_path):
    started: list[Extension] = []

    def start(
        *arguments: str,
        toolset: str = "single",
        engine: str = "scripted",
        program: tuple[str, ...] = ("-m", "retinue"),
        script: Any = None,
        **environ: str,
    ) -> Extension:
        chosen = ("--toolset", toolset, "--engine", engine, *arguments)
        started.append(Extension(tmp_path, *chosen, program=program, script=script, environ=environ))
        return started[-1]

    yield start
    for each in started:
        each.kill()
