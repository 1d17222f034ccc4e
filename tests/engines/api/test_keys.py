"""A provider's key reaches the provider and nothing else: no event, record, log, error or child process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.support.model_server import ModelServer, ScriptedError, ScriptedTurn

from retinue.client import Retinue

CANARY = "canary-with-no-pattern-7f3a"
"""A key that no rule for secrets matches."""
KEYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "openai-chat": ("local/scripted-1", {"LOCAL_KEY": CANARY}),
    "openai-responses": ("openai/scripted-1", {"OPENAI_API_KEY": CANARY}),
    "anthropic": ("anthropic/scripted-1", {"ANTHROPIC_API_KEY": CANARY}),
    "gemini": ("google/scripted-1", {"GEMINI_API_KEY": CANARY}),
}
ECHO = f"Incorrect API key provided: {CANARY}. Bearer {CANARY} is not valid."


def make_environment(home: Path, url: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return variables that send all requests to the server, with one server of the user's own settings."""
    config = home / ".config/retinue/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[providers.local]\nbase_url = "{url}/v1"\nkey_variable = "LOCAL_KEY"\n')
    urls = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "GOOGLE_GEMINI_BASE_URL": url}
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", **urls, **keys}


async def run_and_collect(home: Path, turns: list[ScriptedTurn], api: str) -> tuple[str, ModelServer]:
    """Run a task and return everything that was reported or written anywhere."""
    model, keys = KEYS[api]
    async with ModelServer(turns) as server:
        environ = make_environment(home, server.url, keys)
        retinue = Retinue(
            cwd=home, state=home / "state", environ=environ, engine="api", settings={"allow_write": True}
        )
        async with retinue, retinue.events() as events:
            result = await retinue.run(None, "Go.", model=model)
            seen = [repr(event) for event in events.drain()]
    files = [path.read_text(errors="replace") for path in (home / "state").rglob("*") if path.is_file()]
    return "\n".join([repr(result), msgspec.json.encode(result).decode(), *seen, *files]), server


ERRORS = {
    "refused": [ScriptedTurn(fail=ScriptedError(status=401, times=-1, message=ECHO))],
    "retried": [
        ScriptedTurn(text="Done.", fail=ScriptedError(status=503, message=ECHO, headers={"retry-after": "0"}))
    ],
    "echoed by the model": [ScriptedTurn(thinking=f"The key is {CANARY}.", text=f"It is {CANARY}.")],
    "used in a command": [
        ScriptedTurn(tool="bash", args={"command": "env; tr '\\0' '\\n' < /proc/$PPID/cmdline"}),
        ScriptedTurn(text="Done."),
    ],
}


@pytest.mark.parametrize("turns", ERRORS.values(), ids=list(ERRORS))
@pytest.mark.parametrize("api", list(KEYS))
async def test_key_is_in_no_event_record_log_or_error(api, turns, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    reported, server = await run_and_collect(tmp_path, turns, api)
    assert any(CANARY in value for value in server.requests[0].headers.values())
    assert ("HOME=" if "bash" in repr(turns) else "[REDACTED]") in reported
    assert CANARY not in reported
    assert CANARY not in caplog.text
