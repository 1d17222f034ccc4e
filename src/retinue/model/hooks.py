"""Hooks of an agent: commands that are run when it starts, when it ends, and before its tool calls. No I/O."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

HookEvent = Literal["PreToolUse", "SubagentStart", "SubagentStop"]

COMMAND_KIND = "command"
DEFAULT_HOOK_TIMEOUT = 60.0
MAX_HOOK_TIMEOUT = 600.0
MAX_NAME_CHARS = 80
"""Characters of a command that messages show."""


class Hook(Struct, frozen=True, kw_only=True):
    """A command of the user that is run at one kind of event, with Claude Code's JSON on stdin."""

    event: HookEvent
    command: str = ""
    """Executed by `sh -c`."""
    matcher: str = ""
    """Regular expression of Claude's names of tools, or of agents; empty: all."""
    timeout: float = DEFAULT_HOOK_TIMEOUT
    kind: str = COMMAND_KIND
    """What it is; any but `command` cannot be run here."""

    @property
    def is_command(self) -> bool:
        return self.kind == COMMAND_KIND

    @property
    def name(self) -> str:
        """The hook as messages name it."""
        matcher = f"({self.matcher})" if self.matcher else ""
        shown = " ".join(self.command.split())
        is_long = len(shown) > MAX_NAME_CHARS
        return f"{self.event}{matcher} hook `{shown[:MAX_NAME_CHARS]}{'…' if is_long else ''}`"

    @property
    def description(self) -> str:
        """The whole command, and what it is run for."""
        return f"{self.command if self.is_command else self.kind} (for {self.matcher or 'all'})"
