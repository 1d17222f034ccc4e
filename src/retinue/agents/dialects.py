"""Read an agent file or folder in any of its dialects. The spelling of keys is in `fields`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.agents.agent import NAME_RULE, Agent, Diagnostic, SourceLayer, is_valid_name
from retinue.agents.fields import FieldReader, list_field_names
from retinue.agents.parse import (
    HEADER_BYTES,
    AgentFileError,
    AgentHeader,
    MarkdownDocument,
    decode_text,
    parse_header,
    read_bytes,
    split_frontmatter,
)
from retinue.agents.translate import (
    Translate,
    convert_toml,
    translate_claude,
    translate_codex,
    translate_copilot,
    translate_cursor,
    translate_gemini,
    translate_header,
    translate_opencode,
    translate_plugin,
)
from retinue.model.tool_names import is_covered, is_delegation, is_mcp_tool, to_pi_name, to_pi_names

_UNUSABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SLUG_RULE = "a-z, 0-9, _ and - (max 64, starting with a letter or digit)"

_ENGINE_NAMES = {"claude_sdk": "claude", "pi": "pi"}
"""Providers in a folder's `config.yaml` that name an engine rather than a model provider."""


class AgentDialect(Enum):
    """A way to write agents."""

    MARKDOWN = "markdown"
    """A markdown file with a header: ours, pi's, sticky prompts and profiles."""
    CLAUDE = "claude"
    """Markdown of Claude Code."""
    NAMED = "named"
    """Markdown agents among other markdown files."""
    PROMPT = "prompt"
    """Markdown agents among prompt templates."""
    GEMINI = "gemini"
    """Markdown of Gemini CLI."""
    COPILOT = "copilot"
    """Markdown of GitHub Copilot and VS Code, mostly called `NAME.agent.md`."""
    OPENCODE = "opencode"
    """Markdown of opencode."""
    CURSOR = "cursor"
    """Markdown of Cursor."""
    CODEX = "codex"
    """TOML of Codex."""
    FOLDER = "folder"
    """A folder with `AGENTS.md` and `config.yaml`, called by the folder's name."""


class DialectRules(Struct, frozen=True, kw_only=True):
    """The rules of a dialect beyond the spelling of its keys."""

    required_fields: tuple[frozenset[str], ...] = ()
    """A file is an agent if its header has a field of each set; without sets, every file but a README is one."""
    translate: Translate | None = None
    """For files of other tools: what turns their keys into ours.

    Their tools, models and skills are optional, they need a header, and may have both tool lists: denied tools are
    removed from the allowed ones.
    """
    has_subfolders: bool = False
    """Whether files in subfolders are read, too."""
    suffixes: tuple[str, ...] = (".md", ".markdown")


DIALECT_RULES: Mapping[AgentDialect, DialectRules] = {
    AgentDialect.MARKDOWN: DialectRules(),
    AgentDialect.CLAUDE: DialectRules(translate=translate_claude, has_subfolders=True),
    AgentDialect.GEMINI: DialectRules(translate=translate_gemini),
    AgentDialect.COPILOT: DialectRules(translate=translate_copilot),
    AgentDialect.OPENCODE: DialectRules(translate=translate_opencode, has_subfolders=True),
    AgentDialect.CURSOR: DialectRules(translate=translate_cursor),
    AgentDialect.CODEX: DialectRules(translate=translate_codex, suffixes=(".toml",)),
    AgentDialect.NAMED: DialectRules(required_fields=(frozenset({"name"}),)),
    AgentDialect.PROMPT: DialectRules(required_fields=(frozenset({"name"}), frozenset({"tools", "denied_tools"}))),
    AgentDialect.FOLDER: DialectRules(),
}


class PluginSource(Struct, frozen=True):
    """The plugin of Claude Code that a definition belongs to."""

    name: str
    folder: Path
    """Its folder of agents, whose subfolders are part of their names, or the file of one agent."""

    def qualify_name(self, name: str, path: Path) -> str:
        """Return the name of an agent in a file as Claude Code spells it: `plugin:folder:agent`.

        Raises:
            AgentFileError: the plugin or a folder has no letters that a name can have.
        """
        below = path.parent.relative_to(self.folder).parts if path != self.folder else ()
        parts = [part if is_valid_name(part) else _fold_name(part) for part in (self.name, *below)]
        if not all(map(is_valid_name, parts)):
            raise AgentFileError(f"the name {':'.join(parts)!a} of its plugin or folder is invalid: use {NAME_RULE}")
        return ":".join((*parts, name))


class AgentSource(Struct, frozen=True):
    """The place a definition was found in."""

    layer: SourceLayer
    dialect: AgentDialect = AgentDialect.MARKDOWN
    level: str | None = None
    """The project directory it belongs to."""
    within: Path | None = None
    """The directory links must not leave; None for the user's own files."""
    plugin: PluginSource | None = None


def read_agent(path: Path, origin: AgentSource) -> Agent | Diagnostic | None:
    """Return the agent at a path, the reason why it cannot be used, or None if the path is no agent."""
    try:
        return _read_folder(path, origin) if origin.dialect is AgentDialect.FOLDER else _read_file(path, origin)
    except AgentFileError as error:
        return Diagnostic(str(error.file or path), error.reason, error.line)


# -- markdown --------------------------------------------------------------------------------------


def _read_file(path: Path, origin: AgentSource) -> Agent | None:
    content = read_bytes(path, within=origin.within)
    is_toml = origin.dialect is AgentDialect.CODEX
    document = _read_toml(decode_text(content)) if is_toml else split_frontmatter(decode_text(content))
    if not _is_agent(path, document, origin.dialect):
        return None
    if not document.body and not document.header.values:
        raise AgentFileError("is empty")
    header, translate = document.header, DIALECT_RULES[origin.dialect].translate
    if origin.plugin:
        translate = translate_plugin
    if translate:
        header = translate_header(header, translate)
    fields = FieldReader(str(path), header, origin.layer)
    name = _choose_name(fields, stem=path.stem.removesuffix(".agent"))
    if translate:
        _subtract_denied_tools(fields.values)
        _make_additions_optional(fields.values)
    if origin.plugin:
        name = origin.plugin.qualify_name(name, path)
    return _make_agent(fields, origin, content, name=name, body=document.body, source=str(path))


def _read_toml(text: str) -> MarkdownDocument:
    """Return the header and the instructions of a TOML file.

    Raises:
        AgentFileError: it is not TOML.
    """
    import tomllib

    try:
        values = convert_toml(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise AgentFileError(f"is not valid TOML: {error}") from error
    body = values.pop("developer_instructions", "")
    return MarkdownDocument(AgentHeader(values), body.strip() if isinstance(body, str) else "")


def _is_agent(path: Path, document: MarkdownDocument, dialect: AgentDialect) -> bool:
    fields = list_field_names(document.header)
    if DIALECT_RULES[dialect].translate and not document.header.values:
        return False  # as in the tools that wrote these folders
    if required := DIALECT_RULES[dialect].required_fields:
        return all(fields & alternatives for alternatives in required)
    # Folders of agents often have a README; it is an agent only if its header has a name.
    return "name" in fields or path.stem.lower() != "readme"


def _choose_name(fields: FieldReader, *, stem: str) -> str:
    """Return the name from the header or, without one, from the file; a title becomes a name that can be called.

    Raises:
        AgentFileError: nothing of the name can be used.
    """
    if not (name := fields.values.pop("name", "")):
        name = stem
        fields.add_notice("name", f"the header has no name; the agent is named after its file, {stem!a}")
    if is_valid_name(name):
        return str(name)
    joined = _fold_name(name)
    if not is_valid_name(joined):
        raise AgentFileError(f"the name {name!a} is invalid: use {NAME_RULE}")
    fields.values.setdefault("title", name)
    fields.add_notice("name", f"{name!a} is not a valid name; the agent is named {joined!r}")
    return joined


def _fold_name(title: str) -> str:
    """Return the name of a title: `SRE (Site Reliability)` → `sre-site-reliability`; empty if letters are lost."""
    import unicodedata

    plain = "".join(letter for letter in unicodedata.normalize("NFKD", title) if not unicodedata.combining(letter))
    if not title.isprintable() or any(letter.isalnum() and not letter.isascii() for letter in plain):
        return ""
    return _UNUSABLE.sub("-", plain).strip("-._").lower()


def _subtract_denied_tools(values: dict[str, Any]) -> None:
    """Remove the denied tools from the allowed ones."""
    allowed: tuple[str, ...] | None = values.get("tools")
    if allowed is None:
        return
    denied = to_pi_names(values.get("denied_tools", ()))
    values["tools"] = tuple(name for name in allowed if not is_covered(to_pi_name(name), denied))
    # `Bash(rm:*)` still restricts the `Bash` that stays, and `mcp__github__delete` the server that stays.
    has_servers = any(is_mcp_tool(to_pi_name(name)) for name in values["tools"])
    values["denied_tools"] = tuple(name for name in denied if "(" in name or (has_servers and is_mcp_tool(name)))


def _make_additions_optional(values: dict[str, Any]) -> None:
    """Let the agent run without what its own tool has and an engine here may not have."""
    allowed: tuple[str, ...] | None = values.get("tools")
    if allowed is not None:
        delegation = tuple(name for name in allowed if is_delegation(name))
        others = (name for name in allowed if name not in delegation)
        values["optional_tools"] = (*values.get("optional_tools", ()), *others)
        values["tools"] = delegation
    values["is_foreign"] = True


# -- folders ---------------------------------------------------------------------------------------


def _read_folder(path: Path, origin: AgentSource) -> Agent:
    slug = path.name
    if not _SLUG.fullmatch(slug):
        raise AgentFileError(f"the folder's name is not a valid agent name: use {_SLUG_RULE}")
    config, prompt = path / "config.yaml", path / "AGENTS.md"
    with _blame_file(config):
        settings = read_bytes(config, within=origin.within, limit=HEADER_BYTES)
        fields = FieldReader(str(config), parse_header(decode_text(settings)), origin.layer)
        for key in ("name", "description"):
            if not fields.values.get(key):
                raise AgentFileError(f"has no {key}")
    with _blame_file(prompt):
        content = read_bytes(prompt, within=origin.within)
        body = decode_text(content).strip()
    del fields.values["name"]  # a title: the agent is called by its folder
    persona, memory = (_read_optional(path / name, fields, origin) for name in ("SOUL.md", "MEMORY.md"))
    if engine := _ENGINE_NAMES.get(fields.values.get("provider") or ""):
        fields.values["provider"] = None
        fields.values.setdefault("engine", engine)
    # Both files make the run. Their lengths keep a byte from moving from one to the other unnoticed.
    hashed = b"%d %d " % (len(settings), len(content)) + settings + content
    return _make_agent(
        fields, origin, hashed, name=slug, body=body, persona=persona, memory=memory, source=str(prompt)
    )


@contextmanager
def _blame_file(path: Path) -> Iterator[None]:
    try:
        yield
    except AgentFileError as error:
        error.file = path
        raise


def _read_optional(path: Path, fields: FieldReader, origin: AgentSource) -> str:
    """Return the text of a file that may be absent; a broken one is only noted, since no run uses it."""
    if not os.path.lexists(path):
        return ""
    try:
        return decode_text(read_bytes(path, within=origin.within)).strip()
    except AgentFileError as error:
        fields.notices.append(Diagnostic(str(path), f"{error.reason}; left out", error.line))
        return ""


def _make_agent(fields: FieldReader, origin: AgentSource, content: bytes, **values: Any) -> Agent:
    return Agent(
        **fields.values,
        **values,
        layer=origin.layer,
        level=origin.level,
        plugin=origin.plugin.name if origin.plugin else "",
        unknown=tuple(fields.unknown),
        notices=tuple(fields.notices),
        # Built-in agents need no digest: the version of the package identifies them.
        digest="" if origin.layer is SourceLayer.BUILTIN else _hash_content(content),
    )


def _hash_content(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()
