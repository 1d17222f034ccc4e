"""The files that runs of one conversation read and change, so that none overwrites what it has not seen.

Each change has a number. A run may change a file if it has read it, or begun, after the last change by another run.
Changes by commands are found when a command returns, in the files that file tools of other runs touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from retinue.model.events import ToolCalled, ToolReturned
from retinue.model.runs import RunSpec, ToolArguments

READING_TOOL = "read"
WRITING_TOOLS = frozenset({"write", "edit"})
COMMAND_TOOL = "bash"
MAX_FILES = 10_000
"""Files of one conversation that are remembered; changes of others are not noticed."""

FileVersion = tuple[int, int, int]
"""Inode, size and modification time."""

REFUSED = (
    "{file} was changed by {other} since {since}. Nothing was written. Read the file again, then make your change to "
    "what it contains now."
)
REFUSED_NOTICE = "A change of {file} was refused, because {other} had changed it since {since}."
ALSO_WROTE = (
    "{other} also wrote {file} while this run was active: one may have overwritten the other. Give each task a file "
    "of its own, run the tasks as a chain, or isolate them in worktrees."
)
COMMAND_CHANGED = (
    "A command of this run, or a program outside, changed {file}, which {other} also wrote while this run was "
    "active: one may have overwritten the other. Give each task a file of its own, run the tasks as a chain, or "
    "isolate them in worktrees."
)


class _RunFiles:
    """What a run has seen and is changing."""

    def __init__(self, spec: RunSpec, number: int) -> None:
        self.spec = spec
        self.started = number
        self.seen: dict[str, int] = {}
        """The number of the last change when the run last read or wrote each file."""
        self.admitted: dict[str, str] = {}
        """The files of open calls that may change them, by call; empty for refused ones."""
        self.unasked: dict[str, str] = {}
        """The files of open calls that nobody was asked about, by call."""
        self.reported: set[str] = set()
        self.is_active = True

    def is_changing(self, file: str) -> bool:
        return file in self.admitted.values() or file in self.unasked.values()

    def resolve(self, args: ToolArguments) -> str | None:
        """Return the real path of the file that a call names; None if it names none."""
        path = args.get("path") or args.get("file_path")
        if not isinstance(path, str):
            return None
        named = os.path.expanduser(path.removeprefix("@"))  # noqa: PTH111 - texts, as the keys are
        try:
            return os.path.realpath(os.path.join(self.spec.cwd, named))  # noqa: PTH118
        except (OSError, ValueError):  # no name of a file: the tool says so
            return None

    def __str__(self) -> str:
        return f'the task "{self.spec.name}" (run {self.spec.run[:8]})'


class _Conversation:
    """The changes of all runs of one root conversation."""

    def __init__(self) -> None:
        self.number = 0
        self.runs: dict[str, _RunFiles] = {}
        self.changes: dict[str, dict[str, int]] = {}
        """The number of each file's last change by each run."""
        self._versions: dict[str, FileVersion | None] = {}
        """Each touched file as it was when a run last touched it."""

    def find_conflict(self, own: _RunFiles, file: str) -> _RunFiles | None:
        """Return another run that changed the file after this one last read it; None if none did."""
        for other in self.runs.values():
            if other is not own and other.is_changing(file):
                return other
        seen = own.seen.get(file, own.started)
        others = {run: number for run, number in self.changes.get(file, {}).items() if run != own.spec.run}
        last = max(others, key=others.__getitem__, default=None)
        return self.runs[last] if last and others[last] > seen else None

    def add_change(self, own: _RunFiles, file: str) -> None:
        if self._touch(file):
            self.number += 1
            self.changes.setdefault(file, {})[own.spec.run] = own.seen[file] = self.number
            self._versions[file] = _read_version(file)

    def add_reading(self, own: _RunFiles, file: str) -> None:
        if self._touch(file):
            own.seen[file] = self.number

    def forget_old_changes(self) -> bool:
        """Forget ended runs whose changes no active run can miss; return whether there are active runs."""
        started = [each.started for each in self.runs.values() if each.is_active]
        for run in [run for run, each in self.runs.items() if started and not each.is_active]:
            changed = [file for file in self.runs[run].seen if run in self.changes.get(file, {})]
            if any(self.changes[file][run] > min(started) for file in changed):
                continue
            del self.runs[run]
            for file in changed:
                del self.changes[file][run]
        return bool(started)

    def _touch(self, file: str) -> bool:
        """Return whether the file is remembered, from now on if there is room."""
        if file not in self._versions and len(self._versions) < MAX_FILES:
            self._versions[file] = _read_version(file)
        return file in self._versions

    def find_changed(self, own: _RunFiles) -> Iterator[str]:
        """Yield the files that other active runs touched and that are not as they were; note how they are."""
        others = [other for other in self.runs.values() if other is not own and other.is_active]
        for file in dict.fromkeys(file for other in others for file in other.seen):
            if any(other.is_changing(file) for other in others):
                continue  # its change is noted when the call returns
            if (version := _read_version(file)) != self._versions[file]:
                self._versions[file] = version
                yield file


class FileChanges:
    """The files that the runs of this process change, by conversation."""

    def __init__(self) -> None:
        self._conversations: dict[str, _Conversation] = {}
        self._roots: dict[str, str] = {}
        """The conversation of each active run."""

    def start(self, spec: RunSpec) -> None:
        conversation = self._conversations.setdefault(spec.lineage.root, _Conversation())
        self._roots[spec.run] = spec.lineage.root
        conversation.runs[spec.run] = _RunFiles(spec, conversation.number)

    def end(self, run: str) -> None:
        root = self._roots.pop(run, None)
        if root is None:
            return
        conversation = self._conversations[root]
        ended = conversation.runs[run]
        ended.is_active = False
        for call in (*ended.admitted, *ended.unasked):  # calls that were cut off may have changed their files
            self._close(conversation, ended, call, is_error=False)
        if not conversation.forget_old_changes():
            del self._conversations[root]

    def admit(self, run: str, call: str, args: ToolArguments) -> tuple[str, str] | None:
        """Admit a call that changes a file; return the refusal for the model and for people, or None."""
        found = self._find(run)
        file = found[1].resolve(args) if found else None
        if found is None or file is None:
            return None
        conversation, own = found
        own.unasked.pop(call, None)
        if other := conversation.find_conflict(own, file):
            own.admitted[call] = ""
            model, person = ("you read it", "this run read it")
            if file not in own.seen:
                model, person = ("your task began", "this run began")
            return REFUSED.format(file=file, other=other, since=model), REFUSED_NOTICE.format(
                file=file, other=other, since=person
            )
        own.admitted[call] = file
        return None

    def observe(self, run: str, event: ToolCalled | ToolReturned) -> list[str]:
        """Note what a run reads and changes; return notices about files that others changed as well."""
        found = self._find(run)
        if found is None:
            return []
        conversation, own = found
        if isinstance(event, ToolCalled):
            self._observe_call(conversation, own, event)
            return []
        if event.name == COMMAND_TOOL:
            return list(self._observe_command(conversation, own))
        return self._close(conversation, own, event.call, is_error=event.is_error)

    def _find(self, run: str) -> tuple[_Conversation, _RunFiles] | None:
        conversation = self._conversations.get(self._roots.get(run, ""))
        return (conversation, conversation.runs[run]) if conversation else None

    def _observe_call(self, conversation: _Conversation, own: _RunFiles, event: ToolCalled) -> None:
        if event.name == READING_TOOL and (file := own.resolve(event.args)):
            conversation.add_reading(own, file)
        elif event.name == COMMAND_TOOL and isinstance(command := event.args.get("command"), str):
            # A command that names a file may print it: a run without `read` has no other way to see it.
            for file in [file for file in conversation.changes if os.path.basename(file) in command]:  # noqa: PTH119
                own.seen[file] = conversation.number
        elif event.name in WRITING_TOOLS and event.call not in own.admitted and (file := own.resolve(event.args)):
            own.unasked[event.call] = file

    def _close(self, conversation: _Conversation, own: _RunFiles, call: str, *, is_error: bool) -> list[str]:
        """Note the end of a call that changes a file; one that nobody was asked about is reported if it conflicts."""
        file, unasked = own.admitted.pop(call, ""), own.unasked.pop(call, "")
        if is_error or not (file or unasked):
            return []
        other = conversation.find_conflict(own, unasked) if unasked else None
        conversation.add_change(own, file or unasked)
        return self._report(own, unasked, other, ALSO_WROTE)

    def _observe_command(self, conversation: _Conversation, own: _RunFiles) -> Iterator[str]:
        for file in conversation.find_changed(own):
            other = conversation.find_conflict(own, file)
            conversation.add_change(own, file)
            yield from self._report(own, file, other, COMMAND_CHANGED)

    def _report(self, own: _RunFiles, file: str, other: _RunFiles | None, text: str) -> list[str]:
        if other is None or file in own.reported:
            return []
        own.reported.add(file)
        message = text.format(file=file, other=other)
        return [message[0].upper() + message[1:]]


def _read_version(file: str) -> FileVersion | None:
    with suppress(OSError):
        state = os.stat(file)  # noqa: PTH116 - a text, as the keys are
        return state.st_ino, state.st_size, state.st_mtime_ns
    return None
