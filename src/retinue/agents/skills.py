"""Skills: files that teach an agent how to do something, found where pi and Claude Code look for them.

A project's skills are the project's own text. A project's agent takes them before the user's. Any other agent takes
the user's first, so that no project can put its text in the place of a skill the user knows; and the project's only
where the user allows it (`project_agents = "allow"`), or where the run has nothing but local tools that read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

from retinue.agents.definition import Layer, Remark
from retinue.agents.files import Broken, decode, read_bytes
from retinue.agents.frontmatter import split
from retinue.agents.roster import ProjectAgents
from retinue.agents.trust import LOCAL_READ_ONLY
from retinue.folders import home_folder, pi_folder, project_levels, user_path
from retinue.output.frame import neutralise, one_line, plain
from retinue.regular_files import real_path
from retinue.types import Code, Failure, Grant, Subagent

SKILL = "SKILL.md"
PROJECT_FOLDERS = (".pi/skills", ".agents/skills", ".claude/skills")
"""At each level of a project, the strongest first."""

FILE_BYTES = 256 * 2**10
"""Of one skill; the standard recommends a tenth of it."""
LOADED_BYTES = 2**20
"""Of all that are loaded into one system prompt."""
MAX_ENTRIES = 5000
"""In one folder of skills and those below it."""
MAX_DEPTH = 4
MAX_DESCRIPTION = 1024
"""Characters, by the standard."""
MENTIONED = 100
"""Names in a message."""

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
SUGGESTED = "Skills you may use; read the file of one before you do what it is about:"


class Skill(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    body: str
    file: str

    @property
    def block(self) -> str:
        """The skill in a system prompt, with its folder, as it may name files beside it."""
        from html import escape

        folder = escape(one_line(str(Path(self.file).parent), 4096))
        return f'<loaded_skill name="{self.name}" folder="{folder}">\n{neutralise(plain(self.body))}\n</loaded_skill>'

    @property
    def line(self) -> str:
        """The skill as one that may be read."""
        told = neutralise(one_line(self.description, MAX_DESCRIPTION))
        return f"- {self.name}: {told} ({one_line(self.file, 4096)})"


class Shelf(Struct, frozen=True):
    """The skills around a working directory by name, the user's and the project's, and what could not be used."""

    user: Mapping[str, Skill]
    project: Mapping[str, Skill]
    remarks: tuple[Remark, ...] = ()


class Skills:
    """One look at the skills of a user and of the projects they work in: what was found stays as it was."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._shelves: dict[Path, Shelf] = {}

    def around(self, cwd: Path) -> Shelf:
        """The skills that can be had in a working directory."""
        if cwd not in self._shelves:
            self._shelves[cwd] = self._look(cwd)
        return self._shelves[cwd]

    def taught(
        self, agent: Subagent, cwd: str | Path, *, grant: Grant, project_agents: ProjectAgents
    ) -> str | Failure:
        """What the skills an agent names add to its system prompt; `unknown_skill` if one of them cannot be had."""
        wanted = tuple(dict.fromkeys((*agent.load_skills, *agent.suggested_skills)))
        if not wanted:
            return ""
        shelf = self.around(Path(cwd))
        known = _known(shelf, agent, grant, project_agents)
        if unknown := [name for name in wanted if name not in known]:
            return _unknown(unknown, known, shelf)
        loaded = [known[name] for name in dict.fromkeys(agent.load_skills) if known[name].body]
        size = sum(len(skill.body.encode()) for skill in loaded)
        if size > LOADED_BYTES:
            return _too_large(agent, size)
        suggested = [known[name].line for name in dict.fromkeys(agent.suggested_skills)]
        listed = "\n".join([SUGGESTED, *suggested]) if suggested else ""
        return "\n\n".join(filter(None, (*(skill.block for skill in loaded), listed)))

    def _look(self, cwd: Path) -> Shelf:
        mine = tuple(_user_folders(self._environ))
        levels = project_levels(_real(cwd))
        # In a working directory of ~ the user's folders look like a project's: they are the user's.
        own = {place for folder in mine for place in (folder, _real(folder))}
        theirs = [level / name for level in levels for name in PROJECT_FOLDERS if level / name not in own]
        remarks: list[Remark] = []
        user = _by_name(mine, None, remarks)
        return Shelf(user, _by_name(theirs, levels[-1], remarks), tuple(remarks))


def takes_from_project(agent: Subagent, grant: Grant, project_agents: ProjectAgents) -> bool:
    """Whether the project's text may stand in the system prompt of this agent's run."""
    if project_agents != "ask":
        return project_agents == "allow"
    is_harmless = LOCAL_READ_ONLY.issuperset(grant.tools) and not agent.extensions and not agent.extra_args
    return agent.layer == Layer.PROJECT or is_harmless


def _known(shelf: Shelf, agent: Subagent, grant: Grant, project_agents: ProjectAgents) -> Mapping[str, Skill]:
    project = shelf.project if takes_from_project(agent, grant, project_agents) else {}
    return {**shelf.user, **project} if agent.layer == Layer.PROJECT else {**project, **shelf.user}


# -- finding ---------------------------------------------------------------------------------------


def _user_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    home, own = home_folder(environ), environ.get("CLAUDE_CONFIG_DIR")
    yield pi_folder(environ) / "skills"
    yield home / ".agents" / "skills"
    yield (user_path(own, environ) if own else home / ".claude") / "skills"


def _by_name(
    folders: tuple[Path, ...] | list[Path], beneath: Path | None, remarks: list[Remark]
) -> Mapping[str, Skill]:
    """The skills of folders, of each name the first; those of a project lie beneath its root."""
    found: dict[str, Skill] = {}
    for folder in folders:
        for path in _Look(remarks).files(folder):
            match _read(path, beneath):
                case Skill() as skill:
                    found.setdefault(skill.name, skill)
                case Remark() as remark:
                    remarks.append(remark)
    return found


class _Look:
    """One look through a folder of skills, in the order of names."""

    def __init__(self, remarks: list[Remark]) -> None:
        self._left = MAX_ENTRIES
        self._remarks = remarks

    def files(self, folder: Path, depth: int = 0) -> Iterator[Path]:
        """The files that may be skills: markdown in the folder itself, and `SKILL.md` in folders below."""
        entries = self._entries(folder)
        if depth and any(entry.name == SKILL for entry in entries):
            yield folder / SKILL
            return
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith(".") or entry.name == "node_modules":
                continue
            if _is_folder(entry):
                if depth < MAX_DEPTH:
                    yield from self.files(path, depth + 1)
            elif depth == 0 and path.suffix == ".md":
                yield path

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                entries = list(islice(found, self._left + 1))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return []
        except OSError as error:
            self._remarks.append(Remark(str(folder), f"cannot be read: {error.strerror}"))
            return []
        if len(entries) > self._left:
            self._remarks.append(Remark(str(folder), f"more than {MAX_ENTRIES} entries; the rest is not read"))
        entries = sorted(entries[: self._left], key=lambda entry: entry.name)
        self._left -= len(entries)
        return entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _real(path: Path) -> Path:
    try:
        return real_path(path)
    except (OSError, ValueError):
        return path


# -- reading ---------------------------------------------------------------------------------------


def _read(path: Path, beneath: Path | None) -> Skill | Remark | None:
    """The skill in a file; why it cannot be used; None if it is another kind of file."""
    try:
        document = split(decode(read_bytes(path, beneath=beneath, limit=FILE_BYTES)))
    except Broken as broken:
        return Remark(str(path), broken.reason, broken.line)
    header = document.header.values
    description = header.get("description")
    if not isinstance(description, str) or not description.strip():
        return Remark(str(path), "has no description; it is not used") if path.name == SKILL else None
    name = header.get("name") or (path.parent.name if path.name == SKILL else path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return Remark(
            str(path),
            f"has the name {name!a}; a skill's has lower-case letters, digits and single hyphens, at most 64",
        )
    return Skill(name=name, description=description, body=document.body, file=str(path))


# -- what is said ----------------------------------------------------------------------------------


def _unknown(unknown: list[str], known: Mapping[str, Skill], shelf: Shelf) -> Failure:
    names = sorted(known)
    listed = ", ".join(names[:MENTIONED]) or "(none)"
    more = f", and {len(names) - MENTIONED} more" if len(names) > MENTIONED else ""
    quoted = ", ".join(f'"{one_line(name, MENTIONED)}"' for name in unknown[:MENTIONED])
    message = f"Unknown skills: {quoted}. Available skills: {listed}{more}"
    detail: dict[str, str | int | float] = {"skills": ", ".join(unknown[:MENTIONED])}
    broken = (str(remark) for remark in shelf.remarks if set(Path(remark.file).parts[-2:]) & _file_names(unknown))
    if said := next(broken, None):
        detail["broken"] = said
    if withheld := [shelf.project[name].file for name in unknown if name in shelf.project]:
        message += (
            f". The project has its own ({', '.join(withheld[:MENTIONED])}), which only agents that do nothing but "
            'read are given unasked: look at it and set project_agents = "allow", or copy it to your own skills.'
        )
        return Failure(Code.UNKNOWN_SKILL, message, "untrusted", detail)
    return Failure(Code.UNKNOWN_SKILL, message, detail=detail)


def _file_names(names: list[str]) -> set[str]:
    return {*names, *(f"{name}.md" for name in names)}


def _too_large(agent: Subagent, size: int) -> Failure:
    message = (
        f'The skills agent "{agent.name}" loads have {size} bytes; at most {LOADED_BYTES} go into a system prompt. '
        "Nothing was started. Suggest some of them instead (suggestedSkills)."
    )
    return Failure(Code.UNSUPPORTED, message, "skills_size", {"agent": agent.name})
