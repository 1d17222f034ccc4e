"""Store which project agents the user accepted, each bound to its content.

One JSON file, `{"version": 1, "accepted": {"<path>": {"digest": …, "name": …}}}`. A file that is unreadable, or that
other users could have written, accepts nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.parse import AgentFileError, read_bytes
from retinue.model.errors import ErrorCode, Failure
from retinue.support.safe_files import write_private_file

if TYPE_CHECKING:
    from retinue.model.mcp import McpServer

VERSION = 1

LOCAL_READ_ONLY = frozenset({"read", "grep", "find", "ls"})
"""Tools that change nothing, start nothing and reach no network."""

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ROOT_UID = 0
"""Root can write every file in any case."""
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_ACCEPTANCES: Mapping[str, str] = MappingProxyType({})


class _AcceptedAgent(Struct, frozen=True):
    digest: str
    name: str


class _TrustRecord(Struct):
    version: int = VERSION
    accepted: dict[str, _AcceptedAgent] = field(default_factory=dict)


class TrustStore:
    """The acceptances of one user, read again whenever the file has changed."""

    def __init__(self, path: Path, *, uid: int | None = None) -> None:
        """Trust only a file that `uid`, by default the user of this process, alone can write."""
        self.path = path
        self._uid = _current_uid() if uid is None else uid
        self._stamp: tuple[int, ...] | None = None
        """None if the file must be read."""
        self._accepted = _NO_ACCEPTANCES
        self._fault: Diagnostic | None = None

    def snapshot(self) -> tuple[Mapping[str, str], Diagnostic | None]:
        """Return the accepted digests and the fault, both at one moment."""
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._accepted, self._fault = self._load()
            self._stamp = stamp
        return self._accepted, self._fault

    def accepted_digests(self) -> Mapping[str, str]:
        """Return the accepted digest of each file; the same object as long as nothing changes."""
        return self.snapshot()[0]

    def fault(self) -> Diagnostic | None:
        """Return why nothing is trusted although the file exists; None if it is valid."""
        return self.snapshot()[1]

    def accept(self, agent: Agent) -> None:
        """Accept the current content of an agent.

        Raises:
            ValueError: the agent is not from a file.
            OSError: the file cannot be written.
        """
        if agent.source is None or not agent.digest:
            raise ValueError(f"Agent {agent.name} does not come from a file and needs no approval")
        with self._edit_record() as record:
            record.accepted[agent.source] = _AcceptedAgent(agent.digest, agent.name)

    def revoke(self, path: str) -> bool:
        """Remove an acceptance; return whether there was one.

        Raises:
            OSError: the file cannot be written.
        """
        with self._edit_record() as record:
            return record.accepted.pop(path, None) is not None

    def _current_stamp(self) -> tuple[int, ...]:
        try:
            file, folder = self.path.lstat(), self.path.parent.stat()
        except OSError as error:
            return (error.errno or 0,)
        own = (file.st_ino, file.st_size, file.st_mtime_ns, file.st_mode, file.st_uid)
        return *own, folder.st_mode, folder.st_uid

    def _load(self) -> tuple[Mapping[str, str], Diagnostic | None]:
        try:
            record = self._read()
        except AgentFileError as broken:
            return _NO_ACCEPTANCES, Diagnostic(str(self.path), f"{broken.reason}: no project agent is trusted")
        return MappingProxyType({path: accepted.digest for path, accepted in record.accepted.items()}), None

    def _read(self) -> _TrustRecord:
        """Return the record; an empty one if there is no file.

        Raises:
            AgentFileError: the file cannot be read or trusted.
        """
        try:
            status = self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return _TrustRecord()
        except OSError as error:
            raise AgentFileError(f"cannot be inspected ({error.strerror})") from error
        # The folder first: if only this user can change it, the checked file is the file that is read.
        if problem := self._folder_problem() or self._record_problem(status):
            raise AgentFileError(problem)
        content = read_bytes(self.path, follow_link=False)
        try:
            record = msgspec.json.decode(content, type=_TrustRecord)
        except msgspec.DecodeError as error:
            raise AgentFileError(f"is damaged ({error})") from error
        if record.version != VERSION:
            raise AgentFileError(f"has version {record.version}, which this release does not know")
        return record

    def _folder_problem(self) -> str | None:
        folder = self.path.parent
        status = folder.stat()
        is_safe = self._uid is None or (
            status.st_uid in {self._uid, _ROOT_UID} and not status.st_mode & _WRITABLE_BY_OTHERS
        )
        return None if is_safe else f"is in a folder that other users can write (run chmod 700 {folder})"

    def _record_problem(self, record: os.stat_result) -> str | None:
        if self._uid is None or stat.S_ISLNK(record.st_mode):
            return None
        if record.st_uid != self._uid:
            return "belongs to another user"
        return "can be written by other users (run chmod 600 on it)" if record.st_mode & _WRITABLE_BY_OTHERS else None

    @contextmanager
    def _edit_record(self) -> Iterator[_TrustRecord]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if problem := self._folder_problem():
            raise PermissionError(errno.EPERM, problem, str(self.path))
        with _lock_file(self.path.with_suffix(".lock")):
            try:
                record = self._read()
            except AgentFileError:
                # Kept for inspection; its acceptances are not trusted in any case.
                self.path.replace(self.path.with_suffix(".damaged"))
                record = _TrustRecord()
            yield record
            write_private_file(self.path, msgspec.json.format(msgspec.json.encode(record)))
            self._stamp = None


def _current_uid() -> int | None:
    """Return the user of this process; None if the system has no numeric owners."""
    return os.geteuid() if hasattr(os, "geteuid") else None


@contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Lock out other processes while the record changes; on a system without locks the later change wins."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_read_only(agent: Agent) -> bool:
    """Return whether an agent could do no harm even if its file were hostile.

    It has only local read tools, and no setting that executes, writes, redirects or preloads anything.
    """
    policy = agent.to_profile().tools
    models = (agent.model or "", *agent.fallback_models)
    return (
        (policy.nothing or (policy.allow is not None and LOCAL_READ_ONLY.issuperset(policy.allow + policy.optional)))
        and not policy.delegates
        and not any("/" in model for model in models)  # `provider/model` names a provider
        and not any(getattr(agent, field) for field in _PRIVILEGED_FIELDS)
    )


def names_files(agent: Agent) -> bool:
    """Return whether an agent of a project may name files of it, which an acceptance must cover."""
    named = agent.extensions or agent.load_skills or agent.suggested_skills or agent.extra_args or agent.hooks
    return agent.layer is SourceLayer.PROJECT and bool(named or agent.has_servers)


def find_unapproved_script(agent: Agent, cwd: str, servers: Sequence[McpServer] = ()) -> Failure | None:
    """Return why a project's agent cannot run in a directory where its hooks or servers would execute other files.

    Their commands may name files relative to the directory of the run; those of another one were approved.
    """
    if agent.layer is not SourceLayer.PROJECT or not (agent.hooks or servers):
        return None
    from retinue.agents.hooks import list_command_files
    from retinue.agents.mcp_servers import list_script_files

    folders = (Path(cwd).resolve(),)
    files = (*list_command_files(agent.hooks, folders), *list_script_files(servers, folders))
    file = next((file for file in files if file not in agent.named_files), None)
    if file is None:
        return None
    message = (
        f'Agent "{agent.name}" would execute {file} as a hook or MCP server, which you have not approved. Nothing '
        f"was started. Run it in the directory where you approved it, or write $CLAUDE_PROJECT_DIR before the file "
        f"of a hook in {agent.source}."
    )
    return Failure(ErrorCode.AGENT_UNTRUSTED, message, detail={"agent": agent.name, "file": file})


_PRIVILEGED_FIELDS = (
    "engine",
    "provider",
    "api_key",
    "extensions",
    "extra_args",
    "environment",
    "hooks",
    "output",
    "default_reads",
    "mcp_servers",
)
