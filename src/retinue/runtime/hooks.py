"""The hooks of one run: commands at its start, before its tool calls, and at its end.

A hook that fails to decide is reported by name. Before a tool call that denies the call: an agent whose calls must be
checked makes none that was not.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, structs

from retinue.agents.agent import SourceLayer
from retinue.agents.hooks import PROJECT_VARIABLE
from retinue.engines.base import Emit, EngineError
from retinue.engines.hooks.answers import HookAnswer, read_answer
from retinue.engines.hooks.calls import ClaudeCall, list_names, resolve_paths, to_claude_calls, with_input
from retinue.engines.hooks.command import HookPlace, OpenSupervisor, run_hook
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice
from retinue.model.hooks import Hook, HookEvent
from retinue.model.runs import RunSpec, ToolArguments, ToolUse, process_limits
from retinue.model.tool_names import FINALIZE_TOOL
from retinue.runtime.active_run import ActiveRun
from retinue.runtime.supervisor import ExecuteSpec

HOOK = "hook"
"""Code of notices about hooks, and reason of failures by them."""
PERMISSION_MODE = "dontAsk"
"""What hooks read as the mode: nobody is asked for permission."""
STOPPED = "The run was stopped by the {}"


class CallVerdict(Struct, frozen=True, kw_only=True):
    """What the hooks of a run decided about a tool call."""

    denied: str | None = None
    args: ToolArguments = msgspec.field(default_factory=dict)
    context: str = ""
    stopped: str | None = None


class RunHooks:
    """Runs the hooks of one run and reads their answers."""

    def __init__(self, run: ActiveRun, open_supervisor: OpenSupervisor) -> None:
        self._run = run
        self._open_supervisor = open_supervisor
        self._hooks = run.spec.agent.hooks
        self._context: str | None = None
        """What the hooks of the start add to the prompt; None before they have run."""

    def wrap(self, execute: ExecuteSpec) -> ExecuteSpec:
        """Return how to execute the run with the hooks of its start before it."""

        async def execute_started(spec: RunSpec, emit: Emit) -> None:
            try:
                context = await self.start()
            except HookStoppedError as stop:
                raise EngineError(Failure(ErrorCode.ABORTED, STOPPED.format(stop), HOOK)) from stop
            # An attempt that continues a session has the text in there.
            if context and spec.prompt.startswith(self._run.spec.prompt):
                spec = structs.replace(spec, prompt=f"{context}\n\n{spec.prompt}")
            await execute(spec, emit)

        return execute_started

    def covers(self, tool: str) -> bool:
        """Return whether a hook decides about calls of a tool, in pi's name."""
        return tool != FINALIZE_TOOL and any(self._find("PreToolUse", list_names(tool)))

    async def start(self) -> str:
        """Run the hooks of the start once; return what they add to the prompt of the agent.

        Raises:
            HookStoppedError: one of them stops the run.
        """
        if self._context is None:
            self._context = ""
            answers = [answer async for answer in self._ask_all("SubagentStart")]
            self._context = "\n\n".join(answer.context for answer in answers if answer.context)
        return self._context

    async def check_end(self, answer: str, *, is_repeated: bool) -> str | None:
        """Run the hooks of the end; return why the agent must go on, or None."""
        fields = {"stop_hook_active": is_repeated, "last_assistant_message": answer, "agent_transcript_path": ""}
        try:
            answers = [each async for each in self._ask_all("SubagentStop", fields)]
        except HookStoppedError as stop:  # the agent has ended already
            await self._report(f"The agent ends here, says the {stop}")
            return None
        return "\n\n".join(each.blocked for each in answers if each.blocked) or None

    async def check_call(self, use: ToolUse, *, is_native: bool) -> CallVerdict:
        """Run the hooks of a call until one denies it; native calls are in Claude Code's names."""
        if is_native:
            args = use.args
            calls: tuple[ClaudeCall, ...] = (ClaudeCall(names=(use.name,), input=args),)
        else:
            args = resolve_paths(use, self._run.spec.cwd)
            calls = to_claude_calls(use.name, args)
        contexts: list[str] = []
        for index, call in enumerate(calls):
            verdict = await self._check_claude_call(use.id, call)
            if verdict.denied is not None or verdict.stopped is not None:
                return verdict
            if verdict.args != call.input:
                args = verdict.args if is_native else with_input(use.name, args, index, verdict.args)
            contexts += [verdict.context] if verdict.context else []
        return CallVerdict(args=args, context="\n\n".join(contexts))

    async def _check_claude_call(self, use: str, call: ClaudeCall) -> CallVerdict:
        contexts: list[str] = []
        for hook, name in self._find("PreToolUse", call.names):
            fields = {"tool_name": name, "tool_input": call.input, "tool_use_id": use}
            answer = await self._ask(hook, fields)
            if answer.stopped is not None:
                return CallVerdict(stopped=f"{hook.name}: {answer.stopped}")
            if answer.fault:
                return CallVerdict(denied=f"Denied, because the {hook.name} could not decide: {answer.fault}")
            if answer.blocked is not None:
                return CallVerdict(denied=f"Denied by the {hook.name}: {answer.blocked}")
            if answer.updated_input is not None and answer.updated_input != call.input:
                call = msgspec.structs.replace(call, input=answer.updated_input)
                await self._report(f"The {hook.name} changed the input of a call of {name}.")
            contexts += [answer.context] if answer.context else []
        return CallVerdict(args=call.input, context="\n\n".join(contexts))

    def _find(self, event: HookEvent, names: tuple[str, ...]) -> Iterator[tuple[Hook, str]]:
        """Yield the hooks of an event for something with these names, each with the name that matched."""
        for hook in self._hooks:
            if hook.event == event and (name := next((each for each in names if _matches(hook, each)), None)):
                yield hook, name

    async def _ask_all(
        self, event: HookEvent, fields: Mapping[str, Any] = MappingProxyType({})
    ) -> AsyncIterator[HookAnswer]:
        for hook, _ in self._find(event, (self._run.spec.agent.name,)):
            answer = await self._ask(hook, fields)
            if answer.stopped is not None:
                raise HookStoppedError(f"{hook.name}: {answer.stopped}")
            if answer.blocked is not None and event == "SubagentStart":
                await self._report(f"The {hook.name} cannot prevent the start of an agent: {answer.blocked}")
            yield answer

    async def _ask(self, hook: Hook, fields: Mapping[str, Any]) -> HookAnswer:
        spec = self._run.spec
        given = {
            "session_id": spec.session,
            "transcript_path": "",
            "cwd": spec.cwd,
            "permission_mode": PERMISSION_MODE,
            "hook_event_name": hook.event,
            "agent_id": spec.run,
            "agent_type": spec.agent.name,
            **fields,
        }
        try:
            encoded = msgspec.json.encode(given)
        except (UnicodeEncodeError, msgspec.MsgspecError) as error:  # half of a character pair in arguments
            answer = HookAnswer(fault=f"its input cannot be written as UTF-8 ({error})")
        else:
            answer = read_answer(hook, await run_hook(hook, encoded, self._place()))
        answer = msgspec.structs.replace(
            answer,
            **{name: self._redact(text) for name in _TEXTS if (text := getattr(answer, name))},
        )
        if answer.fault:
            await self._report(f"The {hook.name} failed: {answer.fault}")
        return answer

    def _place(self) -> HookPlace:
        spec = self._run.spec
        return HookPlace(
            cwd=spec.cwd,
            environ={**spec.environment, PROJECT_VARIABLE: _find_project(spec)},
            sandbox=spec.sandbox,
            limits=process_limits(spec.limits),
            open_supervisor=self._open_supervisor,
            shows_scripts=spec.agent.layer != SourceLayer.PROJECT,
        )

    def _redact(self, text: str) -> str:
        return self._run.recorder.redact(Notice(HOOK, text)).message

    async def _report(self, message: str) -> None:
        await self._run.record(Notice(HOOK, message))


class HookStoppedError(Exception):
    """A hook stops the run."""


MATCH_TIMEOUT = 0.1
"""Seconds of matching one name; a pattern such as `(a|a)*b` would take years."""
_is_list_of_names = re.compile(r"[A-Za-z0-9_|]+").fullmatch
_TEXTS = ("blocked", "context", "stopped", "fault")


def _matches(hook: Hook, name: str) -> bool:
    if not hook.matcher or hook.matcher == name:
        return True
    if _is_list_of_names(hook.matcher):
        return name in hook.matcher.split("|")
    return _matches_pattern(hook.matcher, name)


@lru_cache(maxsize=1024)
def _matches_pattern(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name; if it takes too long it does, so that no call passes unchecked."""
    import regex

    try:
        return regex.fullmatch(pattern, name, timeout=MATCH_TIMEOUT) is not None
    except (TimeoutError, regex.error):  # it was compiled by `re`, whose syntax differs a little
        return True


def _find_project(spec: RunSpec) -> str:
    """Return the folder of the project as the user approved its hooks: that of the agent's file, or the caller's."""
    if spec.agent.layer == SourceLayer.PROJECT and spec.agent.level:
        return spec.agent.level
    if spec.worktree:
        return str(Path(spec.worktree.repository, spec.worktree.folder))
    return spec.cwd
