"""Run git in a repository that nobody vouches for: none of its hooks, filters, monitors or helpers is started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from retinue.support.processes import find_program

GIT_TIMEOUT = 120.0
"""Seconds a git command may take; the first copy of a large repository takes long."""
MAX_ERROR_CHARS = 500
IDENTITY = ("Retinue", "retinue@localhost")
"""Author and committer of commits on branches of runs: the user's name stands under nothing the user did not do."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=dirty",
    "protocol.allow=never",
    "advice.addEmbeddedRepo=false",
    "core.quotePath=false",
)
"""Settings for every command: nothing is started, fetched or signed, whatever the repository's own settings are."""
_REPOSITORY_SCOPES = frozenset({"local", "worktree"})
_FILTER_KEYS = frozenset({"clean", "smudge", "process", "required"})


class GitError(Exception):
    """Git is missing, failed or took too long; the text states which and why."""


class Git:
    """Git for one repository or worktree."""

    def __init__(self, folder: str | Path, environ: Mapping[str, str], *, git_dir: str = "") -> None:
        """Take the folder to work in; with `git_dir` the `.git` in it, which an agent can replace, is not read."""
        self._folder = str(folder)
        name, email = IDENTITY
        self._environ = {
            **{key: value for key, value in environ.items() if not key.startswith("GIT_")},
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            # None: a repository's own protocol.ext.allow wins over protocol.allow, and its remote is then a command.
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": email,
            "LC_ALL": "C",
            **({"GIT_DIR": git_dir, "GIT_WORK_TREE": self._folder} if git_dir else {}),
        }

    def run(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> bytes:
        """Run a command, with an index of its own if one is given, and return its output.

        Raises:
            GitError: it could not be run, or failed.
        """
        # Read again for each command: an agent that works in the repository may have changed its configuration.
        return self._execute(self._disable_filters(), arguments, stdin, index)

    def read(self, *arguments: str, index: Path | None = None) -> str:
        """Run a command and return its output as text, without the last line break.

        Raises:
            GitError: it could not be run, or failed.
        """
        return os.fsdecode(self.run(*arguments, index=index)).removesuffix("\n")

    def succeeds(self, *arguments: str) -> bool:
        """Return whether a command succeeds."""
        try:
            self.run(*arguments)
        except GitError:
            return False
        return True

    def _disable_filters(self) -> tuple[str, ...]:
        """Return settings that switch off the filters in the repository's own configuration; those of the user stay.

        Raises:
            GitError: the configuration cannot be read.
        """
        listed = self._execute((), ("config", "--list", "--show-scope", "--name-only", "-z"), b"", None)
        parts = os.fsdecode(listed).split("\0")
        names = {
            name
            for scope, name in zip(parts[::2], parts[1::2], strict=False)
            if scope in _REPOSITORY_SCOPES
            and name.startswith("filter.")
            and name.rpartition(".")[2].lower() in _FILTER_KEYS
        }
        return tuple(f"{name}={'false' if name.lower().endswith('.required') else ''}" for name in sorted(names))

    def _execute(self, settings: Sequence[str], arguments: Sequence[str], stdin: bytes, index: Path | None) -> bytes:
        import subprocess

        program = find_program("git", self._environ.get("PATH"))
        if program is None:
            raise GitError("git is not installed.")
        options = [part for setting in (*_SETTINGS, *settings) for part in ("-c", setting)]
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments
                [program, *options, *arguments],
                cwd=self._folder,
                env=self._environ if index is None else {**self._environ, "GIT_INDEX_FILE": str(index)},
                input=stdin,
                capture_output=True,
                timeout=GIT_TIMEOUT,
                check=False,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise GitError(f"{self._folder} does not exist.") from error
        except subprocess.TimeoutExpired as error:
            raise GitError(f"`git {arguments[0]}` took longer than {GIT_TIMEOUT:g} s.") from error
        except OSError as error:
            raise GitError(f"git could not be started in {self._folder}: {error.strerror}.") from error
        if done.returncode:
            reason = " ".join(os.fsdecode(done.stderr or done.stdout).split())[:MAX_ERROR_CHARS]
            raise GitError(f"`git {arguments[0]}` failed: {(reason or f'exit code {done.returncode}').rstrip('.')}.")
        return done.stdout
