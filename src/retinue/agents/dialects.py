"""Every way to write an agent. The spelling of keys is `fields`' matter; here is what differs beyond it."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.agents.definition import NAME_RULE, Agent, Layer, Remark, is_callable
from retinue.agents.fields import Fields, field_names
from retinue.agents.files import Broken, decode, read_bytes
from retinue.agents.frontmatter import HEADER_BYTES, Document, split
from retinue.agents.header import parse
from retinue.tool_names import HOUSEKEEPING, is_covered, pi_name, pi_names

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SLUG_RULE = "a-z, 0-9, _ and -, at most 64, the first a letter or digit"

_ENGINES = {"claude_sdk": "claude", "pi": "pi"}
"""Providers in a folder's `config.yaml` that say how an agent runs rather than who answers."""


class Dialect(Enum):
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


class Origin(Struct, frozen=True):
    """Where a definition was found."""

    layer: Layer
    dialect: Dialect = Dialect.MARKDOWN
    level: str | None = None
    """The project directory it belongs to."""
    beneath: Path | None = None
    """Where links must stay; None for the user's own files."""


def read_agent(path: Path, origin: Origin) -> Agent | Remark | None:
    """The agent at a path; a remark if it is broken; None if it is something else than an agent."""
    try:
        return _from_folder(path, origin) if origin.dialect is Dialect.FOLDER else _from_file(path, origin)
    except _BrokenPart as part:
        return Remark(str(part.path), part.broken.reason, part.broken.line)
    except Broken as broken:
        return Remark(str(path), broken.reason, broken.line)


# -- markdown --------------------------------------------------------------------------------------


def _from_file(path: Path, origin: Origin) -> Agent | None:
    content = read_bytes(path, beneath=origin.beneath)
    document = split(decode(content))
    if not _is_agent(path, document, origin.dialect):
        return None
    if not document.body and not document.header.values:
        raise Broken("is empty")
    fields = Fields(str(path), document.header, origin.layer)
    name = _name(fields, stem=path.stem)
    if origin.dialect is Dialect.CLAUDE:
        _as_claude_means_it(fields.values)
    return Agent(
        **fields.values,
        **_provenance(fields, origin),
        name=name,
        body=document.body,
        source=str(path),
        digest=_digest(content, origin),
    )


def _is_agent(path: Path, document: Document, dialect: Dialect) -> bool:
    fields = field_names(document.header)
    match dialect:
        case Dialect.NAMED:
            return "name" in fields
        case Dialect.PROMPT:
            return "name" in fields and bool(fields & {"tools", "denied_tools"})
        case _:
            # Folders of agents have their README; it is an agent only if it says so.
            return "name" in fields or path.stem.lower() != "readme"


def _name(fields: Fields, *, stem: str) -> str:
    """The name the file gives or, without one, the file's own; spaces in it become hyphens.

    Raises:
        Broken: it could not be called.
    """
    name = fields.values.pop("name", "")
    if not name:
        name = stem
        fields.note("name", f"none is given; the agent is called as its file, {stem!a}")
    if is_callable(name):
        return str(name)
    joined = "-".join(name.split()).lower()
    if not is_callable(joined):
        raise Broken(f"the name {name!a} cannot be called: use {NAME_RULE}")
    fields.note("name", f"{name!a} cannot be called; the agent is called {joined!r}")
    return joined


def _as_claude_means_it(found: dict[str, Any]) -> None:
    """Takes the denied tools from the allowed ones, and does not insist on Claude's own aids."""
    allowed: tuple[str, ...] | None = found.get("tools")
    if allowed is None:
        return
    denied = pi_names(found.get("denied_tools", ()))
    kept = [name for name in allowed if not is_covered(pi_name(name), denied)]
    aids = tuple(name for name in kept if name.lower() in HOUSEKEEPING)
    found["tools"] = tuple(name for name in kept if name not in aids)
    found["optional_tools"] = (*found.get("optional_tools", ()), *aids)
    # `Bash(rm:*)` still restricts the `Bash` that stays.
    found["denied_tools"] = tuple(name for name in denied if "(" in name)


# -- folders ---------------------------------------------------------------------------------------


class _BrokenPart(Exception):  # noqa: N818 - it names the state of the file
    """One file of a folder is broken."""

    def __init__(self, path: Path, broken: Broken) -> None:
        super().__init__(str(broken))
        self.path = path
        self.broken = broken


def _from_folder(path: Path, origin: Origin) -> Agent:
    slug = path.name
    if not _SLUG.fullmatch(slug):
        raise Broken(f"the folder's name cannot be called: use {_SLUG_RULE}")
    config, prompt = path / "config.yaml", path / "AGENTS.md"
    try:
        settings = read_bytes(config, beneath=origin.beneath, limit=HEADER_BYTES)
        fields = Fields(str(config), parse(decode(settings)), origin.layer)
        _require(fields.values, "name", "description")
    except Broken as broken:
        raise _BrokenPart(config, broken) from broken
    try:
        body = read_bytes(prompt, beneath=origin.beneath)
        text = decode(body)
    except Broken as broken:
        raise _BrokenPart(prompt, broken) from broken
    del fields.values["name"]  # a title: the agent is called as its folder
    persona, memory = _beside(path / "SOUL.md", fields, origin), _beside(path / "MEMORY.md", fields, origin)
    if engine := _ENGINES.get(fields.values.get("provider") or ""):
        fields.values["provider"] = None
        fields.values.setdefault("engine", engine)
    return Agent(
        **fields.values,
        **_provenance(fields, origin),
        name=slug,
        body=text.strip(),
        persona=persona,
        memory=memory,
        source=str(prompt),
        # Of what a run is made of: the lengths keep a byte from moving from one file to the other unseen.
        digest=_digest(b"%d %d " % (len(settings), len(body)) + settings + body, origin),
    )


def _digest(content: bytes, origin: Origin) -> str:
    """What tells this content from any other. The package's own agents need none: its version says what they are."""
    if origin.layer is Layer.BUILTIN:
        return ""
    from hashlib import sha256

    return sha256(content).hexdigest()


def _require(found: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if not found.get(key):
            raise Broken(f"has no {key}")


def _beside(path: Path, fields: Fields, origin: Origin) -> str:
    """The text of a file that need not be there; no run uses it, so no agent is lost for it."""
    if not os.path.lexists(path):
        return ""
    try:
        return decode(read_bytes(path, beneath=origin.beneath)).strip()
    except Broken as broken:
        fields.notices.append(Remark(str(path), f"{broken.reason}; left out", broken.line))
        return ""


def _provenance(fields: Fields, origin: Origin) -> dict[str, Any]:
    return {
        "layer": origin.layer,
        "level": origin.level,
        "unknown": tuple(fields.unknown),
        "notices": tuple(fields.notices),
    }
