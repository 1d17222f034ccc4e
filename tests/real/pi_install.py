"""A pi that is installed for tests, and the clean environment in which it runs."""

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
    """All that a pi is given besides a home: no key, no proxy, nothing of the person who runs the tests."""

    @property
    def argv(self) -> tuple[str, str]:
        return str(self.node), str(self.cli)

    @property
    def is_0_87(self) -> bool:
        return self.version.startswith("0.87.")

    def environ_in(self, home: Path, url: str, **settings: Any) -> dict[str, str]:
        """The environment of a pi in this home whose models are at this address. Settings are as pi has them."""
        agent = home / "agent"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "models.json").write_text(json.dumps(models(url)))
        (agent / "settings.json").write_text(json.dumps(settings))
        return {**self.environ, "HOME": str(home), "PI_CODING_AGENT_DIR": str(agent)}


def find_pi(tools: Path, name: str, node: Path, scratch: Path) -> PiInstall:
    """The pi in a folder of tools.

    `scratch` is its TMPDIR: node keeps what it compiled there, and starts in half the time if it stays the same.
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
    """The scripted models, one for each API that pi speaks."""
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
