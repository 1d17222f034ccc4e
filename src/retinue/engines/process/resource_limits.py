"""Ends the children of the watchdog that use more than they may. Part of the watchdog: stdlib only, and light.

Limits hold for all children of a run together. The kernel applies them where control groups have controllers for
memory and processes; in any case they are sampled.

A child's processes are found by their parents and sessions, by control group, and by a tag: each child is started
with a value of its own for a resource limit that the kernel does not apply. Whatever descends from it inherits the
value, so that an orphan with another session and a cleared environment still shows where it comes from. An orphan
without a tag of this watchdog can be of any child and counts for each.

Processes are given as the fields of /proc/PID/stat after the name, by pid.
"""

from __future__ import annotations

# ruff: noqa: SIM105
# contextlib is slow to import
import os
import resource  # here, not where it is used: that is in a fork, which would wait for it at each start
import time

TYPE_CHECKING = False
"""As in typing, which is slow to import."""
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
    from typing import Protocol

    from retinue.engines.process.process_table import (
        PARENT,
        SESSION,
        START,
        Table,
        add_descendants,
        list_live,
        read_file,
        read_table,
        signal_processes,
        write_file,
    )
    from retinue.engines.process.watchdog_main import Request

    class LimitedChild(Protocol):
        """A child of the watchdog."""

        @property
        def pid(self) -> int: ...
        def report(self, *message: str | int) -> None: ...

else:
    import _signal as signal

    from process_table import (
        PARENT,
        SESSION,
        START,
        add_descendants,
        list_live,
        read_file,
        read_table,
        signal_processes,
        write_file,
    )

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_INTERVAL = 0.25
"""Seconds between two samples."""
GROWTH_INTERVAL = 0.05
"""Seconds to the next sample after one with many new processes."""
GROWTH = 8
"""New processes from one sample to the next that are many."""
KILL_INTERVAL = 0.005
"""Seconds to the next scan while processes are killed."""
KILL_TIMEOUT = 5.0
"""Seconds for the processes that a released child has left."""
MAX_STOP_ROUNDS = 20
"""Scans for new processes before the stopped ones are killed."""
KERNEL_LIMITS = {
    "max_memory_bytes": ("memory.max", "memory.events", b"oom_kill", "memory.peak"),
    "max_processes": ("pids.max", "pids.events", b"max", "pids.peak"),
}
"""The files of a control group: the limit, how often it was applied and under which name, and the peak."""
RLIMIT_LOCKS = 10
"""Not applied since Linux 2.4.25; every process can read it of every other."""
TAG_BITS = 24
"""Bits of a tag that number the children of one watchdog."""


class Tags:
    """Issues the tags of one watchdog."""

    def __init__(self) -> None:
        self._base = int.from_bytes(os.urandom(4), "little") << TAG_BITS
        self._count = 0

    def issue(self) -> int:
        self._count = (self._count + 1) % 2**TAG_BITS
        return self._base + self._count

    def owns(self, tag: int) -> bool:
        return tag >> TAG_BITS == self._base >> TAG_BITS


def put_tag(tag: int) -> None:
    """Tag this process and all it will start. Where a finite limit is in force, nothing is tagged."""
    try:
        resource.setrlimit(RLIMIT_LOCKS, (tag, resource.getrlimit(RLIMIT_LOCKS)[1]))
    except (OSError, ValueError):
        pass


def read_tag(pid: int) -> int:
    """Return the tag of a process; 0 for none."""
    for line in read_file(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max file locks"):
            word = line.split()[3]
            return int(word) if word.isdigit() else 0
    return 0


class LimitedTree:
    """The processes of one run with limits, remembered by pid and start from one sample to the next."""

    def __init__(self, run: str, limits: dict[str, int]) -> None:
        self.run = run
        self.roots: dict[int, LimitedChild] = {}
        """The children by pid, each until its release: the pid may then be another process."""
        self.tags: set[int] = set()
        self.is_exceeded = False
        self.count = 1
        """Processes in the last sample."""
        self.deadline = float("inf")
        """When to give up on processes that do not end."""
        self._limits = limits
        self._cgroups: list[str] = []
        self._known: dict[int, bytes] = {}
        self._disk = 0

    def add(self, child: LimitedChild, tag: int, cgroup: str) -> None:
        self.roots[child.pid] = child
        self.tags.add(tag)
        self.deadline = float("inf")
        if cgroup:
            self._cgroups.append(cgroup)

    def select(self, table: Table, orphans: dict[int, int]) -> set[int]:
        """Return the pids of its processes. `orphans` are the children the watchdog has adopted, with their tags."""
        found = {*self.roots, *self._list_cgroups()}
        found |= {pid for pid, tag in orphans.items() if tag in self.tags}
        found |= {pid for pid, start in self._known.items() if pid in table and table[pid][START] == start}
        found = add_relatives(found & table.keys(), table)
        self._known = {pid: table[pid][START] for pid in found}
        return found

    def apply_limits(self, pids: Iterable[int]) -> None:
        """Report the first limit that these processes exceed together, or that the kernel applied."""
        self.report_kernel_limits()
        used = self._measure(list(pids))
        for name, limit in self._limits.items():
            if used[name] > limit:
                self._report(name, used[name])

    def report_kernel_limits(self) -> None:
        """Report a limit that the kernel has applied to a control group of the run."""
        for cgroup in self._cgroups:
            for name, used in read_applied_limits(cgroup, self._limits):
                self._report(name, used)

    def _report(self, name: str, used: int) -> None:
        if not self.is_exceeded:
            self.is_exceeded = True
            for child in self.roots.values():
                child.report("limit", name, used)

    def _measure(self, pids: list[int]) -> dict[str, int]:
        # What a process wrote that is gone counts with the one that waited for it, else in the greatest sum so far.
        if "max_disk_bytes" in self._limits:
            self._disk = max(self._disk, sum(map(_count_written, pids)))
        memory = sum(map(_count_memory, pids)) if "max_memory_bytes" in self._limits else 0
        return {"max_processes": len(pids), "max_memory_bytes": memory, "max_disk_bytes": self._disk}

    def _list_cgroups(self) -> list[int]:
        folders = (folder for cgroup in self._cgroups for folder, _, _ in os.walk(cgroup))
        texts = (read_file(folder + "/cgroup.procs") for folder in folders)
        return [int(word) for text in texts for word in text.split()]


class ResourceMonitor:
    """Samples the children with limits and ends those that exceed one."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._trees: list[LimitedTree] = []
        self._next_sample = 0.0

    def add(self, child: LimitedChild, tag: int, request: Request) -> None:
        """Limit the child, together with the other children of its run."""
        run = request["run"] or str(child.pid)
        tree = next((tree for tree in self._trees if tree.run == run and not tree.is_exceeded), None)
        if tree is None:
            tree = LimitedTree(run, request["limits"])
            self._trees.append(tree)
        tree.add(child, tag, request["cgroup"])

    def report_kernel_limits(self, pid: int) -> None:
        """Report a limit that the kernel has applied to a child that has just exited, before its exit is reported."""
        for tree in self._trees:
            if pid in tree.roots:
                tree.report_kernel_limits()

    def release(self, pid: int) -> None:
        """Forget the child, unless it exceeded a limit: then the run's remaining processes are ended first."""
        for tree in self._trees:
            if tree.roots.pop(pid, None) and not tree.roots:
                tree.deadline = time.monotonic() + (KILL_TIMEOUT if tree.is_exceeded else 0)

    def apply_limits(self, children: set[int]) -> float | None:
        """Sample if it is time; return the milliseconds to the next time, None if there is none.

        `children` are the pids of all children, with or without limits.
        """
        self._trees = [tree for tree in self._trees if time.monotonic() < tree.deadline]
        if not self._trees:
            return None
        if (wait := self._next_sample - time.monotonic()) <= 0:
            wait = self._sample(children)
            self._next_sample = time.monotonic() + wait
        return 1000 * wait + 1

    def _sample(self, children: set[int]) -> float:
        is_growing = False
        for tree, pids in self._assign(read_table(), children):
            is_growing |= len(pids) >= tree.count + GROWTH
            tree.count = len(pids)
            tree.apply_limits(pids)
        exceeded = [tree for tree in self._trees if tree.is_exceeded]
        if exceeded and self._end_exceeded(children):
            return KILL_INTERVAL
        for tree in exceeded:
            if not tree.roots:
                tree.deadline = 0.0
        return GROWTH_INTERVAL if is_growing else SAMPLE_INTERVAL

    def _assign(self, table: Table, children: set[int]) -> list[tuple[LimitedTree, set[int]]]:
        """Return each tree with its processes and with those that may be of any."""
        parent = b"%d" % os.getpid()
        adopted = [pid for pid, fields in table.items() if fields[PARENT] == parent and pid not in children]
        orphans = {pid: read_tag(pid) for pid in adopted}
        own = [(tree, tree.select(table, orphans)) for tree in self._trees]
        assigned = {pid for _, pids in own for pid in pids}
        unknown = {
            pid
            for pid in orphans.keys() - assigned
            if not self._tags.owns(orphans[pid]) and int(table[pid][SESSION]) not in children
        }
        shared = add_relatives(unknown, table) - assigned
        return [(tree, pids | shared) for tree, pids in own]

    def _end_exceeded(self, children: set[int]) -> bool:
        """Stop the processes of trees that exceeded a limit until none is new, then kill them; False if none is left.

        A fork bomb that is not stopped first starts processes faster than they are killed.
        """
        seen: set[tuple[int, bytes]] = set()
        live: Table = {}
        for _ in range(MAX_STOP_ROUNDS):
            table = read_table()
            live = list_live(
                {pid for tree, pids in self._assign(table, children) if tree.is_exceeded for pid in pids}, table
            )
            fresh = {pid: fields for pid, fields in live.items() if (pid, fields[START]) not in seen}
            if not fresh:
                break
            signal_processes(fresh, signal.SIGSTOP)
            seen |= {(pid, fields[START]) for pid, fields in fresh.items()}
        signal_processes(live, signal.SIGKILL)
        return bool(live)


def add_relatives(pids: set[int], table: Table) -> set[int]:
    """Return these processes, their descendants, and all in the sessions of these.

    A session never spans two children: each child starts its own, and only its descendants can be in it.
    """
    others = {b"0", b"%d" % os.getsid(0)}
    found = add_descendants(pids, table)
    while True:
        sessions = {table[pid][SESSION] for pid in found} - others
        wider = add_descendants(found | {pid for pid, fields in table.items() if fields[SESSION] in sessions}, table)
        if wider == found:
            return found
        found = wider


def write_limits(cgroup: str, limits: dict[str, int]) -> None:
    """Let the kernel apply limits to a control group, where its controllers are delegated to this user."""
    for name, (file, _, _, _) in KERNEL_LIMITS.items():
        if name in limits and write_file(f"{cgroup}/{file}", str(limits[name])):
            # The whole group ends, not only the largest process of it.
            write_file(cgroup + "/memory.oom.group", "1")


def read_applied_limits(cgroup: str, limits: dict[str, int]) -> list[tuple[str, int]]:
    """Return the limits that the kernel has applied to a group, each with what was used; it allows no more."""
    found = []
    for name, (_, events, event, peak) in KERNEL_LIMITS.items():
        counts = dict(line.split() for line in read_file(f"{cgroup}/{events}").splitlines())
        if name in limits and int(counts.get(event, 0)):
            used = read_file(f"{cgroup}/{peak}").strip()
            found.append((name, max(int(used) if used.isdigit() else 0, limits[name])))
    return found


def _count_memory(pid: int) -> int:
    """Return the bytes of memory of a process without the pages of files."""
    words = read_file(f"/proc/{pid}/statm").split()
    return (int(words[1]) - int(words[2])) * PAGE_BYTES if words else 0


def _count_written(pid: int) -> int:
    """Return the bytes that a process and those it waited for wrote to storage and did not delete before that."""
    counts = dict(line.split(b": ") for line in read_file(f"/proc/{pid}/io").splitlines())
    return int(counts.get(b"write_bytes", 0)) - int(counts.get(b"cancelled_write_bytes", 0))
