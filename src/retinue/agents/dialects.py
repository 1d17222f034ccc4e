"""Every way to write an agent. The spelling of keys is `fields`' matter; here is what differs beyond it."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.agents.agent import NAME_RULE, Agent, Diagnostic, SourceLayer, is_valid_name
from retinue.agents.fields import FieldReader, list_field_names
from retinue.agents.parse import (
    HEADER_BYTES,
    AgentFileError,
    MarkdownDocument,
    decode_text,
    parse_header,
    read_bytes,
    split_frontmatter,
)
from retinue.model.tool_names import HOUSEKEEPING_TOOLS, is_covered, to_pi_name, to_pi_names

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SLUG_RULE = "a-z, 0-9, _ and -, at most 64, the first a letter or digit"

_ENGINE_NAMES = {"claude_sdk": "claude", "pi": "pi"}
"""Providers in a folder's `config.yaml` that say how an agent runs rather than who answers."""


class AgentDialect(Enum):
    """What differs between agent files beyond their spelling."""

    MARKDOWN = "markdown"
    """Ours, pi's, sticky prompts and profiles: a header and a body."""
    CLAUDE = "claude"
    """The same, but allow and deny lists are usual together: deny is taken from allow."""
    NAMED = "named"
    """The same among other markdown: only files with a `name` are agents."""
    PROMPT = "prompt"
    """The same among prompt templates: only files with a `name` and an allow or deny list are agents."""
    FOLDER = "folder"
    """A folder with `AGENTS.md` and `config.yaml`, called as the folder is."""


class AgentSource(Struct, frozen=True):
    """Where a definition was found."""

    layer: SourceLayer
    dialect: AgentDialect = AgentDialect.MARKDOWN
    level: str | None = None
    """The project directory it belongs to."""
    within: Path | None = None
    """Where links must stay; None for the user's own files."""


def read_agent(path: Path, origin: AgentSource) -> Agent | Diagnostic | None:
    """The agent at a path; a remark if it is broken; None if it is something else than an agent."""
    try:
        return _read_folder(path, origin) if origin.dialect is AgentDialect.FOLDER else _read_file(path, origin)
    except _AgentPartError as part:
        return Diagnostic(str(part.path), part.error.reason, part.error.line)
    except AgentFileError as broken:
        return Diagnostic(str(path), broken.reason, broken.line)


# -- markdown --------------------------------------------------------------------------------------


def _read_file(path: Path, origin: AgentSource) -> Agent | None:
    content = read_bytes(path, within=origin.within)
    document = split_frontmatter(decode_text(content))
    if not _is_agent(path, document, origin.dialect):
        return None
    if not document.body and not document.header.values:
        raise AgentFileError("is empty")
    fields = FieldReader(str(path), document.header, origin.layer)
    name = _choose_name(fields, stem=path.stem)
    if origin.dialect is AgentDialect.CLAUDE:
        _apply_claude_defaults(fields.values)
    return Agent(
        **fields.values,
        **_source_fields(fields, origin),
        name=name,
        body=document.body,
        source=str(path),
        digest=_content_digest(content, origin),
    )


def _is_agent(path: Path, document: MarkdownDocument, dialect: AgentDialect) -> bool:
    fields = list_field_names(document.header)
    match dialect:
        case AgentDialect.NAMED:
            return "name" in fields
        case AgentDialect.PROMPT:
            return "name" in fields and bool(fields & {"tools", "denied_tools"})
        case _:
            # Folders of agents have their README; it is an agent only if it says so.
            return "name" in fields or path.stem.lower() != "readme"


def _choose_name(fields: FieldReader, *, stem: str) -> str:
    """The name the file gives or, without one, the file's own; spaces in it become hyphens.

    Raises:
        Broken: it could not be called.
    """
    name = fields.values.pop("name", "")
    if not name:
        name = stem
        fields.add_notice("name", f"none is given; the agent is called as its file, {stem!a}")
    if is_valid_name(name):
        return str(name)
    joined = "-".join(name.split()).lower()
    if not is_valid_name(joined):
        raise AgentFileError(f"the name {name!a} cannot be called: use {NAME_RULE}")
    fields.add_notice("name", f"{name!a} cannot be called; the agent is called {joined!r}")
    return joined


def _apply_claude_defaults(found: dict[str, Any]) -> None:
    """Takes the denied tools from the allowed ones, and does not insist on Claude's own aids."""
    allowed: tuple[str, ...] | None = found.get("tools")
    if allowed is None:
        return
    denied = to_pi_names(found.get("denied_tools", ()))
    remaining = [name for name in allowed if not is_covered(to_pi_name(name), denied)]
    aids = tuple(name for name in remaining if name.lower() in HOUSEKEEPING_TOOLS)
    found["tools"] = tuple(name for name in remaining if name not in aids)
    found["optional_tools"] = (*found.get("optional_tools", ()), *aids)
    # `Bash(rm:*)` still restricts the `Bash` that stays.
    found["denied_tools"] = tuple(name for name in denied if "(" in name)


# -- folders ---------------------------------------------------------------------------------------


class _AgentPartError(Exception):
    """One file of a folder is broken."""

    def __init__(self, path: Path, broken: AgentFileError) -> None:
        super().__init__(str(broken))
        self.path = path
        self.error = broken


def _read_folder(path: Path, origin: AgentSource) -> Agent:
    slug = path.name
    if not _SLUG.fullmatch(slug):
        raise AgentFileError(f"the folder's name cannot be called: use {_SLUG_RULE}")
    config, prompt = path / "config.yaml", path / "AGENTS.md"
    try:
        settings = read_bytes(config, within=origin.within, limit=HEADER_BYTES)
        fields = FieldReader(str(config), parse_header(decode_text(settings)), origin.layer)
        _require_keys(fields.values, "name", "description")
    except AgentFileError as broken:
        raise _AgentPartError(config, broken) from broken
    try:
        body = read_bytes(prompt, within=origin.within)
        text = decode_text(body)
    except AgentFileError as broken:
        raise _AgentPartError(prompt, broken) from broken
    del fields.values["name"]  # a title: the agent is called as its folder
    persona, memory = (
        _sibling_file(path / "SOUL.md", fields, origin),
        _sibling_file(path / "MEMORY.md", fields, origin),
    )
    if engine := _ENGINE_NAMES.get(fields.values.get("provider") or ""):
        fields.values["provider"] = None
        fields.values.setdefault("engine", engine)
    return Agent(
        **fields.values,
        **_source_fields(fields, origin),
        name=slug,
        body=text.strip(),
        persona=persona,
        memory=memory,
        source=str(prompt),
        # Of what a run is made of: the lengths keep a byte from moving from one file to the other unseen.
        digest=_content_digest(b"%d %d " % (len(settings), len(body)) + settings + body, origin),
    )


def _content_digest(content: bytes, origin: AgentSource) -> str:
    """What tells this content from any other. The package's own agents need none: its version says what they are."""
    if origin.layer is SourceLayer.BUILTIN:
        return ""
    from hashlib import sha256

    return sha256(content).hexdigest()


def _require_keys(found: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if not found.get(key):
            raise AgentFileError(f"has no {key}")


def _sibling_file(path: Path, fields: FieldReader, origin: AgentSource) -> str:
    """The text of a file that need not be there; no run uses it, so no agent is lost for it."""
    if not os.path.lexists(path):
        return ""
    try:
        return decode_text(read_bytes(path, within=origin.within)).strip()
    except AgentFileError as broken:
        fields.notices.append(Diagnostic(str(path), f"{broken.reason}; left out", broken.line))
        return ""


def _source_fields(fields: FieldReader, origin: AgentSource) -> dict[str, Any]:
    return {
        "layer": origin.layer,
        "level": origin.level,
        "unknown": tuple(fields.unknown),
        "notices": tuple(fields.notices),
    }
