"""Scripts as files, for trying things from outside.

    RETINUE_SCRIPT=script.toml retinue run --engine scripted explorer "…"

JSON or TOML. `steps` are played in every run; `runs` are lists of steps, one per run; `agents` has steps by agent
name, and wins over both. A step has one of these keys, and beside it what belongs to it:

    {"say": "text", "deltas": 3}                                   {task} and {agent} in it are filled in
    {"call": "read", "args": {"path": "x"}, "returns": "…", "isError": false}
    {"spawn": {"agent": "explorer", "task": "…"}}                  delegates, where the run may
    {"fail": "429 rate limit"}                                     the provider fails
    {"raise": "it broke"}                                          the engine fails
    {"finalize": "text"}    {"finalize": "partial", "error": "…"}
    {"wait": 1.5}           {"hang": true}
    {"hear": true}                                                 until it is steered; {steer} is what it heard
    {"event": {"type": "notice", "code": "x", "message": "…"}}     any event as it is on the wire
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from retinue.engines.base import engine_error
from retinue.engines.scripted import (
    Call,
    Hang,
    Hear,
    Raise,
    Script,
    ScriptedEngine,
    Spawn,
    Step,
    Wait,
    fail,
    finalize,
    say,
)
from retinue.events import Event
from retinue.regular_files import TooLarge, read_regular
from retinue.types import Args, RunSpec

VARIABLE = "RETINUE_SCRIPT"
MAX_BYTES = 64 * 2**20
"""Of a script: floods are part of what scripts are for."""
DEFAULT = "A scripted answer of {agent} to: {task}"
"""What is said where no script is given."""


class StepEntry(Struct, forbid_unknown_fields=True, rename="camel"):
    """One step as it is written."""

    say: str | None = None
    deltas: int = 0
    call: str | None = None
    args: Args = field(default_factory=dict)
    returns: str = ""
    is_error: bool = False
    spawn: Args | None = None
    fail: str | None = None
    raises: str | None = field(default=None, name="raise")
    finalize: str | None = None
    error: str | None = None
    wait: float | None = None
    hang: bool = False
    hear: bool = False
    event: Event | None = None


class ScriptFile(Struct, forbid_unknown_fields=True):
    steps: tuple[StepEntry, ...] = ()
    runs: tuple[tuple[StepEntry, ...], ...] = ()
    agents: Mapping[str, tuple[StepEntry, ...]] = field(default_factory=dict)


def load(path: str | Path) -> ScriptedEngine:
    """The engine that plays a file.

    Raises:
        EngineError: the file cannot be read or is no script; the message says where.
    """
    try:
        data = read_regular(path, MAX_BYTES)
    except (OSError, ValueError, TooLarge) as error:
        why = getattr(error, "strerror", None) or error
        raise engine_error(f"Cannot read the script {path}: {why}.", reason="script") from error
    return parse(data, is_toml=str(path).endswith(".toml"), name=str(path))


def from_environment(environment: Mapping[str, str]) -> ScriptedEngine:
    """The engine that `RETINUE_SCRIPT` asks for, a path or the JSON itself; without it, one that says a sentence.

    Raises:
        EngineError: what it names is no script.
    """
    value = environment.get(VARIABLE, "")
    if value.lstrip().startswith("{"):
        return parse(value.encode(), name=VARIABLE)
    return load(value) if value else ScriptedEngine(_default)


def parse(data: bytes, *, name: str, is_toml: bool = False) -> ScriptedEngine:
    """The engine that plays a script's text; `name` is what to call it in an error.

    Raises:
        EngineError: it is no script.
    """
    decode: Callable[..., Any] = msgspec.toml.decode if is_toml else msgspec.json.decode
    try:
        script: ScriptFile = decode(data, type=ScriptFile)
        every = _script(script.steps)
        agents = {agent: _script(steps) for agent, steps in script.agents.items()}
        turns = ScriptedEngine.in_turn(*(_script(steps) for steps in script.runs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise engine_error(f"{name} is no script: {error}.", reason="script") from error

    def script_for(spec: RunSpec) -> Script:
        if spec.agent.name in agents:
            return agents[spec.agent.name]
        return turns.script_for(spec) if script.runs else every

    return ScriptedEngine(script_for)


def _script(entries: tuple[StepEntry, ...]) -> Script:
    return tuple(_step(entry) for entry in entries)


def _step(entry: StepEntry) -> Step:
    kinds = (
        entry.say,
        entry.call,
        entry.spawn,
        entry.fail,
        entry.raises,
        entry.finalize,
        entry.wait,
        entry.hang or None,
        entry.hear or None,
        entry.event,
    )
    if sum(kind is not None for kind in kinds) != 1:
        raise msgspec.ValidationError(
            "a step needs exactly one of say, call, spawn, fail, raise, finalize, wait, hang, hear and event"
        )
    match entry:
        case StepEntry(say=str(text)):
            return say(text, deltas=entry.deltas)
        case StepEntry(call=str(name)):
            return Call(name=name, args=entry.args, returns=entry.returns, is_error=entry.is_error)
        case StepEntry(spawn=dict(args)):
            return Spawn(args)
        case StepEntry(fail=str(text)):
            return fail(text)
        case StepEntry(raises=str(text)):
            return Raise(engine_error(text))
        case StepEntry(finalize=str(text)):
            return finalize(text, error=entry.error)
        case StepEntry(wait=float(seconds)):
            return Wait(seconds)
        case StepEntry(hear=True):
            return Hear()
        case _:
            return entry.event or Hang()


def _default(spec: RunSpec) -> Script:
    return (finalize(DEFAULT),) if spec.finalize else (say(DEFAULT, deltas=4),)
