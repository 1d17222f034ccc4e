"""The watchdog on Linux: parent of all child processes and of the orphans they leave, outlives a killed Retinue.

A program of its own with one thread, started by `watchdog.py`; it imports nothing of Retinue but light modules beside
it. It executes one spawn request after the other and reports each exit. A dead child is reaped only when Retinue
releases it, so that its pid is not reused before. When Retinue has ended, it kills everything that descends from it.

Each request comes as one message with descriptors: a status socket, a file with the request, and the child's streams.
All reports on a child are messages on its status socket, which Retinue closes to release the child:

    ("forked", pid), ("started",), ("failed", stage, errno), ("limit", name, used),
    ("exited", code, *usage), ("killed", signal, *usage)

The usage is the microseconds of CPU time and the most bytes of memory of the child and of the descendants it waited
for; nothing on a processor whose system calls are not known.

The processes of a child with limits are sampled. Those of one that exceeds a limit are killed.
"""

from __future__ import annotations

# ruff: noqa: PTH106, PTH110, PTH123, S302, SIM105
# pathlib, contextlib and socket would multiply its start-up time
import _socket
import ctypes
import errno
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
"""As in typing, which is slow to import."""
if TYPE_CHECKING:
    import signal
    from typing import NoReturn, TypedDict

    from retinue.engines.process.process_table import (
        PARENT,
        Table,
        add_descendants,
        list_live,
        read_table,
        signal_processes,
        write_file,
    )
    from retinue.engines.process.resource_limits import ResourceMonitor, Tags, put_tag, write_limits

    class Request(TypedDict):
        """A child to start."""

        argv: list[bytes]
        programs: list[bytes]
        """Paths to try, in this order."""
        cwd: bytes
        environ: dict[bytes, bytes]
        targets: list[int]
        """The number of each stream in the child."""
        cgroup: str
        """The control group to start in; empty for none."""
        limits: dict[str, int]
        """Limits on what its processes use, as `resource_limits.py` names them; empty for none."""
        run: str
        """The children of one run are limited together; empty: this one alone."""
        sandbox: dict[str, object] | None
        """What `apply_sandbox` of `landlock.py` gets in the child."""

else:
    import _signal as signal  # without the enumerations, which take most of the time to import

    from process_table import PARENT, add_descendants, list_live, read_table, signal_processes, write_file
    from resource_limits import ResourceMonitor, Tags, put_tag, write_limits


STANDARD_STREAMS = 3
MAX_DESCRIPTORS = 64
"""Descriptors that come with one request."""
SCAN_DELAY = 0.05
"""Seconds that a dead child may hide exited orphans before all children are listed."""
KILL_INTERVAL = 0.005
"""Seconds between two scans."""
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ignored, because the watchdog ends with its parent and not before."""
DEFAULT_SIGNALS = (*IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)
"""Set to their default in children: the watchdog or Python ignores them."""
EXEC_FAILED_CODE = 127
"""Exit code of a fork that could not execute its program."""
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
SYS_CLONE3 = 435
"""Number of clone3 on every architecture."""
WAITID = {"x86_64": 247, "aarch64": 95, "riscv64": 95}.get(os.uname().machine)
"""Number of waitid."""
RUSAGE_FIELDS = 18
"""Numbers in `struct rusage`: user and system time, each in seconds and microseconds, then kilobytes of memory."""
CLONE_INTO_CGROUP = 0x200000000
"""A process that starts in its group need not be moved, which takes the kernel up to 25 ms."""
CLONE_ARGUMENTS = 11
"""Fields of `struct clone_args`."""

libc = ctypes.PyDLL(None, use_errno=True)


class Child:
    """A process that Retinue asked for, until Retinue releases it."""

    def __init__(self, pid: int, status: _socket.socket, failure: int) -> None:
        self.pid = pid
        self.status = status
        self.failure = failure
        """Read end of the pipe that ends with a successful exec; -1 once its end was read."""
        self.is_over = False
        """True once its failure or its exit was reported."""
        self.tag = 0
        self.request: Request | None = None
        """There until its exec."""

    def report(self, *message: str | int) -> None:
        try:
            self.status.send(marshal.dumps(message))
        except OSError:
            pass  # Retinue has released it


class Watchdog:
    """Serves one Retinue."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.requests = _socket.socket(fileno=0)
        self.children: dict[int, Child] = {}
        """By the descriptor of the status socket."""
        self.starting: dict[int, Child] = {}
        """Those that are not executed yet, by the descriptor of the failure pipe."""
        self.next_scan = 0.0
        """When to look for orphans that a dead child hides; 0 if there is none."""
        self.tags = Tags()
        self.monitor = ResourceMonitor(self.tags)
        self.poll = select.poll()
        self.wakeup, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until Retinue has ended or has closed its socket."""
        # The socket alone is not enough: a fork of Retinue without an exec keeps its other end open, too.
        for descriptor in (0, self.wakeup, os.pidfd_open(self.parent)):
            self.poll.register(descriptor, select.POLLIN)
        while os.getppid() == self.parent:
            times = (self.monitor.apply_limits({child.pid for child in self.children.values()}), self.reap_hidden())
            ready = {
                descriptor for descriptor, _ in self.poll.poll(min((each for each in times if each), default=None))
            }
            if self.wakeup in ready:
                os.read(self.wakeup, 65536)
                self.report_exits()
            for descriptor in ready:
                if descriptor in self.starting:
                    self.report_start(self.starting[descriptor])
                elif descriptor in self.children:
                    self.release(self.children[descriptor])
            if 0 in ready and not self.receive_request():
                return

    def receive_request(self) -> bool:
        """Start the child of one request; return False at the end of the socket."""
        data, ancillary, _, _ = self.requests.recvmsg(
            16, _socket.CMSG_SPACE(4 * MAX_DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC
        )
        packed = b"".join(each for _, _, each in ancillary)
        descriptors = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed) - 3, 4)]
        # Some are missing where descriptors are short: then Retinue finds the status socket closed.
        if data and len(descriptors) == int(data):
            self.start_child(_socket.socket(fileno=descriptors.pop(0)), descriptors[0], descriptors[1:])
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(data)

    def start_child(self, status: _socket.socket, file: int, streams: list[int]) -> None:
        status.setblocking(False)
        try:
            request = read_request(file)
            reading, writing = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            Child(0, status, -1).report("failed", "fork", error.errno or errno.EIO)
            status.close()
            return
        try:
            tag = self.tags.issue()
            if request["cgroup"] and request["limits"]:
                write_limits(request["cgroup"], request["limits"])
            if request["sandbox"] is not None:
                load_sandbox()
            pid = fork_into(request["cgroup"])
            if pid == 0:
                become_program(request, streams, writing, tag)
        except OSError as error:
            os.close(reading)
            Child(0, status, -1).report("failed", "fork", error.errno or errno.EIO)
            status.close()
            return
        finally:
            os.close(writing)
        child = self.children[status.fileno()] = self.starting[reading] = Child(pid, status, reading)
        for descriptor in (status.fileno(), reading):
            self.poll.register(descriptor, select.POLLIN)
        child.tag, child.request = tag, request
        child.report("forked", pid)

    def report_start(self, child: Child) -> None:
        """Report the exec of a child, or why there was none."""
        failure = os.read(child.failure, 4096)
        self.poll.unregister(child.failure)
        del self.starting[child.failure]
        os.close(child.failure)
        child.failure = -1
        if failure:
            child.is_over = True
            child.report("failed", *marshal.loads(failure))
        else:
            child.report("started")
            if child.request and child.request["limits"]:
                self.monitor.add(child, child.tag, child.request)
            child.request = None

    def report_exits(self) -> None:
        """Report the children that have exited, without reaping them; reap orphans."""
        for child in [child for child in self.children.values() if not child.is_over]:
            if end := os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if child.failure >= 0:
                    self.report_start(child)
                if not child.is_over:
                    child.is_over = True
                    self.monitor.report_kernel_limits(child.pid)
                    kind = "exited" if end.si_code == os.CLD_EXITED else "killed"
                    child.report(kind, end.si_status, *read_usage(child.pid))
        self.reap_orphans()

    def reap_orphans(self) -> None:
        """Reap exited orphans. The pid of a child is kept until its release."""
        held = {child.pid for child in self.children.values()}
        try:
            while end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if end.si_pid in held:
                    # It hides those behind it in the kernel's list. Mostly, it is released at once.
                    self.next_scan = self.next_scan or time.monotonic() + SCAN_DELAY
                    return
                os.waitpid(end.si_pid, 0)
        except ChildProcessError:
            pass
        self.next_scan = 0.0

    def reap_hidden(self) -> float | None:
        """Reap the orphans that a dead child hides, if it is time; return the milliseconds until then."""
        if not self.next_scan:
            return None
        if (wait := self.next_scan - time.monotonic()) > 0:
            return 1000 * wait + 1
        self.next_scan = 0.0
        reap_each(list_children() - {child.pid for child in self.children.values()})
        return None

    def release(self, child: Child) -> None:
        """Reap the child; kill it if it still runs, and then reap it as an orphan."""
        for descriptor in (child.status.fileno(), child.failure):
            if descriptor >= 0:
                self.poll.unregister(descriptor)
        del self.children[child.status.fileno()]
        self.monitor.release(child.pid)
        child.status.close()
        if self.starting.pop(child.failure, None):
            os.close(child.failure)
        if os.waitpid(child.pid, os.WNOHANG)[0] == 0:
            os.kill(child.pid, signal.SIGKILL)
        self.reap_orphans()


def read_usage(pid: int) -> tuple[int, int] | tuple[()]:
    """Return the usage of a child that has exited, and leave it to be reaped."""
    if WAITID is None:
        return ()
    usage = (ctypes.c_long * RUSAGE_FIELDS)()
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    # The C library's own has no parameter for the usage.
    if libc.syscall(WAITID, int(os.P_PID), pid, None, flags, ctypes.byref(usage)):
        return ()
    seconds, microseconds = usage[0] + usage[2], usage[1] + usage[3]
    return 1_000_000 * seconds + microseconds, 1024 * usage[4]


def list_children() -> set[int]:
    """Return the pids of all children of this process, dead ones included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except OSError:  # the kernel was built without this file
        return {pid for pid, fields in read_table().items() if int(fields[PARENT]) == os.getpid()}


def reap_each(pids: set[int]) -> None:
    """Reap those of these children that have exited."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def read_request(file: int) -> Request:
    request: Request = marshal.loads(os.pread(file, os.fstat(file).st_size, 0))
    return request


def load_sandbox() -> None:
    """Load what confines a child, so that not each fork loads it."""
    try:
        __import__("landlock")
    except (ImportError, OSError):
        pass  # such as for want of descriptors: the fork tries again and reports it


def fork_into(cgroup: str) -> int:
    """Fork, into the group if it can be entered; return 0 in the fork.

    Raises:
        OSError: there can be no further process.
    """
    if cgroup:
        try:
            folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return os.fork()  # it is found by its marker and its parents
        try:
            fields = {0: CLONE_INTO_CGROUP, 4: signal.SIGCHLD, 10: folder}
            arguments = (ctypes.c_uint64 * CLONE_ARGUMENTS)(*(fields.get(i, 0) for i in range(CLONE_ARGUMENTS)))
            pid: int = libc.syscall(SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
        finally:
            os.close(folder)
        if pid >= 0:
            return pid
    pid = os.fork()
    if cgroup and pid == 0:
        # The kernel, or a filter of system calls, has no clone3.
        write_file(cgroup + "/cgroup.procs", "0")
    return pid


def become_program(request: Request, streams: list[int], failure: int, tag: int) -> NoReturn:
    """Execute the program in a fork, or report the failed stage."""
    stage, reason = "fork", errno.EINVAL
    try:
        os.setsid()
        put_tag(tag)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        parent = os.getppid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(EXEC_FAILED_CODE)
        failure = place_descriptors(streams, request["targets"], failure)
        stage = "cwd"
        os.chdir(request["cwd"])
        if request["sandbox"] is not None:
            stage = "sandbox"
            # Its files in /proc are root's otherwise, and a user namespace is made by writing to them.
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            __import__("landlock").apply_sandbox(request["sandbox"])
        stage = "exec"
        execute(request)
    except OSError as error:
        reason = error.errno or errno.EIO
    finally:
        os.write(failure, marshal.dumps((stage, reason)))
        os._exit(EXEC_FAILED_CODE)


def place_descriptors(sources: list[int], targets: list[int], failure: int) -> int:
    """Give each source the number of its target; return the new number of the failure pipe."""
    if (above := max(targets) + 1) > STANDARD_STREAMS:
        import fcntl

        # First out of the way, so that no target overwrites a source. The standard streams never do: they are in use.
        sources = [fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, above) for source in sources]
        failure = fcntl.fcntl(failure, fcntl.F_DUPFD_CLOEXEC, above)
    for source, target in zip(sources, targets, strict=True):
        os.dup2(source, target)
    return failure


def execute(request: Request) -> None:
    """Execute the first of the programs that exists.

    Raises:
        OSError: none could be executed.
    """
    reason = OSError(errno.ENOENT, "no program")
    for program in request["programs"]:
        try:
            os.execve(program, request["argv"], request["environ"])  # noqa: S606 - without a shell
        except OSError as error:
            # As execvp does: a program that exists and cannot be executed is the better reason.
            if reason.errno in {errno.ENOENT, errno.ENOTDIR}:
                reason = error
    raise reason


def kill_descendants(cgroup: str, timeout: float) -> None:
    """Kill everything that descends from this process, and remove the control group."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if cgroup:
            write_file(cgroup + "/cgroup.kill", "1")
        signal_processes(list_descendants(), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            # Orphans come here: without a child, there is no descendant either.
            break
        time.sleep(KILL_INTERVAL)
    while cgroup and not remove_cgroup(cgroup) and time.monotonic() < deadline:
        time.sleep(KILL_INTERVAL)


def list_descendants() -> Table:
    """Return the live descendants of this process."""
    table = read_table()
    return list_live(add_descendants({os.getpid()}, table) - {os.getpid()}, table)


def remove_cgroup(cgroup: str) -> bool:
    """Remove the group if it is empty; return whether it is gone."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass
    return not os.path.exists(cgroup)


def main(parent: str, timeout: str, cgroup: str) -> None:
    """Serve the process `parent`; when it is gone, kill for at most `timeout` seconds, and remove the group."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # What it holds for its children, such as keys in their environment, is closed to them.
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    Watchdog(int(parent)).run()
    kill_descendants(cgroup, float(timeout))
