"""The Python API.

async with Retinue(engine="offline") as retinue:
    result = await retinue.run("explorer", "Where are sessions stored?")
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import anyio
from msgspec import structs

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentSource, read_agent
from retinue.agents.registry import AgentSet
from retinue.agents.trust import TrustStore
from retinue.composition import TOOLSET_DEFAULTS, TOOLSETS, RetinueParts
from retinue.config.directories import state_folder
from retinue.config.run_environment import read_depth, read_tool_ceiling
from retinue.config.settings import ResolvedSettings, SettingsLayer, resolve_settings
from retinue.engines.base import EngineInfo, choose_automatic_engine
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.event_codec import EventRecord
from retinue.model.providers import find_listed_model
from retinue.model.results import ExecutionReport, OutputType, RunResult, StructuredResult, compute_exit_code
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext, FileSlice, Lineage, Mode, Plan, Task
from retinue.runtime.active_run import ABORTED
from retinue.runtime.event_bus import EventSubscription
from retinue.runtime.model_choice import unlisted_model
from retinue.runtime.orchestrator import OnRunsStarted, Orchestrator
from retinue.runtime.recorder import PastRun, restore_session
from retinue.runtime.result_types import convert_result, make_schema
from retinue.runtime.validation import wrong_type
from retinue.sessions.jsonl import make_client_root
from retinue.sessions.store import (
    EVERY_SESSION,
    Conversation,
    IndexProgress,
    LeaseOwner,
    LocalSessionStore,
    PruneReport,
    SessionFilter,
    SessionStore,
    SessionSummary,
    StoredEvents,
)
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.support.own_process import drop_placeholders
from retinue.worktrees.store import WorktreeStore

if TYPE_CHECKING:
    from retinue.agents.mcp_config import ServerFiles
    from retinue.model.mcp import McpServer
    from retinue.toolsets.base import Toolset


class StoredSessions:
    """Lists, finds and reads sessions."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._local_store = store if isinstance(store, LocalSessionStore) else None

    async def sessions(self, wanted: SessionFilter = EVERY_SESSION, *, look: bool = True) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first; without `look`, as they were last read."""
        if self._local_store:
            return await self._local_store.list(wanted, refresh=look)
        return await self._store.list(wanted)

    async def conversations(self, wanted: SessionFilter, *, most: int, look: bool = True) -> Sequence[Conversation]:
        """Return the conversations of matching sessions, last changed first, with at most `most` sessions each."""
        if self._local_store:
            return await self._local_store.conversations(wanted, max_sessions=most, refresh=look)
        return await self._store.conversations(wanted, max_sessions=most)

    async def advance_index(self, max_seconds: float, *, for_search: bool = False) -> IndexProgress | None:
        """Read changed records for at most so many seconds; None if the store has no index that is read in parts.

        `for_search` reads their texts, too, for the next search.
        """
        if self._local_store is None:
            return None
        return await self._local_store.advance_index(max_seconds, for_search=for_search)

    @property
    def scans_records(self) -> bool:
        """Whether the last search read every record, because SQLite has no full-text index here: it took longer."""
        return self._local_store is not None and self._local_store.has_scanned_records()

    async def names(self) -> frozenset[str]:
        """Return the first 8 digits of every session and latest run, so that a caller can find new ones."""
        if self._local_store:
            return await self._local_store.names()
        sessions = await self._store.list()
        return frozenset(id_[:SHORT_ID_LENGTH] for each in sessions for id_ in (each.session, each.latest.run))

    async def session(self, name: str) -> SessionSummary | None:
        """Return the session that an id, or a prefix of at least 8 digits, of it or of one of its runs names."""
        session = await self._store.find(name)
        return await self._store.summary(session) if session else None

    async def history(self, name: str, *, run: str | None = None) -> AsyncIterator[EventRecord]:
        """Yield the events of a session, or of one of its runs, from the first.

        Raises:
            RefusedError: `session_not_found`.
        """
        async for record in self._store.events(await self._find(name), run=run):
            yield record

    async def tail(self, name: str, count: int) -> Sequence[EventRecord]:
        """Return the last events of a session, at a cost that does not grow with its size.

        Raises:
            RefusedError: `session_not_found`.
        """
        return await self._store.tail(await self._find(name), count)

    async def recover(self) -> Sequence[SessionSummary]:
        """End the runs whose process has died, with what they had; return their sessions."""
        return await self._store.recover()

    async def owners(self) -> Sequence[LeaseOwner]:
        """Return the processes that execute runs of this store now; none if processes cannot share the store."""
        return await self._local_store.owners() if self._local_store else ()

    def root_history(self, root: str, *, follow: bool = False) -> StoredEvents:
        """Return every durable event under a root conversation; with `follow` also those to come, without end.

        Raises:
            RefusedError: `unsupported`: the store keeps no log of conversations.
        """
        store = self._require_local_store()
        return store.follow(root) if follow else store.root_events(root)

    def _require_local_store(self) -> LocalSessionStore:
        if self._local_store is None:
            raise refuse(
                ErrorCode.UNSUPPORTED,
                "This function needs a store of session files, but this Retinue was created with another store.",
            )
        return self._local_store

    async def _find(self, name: str) -> str:
        session = await self._store.find(name)
        if session is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND,
                f'Session "{name}" not found. `retinue sessions list` shows the existing sessions.',
            )
        return session


class Retinue(StoredSessions):
    """Dispatches agents. Open it with `async with`; everything it starts ends with the block.

    Settings given here win over the environment and over every file; their names are those of `retinue doctor`.
    """

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        engine: str | None = None,
        agents: Iterable[Agent] = (),
        settings: Mapping[str, Any] | None = None,
        state: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        engines: Mapping[str, EngineInfo] | None = None,
        store: SessionStore | None = None,
        root: str | None = None,
        client: str | None = None,
        offline_may_answer: bool = False,
    ) -> None:
        """Prepare a Retinue; arguments replace what the process has.

        With `client` it finds and continues only the sessions of this client in the state folder.

        Raises:
            ValueError: a setting does not exist, or cannot have this value.
        """
        # A copy: `os.environ` decodes every name and value again on each access, for every run.
        self._environ: Mapping[str, str] = drop_placeholders(os.environ if environ is None else environ)
        self._cwd = str(Path(cwd or "").absolute())
        self._setting_overrides = _validate_settings({**(settings or {}), **({"engine": engine} if engine else {})})
        self._parts = RetinueParts(
            environ=self._environ,
            state=Path(state) if state else state_folder(self._environ),
            agents=agents,
            engines=engines,
            store=store,
            client=client,
        )
        super().__init__(self._parts.store)
        self.client = client
        """The client whose sessions these are; None: the user."""
        self._root = root or make_client_root(client, os.urandom(16).hex())
        self._resumes_root = root is not None
        self._offline_may_answer = offline_may_answer
        self._active_orchestrator: Orchestrator | None = None
        self._lifetime: AbstractAsyncContextManager[Orchestrator] | None = None
        self.recovered_sessions: Sequence[SessionSummary] = ()
        """Sessions whose process had died: ended when this Retinue was opened, with what they had."""

    async def __aenter__(self) -> Self:
        if self._lifetime is not None:
            raise RuntimeError("This Retinue is already open: close it first, or create another one.")
        self._opener = anyio.get_current_task().id
        self._is_bound = not _is_asyncio()
        self._lifetime = self._open_parts() if self._is_bound else _in_own_task(self._open_parts())
        try:
            self._active_orchestrator = await self._lifetime.__aenter__()
        except BaseException:
            self._lifetime = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lifetime = self._lifetime
        if lifetime is None:
            return
        if self._is_bound and anyio.get_current_task().id != self._opener:
            raise RuntimeError(
                "This Retinue was opened by another task and is still open. On trio, close it in the task that "
                "opened it; on asyncio any task may."
            )
        self._active_orchestrator = self._lifetime = None
        await lifetime.__aexit__(None, None, None)

    async def open(self) -> Self:
        """Open this Retinue without `async with`, for a notebook or a fixture; `close` it afterwards."""
        return await self.__aenter__()

    async def close(self) -> None:
        """Stop all runs, wait until they have ended, and close. Does nothing if this Retinue is not open."""
        await self.__aexit__(None, None, None)

    @asynccontextmanager
    async def _open_parts(self) -> AsyncIterator[Orchestrator]:
        """Run the parts of this Retinue during the block."""
        async with self._parts.open() as orchestrator:
            self.recovered_sessions = await self._store.recover()
            if self.settings("nested").settings.vault:
                orchestrator.load_agents(self.call("nested"))  # brings the index of agents up to date
            if self._resumes_root:
                await orchestrator.budgets.load_from_store(self._root)
            else:
                orchestrator.budgets.start(self._root)
            try:
                yield orchestrator
            finally:
                self._active_orchestrator = None  # also if the event loop ends before anything has closed it

    @property
    def _orchestrator(self) -> Orchestrator:
        if self._active_orchestrator is None:
            raise RuntimeError("Open this Retinue with `async with` first: runs are possible only inside the block.")
        return self._active_orchestrator

    # -- dispatching -------------------------------------------------------------------------------

    @overload
    async def run(
        self, agent: str | None, task: str, *, output: type[OutputType], **options: Any
    ) -> StructuredResult[OutputType]: ...

    @overload
    async def run(
        self,
        agent: str | None,
        task: str,
        *,
        output: Mapping[str, Any] | None = None,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        session: str | None = None,
        files: Iterable[FileSlice | str] = (),
        **settings: Any,
    ) -> RunResult: ...

    async def run(
        self,
        agent: str | None,
        task: str,
        *,
        output: Any = None,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        session: str | None = None,
        files: Iterable[FileSlice | str] = (),
        **settings: Any,
    ) -> RunResult:
        """Run one agent on one task and return the result; its `failure` is None if the run completed.

        A refused task, such as one for an unknown agent, has a result, too, with `was_started` False and no session.
        With `output`, a JSON Schema or a type (msgspec struct, dataclass, pydantic model), the result's `structured`
        is a JSON value that matches the schema, or a value of the type.

        Raises:
            TypeError: an argument has a wrong type, or `output` is a type without a JSON schema.
            ValueError: a setting does not exist, or cannot have this value.
        """
        single_task = Task(
            prompt=task,
            agent=agent,
            name=name,
            cwd=str(Path(self._cwd, cwd)) if cwd else None,
            timeout=timeout,
            session=session,
            files=tuple(FileSlice(path=file) if isinstance(file, str) else file for file in files),
            output_schema=None if output is None else make_schema(output),
        )
        (result,) = await self._answered(Plan(tasks=(single_task,)), self.call("single", **settings))
        return result if output is None or isinstance(output, Mapping) else convert_result(result, output)

    async def delegate(self, tasks: Iterable[Task | tuple[str, str]], **settings: Any) -> tuple[RunResult, ...]:
        """Run many tasks at once, as many together as there are slots; return results in the order of the tasks.

        A task may be written as `(agent, prompt)`. If the call is refused as a whole, every result has the reason.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: there is no task; or a setting does not exist, or cannot have this value.
        """
        plan = Plan(tasks=tuple(map(_to_task, tasks)), mode=Mode.PARALLEL)
        return await self._answered(plan, self.call("fanout", **settings))

    async def chain(self, steps: Iterable[Task | tuple[str, str]], **settings: Any) -> tuple[RunResult, ...]:
        """Run one step after the other until one fails; return the results of the steps that ran.

        `{previous}` in a prompt is the answer of the step before, `{task}` the first task. If the chain is refused,
        there is one result, that of its first step, with the reason.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: there is no step; or a setting does not exist, or cannot have this value.
        """
        plan = Plan(tasks=tuple(map(_to_task, steps)), mode=Mode.CHAIN)
        return await self._answered(plan, self.call("nested", **settings))

    async def _answered(self, plan: Plan, call: CallContext) -> tuple[RunResult, ...]:
        """Run the plan; a refusal becomes a result, and stores no session."""
        if not plan.tasks:
            raise ValueError("No task given: pass at least one.")
        for task in plan.tasks:
            if wrong := wrong_type(task):
                raise TypeError(f"A task {wrong}")
        call = structs.replace(call, records_refusals=False)
        try:
            return await self.run_plan(plan, call)
        except RefusedError as refusal:
            tasks = plan.tasks[:1] if plan.mode is Mode.CHAIN else plan.tasks
            return tuple(self._refused(task, call, refusal.failure) for task in tasks)

    def _refused(self, task: Task, call: CallContext, failure: Failure) -> RunResult:
        agent, prompt, message = map(self.redact, (task.agent or "", task.prompt, failure.message))
        limits = self._parts.settings.resolve(call.toolset, Path(call.cwd), call.settings).settings.limits()
        spec = RunSpec(
            run="",
            session="",
            name=self.redact(task.name or "") or agent or "subagent",
            toolset=call.toolset,
            agent=AgentProfile(name=agent, layer=""),
            task=prompt,
            prompt=prompt,
            cwd=task.cwd or call.cwd,
            engine="",
            limits=structs.replace(limits, timeout=task.timeout or limits.timeout),
            lineage=call.lineage,
        )
        return RunResult(
            spec=spec,
            failure=structs.replace(failure, message=message),
            exit_code=compute_exit_code(failure),
            actual=ExecutionReport(limits=spec.limits, saved=False),
        )

    async def run_plan(
        self, plan: Plan, call: CallContext, on_started: OnRunsStarted | None = None
    ) -> tuple[RunResult, ...]:
        """Run any plan for any caller; `on_started` gets its runs before the first starts, except for a chain.

        Raises:
            RefusedError: the whole call was refused; nothing was started.
        """
        return await self._orchestrator.run_plan(plan, call, on_started)

    def call(
        self, toolset: str, *, parent_call: str | None = None, finalize: bool = False, **settings: Any
    ) -> CallContext:
        """Return the context of a call from this process, with the depth and authority that the environment sets."""
        depth, max_depth = read_depth(self._environ)
        info = TOOLSETS.get(toolset)  # a server may call with tools of its own
        chosen = _validate_settings(settings)
        if "model" in chosen:
            self._validate_model_choice(toolset, chosen["model"])
        return CallContext(
            toolset=toolset,
            cwd=self._cwd,
            lineage=Lineage(root=self._root, parent_call=parent_call or f"call-{os.urandom(8).hex()}", depth=depth),
            authority=read_tool_ceiling(self._environ),
            settings={**self._setting_overrides, **chosen} if chosen else self._setting_overrides,
            max_depth=max_depth,
            finalize=finalize,
            bounded_prompt=info is not None and info.bounded_prompt,
            resume_as_transcript=info is not None and info.resume_as_transcript,
            offline_may_answer=self._offline_may_answer,
        )

    def _validate_model_choice(self, toolset: str, model: str) -> None:
        """Check that a model chosen with a call is one of those the user lists, if the user lists any.

        Raises:
            ValueError: it is not.
        """
        patterns = self.settings(toolset).settings.models
        if patterns is not None and find_listed_model(model, patterns) is None:
            raise ValueError(unlisted_model(model, patterns).message)

    def events(self, *, deltas: bool = True) -> EventSubscription:
        """Subscribe to all events: `async with retinue.events() as events: async for event in events: …`."""
        return self._orchestrator.subscribe(deltas=deltas)

    def stop(self, run: str) -> bool:
        """Stop a live run, whose result is `aborted` with what it had; return whether there was one."""
        return self._orchestrator.stop(run)

    async def steer(self, run: str, text: str) -> None:
        """Send a text to the agent of a live run; see `ActiveRuns.steer`."""
        await self._orchestrator.active_runs.steer(run, text)

    async def extend(self, run: str, seconds: float) -> float:
        """Extend the time of a live run by at most a day and return its new timeout; see `ActiveRuns.extend`."""
        return await self._orchestrator.active_runs.extend(run, seconds)

    def stop_all(self, failure: Failure = ABORTED) -> int:
        """Stop every live run with this failure; return how many there were."""
        return self._orchestrator.stop_all(failure)

    async def restore(self, toolset: str, session: str, runs: Sequence[PastRun]) -> bool:
        """Write a session to the store that only a host still has, and return whether the store lacked it.

        Raises:
            RefusedError: `storage`.
        """
        return await restore_session(self._store, self._parts.redactor, self.call(toolset), session, runs)

    def toolset(self, name: str) -> Toolset:
        """Return the toolset of this name.

        Raises:
            ValueError: there is no such toolset.
        """
        if name not in TOOLSETS:
            raise ValueError(f"Unknown toolset {name!r}; known: {', '.join(TOOLSETS)}")
        return TOOLSETS[name].make(self._orchestrator, self._parts.home)

    # -- installation ------------------------------------------------------------------------------

    @property
    def cwd(self) -> str:
        """The directory calls are made from."""
        return self._cwd

    @property
    def state(self) -> Path:
        """The folder with all stored state."""
        return self._parts.state

    @property
    def toolsets(self) -> tuple[str, ...]:
        """The names of the toolsets."""
        return tuple(TOOLSETS)

    def roster(self) -> AgentSet:
        """Return the agents that can be called from this directory; works without opening Retinue."""
        settings = self.settings("single").settings
        vault = Path(settings.vault) if settings.vault else None
        return self._parts.catalog.for_directory(Path(self._cwd), project_agents=settings.project_agents, vault=vault)

    @cached_property
    def _server_files(self) -> ServerFiles:
        from retinue.agents.mcp_config import ServerFiles

        return ServerFiles()

    def find_servers(self, agent: Agent) -> tuple[McpServer, ...]:
        """Return the MCP servers of an agent in this directory as they are defined, with the problems of each."""
        if not agent.has_servers:
            return ()
        from retinue.agents.mcp_config import ServerFinder

        return ServerFinder(Path(self._cwd), self._environ, self._server_files).list_servers(agent)

    def describe_servers(self, agent: Agent) -> tuple[str, ...]:
        """Return how each MCP server of an agent is started, with the names of its variables and without secrets."""
        return tuple(self._parts.redactor.redact(str(server))[0] for server in self.find_servers(agent))

    def read_agent(self, path: Path) -> Agent | Diagnostic | None:
        """Return the agent of a file as if it were the user's; a diagnostic if it is broken, None if it has none."""
        return read_agent(path, AgentSource(SourceLayer.USER))

    def settings(self, toolset: str) -> ResolvedSettings:
        """Return the settings of a toolset in this directory, with the source of each."""
        return self._parts.settings.resolve(toolset, Path(self._cwd), self._setting_overrides)

    def redact(self, text: str) -> str:
        """Return the text without secrets, by their look or from this environment."""
        return self._parts.redactor.redact(text)[0]

    @property
    def containment(self) -> tuple[str, str]:
        """How the processes of an agent are held together here, and a sentence about it."""
        from retinue.engines.process.supervisor import detect_containment

        return detect_containment()

    @property
    def sandboxes(self) -> Mapping[str, str]:
        """What enforces each mode of the sandbox for processes here, with its gaps; or why it cannot be built."""
        from retinue.engines.sandbox.mechanisms import describe_modes

        return describe_modes(self._environ)

    @property
    def unavailable_sandboxes(self) -> frozenset[str]:
        """The modes of the sandbox that cannot be built for processes here."""
        from retinue.engines.sandbox.mechanisms import find_unavailable_modes

        return find_unavailable_modes(self._environ)

    def automatic_engine(self) -> EngineInfo | None:
        """Return the engine that `auto` uses for a run whose call and agent name no model; None if none is ready."""
        return choose_automatic_engine(self.engines.values(), self.settings("single").settings.model, self._environ)

    @property
    def engines(self) -> Mapping[str, EngineInfo]:
        return self._parts.engines

    async def prune(self, *, older_than: float, keep_results: bool = True) -> PruneReport:
        """Delete the details of sessions unchanged for so many seconds, or all of them without `keep_results`.

        Raises:
            RefusedError: `unsupported`: the store cannot be pruned; or `storage`.
        """
        vault = self.settings("nested").settings.vault
        return await self._require_local_store().prune(
            older_than=older_than, keep_results=keep_results, vault=Path(vault) if vault else None
        )

    @property
    def worktrees(self) -> WorktreeStore:
        """The git worktrees of runs."""
        return self._parts.worktrees

    @property
    def trust(self) -> TrustStore:
        """The record of a project's own agents that the user has accepted."""
        return self._parts.trust


def _is_asyncio() -> bool:
    """Return whether the current task runs on asyncio's event loop."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:
        return False


def _in_own_task(parts: AbstractAsyncContextManager[Orchestrator]) -> AbstractAsyncContextManager[Orchestrator]:
    """Let any task close the parts: the teardown of a fixture, a later cell of a notebook."""
    from retinue.support.own_task import OwnTask

    return OwnTask(parts)


_REPLACEMENT = re.compile(r"; \S+ is used$")
_EFFECT = re.compile(" ignored| cannot be read")


def _validate_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings a program passed, without those that are None.

    Raises:
        ValueError: one of them is wrong.
    """
    layer = {name: value for name, value in settings.items() if value is not None}
    for problem in resolve_settings("nested", [SettingsLayer(name="call", values=layer)], TOOLSET_DEFAULTS).problems:
        # In a file the value would be ignored or replaced; here the call is refused.
        raise ValueError(_REPLACEMENT.sub("", _EFFECT.sub("", problem.message, count=1)))
    return layer


def _to_task(task: Task | tuple[str, str]) -> Task:
    """Return the task.

    Raises:
        TypeError: it is neither a `Task` nor a pair.
    """
    match task:
        case Task():
            return task
        case (agent, prompt):
            return Task(agent=agent, prompt=prompt)
        case _:
            raise TypeError(f"A task is a Task or (agent, prompt), not {task!r:.80}")
