"""The project files that a project's agent names: extensions, files that these import, skills, and MCP servers.

What the user approves is the agent with all these files: a change of any of them needs a new approval.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from retinue.agents.agent import Agent, Diagnostic
from retinue.agents.hooks import list_command_files
from retinue.agents.mcp_config import ServerFinder
from retinue.agents.parse import AgentFileError
from retinue.agents.search_paths import resolve_links
from retinue.agents.skills import SKILL_FILE, SkillRegistry, SkillSet
from retinue.agents.trust import names_files
from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file

MAX_FILES = 1000
MAX_BYTES = 32 * 2**20
"""Bytes of all files that one agent names."""
CODE_SUFFIXES = (".ts", ".js", ".mts", ".mjs", ".cts", ".cjs", ".tsx", ".jsx", ".json")
INDEX_FILES = tuple(f"index{suffix}" for suffix in CODE_SUFFIXES)
_PACKAGE_SOURCE = re.compile(r"[a-z][a-z0-9+.-]+:|git@|~")
"""Start of an extension that is no path of the project: a package, a repository, or below the user's home."""
_find_imports = re.compile(rb"""(?:from|import|require)\s*\(?\s*["'](\.[^"'\n]{0,512})["']""").findall


def cover_agents(agents: Sequence[Agent], cwd: Path, environ: Mapping[str, str]) -> tuple[Agent | Diagnostic, ...]:
    """Return those of the agents that name files, with the digest of all these files, or why they cannot be used."""
    cwd = resolve_links(cwd)
    has_skills = any(agent.load_skills or agent.suggested_skills for agent in agents)
    skills = SkillRegistry(environ).for_directory(cwd) if has_skills else SkillSet({}, {})
    servers = ServerFinder(cwd, environ)
    return tuple(_cover_or_explain(agent, cwd, skills, servers) for agent in agents if names_files(agent))


def _cover_or_explain(agent: Agent, cwd: Path, skills: SkillSet, servers: ServerFinder) -> Agent | Diagnostic:
    try:
        return cover_named_files(agent, cwd, skills, servers)
    except AgentFileError as error:
        return Diagnostic(agent.source or agent.name, error.reason)


def cover_named_files(agent: Agent, cwd: Path, skills: SkillSet, servers: ServerFinder) -> Agent:
    """Return the agent with a digest of its own file and of all project files it names.

    Its extensions become absolute paths, so that a run in another directory loads the same files.

    Raises:
        AgentFileError: the files are too many, too large, or cannot be read.
    """
    extensions = tuple(_resolve_extension(name, agent, cwd) for name in agent.extensions)
    collection = _FileCollection()
    arguments = (str(cwd / argument) for argument in agent.extra_args)
    folders = (cwd, Path(agent.level)) if agent.level else (cwd,)
    named = (*filter(os.path.isfile, arguments), *list_command_files(agent.hooks, folders))
    for name in (*extensions, *named, *servers.find_project_files(agent)):
        collection.add(name)
    for skill in dict.fromkeys((*agent.load_skills, *agent.suggested_skills)):
        if found := skills.project.get(skill):
            path = Path(found.file)
            collection.add(str(path.parent if path.name == SKILL_FILE else path))
    covered = replace(agent, extensions=extensions) if extensions != agent.extensions else agent
    if not collection.digests:
        return covered
    listed = "\n".join(f"{digest} {path}" for path, digest in sorted(collection.digests.items()))
    digest = sha256(f"{agent.digest}\n{listed}".encode("utf-8", "surrogateescape")).hexdigest()
    return replace(covered, digest=digest, named_files=tuple(sorted(collection.digests)))


def _resolve_extension(name: str, agent: Agent, cwd: Path) -> str:
    """Return the path of an extension, from the working directory or else from the project's level of the agent."""
    if _PACKAGE_SOURCE.match(name):
        return name
    path = cwd / name
    return str(Path(agent.level, name) if agent.level and not os.path.lexists(path) else path)


class _FileCollection:
    """Files with the digests of their contents; links are followed, so that their targets are covered."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self._bytes = 0

    def add(self, name: str) -> None:
        """Add a file with what it imports, or all files of a folder; nothing if there is none."""
        pending = [name]
        while pending:
            path = os.path.normpath(pending.pop())
            if path in self.digests or not os.path.lexists(path):
                continue
            if os.path.isdir(path):  # noqa: PTH112 - names of files are kept as they are
                pending += self._list_folder(path)
            else:
                pending += _list_imports(path, self._add_file(path))

    def _list_folder(self, path: str) -> list[str]:
        # A link to a folder above it would never end: each folder counts, and its path grows until it is refused.
        self._count(path, sha256(b"folder").hexdigest())
        try:
            return sorted(entry.path for entry in os.scandir(path))
        except OSError as error:
            raise _make_error(path, f"cannot be read ({error.strerror})") from error

    def _add_file(self, path: str) -> bytes:
        try:
            content = read_regular_file(path, MAX_BYTES - self._bytes)
        except FileTooLargeError as error:
            raise _make_error(path, f"exceeds {MAX_BYTES // 2**20} MiB together with the others") from error
        except NotRegularFileError as error:
            raise _make_error(path, f"is {error.kind}") from error
        except OSError as error:
            raise _make_error(path, f"cannot be read ({error.strerror})") from error
        self._bytes += len(content)
        self._count(path, sha256(content).hexdigest())
        return content

    def _count(self, path: str, digest: str) -> None:
        if len(self.digests) >= MAX_FILES:
            raise _make_error(path, f"is one of more than {MAX_FILES}")
        self.digests[path] = digest


def _list_imports(path: str, content: bytes) -> Iterator[str]:
    """Yield the paths that a file of code may import by a literal relative name."""
    if not path.endswith(CODE_SUFFIXES):
        return
    for name in _find_imports(content):
        base = os.path.join(os.path.dirname(path), os.fsdecode(name))  # noqa: PTH118, PTH120 - as above
        stem = base.removesuffix(".js")
        yield from (found for found in (base, *(stem + suffix for suffix in CODE_SUFFIXES)) if os.path.isfile(found))  # noqa: PTH113
        yield from (found for index in INDEX_FILES if os.path.isfile(found := f"{base}/{index}"))  # noqa: PTH113


def _make_error(path: str, reason: str) -> AgentFileError:
    return AgentFileError(f"names files that cannot be approved: {path} {reason}")
