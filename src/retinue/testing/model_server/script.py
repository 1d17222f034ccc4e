"""What the model is to say: steps, one per model turn, and how a prompt carries them.

The step played is the number of assistant turns after the user message that the script belongs to, so the server
keeps no conversation: resumed sessions, retries and agents side by side all find their place.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from retinue.testing.model_server.request import BadRequestError, Message, Request

MARK = "SCRIPT64:"
CARRIED = re.compile(MARK + r"([A-Za-z0-9+/]+={0,2})")
ECHOED = 60
"""Characters of the last user message that are repeated where no script says anything."""


class Call(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call of the model."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    """Calls the tool even if the request does not offer it, as models that make tools up do."""


class Fail(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer by an error status, some times before the step is played."""

    status: Annotated[int, Meta(ge=400, le=599)] = 500
    times: int = 1
    """-1 is always."""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One turn of the model."""

    text: str = ""
    thinking: str = ""
    """Comes before the text."""
    tool: str = ""
    """One tool call after the text, with `args`."""
    args: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Call, ...] = ()
    """Several tool calls at once."""
    delay: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds before the first byte."""
    tps: Annotated[float, Meta(ge=0)] = 0.0
    """Words per second; 0 is as fast as it goes."""
    hang: bool = False
    """Begins to answer and never goes on."""
    cut: bool = False
    """Drops the connection after the first word."""
    length: bool = False
    """Says that its text ended at the model's output limit."""
    fail: Fail | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        return (Call(tool=self.tool, args=self.args), *self.tools) if self.tool else self.tools


Steps = Sequence[Step | Mapping[str, Any]]
Decide = Callable[[Request], Step | Mapping[str, Any]]
"""Looks at a request and says what the model does."""
Script = Steps | Decide


def script64(steps: Steps) -> str:
    """A script as a prompt carries it: one word to be put anywhere into it."""
    return MARK + base64.b64encode(msgspec.json.encode([_step(step) for step in steps])).decode()


def step_for(request: Request, script: Script | None) -> Step:
    """What the model does now: as the prompt says, else as the server was told, else it repeats the prompt.

    Raises:
        BadRequestError: the prompt carries a script that cannot be read.
    """
    if carried := _carried(request.messages):
        steps, since = carried
        return _played(steps, request.messages[since + 1 :])
    if script is None:
        return Step(text=f"ECHO: {request.prompt[-ECHOED:].strip()}")
    if callable(script):
        return _step(script(request))
    return _played([_step(step) for step in script], request.messages[_last_user(request.messages) + 1 :])


def _carried(messages: Sequence[Message]) -> tuple[Sequence[Step], int] | None:
    for at in range(len(messages) - 1, -1, -1):
        # A program may merge user messages: the last script is the one that was asked for last.
        if messages[at].role == "user" and (found := CARRIED.findall(messages[at].text)):
            return _decoded(found[-1]), at
    return None


def _decoded(word: str) -> Sequence[Step]:
    try:
        return msgspec.json.decode(base64.b64decode(word, validate=True), type=tuple[Step, ...])
    except (binascii.Error, msgspec.DecodeError) as error:
        raise BadRequestError(
            f"The script in the prompt cannot be read: {error}. Make it with script64()."
        ) from error


def _played(steps: Sequence[Step], since: Sequence[Message]) -> Step:
    at = sum(message.role == "assistant" for message in since)
    return steps[at] if at < len(steps) else Step(text=f"END OF SCRIPT (step {at})")


def _last_user(messages: Sequence[Message]) -> int:
    return max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)


def _step(step: Step | Mapping[str, Any]) -> Step:
    return step if isinstance(step, Step) else msgspec.convert(step, Step)
