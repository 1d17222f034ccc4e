"""The worktrees of runs: made from the user's files, committed on a branch of their own, listed until they are gone.

<state>/worktrees/<repository>-<hash8>/<id8>         the worktree of a session, until it is removed
<state>/worktrees/<repository>-<hash8>/<id8>.json    its record, written before anything else is created
<state>/worktrees/<repository>-<hash8>/<id8>.patch   its changes
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.model.results import WorktreeChanges
from retinue.model.runs import WorktreeBase, WorktreeSpec
from retinue.support.safe_files import FileTooLargeError, read_regular_file, try_lock, write_private_file
from retinue.worktrees.git import GIT_TIMEOUT, Git, GitError

ID_DIGITS = 8
INCLUDE_FILE = ".worktreeinclude"
"""Names, as patterns of gitignore, ignored files that a worktree gets, too."""
MAX_INCLUDED_FILES = 10_000
BYPRODUCTS = (
    "__pycache__/**", "*.pyc", ".pytest_cache/**", ".mypy_cache/**", ".ruff_cache/**", ".ipynb_checkpoints/**",
    ".DS_Store",
)  # fmt: skip
"""Untracked files that programs leave behind by themselves: nobody's changes, whether ignored or not."""
MAX_RECORD_BYTES = 2**20
LOCK_INTERVAL = 0.02
BRANCH_PREFIX = "retinue/"
MAX_NAME_CHARS = 40
"""Characters of the names of agents and repositories in paths and branches."""


class WorktreeState(StrEnum):
    """How far a worktree has come."""

    CREATING = "creating"
    ACTIVE = "active"
    """A run works in it, or was killed while it did."""
    CHANGED = "changed"
    """Its changes are committed on its branch."""
    UNCHANGED = "unchanged"
    """Removed, because its run changed nothing; the record lets a resumed session have it again."""
    MERGED = "merged"
    """Removed after its changes were applied to the user's files."""


class Worktree(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record of a worktree."""

    id: str
    """The first digits of its session's id."""
    session: str
    agent: str
    task: str
    repository: str
    """The top folder of the repository it was made from."""
    folder: str = ""
    """The working directory of the run below the top; empty for the top."""
    path: str
    branch: str
    base_kind: WorktreeBase = "tree"
    base: str = ""
    """The commit it started from."""
    common_dir: str = ""
    """The git folder of the repository."""
    git_dir: str = ""
    """Its own git folder, in the one of the repository."""
    state: WorktreeState = WorktreeState.CREATING
    created: float = 0.0
    changes: WorktreeChanges | None = None

    @property
    def spec(self) -> WorktreeSpec:
        """What it is made from, to make it again."""
        return WorktreeSpec(
            repository=self.repository, folder=self.folder, git_dir=self.common_dir, base=self.base_kind
        )

    @property
    def cwd(self) -> str:
        return os.path.join(self.path, self.folder) if self.folder else self.path  # noqa: PTH118 - keeps no `.`


class WorktreeError(Exception):
    """A worktree could not be made, committed, applied or removed; the text states what to do next."""


class WorktreeStore:
    """All worktrees below one state folder. Its methods wait for git: call them in a thread."""

    def __init__(self, state: Path, environ: Mapping[str, str]) -> None:
        self._folder = state / "worktrees"
        self._environ = environ

    # -- records -----------------------------------------------------------------------------------

    def list_all(self) -> list[Worktree]:
        """Return all worktrees, the oldest first; records that cannot be read are left out."""
        paths = self._folder.glob("*/*.json")
        found = [record for path in paths if (record := self._read(path))]
        return sorted(found, key=lambda record: (record.created, record.id))

    def find(self, session: str) -> Worktree | None:
        """Return the worktree of a session; None if it never had one."""
        for path in self._folder.glob(f"*/{session[:ID_DIGITS]}.json"):
            if (record := self._read(path)) and record.session == session:
                return record
        return None

    def find_repository(self, cwd: str, base: WorktreeBase) -> WorktreeSpec:
        """Return what a worktree of the repository around a directory is made from.

        Raises:
            GitError: git is missing, or the directory is in no repository with a working tree of its own.
        """
        git = Git(cwd, self._environ)
        top = git.read("rev-parse", "--show-toplevel")
        self._check_top(top, git.read("rev-parse", "--absolute-git-dir"))
        return WorktreeSpec(
            repository=top,
            folder=git.read("rev-parse", "--show-prefix").rstrip("/"),
            git_dir=git.read("rev-parse", "--path-format=absolute", "--git-common-dir"),
            base=base,
        )

    def _check_top(self, top: str, git_dir: str) -> None:
        """Refuse a repository whose own configuration names another folder, such as the home, as its working tree.

        Raises:
            GitError: it does.
        """
        entry = os.path.realpath(Path(top, ".git"))
        if entry == os.path.realpath(git_dir):
            return
        git = Git(top, self._environ)
        if not os.path.lexists(entry) or git.read("rev-parse", "--absolute-git-dir") != git_dir:
            raise GitError(f"core.worktree of {git_dir} names {top}, which belongs to another or to no repository.")

    def find_source(self, cwd: str) -> str:
        """Return the user's directory that a directory in a worktree stands for; others unchanged."""
        path = Path(cwd)
        if not path.is_relative_to(self._folder) or len(below := path.relative_to(self._folder).parts) < 2:  # noqa: PLR2004 - repository and id
            return cwd
        repository, identity, *rest = below
        record = self._read(self._folder / repository / f"{identity}.json")
        return os.path.join(record.repository, *rest) if record else cwd  # noqa: PTH118 - a text like `cwd`

    def place(self, spec: WorktreeSpec, session: str, agent: str) -> tuple[str, str]:
        """Return the path and the branch that the worktree of a session has."""
        if record := self.find(session):
            return record.path, record.branch
        from hashlib import sha256

        digest = sha256(os.fsencode(spec.repository)).hexdigest()[:ID_DIGITS]
        name = f"{_fold_name(Path(spec.repository).name)}-{digest}"
        identity = session[:ID_DIGITS]
        return str(self._folder / name / identity), f"{BRANCH_PREFIX}{_fold_name(agent)}-{identity}"

    # -- a run -------------------------------------------------------------------------------------

    def open(self, spec: WorktreeSpec, *, session: str, agent: str, task: str) -> Worktree:
        """Return the worktree of a session, made anew or as an earlier run of the session left it.

        Raises:
            WorktreeError: it cannot be made, and nothing is left of it; or an earlier run made its folder a link.
        """
        earlier = self.find(session)
        if earlier and earlier.state in {WorktreeState.ACTIVE, WorktreeState.CHANGED} and Path(earlier.path).is_dir():
            try:
                _check_folder(earlier)
            except GitError as error:
                raise WorktreeError(f"The worktree of session {earlier.id} cannot be used: {error}") from error
            return self._write(replace(earlier, state=WorktreeState.ACTIVE))
        path, branch = self.place(spec, session, agent)
        record = Worktree(
            id=session[:ID_DIGITS],
            session=session,
            agent=agent,
            task=task,
            repository=spec.repository,
            folder=spec.folder,
            path=path,
            branch=branch,
            base_kind=spec.base,
            common_dir=spec.git_dir,
            base=earlier.base if earlier and earlier.state is WorktreeState.CHANGED else "",
            created=time.time(),
        )
        try:
            return self._create(record)
        except (GitError, OSError) as error:
            with contextlib.suppress(WorktreeError):
                self._remove(record, keep_branch=bool(record.base))
            self._record_path(record).unlink(missing_ok=True)
            raise WorktreeError(f"No worktree of {spec.repository} could be made: {error}") from error

    def _create(self, record: Worktree) -> Worktree:
        path = Path(record.path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write(record)
        git = Git(record.repository, self._environ)
        is_new = not record.base
        if is_new:
            record = self._write(replace(record, base=self._commit_base(git, record)))
        with self._locked(path.parent):
            # A tree that was deleted without git is still registered.
            git.run("worktree", "prune")
            target = ("--no-track", "-B", record.branch, record.path, record.base) if is_new else ()
            git.run("worktree", "add", "--quiet", *(target or (record.path, record.branch)))
        git_dir = Git(path, self._environ).read("rev-parse", "--absolute-git-dir")
        _check_folder(record)
        self._copy_included(git, path)
        Path(record.cwd).mkdir(parents=True, exist_ok=True)
        return self._write(replace(record, git_dir=git_dir, state=WorktreeState.ACTIVE))

    def _commit_base(self, git: Git, record: Worktree) -> str:
        """Return the commit a worktree starts from: HEAD, or a new one with the user's uncommitted files."""
        head = git.read("rev-parse", "--verify", "--quiet", "HEAD") if git.succeeds("rev-parse", "HEAD") else ""
        if head and record.base_kind == "head":
            return head
        import shutil
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(dir=Path(record.path).parent) as scratch:
            index = Path(scratch, "index")
            own_index = Path(record.repository, git.read("rev-parse", "--git-path", "index"))
            if own_index.exists():
                # With the times of the user's index, so that unchanged files are not read.
                shutil.copy2(own_index, index)
            _add_files(git, index)
            tree = git.read("write-tree", index=index)
        if head and tree == git.read("rev-parse", f"{head}^{{tree}}"):
            return head
        parent = ("-p", head) if head else ()
        return git.read("commit-tree", tree, *parent, "-m", f"Uncommitted files of {record.repository}")

    def _copy_included(self, git: Git, path: Path) -> None:
        """Copy the ignored files that `.worktreeinclude` names, regular files only."""
        import shutil

        top = Path(git.read("rev-parse", "--show-toplevel"))
        if not (top / INCLUDE_FILE).is_file():
            return
        named = git.run("ls-files", "-z", "--others", "--ignored", f"--exclude-from={INCLUDE_FILE}")
        ignored = {*git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard").split(b"\0")}
        names = [os.fsdecode(name) for name in named.split(b"\0") if name and name in ignored]
        if len(names) > MAX_INCLUDED_FILES:
            raise GitError(f"{INCLUDE_FILE} names {len(names)} files; at most {MAX_INCLUDED_FILES} are copied.")
        for name in names:
            source, target = top / name, path / name
            if os.path.realpath(target) != str(Path(os.path.realpath(path), name)):
                raise GitError(f"{INCLUDE_FILE} names {name}, which a link in the last commit leads elsewhere.")
            if stat.S_ISREG(source.lstat().st_mode):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def close(self, record: Worktree) -> Worktree:
        """Commit the changes of a worktree on its branch, or remove it if there are none.

        Raises:
            WorktreeError: git failed; the worktree stays as it is.
        """
        try:
            changes = self._commit_changes(record)
            if changes is None:
                self._remove(record)
                return self._write(replace(record, state=WorktreeState.UNCHANGED, changes=None))
            return self._write(replace(record, state=WorktreeState.CHANGED, changes=changes))
        except (GitError, OSError) as error:
            message = f"The changes could not be committed: {error} They are kept in {record.path}."
            raise WorktreeError(message) from error

    def _commit_changes(self, record: Worktree) -> WorktreeChanges | None:
        git = Git(record.path, self._environ, git_dir=record.git_dir)
        common, expected = git.read("rev-parse", "--git-common-dir"), Path(record.git_dir).parents[1]
        if os.path.realpath(Path(record.path, common)) != os.path.realpath(expected):
            raise GitError(f"{record.git_dir} was changed to belong to {common}, not to {expected}.")
        _add_files(git)
        tree, head = git.read("write-tree"), git.read("rev-parse", "HEAD")
        if tree != git.read("rev-parse", "HEAD^{tree}"):
            title = f"{record.agent}: {' '.join(record.task.split())[:MAX_NAME_CHARS]}"
            head = git.read("commit-tree", tree, "-p", head, "-m", title)
        if head == record.base:
            return None
        # On the branch of the worktree, also if the agent went to another one.
        git.run("update-ref", f"refs/heads/{record.branch}", head)
        git.run("symbolic-ref", "HEAD", f"refs/heads/{record.branch}")
        return self._summarize(git, record, head)

    def _summarize(self, git: Git, record: Worktree, head: str) -> WorktreeChanges:
        patch_file = Path(f"{record.path}.patch")
        patch = git.run("diff", *_DIFF_OPTIONS, "--binary", record.base, head)
        write_private_file(patch_file, patch)
        counts = [
            row.split(b"\t", 2)
            for row in git.run("diff", *_DIFF_OPTIONS, "--numstat", record.base, head).splitlines()
        ]
        return WorktreeChanges(
            path=record.path,
            branch=record.branch,
            base=record.base,
            head=head,
            files=len(counts),
            insertions=sum(int(row[0]) for row in counts if row[0].isdigit()),
            deletions=sum(int(row[1]) for row in counts if row[1].isdigit()),
            patch_file=str(patch_file),
        )

    # -- what a person does with one -----------------------------------------------------------------

    def read_patch(self, record: Worktree) -> bytes:
        """Return the changes of a worktree as a patch.

        Raises:
            WorktreeError: git failed.
        """
        if record.changes is None:
            return b""
        try:
            git = Git(record.repository, self._environ)
            return git.run("diff", *_DIFF_OPTIONS, "--binary", record.base, record.changes.head)
        except GitError as error:
            raise WorktreeError(f"The changes of worktree {record.id} cannot be read: {error}") from error

    def merge(self, record: Worktree) -> Worktree:
        """Apply the changes of a worktree to the user's files, all or none, and remove it; commit nothing.

        Raises:
            WorktreeError: they do not fit; nothing was changed.
        """
        patch = self.read_patch(record)
        git = Git(record.repository, self._environ)
        try:
            if patch:
                git.run("apply", "--check", "--whitespace=nowarn", "-", stdin=patch)
                git.run("apply", "--whitespace=nowarn", "-", stdin=patch)
        except GitError as error:
            raise WorktreeError(
                f"The changes of worktree {record.id} do not fit the files in {record.repository}: {error} Nothing "
                f"was changed. Merge them by hand with `git merge {record.branch}` there."
            ) from error
        self._remove(record)
        return self._write(replace(record, state=WorktreeState.MERGED))

    def discard(self, record: Worktree) -> None:
        """Remove a worktree with its branch, its changes and its record.

        Raises:
            WorktreeError: it could not be removed.
        """
        self._remove(record)
        Path(f"{record.path}.patch").unlink(missing_ok=True)
        self._record_path(record).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are in it
            Path(record.path).parent.rmdir()

    def is_contained(self, record: Worktree) -> bool:
        """Return whether another branch of the repository has the changes of a worktree."""
        if record.changes is None:
            return True
        try:
            listed = Git(record.repository, self._environ).read(
                "for-each-ref", "--format=%(refname)", "--contains", record.changes.head, "refs/heads", "refs/tags"
            )
        except GitError:
            return False
        return any(name != f"refs/heads/{record.branch}" for name in listed.splitlines())

    # -- parts -------------------------------------------------------------------------------------

    def _remove(self, record: Worktree, *, keep_branch: bool = False) -> None:
        """Remove the folder of a worktree, its registration and its branch, as far as they exist.

        Raises:
            WorktreeError: the folder could not be removed.
        """
        import shutil

        path = Path(record.path)
        if path.exists():
            shutil.rmtree(path, onerror=_make_writable)
        if path.exists():
            raise WorktreeError(
                f"{path} could not be removed. Remove it by hand, then run `retinue worktrees prune`."
            )
        if not Path(record.repository).is_dir():
            return  # the repository is gone, and its registrations with it
        git = Git(record.repository, self._environ)
        with contextlib.suppress(GitError), self._locked(path.parent):
            git.run("worktree", "prune")
            if not keep_branch:
                git.run("update-ref", "-d", f"refs/heads/{record.branch}")

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Keep other processes from adding and removing worktrees of the same repository at the same time.

        Raises:
            GitError: another process holds the lock too long.
        """
        deadline = time.monotonic() + GIT_TIMEOUT
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise GitError(f"another process changes the worktrees of {folder.name}.")
                time.sleep(LOCK_INTERVAL)
            yield
        finally:
            os.close(descriptor)

    def _record_path(self, record: Worktree) -> Path:
        return Path(f"{record.path}.json")

    def _write(self, record: Worktree) -> Worktree:
        write_private_file(self._record_path(record), msgspec.json.encode(record))
        return record

    def _read(self, path: Path) -> Worktree | None:
        try:
            record = msgspec.json.decode(read_regular_file(path, MAX_RECORD_BYTES), type=Worktree)
        except (OSError, FileTooLargeError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        # Its path decides what is removed: only the one beside the record counts.
        return record if record.path == str(path.with_suffix("")) else None


_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--no-renames", "--no-color")


def _check_folder(record: Worktree) -> None:
    """Check that the directory of a run is in its worktree: a link that an agent or a commit left may lead elsewhere.

    Raises:
        GitError: it is not.
    """
    folder = os.path.realpath(record.cwd)
    if not Path(folder).is_relative_to(os.path.realpath(record.path)):
        raise GitError(f"{record.cwd} is a link to {folder}. Remove the link, or choose another directory.")


def _add_files(git: Git, index: Path | None = None) -> None:
    """Add all files but byproducts to the index; tracked ones also if they look like byproducts.

    Raises:
        GitError: git failed.
    """
    git.run("add", "--all", "--", ".", *(f":(exclude,glob)**/{pattern}" for pattern in BYPRODUCTS), index=index)
    git.run("add", "--update", index=index)


def _fold_name(name: str) -> str:
    """Return a name for paths and branches: letters, digits, `.`, `_` and `-`."""
    folded = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in name)
    return folded.strip("-")[:MAX_NAME_CHARS] or "run"


def _make_writable(remove: Callable[[str], object], path: str, _: object) -> None:
    """Remove what a read-only folder protects."""
    with contextlib.suppress(OSError):
        Path(path).parent.chmod(0o700)
        if not Path(path).is_symlink():
            Path(path).chmod(0o700)
        remove(path)
