"""The gate before the tool calls of one run: its hooks, and the files that other runs changed."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, MutableMapping

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.engines.base import Emit, EngineError
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice
from retinue.model.runs import GateDecision, RunSpec, ToolUse
from retinue.model.tool_names import to_pi_name
from retinue.runtime.active_run import ActiveRun
from retinue.runtime.file_changes import WRITING_TOOLS
from retinue.runtime.hooks import HOOK, STOPPED, RunHooks
from retinue.runtime.supervisor import ExecuteSpec
from retinue.support.tasks import BackgroundTasks

SAME_FILE = "same_file"
"""Code of notices about files that several runs changed."""
NO_SOCKET = (
    'The hooks of agent "{agent}" cannot be enforced, because no socket could be created by which the tools of its '
    "process are checked. No model was called. Set XDG_RUNTIME_DIR or TMPDIR to a private folder with a short path."
)


class RunGate:
    """Decides about the tool calls of a run, in whatever process its tools are."""

    def __init__(self, run: ActiveRun, hooks: RunHooks | None) -> None:
        self._run = run
        self._hooks = hooks
        address = run.spec.gate_address
        self._token = address.token.reveal().encode() if address else b""
        self._group: TaskGroup | None = None
        """The tasks of the run, while its engine works."""

    def matches_token(self, token: str) -> bool:
        is_equal = hmac.compare_digest(self._token, token.encode(errors="surrogatepass"))
        return is_equal and bool(self._token)

    def covers(self, tool: str) -> bool:
        return tool in WRITING_TOOLS or bool(self._hooks and self._hooks.covers(tool))

    async def check(self, use: ToolUse) -> GateDecision:
        return await self._check(use, use.name, is_native=False)

    async def check_native(self, use: ToolUse) -> GateDecision:
        return await self._check(use, to_pi_name(use.name), is_native=True)

    async def _check(self, use: ToolUse, tool: str, *, is_native: bool) -> GateDecision:
        decision = GateDecision()
        if self._hooks and self._hooks.covers(tool):
            verdict = await self._hooks.check_call(use, is_native=is_native)
            if verdict.stopped is not None:
                message = STOPPED.format(verdict.stopped)
                self._run.control.stop(Failure(ErrorCode.ABORTED, message, HOOK))
                return GateDecision(denied=message)
            if verdict.denied is not None:
                return GateDecision(denied=verdict.denied)
            changed = verdict.args if verdict.args != use.args else None
            decision = GateDecision(args=changed, context=verdict.context)
            use = structs.replace(use, args=verdict.args)
        if tool in WRITING_TOOLS and (refusal := self._run.file_changes.admit(self._run.spec.run, use.id, use.args)):
            for_model, for_people = refusal
            await self._run.record(Notice(SAME_FILE, for_people))
            return GateDecision(denied=self._run.recorder.redact(Notice(SAME_FILE, for_model)).message)
        return decision

    async def check_remote(self, use: ToolUse) -> GateDecision | None:
        """Return the decision about a call in another process, as work of the run; None if the run has ended."""
        if self._group is None:
            return None
        scope, done = anyio.CancelScope(), anyio.Event()
        decision: GateDecision | None = None

        async def check() -> None:
            nonlocal decision
            try:
                with scope:
                    decision = await self.check(use)
            finally:
                done.set()

        self._group.start_soon(check)
        try:
            await done.wait()
        finally:
            scope.cancel()
        return decision

    async def execute(self, execute: ExecuteSpec, spec: RunSpec, emit: Emit) -> None:
        """Execute the spec with this gate; checks that are in progress at its end are stopped."""
        async with BackgroundTasks() as group:
            self._group = group
            try:
                await execute(structs.replace(spec, gate=self), emit)
            finally:
                self._group = None


def find_gate(gates: Mapping[str, RunGate], token: str) -> RunGate | None:
    """Return the gate of a token; the comparison takes the same time for every token."""
    return next((gate for gate in [*gates.values()] if gate.matches_token(token)), None)


def with_gate(
    execute: ExecuteSpec,
    run: ActiveRun,
    hooks: RunHooks | None,
    gates: MutableMapping[str, RunGate],
    *,
    by_socket: bool,
) -> ExecuteSpec:
    """Return how to execute the run so that its tool calls are decided; by a socket, the gate is found in `gates`."""

    async def execute_gated(spec: RunSpec, emit: Emit) -> None:
        gate = RunGate(run, hooks)
        if not by_socket:
            await gate.execute(execute, spec, emit)
        elif spec.gate_address:
            gates[spec.run] = gate
            try:
                await gate.execute(execute, spec, emit)
            finally:
                del gates[spec.run]
        elif spec.agent.has_call_hooks:
            message = NO_SOCKET.format(agent=spec.agent.name)
            raise EngineError(Failure(ErrorCode.UNSUPPORTED, message, HOOK, {"agent": spec.agent.name}))
        else:
            await execute(spec, emit)

    return execute_gated
