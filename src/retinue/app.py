"""The composition root, and the Python API over its parts.

async with Retinue(engine="offline") as retinue:
    result = await retinue.run("explorer", "Where are sessions stored?")
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from msgspec import structs

from retinue.agents.catalog import Catalog
from retinue.agents.definition import Agent, Layer, Remark
from retinue.agents.dialects import Origin, read_agent
from retinue.agents.folders import Folders
from retinue.agents.roster import Roster
from retinue.agents.trust import Trust
from retinue.bus import Bus, Watcher
from retinue.checks import wrong_type
from retinue.control.door import Door
from retinue.descent import marked_authority, marked_depth
from retinue.engines.base import EngineKind
from retinue.folders import home_folder, state_folder
from retinue.home import SURFACE
from retinue.orchestrator import ABORTED, Begun, Orchestrator
from retinue.output.sanitise import Masker, known_secrets
from retinue.parts import SURFACES, engine_kinds
from retinue.places.local import Local
from retinue.planner import Planner
from retinue.restoring import PastRun, restore_session
from retinue.results import RunResult, exit_code
from retinue.sessions.client import ClientStore, client_root
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.retention import Pruned
from retinue.sessions.store import SessionStore, SessionSummary
from retinue.settings import Layer as SettingsLayer
from retinue.settings import Resolved, resolve
from retinue.settings_files import SettingsFiles
from retinue.stored_sessions import StoredSessions
from retinue.surfaces.base import Toolset
from retinue.types import (
    Call,
    Failure,
    FileSlice,
    Lineage,
    Mode,
    Plan,
    Refused,
    RunSpec,
    Subagent,
    Task,
)


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
        engines: Mapping[str, EngineKind] | None = None,
        store: SessionStore | None = None,
        root: str | None = None,
        client: str | None = None,
        offline_may_answer: bool = False,
        owns_process: bool = False,
    ) -> None:
        """Takes what is given here instead of what the process has.

        With `client` sessions are those of this client alone: it finds and continues no others of the state folder.
        With `owns_process` the program says that nobody else in it starts processes: orphans of agents are then its.

        Raises:
            ValueError: a setting of this name does not exist, or cannot have this value.
        """
        # A copy: reading the process's own anew decodes every name and value again, for every run.
        self._environ: Mapping[str, str] = dict(os.environ) if environ is None else environ
        self._cwd = str(Path(cwd or "").absolute())
        self._given = _checked({**(settings or {}), **({"engine": engine} if engine else {})})
        self._settings = SettingsFiles(self._environ)
        self._state = Path(state) if state else state_folder(self._environ)
        self._trust = Trust(self._state / "trust.json")
        self._catalog = Catalog(Folders(self._environ), self._trust, program=agents)
        self._kinds = engine_kinds(self._environ, owns_process=owns_process) if engines is None else engines
        super().__init__(store or (ClientStore(self._state, client) if client else JsonlStore(self._state)))
        self._is_own_store = store is None
        self._masker = Masker(known_secrets(self._environ))
        self.client = client
        """Whose sessions these are; None: the user's own."""
        self._root = root or client_root(client, os.urandom(16).hex())
        self._goes_on = root is not None
        self._offline_may_answer = offline_may_answer
        self._owns_process = owns_process
        self._open: Orchestrator | None = None
        self._lifetime: AbstractAsyncContextManager[Orchestrator] | None = None
        self.interrupted: Sequence[SessionSummary] = ()
        """Sessions whose process had died: ended when this one was opened, with what they had."""

    async def __aenter__(self) -> Self:
        if self._lifetime is not None:
            raise RuntimeError("This Retinue is open already: close it first, or make another one.")
        self._opener = anyio.get_current_task().id
        self._is_bound = not _is_asyncio()
        self._lifetime = self._parts() if self._is_bound else _in_own_task(self._parts())
        try:
            self._open = await self._lifetime.__aenter__()
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
        self._open = self._lifetime = None
        await lifetime.__aexit__(None, None, None)

    async def open(self) -> Self:
        """Open it without `async with`, as a notebook or a fixture does; `close` it afterwards."""
        return await self.__aenter__()

    async def close(self) -> None:
        """Stop what runs, wait until it has ended, and close. Does nothing if it is not open."""
        await self.__aexit__(None, None, None)

    @asynccontextmanager
    async def _parts(self) -> AsyncIterator[Orchestrator]:
        """Everything that is open while this Retinue is."""
        async with AsyncExitStack() as stack:
            if self._is_own_store and isinstance(self._store, JsonlStore):
                await stack.enter_async_context(self._store)
            self.interrupted = await self._store.recover()
            door = await stack.enter_async_context(Door(self._environ))
            place = await stack.enter_async_context(Local(self._kinds))
            planner = Planner(self._settings, self._catalog, self._kinds, self._store, self._state, self._environ)
            orchestrator = Orchestrator(planner, place, self._store, Bus(), self._masker)
            stack.push_async_callback(orchestrator.close)
            door.serve(orchestrator, lambda: SURFACES[SURFACE](orchestrator, str(home_folder(self._environ))))
            orchestrator.household.address = door.address
            if isinstance(self._store, JsonlStore):
                self._store.control = door.address
            if self.settings("nested").settings.vault:
                planner.roster(self.call("nested"))  # the index of agents says what is true from the start
            if self._goes_on:
                await orchestrator.accounts.go_on(self._root)
            else:
                orchestrator.accounts.begin(self._root)
            try:
                yield orchestrator
            finally:
                self._open = None  # also where the event loop ends before anyone has closed it

    @property
    def _orchestrator(self) -> Orchestrator:
        if self._open is None:
            raise RuntimeError("Open Retinue with `async with` first: nothing runs outside its block.")
        return self._open

    # -- dispatching -------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | None,
        task: str,
        *,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        session: str | None = None,
        files: Iterable[FileSlice | str] = (),
        **settings: Any,
    ) -> RunResult:
        """One agent, one task. Look at the `failure` of the result: None means that the run completed.

        A refused task, say for an unknown agent, is a result, too: `was_started` is False, and it left no session.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: there is no such setting, or it cannot have this value.
        """
        asked = Task(
            prompt=task,
            agent=agent,
            name=name,
            cwd=str(Path(self._cwd, cwd)) if cwd else None,
            timeout=timeout,
            session=session,
            files=tuple(FileSlice(path=file) if isinstance(file, str) else file for file in files),
        )
        (result,) = await self._answered(Plan(tasks=(asked,)), self.call("single", **settings))
        return result

    async def delegate(self, tasks: Iterable[Task | tuple[str, str]], **settings: Any) -> tuple[RunResult, ...]:
        """Many tasks at once, as many together as there are slots; results in the order of the tasks.

        A task may be written as `(agent, prompt)`. If the call is refused as a whole, every result says why.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: there is no task; or a setting does not exist, or cannot have this value.
        """
        plan = Plan(tasks=tuple(map(_task, tasks)), mode=Mode.PARALLEL)
        return await self._answered(plan, self.call("fanout", **settings))

    async def chain(self, steps: Iterable[Task | tuple[str, str]], **settings: Any) -> tuple[RunResult, ...]:
        """One step after the other; stops at the first failure: then there are fewer results than steps.

        `{previous}` in a prompt is the answer of the step before, `{task}` the first task. If the chain is refused,
        there is one result, that of its first step, and it says why.

        Raises:
            TypeError: an argument has a wrong type.
            ValueError: there is no step; or a setting does not exist, or cannot have this value.
        """
        plan = Plan(tasks=tuple(map(_task, steps)), mode=Mode.CHAIN)
        return await self._answered(plan, self.call("nested", **settings))

    async def _answered(self, plan: Plan, call: Call) -> tuple[RunResult, ...]:
        """Carry the plan out; a refusal is a result, and leaves no session."""
        if not plan.tasks:
            raise ValueError("There is no task: give at least one.")
        for task in plan.tasks:
            if wrong := wrong_type(task):
                raise TypeError(f"A task {wrong}")
        call = structs.replace(call, records_refusals=False)
        try:
            return await self.carry_out(plan, call)
        except Refused as refusal:
            tasks = plan.tasks[:1] if plan.mode is Mode.CHAIN else plan.tasks
            return tuple(self._refused(task, call, refusal.failure) for task in tasks)

    def _refused(self, task: Task, call: Call, failure: Failure) -> RunResult:
        agent, prompt, message = map(self.masked, (task.agent or "", task.prompt, failure.message))
        spec = RunSpec(
            run="",
            session="",
            name=self.masked(task.name or "") or agent or "subagent",
            surface=call.surface,
            agent=Subagent(name=agent, layer=""),
            task=prompt,
            prompt=prompt,
            cwd=task.cwd or call.cwd,
            engine="",
            lineage=call.lineage,
        )
        return RunResult(spec=spec, failure=structs.replace(failure, message=message), exit_code=exit_code(failure))

    async def carry_out(self, plan: Plan, call: Call, begun: Begun | None = None) -> tuple[RunResult, ...]:
        """Any plan, on behalf of any caller; `begun` is told its runs before the first starts, but for a chain."""
        return await self._orchestrator.carry_out(plan, call, begun)

    def call(self, surface: str, *, parent_call: str | None = None, finalize: bool = False, **settings: Any) -> Call:
        """A call from this process: its place in the tree and its authority are what the environment says."""
        depth, deepest = marked_depth(self._environ)
        return Call(
            surface=surface,
            cwd=self._cwd,
            lineage=Lineage(root=self._root, parent_call=parent_call or f"call-{os.urandom(8).hex()}", depth=depth),
            authority=marked_authority(self._environ),
            settings={**self._given, **_checked(settings)} if settings else self._given,
            max_depth=deepest,
            finalize=finalize,
            offline_may_answer=self._offline_may_answer,
        )

    def events(self, *, deltas: bool = True) -> Watcher:
        """What happens from now on: `async with retinue.events() as events: async for event in events: …`."""
        return self._orchestrator.watch(deltas=deltas)

    def stop(self, run: str) -> bool:
        """Stops a live run; its result says `aborted` and keeps what it had."""
        return self._orchestrator.stop(run)

    async def steer(self, run: str, text: str) -> None:
        """Says something to the agent of a live run; see `Running.steer`."""
        await self._orchestrator.running.steer(run, text)

    async def extend(self, run: str, seconds: float) -> float:
        """Gives a live run more time, at most a day at once; the timeout that holds then. See `Running.extend`."""
        return await self._orchestrator.running.extend(run, seconds)

    def stop_all(self, failure: Failure = ABORTED) -> int:
        """Stops every live run, for this reason; how many there were."""
        return self._orchestrator.stop_all(failure)

    async def restore(self, surface: str, session: str, runs: Sequence[PastRun]) -> bool:
        """Write a session to the store that only a host still has, and return whether the store lacked it.

        Raises:
            Refused: `storage`.
        """
        return await restore_session(self._store, self._masker, self.call(surface), session, runs)

    def surface(self, name: str) -> Toolset:
        """A family of tools.

        Raises:
            ValueError: there is no surface of this name.
        """
        if name not in SURFACES:
            raise ValueError(f"Unknown surface {name!r}; known: {', '.join(SURFACES)}")
        return SURFACES[name](self._orchestrator, str(home_folder(self._environ)))

    # -- what there is -----------------------------------------------------------------------------

    @property
    def cwd(self) -> str:
        """Where calls are made from."""
        return self._cwd

    @property
    def state(self) -> Path:
        """The folder where everything is remembered."""
        return self._state

    @property
    def surfaces(self) -> tuple[str, ...]:
        """The names of the families of tools."""
        return tuple(SURFACES)

    def roster(self) -> Roster:
        """The agents that can be called from here; known without opening Retinue."""
        settings = self.settings("single").settings
        vault = Path(settings.vault) if settings.vault else None
        return self._catalog.at(Path(self._cwd), project_agents=settings.project_agents, vault=vault)

    def read_agent(self, path: Path) -> Agent | Remark | None:
        """The agent in a file as if it were the user's own; a remark if it is broken, None if it is none."""
        return read_agent(path, Origin(Layer.USER))

    def settings(self, surface: str) -> Resolved:
        """The settings of a surface here, with where each comes from."""
        return self._settings.resolve(surface, Path(self._cwd), self._given)

    def masked(self, text: str) -> str:
        """The text as it may leave: without what looks like a secret, and without those of this environment."""
        return self._masker.mask(text)[0]

    @property
    def containment(self) -> tuple[str, str]:
        """What holds the processes of an agent together here, and a sentence about it."""
        from retinue.engines.processes.containment import containment

        return containment(owns_process=self._owns_process)

    @property
    def engines(self) -> Mapping[str, EngineKind]:
        return self._kinds

    async def prune(self, *, older_than: float, keep_results: bool = True) -> Pruned:
        """Forgets sessions unchanged for so many seconds: their detail, or all of them."""
        vault = self.settings("nested").settings.vault
        return await self._files.prune(
            older_than=older_than, keep_results=keep_results, vault=Path(vault) if vault else None
        )

    @property
    def trust(self) -> Trust:
        """Which of a project's own agents the user has accepted."""
        return self._trust


def _is_asyncio() -> bool:
    """Whether the current task runs on asyncio's event loop."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:
        return False


def _in_own_task(parts: AbstractAsyncContextManager[Orchestrator]) -> AbstractAsyncContextManager[Orchestrator]:
    """Let any task close it: the teardown of a fixture, a later cell of a notebook."""
    from retinue.own_task import OwnTask

    return OwnTask(parts)


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings a program gave: it wants to know at once if one of them is wrong."""
    given = {name: value for name, value in settings.items() if value is not None}
    for problem in resolve("nested", [SettingsLayer(name="call", values=given)]).problems:
        raise ValueError(problem.message)
    return given


def _task(task: Task | tuple[str, str]) -> Task:
    return task if isinstance(task, Task) else Task(agent=task[0], prompt=task[1])
