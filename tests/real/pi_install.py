"""A pi that is installed for tests, and its clean environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

PACKAGE = Path("node_modules/@earendil-works/pi-coding-agent")


class PiInstall(Struct, frozen=True):
    """One version of pi. `pi` is on the PATH of its environment, as npm puts it there."""

    version: str
    node: Path
    cli: Path
    environ: Mapping[str, str]
    """The whole environment except for the home: no key, no proxy, nothing of the user who runs the tests."""

    @property
    def argv(self) -> tuple[str, str]:
        return str(self.node), str(self.cli)

    @property
    def is_0_87(self) -> bool:
        return self.version.startswith("0.87.")

    def environ_in(self, home: Path, url: str, **settings: Any) -> dict[str, str]:
        """Return the environment of a pi in this home with models at this address and these settings of pi."""
        agent = home / "agent"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "models.json").write_text(json.dumps(models(url)))
        (agent / "settings.json").write_text(json.dumps(settings))
        return {**self.environ, "HOME": str(home), "PI_CODING_AGENT_DIR": str(agent)}


def find_pi(tools: Path, name: str, node: Path, scratch: Path) -> PiInstall:
    """Return the pi in a folder of tools.

    `scratch` is its TMPDIR: node caches compiled code there, which halves its start time.
    """
    folder = tools / name
    version = json.loads((folder / PACKAGE / "package.json").read_text())["version"]
    path = [str(folder / "node_modules" / ".bin"), str(node.parent), "/usr/local/bin", "/usr/bin", "/bin"]
    environ = {
        "PATH": os.pathsep.join(path),
        "LANG": "C.UTF-8",
        "TMPDIR": str(scratch),
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_SKIP_VERSION_CHECK": "1",
    }
    return PiInstall(version=version, node=node, cli=folder / PACKAGE / "dist/bundle/cli.js", environ=environ)


def models(url: str) -> dict[str, Any]:
    """Return the scripted models, one for each API of pi."""
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25}
    chat = {"id": "scripted-1", "reasoning": True, "contextWindow": 128000, "maxTokens": 8192, "cost": cost}
    responses = {"id": "scripted-responses", "api": "openai-responses", "reasoning": True}
    messages = {"id": "scripted-messages", "api": "anthropic-messages", "baseUrl": url, "reasoning": True}
    local = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "no-key",
        "models": [chat, responses, messages],
    }
    return {"providers": {"local": local}}
