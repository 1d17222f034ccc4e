"""The Claude Code that comes with the SDK, and its clean environment."""

from __future__ import annotations

from pathlib import Path

from tests.real.install import skip

from retinue.engines.claude.installation import find_claude

PATH = "/usr/local/bin:/usr/bin:/bin"


def claude_environ(home: Path, url: str, **more: str) -> dict[str, str]:
    """Return the whole environment of a Claude Code: no real key, its model at this address, few retries."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-not-a-real-key",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        **more,
    }


def need_claude() -> None:
    """Skip the test without Claude Code, as on a platform without a wheel of the SDK; fail it where required."""
    if find_claude({"PATH": PATH}) is None:
        skip("There is no Claude Code. The development requirements bring it, where there is a wheel for it.")
