"""Find the settings, agent keys and failure codes that no source uses.

Reads are recognized by the name of the value they are read from (`agent.timeout`, `spec.agent.timeout`,
`settings.resume`), so that `usage.output` does not count as the key `output` of an agent.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from retinue.agents.fields import _FIELD_SPECS
from retinue.config.settings import SETTING_RULES
from retinue.model.errors import ErrorCode
from retinue.model.runs import Limits

SOURCE = Path(__file__).parents[2] / "src" / "retinue"
DISPLAY_FOLDERS = ("cli", "hosts", "servers", "testing", "tui")
"""Folders whose modules only display a definition, which does not count as use."""
AGENT, SETTINGS, LIMITS = frozenset({"agent", "found"}), frozenset({"settings"}), frozenset({"limits", "_limits"})
PROPERTIES = {"parsed_servers": "mcp_servers"}
"""Properties of an agent by which a field is read."""
REPORTS_FAILURE = frozenset({"Failure", "refuse", "engine_error"})


class ModuleUses(Struct, frozen=True):
    """What one module reads and reports."""

    folder: str
    reads: frozenset[tuple[str | None, str]]
    """Names of values, and of their attributes that are read."""
    reported: frozenset[str]
    """Names of failure codes."""


def unused_agent_fields() -> set[str]:
    """Return the fields of an agent's file that no code reads but to show them."""
    used = {PROPERTIES.get(name, name) for owner, name in _reads(DISPLAY_FOLDERS) if owner in AGENT}
    return {key.field for key in _FIELD_SPECS} - used


def unused_settings() -> set[str]:
    """Return the settings that no code reads; one that becomes a limit of a run counts if that limit is read."""
    used = {name for owner, name in _reads(("testing",)) if owner in SETTINGS}
    limits = {name for owner, name in _reads(DISPLAY_FOLDERS) if owner in LIMITS}
    used |= {name for limit, names in _settings_of_limits().items() if limit in limits for name in names}
    return set(SETTING_RULES) - used


def unreported_codes() -> set[ErrorCode]:
    """Return the failure codes that no code reports."""
    reported = {name for module in _modules() if module.folder != "testing" for name in module.reported}
    return {code for code in ErrorCode if code.name not in reported}


def _settings_of_limits() -> dict[str, set[str]]:
    """Return the settings of which `Settings.limits` makes each limit."""
    tree = ast.parse((SOURCE / "config" / "settings.py").read_text("utf-8"))
    (made,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "Limits"]
    found = {
        keyword.arg: {part.attr for part in ast.walk(keyword.value) if isinstance(part, ast.Attribute)}
        for keyword in made.keywords
        if keyword.arg
    }
    assert set(found) <= set(Limits.__struct_fields__)
    return found


def _reads(skipped_folders: Collection[str]) -> Iterator[tuple[str | None, str]]:
    for module in _modules():
        if module.folder not in skipped_folders:
            yield from module.reads


@cache
def _modules() -> tuple[ModuleUses, ...]:
    """Return the uses of every module. The trees, of 100 MB, are not kept."""
    return tuple(_find_uses(path) for path in sorted(SOURCE.rglob("*.py")))


def _find_uses(path: Path) -> ModuleUses:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    reads = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return ModuleUses(
        path.relative_to(SOURCE).parts[0],
        frozenset((_name(node.value), node.attr) for node in reads),
        frozenset(_reported(nodes)),
    )


def _reported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node.func) in REPORTS_FAILURE:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield from (value.attr for value in values if isinstance(value, ast.Attribute))


def _name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None
