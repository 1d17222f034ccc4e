"""The answers of hooks: exit code, JSON on stdout, reason on stderr, as Claude Code reads them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.engines.hooks.command import HookOutcome
from retinue.model.hooks import Hook
from retinue.output.untrusted_text import strip_control_characters

BLOCKING_CODE = 2
MAX_REASON_CHARS = 10_000
NO_REASON = "The hook gave no reason."
NOBODY_TO_ASK = "the hook asks for a decision, and nobody is asked during a run"


class HookAnswer(Struct, frozen=True, kw_only=True):
    """The decision of a hook."""

    blocked: str | None = None
    """Why the call, or the end of the agent, is not allowed; None if it is."""
    updated_input: dict[str, Any] | None = None
    context: str = ""
    stopped: str | None = None
    """Why the whole run must stop; None if it goes on."""
    fault: str = ""
    """Why the hook gave no decision; empty if it gave one."""


class _SpecificOutput(Struct, rename="camel"):
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None


class _Output(Struct, rename="camel"):
    is_continued: bool = msgspec.field(name="continue", default=True)
    stop_reason: str | None = None
    decision: Literal["approve", "allow", "block"] | None = None
    reason: str | None = None
    hook_specific_output: _SpecificOutput | None = None


def read_answer(hook: Hook, outcome: HookOutcome) -> HookAnswer:
    """Return the decision of a hook that has ended; text that is no JSON object decides nothing."""
    if outcome.fault:
        return HookAnswer(fault=outcome.fault)
    if outcome.code == BLOCKING_CODE:
        return HookAnswer(blocked=_clean(outcome.stderr) or NO_REASON)
    if outcome.code:
        shown = _clean(outcome.stderr).splitlines()
        return HookAnswer(fault=f"it exited with code {outcome.code}{f': {shown[-1]}' if shown else ''}")
    try:
        text = outcome.stdout.decode().strip()
    except UnicodeDecodeError:
        return HookAnswer(fault="its output is not UTF-8")
    if not text.startswith(("{", "[")):
        return HookAnswer()
    try:
        output = msgspec.json.decode(text, type=_Output)
    except (msgspec.MsgspecError, RecursionError) as error:
        return HookAnswer(fault=f"its output is no valid answer ({error})")
    return _to_answer(hook, output)


def _to_answer(hook: Hook, output: _Output) -> HookAnswer:
    specific = output.hook_specific_output or _SpecificOutput()
    context = _clean(specific.additional_context or "")
    if not output.is_continued:
        return HookAnswer(stopped=_clean(output.stop_reason or output.reason or "") or NO_REASON)
    reason = _clean(output.reason or "")
    if hook.event != "PreToolUse":
        return HookAnswer(blocked=(reason or NO_REASON) if output.decision == "block" else None, context=context)
    given = _clean(specific.permission_decision_reason or "") or reason
    if specific.permission_decision == "deny" or output.decision == "block":
        return HookAnswer(blocked=given or NO_REASON)
    if specific.permission_decision == "ask":
        return HookAnswer(blocked=f"{given} ({NOBODY_TO_ASK})" if given else NOBODY_TO_ASK)
    return HookAnswer(updated_input=specific.updated_input, context=context)


def _clean(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return strip_control_characters(text).strip()[:MAX_REASON_CHARS]
