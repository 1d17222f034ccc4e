"""A pool of running pi processes: a start takes most of a second, a new session in a running process about 20 ms.

A process serves another run only if the run agrees on everything a process cannot change, and only after its last run
ended cleanly and left nothing behind. It is stopped after some runs, when its memory has grown, or after a long idle
time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from retinue.engines.base import EngineError, engine_error
from retinue.engines.pi.confinement import confine_pi
from retinue.engines.pi.launch import PiLaunch, ProcessKey
from retinue.engines.pi.rpc_process import RpcProcess
from retinue.engines.process.child import ChildProcess, open_child
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.model.runs import NO_DEADLINE
from retinue.support.tasks import BackgroundTasks

MIN_TICKS = 8
"""Clock ticks (10 ms) over all cores below which a sample means nothing."""


class CpuSampler:
    """CPU time of all cores since the last sample, on Linux; elsewhere the cores count as busy."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._total, self._idle = _read_cpu_ticks()

    def is_idle(self) -> bool:
        """Return whether more than the share of CPU time was idle since the last sample, and start a new sample."""
        total, idle = _read_cpu_ticks()
        if not self._total or total - self._total < MIN_TICKS:
            return False
        is_idle = idle - self._idle > self._share * (total - self._total)
        self._total, self._idle = total, idle
        return is_idle


def _read_cpu_ticks() -> tuple[int, int]:
    """Return the ticks of all cores so far: all of them, and the idle ones."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
        numbers = [int(word) for word in first.split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]
    except (OSError, ValueError, IndexError):
        return 0, 0


CPU_POLL_INTERVAL = 0.05
"""Seconds between two CPU samples while a run waits for a process."""
STOP_TIMEOUT = 12.0
"""Seconds within which the process tree of a stopped process is gone, whatever it does."""


class PoolLimits(Struct, frozen=True, kw_only=True):
    """Limits on the number of processes and their lifetime."""

    max_runs: int = 50
    """Runs after which a process is replaced."""
    max_memory_bytes: int = 600 << 20
    """Memory above which a process is replaced."""
    idle_timeout: float = 60.0
    """Seconds a process waits for its next run."""
    max_idle: int = 8
    """Waiting processes; each takes as much memory as a browser window."""
    max_starting: int = 0
    """Processes that start at once, and that exist before a run waits for a busy one. 0: one per core."""
    start_timeout: float = 5.0
    """Seconds for which a process that does not become ready occupies a start slot."""
    idle_cpu_share: float = 0.4
    """If more CPU time than this share is idle, runs wait for models, and another process is started. 1: never."""
    start_after: float = 0.25
    """Seconds without a free or new process after which another is started for a waiting run."""


class ProcessPool:
    """The processes of one engine."""

    def __init__(self, supervisor: ProcessSupervisor, limits: PoolLimits | None = None) -> None:
        self._supervisor = supervisor
        self._limits = limits or PoolLimits()
        self._group: TaskGroup | None = None
        self._idle: list[_PooledProcess] = []
        self._live: dict[ProcessKey, int] = {}
        """Number of processes per key, including those about to start."""
        self._target_size = self._limits.max_starting or os.cpu_count() or 1
        self._start_slots = anyio.Semaphore(self._target_size)
        self._starting = 0
        self._changed = anyio.Event()
        """Set when a process becomes free or has started."""

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        """Run until cancelled, then stop every process."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    @asynccontextmanager
    async def acquire(self, launch: PiLaunch, *, reuse: bool = True) -> AsyncIterator[RpcProcess]:
        """Provide a process for one run; unless it is reusable afterwards, its tree is gone when the block ends.

        Raises:
            EngineError: no process could be started.
        """
        process = await self._get_or_start(launch, reuse=reuse)
        try:
            yield process.rpc
        finally:
            with anyio.CancelScope(shield=True):
                if reuse and process.is_reusable():
                    self._return_process(process)
                else:
                    await process.stop()

    async def _get_or_start(self, launch: PiLaunch, *, reuse: bool) -> _PooledProcess:
        if reuse and (process := self._take_idle(launch) or await self._wait_for_free(launch)):
            return process
        return await self._start_process(launch, reuse=reuse)

    def _take_idle(self, launch: PiLaunch) -> _PooledProcess | None:
        for number in range(len(self._idle) - 1, -1, -1):
            process = self._idle[number]
            if process.key == launch.key and not process.is_stopping:
                del self._idle[number]
                process.idle_since = None
                return process
        return None

    async def _wait_for_free(self, launch: PiLaunch) -> _PooledProcess | None:
        """Wait for a process to become free; return None as soon as starting another one is faster."""
        cpu, unchanged_since = CpuSampler(self._limits.idle_cpu_share), anyio.current_time()
        while self._live.get(launch.key, 0) >= self._target_size:
            # Starting processes use the cores; each serves several short runs in the time another start takes.
            timeout = self._limits.start_timeout if self._starting else self._limits.start_after
            with anyio.move_on_after(min(CPU_POLL_INTERVAL, timeout)) as scope:
                await self._changed.wait()
            if process := self._take_idle(launch):
                return process
            if not scope.cancelled_caught:
                unchanged_since = anyio.current_time()
            elif anyio.current_time() - unchanged_since >= timeout or (not self._starting and cpu.is_idle()):
                break
        return None

    def _notify_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _return_process(self, process: _PooledProcess) -> None:
        process.idle_since = anyio.current_time()
        self._idle.append(process)
        if len(self._idle) > self._limits.max_idle:
            self._idle.pop(0).request_stop()
        self._notify_change()

    async def _start_process(self, launch: PiLaunch, *, reuse: bool) -> _PooledProcess:
        assert self._group is not None
        process: _PooledProcess | None = None
        self._count(launch.key, 1)
        try:
            async with self._start_slots:
                # Another process may have become free while this call waited for its start slot.
                if reuse and (idle_process := self._take_idle(launch)):
                    return idle_process
                process = _PooledProcess(launch, self._limits)
                self._group.start_soon(self._run_process, process)
                await self._wait_start_slot(process)
        finally:
            if process is None:
                self._count(launch.key, -1)
        await _wait_started(process)
        if process.error:
            await process.stop()
            raise process.error
        return process

    async def _wait_start_slot(self, process: _PooledProcess) -> None:
        self._starting += 1
        try:
            await _wait_started(process, timeout=self._limits.start_timeout)
        finally:
            self._starting -= 1
            self._notify_change()

    async def _run_process(self, process: _PooledProcess) -> None:
        """Run one process until it ends, then remove it from the pool."""
        try:
            await process.run(self._supervisor)
        finally:
            self._count(process.key, -1)
            if process in self._idle:
                self._idle.remove(process)
            self._notify_change()

    def _count(self, key: ProcessKey, change: int) -> None:
        self._live[key] = self._live.get(key, 0) + change
        if not self._live[key]:
            del self._live[key]


class _PooledProcess:
    """A process of the pool."""

    def __init__(self, launch: PiLaunch, limits: PoolLimits) -> None:
        self.key = launch.key
        self.started = anyio.Event()
        self.error: EngineError | None = None
        self.idle_since: float | None = None
        self._launch = launch
        self._limits = limits
        self._is_gone = False
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._rpc: RpcProcess | None = None

    @property
    def is_stopping(self) -> bool:
        """Return whether the process has ended or is being stopped."""
        return self._is_gone or self._scope.cancel_called

    @property
    def rpc(self) -> RpcProcess:
        assert self._rpc is not None
        return self._rpc

    async def run(self, supervisor: ProcessSupervisor) -> None:
        try:
            with self._scope:
                async with (
                    confine_pi(self._launch, PiLaunch.rpc_command) as confined,
                    open_child(confined.command, supervisor) as process,
                ):
                    self._rpc = RpcProcess(process, confined)
                    await self._rpc.wait_ready()
                    self.started.set()
                    await self._wait_idle()
        except EngineError as error:
            self.error = error
        except OSError as error:
            self.error = engine_error(f"The pi process failed: {error}.")
        finally:
            self.started.set()
            self._ended.set()

    def request_stop(self) -> None:
        """Start to stop the process."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Stop the process and wait, bounded, until nothing of its tree is left."""
        self.request_stop()
        with anyio.move_on_after(STOP_TIMEOUT, shield=True):
            await self._ended.wait()

    def is_reusable(self) -> bool:
        """Return whether the process may serve another run."""
        rpc, limits = self.rpc, self._limits
        return (
            rpc.is_clean
            and rpc.runs < limits.max_runs
            and not self.is_stopping
            and "max_disk_bytes" not in dict(self._launch.key.limits)  # what it wrote for one run counts
            and _read_memory(rpc.child) < limits.max_memory_bytes
        )

    async def _wait_idle(self) -> None:
        """Stop the process once it has been idle for too long."""
        async with BackgroundTasks(self._watch_exit):
            while True:
                since = anyio.current_time() if self.idle_since is None else self.idle_since
                await anyio.sleep_until(since + self._limits.idle_timeout)
                if since == self.idle_since:
                    self.request_stop()

    async def _watch_exit(self) -> None:
        # The run that uses the process reports why it ended.
        with suppress(EngineError):
            await self.rpc.child.wait()
        self._is_gone = True
        # The run that uses the process must read its last output first, and stops it then.
        if self.idle_since is not None:
            self.request_stop()


async def _wait_started(process: _PooledProcess, timeout: float = NO_DEADLINE) -> None:
    """Wait until the process has started or failed, or the time is over; stop it if the caller is cancelled."""
    try:
        with anyio.move_on_after(timeout):
            await process.started.wait()
    except anyio.get_cancelled_exc_class():
        await process.stop()
        raise


def _read_memory(child: ChildProcess) -> int:
    """Return the resident memory of the program, 0 if the system does not report it."""
    try:
        return int(Path(f"/proc/{child.find_program()}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
