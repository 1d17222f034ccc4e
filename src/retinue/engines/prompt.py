"""What a program with sessions of its own is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from retinue.types import RunSpec


def prompt_of(spec: RunSpec) -> str:
    """The prompt, after what was said before where the program's own session does not know it."""
    if spec.native_session or not spec.history:
        return spec.prompt
    earlier = "\n\n".join(f"[{message.role}]\n{message.text}" for message in spec.history if message.text)
    return f"Earlier in this conversation:\n\n{earlier}\n\nNow:\n\n{spec.prompt}"


def prompt_files(folder: Path, prompts: Mapping[str, str]) -> list[str]:
    """Arguments that name the prompts, by their flags, leaving out those that say nothing.

    Each is in a file of its own: an argument could be too long, and others could read it.
    """
    return [part for flag, text in prompts.items() if text for part in (flag, _written(folder, flag, text))]


def _written(folder: Path, flag: str, text: str) -> str:
    path = folder / f"{flag.strip('-')}.md"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)
