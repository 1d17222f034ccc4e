"""Scripts of the model: steps, one per turn, and their encoding in a prompt.

The step played is the number of assistant turns after the user message that the script belongs to, so the server
stores no conversation: resumed sessions, retries and concurrent agents all find their step.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from tests.support.model_server.request import BadRequestError, ChatMessage, ChatRequest

SCRIPT_MARK = "SCRIPT64:"
SCRIPT_PATTERN = re.compile(SCRIPT_MARK + r"([A-Za-z0-9+/]+={0,2})")
MAX_ECHO_CHARS = 60
"""Characters of the last user message that are repeated without a script."""


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call of the model."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    """Call the tool even if the request does not offer it, as models that invent tools do."""


class ScriptedError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An error response, given a number of times before the step is played."""

    status: Annotated[int, Meta(ge=400, le=599)] = 500
    times: int = 1
    """Number of failures; -1: always."""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""


class RawAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer of these bytes, in place of one that the API describes."""

    body: str
    content_type: str = "text/event-stream"
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    endless: bool = False
    """Repeat the body until the client disconnects."""


class ScriptedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of the model."""

    text: str = ""
    thinking: str = ""
    """Thinking before the text."""
    tool: str = ""
    """One tool call after the text, with `args`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ScriptedCall, ...] = ()
    """Several tool calls at once."""
    delay: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds before the first byte."""
    tps: Annotated[float, Meta(ge=0)] = 0.0
    """Words per second; 0: no pacing."""
    hang: bool = False
    """Start to answer and never continue."""
    cut: bool = False
    """Drop the connection after the first word."""
    length: bool = False
    """Report that the text ended at the output limit."""
    fail: ScriptedError | None = None
    raw: RawAnswer | None = None
    """Sent as it is; everything else of the turn is left out."""

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        return (ScriptedCall(tool=self.tool, args=self.args), *self.tools) if self.tool else self.tools


Steps = Sequence[ScriptedTurn | Mapping[str, Any]]
Decide = Callable[[ChatRequest], ScriptedTurn | Mapping[str, Any]]
"""Returns the step for a request."""
Script = Steps | Decide


def script64(steps: Steps) -> str:
    """Encode a script as one word that can be anywhere in a prompt."""
    return SCRIPT_MARK + base64.b64encode(msgspec.json.encode([_to_step(step) for step in steps])).decode()


def step_for(request: ChatRequest, script: Script | None) -> ScriptedTurn:
    """Return the next step: from the prompt, else from the server's script, else one that repeats the prompt.

    Raises:
        BadRequestError: the script in the prompt cannot be decoded.
    """
    if found := _find_script(request.messages):
        steps, since = found
        return _select_step(steps, request.messages[since + 1 :])
    if script is None:
        return ScriptedTurn(text=f"ECHO: {request.prompt[-MAX_ECHO_CHARS:].strip()}")
    if callable(script):
        return _to_step(script(request))
    return _select_step([_to_step(step) for step in script], request.messages[_last_user(request.messages) + 1 :])


def _find_script(messages: Sequence[ChatMessage]) -> tuple[Sequence[ScriptedTurn], int] | None:
    for at in range(len(messages) - 1, -1, -1):
        # A program may merge user messages: the last script belongs to the last one.
        if messages[at].role == "user" and (found := SCRIPT_PATTERN.findall(messages[at].text)):
            return _decode_script(found[-1]), at
    return None


def _decode_script(word: str) -> Sequence[ScriptedTurn]:
    try:
        return msgspec.json.decode(base64.b64decode(word, validate=True), type=tuple[ScriptedTurn, ...])
    except (binascii.Error, msgspec.DecodeError) as error:
        raise BadRequestError(
            f"The script in the prompt cannot be read: {error}. Make it with script64()."
        ) from error


def _select_step(steps: Sequence[ScriptedTurn], since: Sequence[ChatMessage]) -> ScriptedTurn:
    at = sum(message.role == "assistant" for message in since)
    return steps[at] if at < len(steps) else ScriptedTurn(text=f"END OF SCRIPT (step {at})")


def _last_user(messages: Sequence[ChatMessage]) -> int:
    return max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)


def _to_step(step: ScriptedTurn | Mapping[str, Any]) -> ScriptedTurn:
    return step if isinstance(step, ScriptedTurn) else msgspec.convert(step, ScriptedTurn)
