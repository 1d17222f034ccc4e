"""Find skills where pi and Claude Code have them, and render those an agent names into its system prompt.

A project's skills are untrusted text. A project's agent prefers them to the user's. Any other agent prefers the
user's, so that no project can replace a skill the user knows, and gets the project's only if the user allows it
(`project_agents = "allow"`) or if the run has only local read tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

from retinue.agents.agent import Diagnostic, SourceLayer
from retinue.agents.parse import AgentFileError, decode_text, read_bytes, split_frontmatter
from retinue.agents.registry import ProjectAgents
from retinue.agents.search_paths import resolve_links
from retinue.agents.trust import LOCAL_READ_ONLY
from retinue.config.directories import claude_folder, find_project_levels, home_folder, pi_folder
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.runs import ToolGrant
from retinue.output.untrusted_text import defang_markup, sanitize_text, to_one_line

SKILL_FILE = "SKILL.md"
PROJECT_FOLDERS = (".pi/skills", ".agents/skills", ".claude/skills")
"""At each level of a project, the strongest first."""

MAX_SKILL_BYTES = 256 * 2**10
"""Bytes of one skill; the standard recommends a tenth of it."""
MAX_LOADED_BYTES = 2**20
"""Bytes of all skills in one system prompt."""
MAX_ENTRIES = 5000
"""Entries in one folder of skills and those below it."""
MAX_DEPTH = 4
MAX_DESCRIPTION_CHARS = 1024
"""The limit of the standard."""
MAX_NAMES_SHOWN = 100
"""Names in a message."""

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
SUGGESTED_HEADING = "Skills you may use. Before a task that a skill is about, read the file of the skill:"


class SkillDefinition(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    body: str
    file: str

    @property
    def block(self) -> str:
        """Return the skill for a system prompt, with its folder, since it may name files there."""
        from html import escape

        folder = escape(to_one_line(str(Path(self.file).parent), 4096))
        body = sanitize_text(self.body)
        return f'<loaded_skill name="{self.name}" folder="{folder}">\n{body}\n</loaded_skill>'

    @property
    def line(self) -> str:
        """Return the line that suggests the skill."""
        description = defang_markup(to_one_line(self.description, MAX_DESCRIPTION_CHARS))
        return f"- {self.name}: {description} ({to_one_line(self.file, 4096)})"


class SkillSet(Struct, frozen=True):
    """The skills for a working directory by name, the user's and the project's, and unusable files."""

    user: Mapping[str, SkillDefinition]
    project: Mapping[str, SkillDefinition]
    diagnostics: tuple[Diagnostic, ...] = ()


class SkillRegistry:
    """The skills of a user and of the user's projects, each directory read once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._skill_sets: dict[Path, SkillSet] = {}

    def for_directory(self, cwd: Path) -> SkillSet:
        """Return the skills for a working directory."""
        if cwd not in self._skill_sets:
            self._skill_sets[cwd] = self._scan(cwd)
        return self._skill_sets[cwd]

    def render_for_agent(
        self, agent: AgentProfile, cwd: str | Path, *, grant: ToolGrant, project_agents: ProjectAgents
    ) -> str | Failure:
        """Return the system prompt text of the skills an agent names; `unknown_skill` if one is not available."""
        requested = tuple(dict.fromkeys((*agent.load_skills, *agent.suggested_skills)))
        if not requested:
            return ""
        skill_set = self.for_directory(Path(cwd))
        known = _visible_skills(skill_set, agent, grant, project_agents)
        unknown = [name for name in requested if name not in known]
        if unknown and not agent.is_foreign:
            return _unknown_skill_failure(unknown, known, skill_set)
        loaded = [known[name] for name in dict.fromkeys(agent.load_skills) if name in known and known[name].body]
        size = sum(len(skill.body.encode()) for skill in loaded)
        if size > MAX_LOADED_BYTES:
            return _too_large_failure(agent, size)
        suggested = [known[name].line for name in dict.fromkeys(agent.suggested_skills) if name in known]
        listed = "\n".join([SUGGESTED_HEADING, *suggested]) if suggested else ""
        return "\n\n".join(filter(None, (*(skill.block for skill in loaded), listed)))

    def _scan(self, cwd: Path) -> SkillSet:
        user_folders = tuple(_user_folders(self._environ))
        levels = find_project_levels(resolve_links(cwd))
        # In a working directory of ~ the user's folders look like a project's: they stay the user's.
        own = {place for folder in user_folders for place in (folder, resolve_links(folder))}
        theirs = [level / name for level in levels for name in PROJECT_FOLDERS if level / name not in own]
        diagnostics: list[Diagnostic] = []
        user = _index_by_name(user_folders, None, diagnostics)
        return SkillSet(user, _index_by_name(theirs, levels[-1], diagnostics), tuple(diagnostics))


def allows_project_skills(agent: AgentProfile, grant: ToolGrant, project_agents: ProjectAgents) -> bool:
    """Return whether the project's text may be in the system prompt of this agent's run."""
    if project_agents != "ask":
        return project_agents == "allow"
    is_read_only = LOCAL_READ_ONLY.issuperset(grant.tools) and not agent.extensions and not agent.extra_args
    return agent.layer == SourceLayer.PROJECT or is_read_only


def _visible_skills(
    skill_set: SkillSet, agent: AgentProfile, grant: ToolGrant, project_agents: ProjectAgents
) -> Mapping[str, SkillDefinition]:
    project = skill_set.project if allows_project_skills(agent, grant, project_agents) else {}
    return {**skill_set.user, **project} if agent.layer == SourceLayer.PROJECT else {**project, **skill_set.user}


# -- finding ---------------------------------------------------------------------------------------


def _user_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    yield pi_folder(environ) / "skills"
    yield home_folder(environ) / ".agents" / "skills"
    yield claude_folder(environ) / "skills"


def _index_by_name(
    folders: tuple[Path, ...] | list[Path], within: Path | None, diagnostics: list[Diagnostic]
) -> Mapping[str, SkillDefinition]:
    """Return the skills of folders by name, of each name the first; a project's must be below its root."""
    found: dict[str, SkillDefinition] = {}
    for folder in folders:
        for path in _SkillScan(diagnostics).find_files(folder):
            match _read_skill(path, within):
                case SkillDefinition() as skill:
                    found.setdefault(skill.name, skill)
                case Diagnostic() as diagnostic:
                    diagnostics.append(diagnostic)
    return found


class _SkillScan:
    """A scan of a folder of skills, in the order of names."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self._remaining = MAX_ENTRIES
        self._diagnostics = diagnostics

    def find_files(self, folder: Path, depth: int = 0) -> Iterator[Path]:
        """Yield the files that may be skills: markdown in the folder itself, and `SKILL.md` in folders below."""
        entries = self._list_entries(folder)
        if depth and any(entry.name == SKILL_FILE for entry in entries):
            yield folder / SKILL_FILE
            return
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith(".") or entry.name == "node_modules":
                continue
            if _is_folder(entry):
                if depth < MAX_DEPTH:
                    yield from self.find_files(path, depth + 1)
            elif depth == 0 and path.suffix == ".md":
                yield path

    def _list_entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                entries = list(islice(found, self._remaining + 1))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return []
        except OSError as error:
            self._diagnostics.append(Diagnostic(str(folder), f"cannot be read: {error.strerror}"))
            return []
        if len(entries) > self._remaining:
            self._diagnostics.append(
                Diagnostic(str(folder), f"more than {MAX_ENTRIES} entries; the others are ignored")
            )
        entries = sorted(entries[: self._remaining], key=lambda entry: entry.name)
        self._remaining -= len(entries)
        return entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


# -- reading ---------------------------------------------------------------------------------------


def _read_skill(path: Path, within: Path | None) -> SkillDefinition | Diagnostic | None:
    """Return the skill in a file, the reason why it cannot be used, or None if the file is no skill."""
    try:
        document = split_frontmatter(decode_text(read_bytes(path, within=within, limit=MAX_SKILL_BYTES)))
    except AgentFileError as broken:
        return Diagnostic(str(path), broken.reason, broken.line)
    header = document.header.values
    description = header.get("description")
    if not isinstance(description, str) or not description.strip():
        return Diagnostic(str(path), "has no description and is ignored") if path.name == SKILL_FILE else None
    name = header.get("name") or (path.parent.name if path.name == SKILL_FILE else path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        reason = f"has the name {name!a}; a skill's has lower-case letters, digits and single hyphens, at most 64"
        return Diagnostic(str(path), reason)
    return SkillDefinition(name=name, description=description, body=document.body, file=str(path))


# -- failures --------------------------------------------------------------------------------------


def _unknown_skill_failure(unknown: list[str], known: Mapping[str, SkillDefinition], skill_set: SkillSet) -> Failure:
    names = sorted(known)
    listed = ", ".join(names[:MAX_NAMES_SHOWN]) or "(none)"
    more = f", and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    quoted = ", ".join(f'"{to_one_line(name, MAX_NAMES_SHOWN)}"' for name in unknown[:MAX_NAMES_SHOWN])
    message = f"Unknown skills: {quoted}. Available skills: {listed}{more}"
    detail: dict[str, str | int | float] = {"skills": ", ".join(unknown[:MAX_NAMES_SHOWN])}
    files = {*unknown, *(f"{name}.md" for name in unknown)}
    broken = (item for item in skill_set.diagnostics if files.intersection(Path(item.file).parts[-2:]))
    if diagnostic := next(broken, None):
        detail["broken"] = str(diagnostic)
    if withheld := [skill_set.project[name].file for name in unknown if name in skill_set.project]:
        message += (
            f". The project has skills of these names ({', '.join(withheld[:MAX_NAMES_SHOWN])}), which only "
            "read-only "
            'agents receive by default: review them and set project_agents = "allow", or copy them to your own '
            "skills."
        )
        return Failure(ErrorCode.UNKNOWN_SKILL, message, "untrusted", detail)
    return Failure(ErrorCode.UNKNOWN_SKILL, message, detail=detail)


def _too_large_failure(agent: AgentProfile, size: int) -> Failure:
    message = (
        f'The skills that agent "{agent.name}" loads have {size} bytes; a system prompt takes at most '
        f"{MAX_LOADED_BYTES}. Nothing was started. List some of them as suggestedSkills instead."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "skills_size", {"agent": agent.name})
