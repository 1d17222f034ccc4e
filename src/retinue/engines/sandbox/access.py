"""Compute which paths a sandboxed process can read, change and not see."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, structs

from retinue.config.directories import find_project_levels, home_folder
from retinue.engines.sandbox.configuration import is_below, list_granted, list_read_only
from retinue.model.sandbox import PROTECTED_GIT_NAMES, SandboxPolicy

SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
"""What every program needs; the system's other folders hold data."""
MACOS_PATHS = ("/System", "/Library", "/private/etc", "/private/var/db/timezone", "/Applications")
RESOLVER_PATHS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/current-system")
"""Targets of links in /etc."""
HOME_SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/hub", ".config/op", ".config/doctl",
    ".config/git/credentials", ".git-credentials", ".docker", ".kube", ".netrc", ".npmrc", ".pypirc", ".pgpass",
    ".my.cnf", ".vault-token", ".terraform.d", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".m2/settings.xml", ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome",
    ".config/chromium", ".config/Code", ".thunderbird", ".bash_history", ".zsh_history", ".python_history", ".pi",
    ".claude", ".claude.json", ".codex", ".gemini", ".copilot", ".config/opencode", ".local/share/opencode",
    ".cursor", "Library/Keychains", "Library/Application Support", "Library/Cookies",
)  # fmt: skip
"""Keys, logins and histories in a home folder."""
SYSTEM_SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/etc/ssh")
"""Files of /etc that only root can read."""
PROGRAM_FOLDERS = frozenset({"bin", "sbin", ".bin", "shims"})
MAX_GIT_FOLDERS = 4096
"""Folders that are searched for the git folders of submodules and linked working trees."""
GIT_FILE_BYTES = 4096


class SandboxAccessError(Exception):
    """The sandbox cannot be built for these paths; the message has the reason and the next step."""


class FileAccess(Struct, frozen=True, kw_only=True):
    """The paths of a sandbox: a longer path wins over a shorter one."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    protected: tuple[str, ...] = ()
    """Inside a writable path: can be read only."""
    pinned: tuple[str, ...] = ()
    """Inside a writable path: can be changed, but not be replaced by another folder."""
    hidden: tuple[str, ...] = ()
    """Inside another path: out of reach."""


def compute_access(
    policy: SandboxPolicy,
    cwd: str,
    environ: Mapping[str, str],
    *,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
) -> FileAccess:
    """Return the paths of a sandbox in this directory. `read` and `write` are what the engine needs itself.

    Raises:
        SandboxAccessError: the working directory cannot be told apart from the system, or is another than planned.
    """
    folder = os.path.realpath(cwd)
    if policy.folder not in {"", folder}:
        raise SandboxAccessError(
            f"the working directory {cwd} was {policy.folder} when the run was planned, and is a link to {folder} "
            "now. Nothing was started. Remove the link"
        )
    if folder == "/" or folder in SYSTEM_PATHS:
        raise SandboxAccessError(f"the working directory {folder} holds the system. Choose a project's folder")
    home = os.path.realpath(home_folder(environ))
    hidden = policy.hidden
    repository = _find_repository(folder, home)
    readable = [*read, repository, *_existing(RESOLVER_PATHS)]
    if not policy.repository_only:
        readable += policy.read
        readable += _find_program_prefixes(environ.get("PATH", ""), list_private(policy, folder, environ))
    git = find_git_folders(repository)
    writable = [*write, *policy.write, *([folder] if policy.writes_cwd else [])]
    if policy.writes_cwd and not policy.is_strict and git.is_linked:
        writable.append(git.common)
    access = _simplify(readable, writable, git, hidden, strict=policy.is_strict)
    configuration = tuple(path for path in list_read_only(policy, folder) if _is_below_any(path, access.write))
    granted = tuple(path for path in list_granted(policy, folder) if _is_below_any(path, configuration))
    return structs.replace(
        access,
        write=(*access.write, *_existing(granted)),
        protected=tuple(dict.fromkeys((*access.protected, *configuration))),
        pinned=tuple(dict.fromkeys((*access.pinned, *_list_between(configuration, folder)))),
    )


def _list_between(paths: Iterable[str], folder: str) -> Iterator[str]:
    """Yield the folders between a folder and paths inside it, which could be replaced together with the paths."""
    for path in paths:
        if is_below(path, folder):
            parts = Path(path).relative_to(folder).parts
            yield from (os.path.join(folder, *parts[:count]) for count in range(1, len(parts)))


def list_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys, logins and histories of the user's home, without links."""
    home = os.path.realpath(home_folder(environ))
    paths = [os.path.join(home, name) for name in HOME_SECRETS]
    return tuple(dict.fromkeys((*paths, *map(os.path.realpath, paths))))


def _find_repository(folder: str, home: str) -> str:
    """Return the root of the repository around a folder; the folder itself if that would be the home or more."""
    root = os.path.realpath(find_project_levels(Path(folder))[-1])
    return folder if is_below(home, root) else root


def _simplify(
    readable: Sequence[str], writable: Sequence[str], git: GitFolders, hidden: Iterable[str], *, strict: bool
) -> FileAccess:
    write = tuple(_drop_nested(_existing(writable), ()))
    read = tuple(_drop_nested(_existing(readable), (*write, *SYSTEM_PATHS)))
    protected = [path for path in git.list_protected(strict=strict) if _is_below_any(path, write)]
    pinned = [] if strict else [path for path in git.folders if _is_below_any(path, write)]
    # A home or our state may lie below a folder of the system, such as /opt.
    granted = (*SYSTEM_PATHS, *read, *write)
    return FileAccess(
        read=read,
        write=write,
        protected=tuple(dict.fromkeys(protected)),
        pinned=tuple(dict.fromkeys(pinned)),
        hidden=tuple(
            path for path in dict.fromkeys(hidden) if _is_below_any(path, granted) and os.path.lexists(path)
        ),
    )


class GitFolders(Struct, frozen=True):
    """The folders of a repository's own data."""

    entry: str
    """`.git` of the working tree: a folder, or the file of a linked working tree."""
    own: str
    common: str
    is_linked: bool = False
    """Whether it is a working tree of another repository, which names it in turn."""

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path in (self.own, self.common) if path))

    def list_all(self) -> tuple[str, ...]:
        """Return the folders, and those of submodules and of other linked working trees inside them.

        Raises:
            SandboxAccessError: there are too many.
        """
        return tuple(dict.fromkeys((*self.folders, *_list_inner_folders(self.common))))

    def list_protected(self, *, strict: bool) -> Iterator[str]:
        """Yield the existing paths that must not be changed.

        Raises:
            SandboxAccessError: there are too many.
        """
        if not self.entry:
            return
        if strict or not os.path.isdir(self.entry):
            yield self.entry
        if strict:
            yield from self.folders
            return
        for folder in self.list_all():
            yield from _existing(os.path.join(folder, name) for name in sorted(PROTECTED_GIT_NAMES))


NO_GIT = GitFolders("", "", "")


def find_git_folders(root: str) -> GitFolders:
    """Return the git folders of a working tree; empty ones if it has none."""
    entry = os.path.join(root, ".git")
    if os.path.isdir(entry):
        real = os.path.realpath(entry)
        return GitFolders(entry, real, real)
    own = _read_git_path(entry, root, "gitdir:")
    if not own:
        return NO_GIT
    common = _read_git_path(os.path.join(own, "commondir"), own) or own
    return GitFolders(entry, own, common, is_linked=_is_linked(root, entry, own, common))


def _is_linked(root: str, entry: str, own: str, common: str) -> bool:
    """Return whether a repository has this working tree in its own list.

    An agent can write a file that names the repository of another, and with it a git folder in its working directory
    that names any folder as the common one. So only what lies in the common folder itself is believed.
    """
    is_listed = os.path.dirname(own) == os.path.join(common, "worktrees") and not is_below(own, root)
    is_repository = _is_git_folder(common) and os.path.isdir(os.path.join(common, "objects"))
    return is_listed and is_repository and _read_git_path(os.path.join(own, "gitdir"), own) == os.path.realpath(entry)


def _is_git_folder(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "HEAD"))


def _read_git_path(file: str, base: str, prefix: str = "") -> str:
    try:
        with open(file, "rb") as opened:
            text = os.fsdecode(opened.read(GIT_FILE_BYTES)).strip()
    except OSError:
        return ""
    if not text.startswith(prefix) or "\0" in text:
        return ""
    return os.path.realpath(os.path.join(base, text.removeprefix(prefix).strip()))


def _list_inner_folders(common: str) -> Iterator[str]:
    """Yield the git folders of submodules, whose names may have slashes, and of linked working trees.

    Raises:
        SandboxAccessError: there are too many.
    """
    unseen = [os.path.join(common, name) for name in _INNER_FOLDERS] if common else []
    for _ in range(MAX_GIT_FOLDERS):
        if not unseen:
            return
        folder = unseen.pop()
        if _is_git_folder(folder):
            yield folder
            unseen += [os.path.join(folder, name) for name in _INNER_FOLDERS]
            continue
        with suppress(OSError), os.scandir(folder) as found:
            unseen += sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
    raise SandboxAccessError(
        f"{common} has more than {MAX_GIT_FOLDERS} folders of submodules and working trees. Nothing was started. "
        "Remove those that are no longer used (`git worktree prune`)"
    )


_INNER_FOLDERS = ("modules", "worktrees")


def _find_program_prefixes(search_path: str, private: Sequence[str]) -> Iterator[str]:
    """Yield the installations of programs on the PATH outside the system's folders.

    `…/bin` stands for all of `…`, unless that holds more than programs, such as `~` and `~/.local`.
    """
    for entry in filter(os.path.isabs, search_path.split(os.pathsep)):
        folder = os.path.realpath(entry)
        prefix, name = os.path.split(folder)
        candidates = [folder]
        if name in PROGRAM_FOLDERS:
            candidates = [prefix] if prefix != "/" and not _holds_any(prefix, private) else [folder, f"{prefix}/lib"]
        yield from (path for path in candidates if not _holds_any(path, private))


def _holds_any(folder: str, paths: Iterable[str]) -> bool:
    return any(is_below(path, folder) for path in paths)


@lru_cache(maxsize=16)
def find_installation(program: str, search_path: str = "", private: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the folders of a program and, for a script, of its interpreter. Cached: every run needs them.

    Of a folder that holds a private one, only the program.
    """
    import shutil

    found = shutil.which(program, path=search_path or None) or program
    real = os.path.realpath(found)
    programs = [real]
    if not _is_binary(real) and (node := shutil.which("node", path=search_path or None)):
        programs.append(os.path.realpath(node))
    roots = [(_installation_root(path), path) for path in programs]
    return tuple(path if _holds_any(root, private) else root for root, path in roots)


def list_private(policy: SandboxPolicy, cwd: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that no installation of a program holds: the home, the run's, keys and logins."""
    return os.path.realpath(home_folder(environ)), os.path.realpath(cwd), *policy.hidden


def _installation_root(program: str) -> str:
    """Return the outermost `node_modules` around a program, else the parent of its `bin`, else the file alone."""
    parts = Path(program).parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    folder, name = os.path.split(os.path.dirname(program))
    return folder if name in PROGRAM_FOLDERS and len(Path(folder).parts) > 2 else program  # noqa: PLR2004


def _is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def _drop_nested(paths: Iterable[str], around: Sequence[str]) -> Iterator[str]:
    """Yield each path that lies in none of the others, nor in those around."""
    unique = [*dict.fromkeys(paths)]
    for path in unique:
        others = [other for other in unique if other != path]
        if not _is_below_any(path, others) and not _is_below_any_or_equal(path, around):
            yield path


def _is_below_any(path: str, folders: Iterable[str]) -> bool:
    """Return whether the path is inside one of the folders, and not one of them."""
    return any(is_below(path, folder) and path != folder for folder in folders)


def _is_below_any_or_equal(path: str, folders: Iterable[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)
