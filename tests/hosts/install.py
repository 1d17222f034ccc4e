"""Install the host programs for the tests in this folder: `make test-hosts`.

python -m tests.hosts.install .tools          installs the locked versions
python -m tests.hosts.install --lock          updates the lock
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.real.install import Installation, main

FOLDER = "hosts"
PROGRAMS = Installation(
    title="Claude Code, Codex, Gemini CLI and opencode",
    stamp=".hosts",
    package="@openai/codex",
    sources={FOLDER: Path(__file__).parent / "programs"},
)

if __name__ == "__main__":
    sys.exit(main(PROGRAMS, sys.argv[1:]))
