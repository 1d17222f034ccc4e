"""Scripts of the scripted engine as JSON or TOML files.

    RETINUE_SCRIPT=script.toml retinue run --engine scripted explorer "…"

`steps` are played in every run; `runs` are lists of steps, one per run; `agents` has steps by agent name, and takes
precedence over both. A step has one of these keys, with the options shown:

    {"say": "text", "deltas": 3}                                   {task} and {agent} in it are filled in
    {"call": "read", "args": {"path": "x"}, "returns": "…", "isError": false}
    {"spawn": {"agent": "explorer", "task": "…"}}                  delegates, where the run may
    {"fail": "429 rate limit"}                                     the provider fails
    {"raise": "it broke"}                                          the engine fails
    {"finalize": "text"}    {"finalize": "partial", "error": "…"}    {"finalize": {"any": "JSON"}}
    {"wait": 1.5}           {"hang": true}
    {"hear": true}                                                 until it is steered; {steer} is the message
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
    DelegateStep,
    FailEngine,
    HangStep,
    Script,
    ScriptedEngine,
    Step,
    ToolCallStep,
    WaitForSteering,
    WaitStep,
    fail,
    finalize,
    reply,
)
from retinue.model.events import Event
from retinue.model.runs import RunSpec, ToolArguments
from retinue.support.safe_files import FileTooLargeError, read_regular_file

SCRIPT_VARIABLE = "RETINUE_SCRIPT"
MAX_SCRIPT_BYTES = 64 * 2**20
"""Bytes of a script: large, because scripts also simulate floods of output."""
DEFAULT_ANSWER = "A scripted answer of {agent} to: {task}"
"""The answer where no script is configured."""


class StepEntry(Struct, forbid_unknown_fields=True, rename="camel"):
    """One step as written in a file."""

    say: str | None = None
    deltas: int = 0
    call: str | None = None
    args: ToolArguments = field(default_factory=dict)
    returns: str = ""
    is_error: bool = False
    spawn: ToolArguments | None = None
    fail: str | None = None
    raises: str | None = field(default=None, name="raise")
    finalize: Any = None
    error: str | None = None
    wait: float | None = None
    hang: bool = False
    hear: bool = False
    event: Event | None = None


class ScriptFile(Struct, forbid_unknown_fields=True):
    steps: tuple[StepEntry, ...] = ()
    runs: tuple[tuple[StepEntry, ...], ...] = ()
    agents: Mapping[str, tuple[StepEntry, ...]] = field(default_factory=dict)


def load_script(path: str | Path) -> ScriptedEngine:
    """Return an engine that plays a script file.

    Raises:
        EngineError: the file cannot be read or is no script; the message names the position.
    """
    try:
        data = read_regular_file(path, MAX_SCRIPT_BYTES)
    except (OSError, ValueError, FileTooLargeError) as error:
        why = getattr(error, "strerror", None) or error
        raise engine_error(f"Cannot read the script {path}: {why}.", reason="script") from error
    return parse_script(data, is_toml=str(path).endswith(".toml"), name=str(path))


def from_environment(environment: Mapping[str, str]) -> ScriptedEngine:
    """Return an engine for `RETINUE_SCRIPT`, a path or JSON; without it, one that answers with one sentence.

    Raises:
        EngineError: the value is no script.
    """
    value = environment.get(SCRIPT_VARIABLE, "")
    if value.lstrip().startswith("{"):
        return parse_script(value.encode(), name=SCRIPT_VARIABLE)
    return load_script(value) if value else ScriptedEngine(_default_script)


def parse_script(data: bytes, *, name: str, is_toml: bool = False) -> ScriptedEngine:
    """Return an engine that plays the text of a script, which errors call `name`.

    Raises:
        EngineError: it is no script.
    """
    decode: Callable[..., Any] = msgspec.toml.decode if is_toml else msgspec.json.decode
    try:
        script: ScriptFile = decode(data, type=ScriptFile)
        every = _build_script(script.steps)
        agents = {agent: _build_script(steps) for agent, steps in script.agents.items()}
        turns = ScriptedEngine.from_scripts(*(_build_script(steps) for steps in script.runs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise engine_error(f"{name} is no script: {error}.", reason="script") from error

    def script_for(spec: RunSpec) -> Script:
        if spec.agent.name in agents:
            return agents[spec.agent.name]
        return turns.script_for(spec) if script.runs else every

    return ScriptedEngine(script_for)


def _build_script(entries: tuple[StepEntry, ...]) -> Script:
    return tuple(_build_step(entry) for entry in entries)


def _build_step(entry: StepEntry) -> Step:
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
            return reply(text, deltas=entry.deltas)
        case StepEntry(call=str(name)):
            return ToolCallStep(name=name, args=entry.args, returns=entry.returns, is_error=entry.is_error)
        case StepEntry(spawn=dict(args)):
            return DelegateStep(args)
        case StepEntry(fail=str(text)):
            return fail(text)
        case StepEntry(raises=str(text)):
            return FailEngine(engine_error(text))
        case StepEntry(finalize=result) if result is not None:
            return finalize(result, error=entry.error)
        case StepEntry(wait=float(seconds)):
            return WaitStep(seconds)
        case StepEntry(hear=True):
            return WaitForSteering()
        case _:
            return entry.event or HangStep()


def _default_script(spec: RunSpec) -> Script:
    return (finalize(DEFAULT_ANSWER),) if spec.finalize else (reply(DEFAULT_ANSWER, deltas=4),)
