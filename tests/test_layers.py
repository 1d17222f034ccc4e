"""The architecture, checked in the sources: imports point strictly down, heavy libraries stay in one module."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "retinue"

LAYERS = [
    {"model"},
    {"support"},
    {"config"},
    {"guards", "output", "engines.base", "sessions.store"},
    {"ipc.messages", "ipc.client"},
    {"agents", "engines", "sessions", "prompts", "worktrees"},
    {"transcripts", "mcp_client"},
    {"runtime"},
    {"toolsets"},
    {"ipc", "tui"},
    {"composition"},
    {"client"},
    {"ipc.federation"},
    {"cli", "servers", "hosts"},
    {"__main__"},
]

STARTED_BY_COMMANDS = ("servers.", "hosts.")
"""Commands start servers and edit files of hosts; nothing else of `cli` imports them."""

HEAVY = {
    "claude_agent_sdk": {"engines.claude.sdk"},
    "mcp": {"servers.mcp.sdk", "engines.claude.sdk", "mcp_client.sdk"},
    "mcp_types": {"servers.mcp.sdk", "engines.claude.sdk", "mcp_client.sdk"},
    "uvicorn": {"servers.asgi.serving"},
    "starlette": {"servers.http.app", "servers.http.responses", "servers.mcp.serving"},
    "httpx2": {"engines.api.connections", "engines.api.http", "engines.tools.fetch", "mcp_client.sdk"},
    "genai_prices": {"engines.api.pricing"},
    "pydantic_ai": {"engines.api.pydantic_models"},
    "yaml": {"agents.parse"},
    "psutil": {"engines.process.other_tree"},
    "regex": {"engines.tools.grep", "output.schemas", "runtime.hooks"},
    "jsonschema": {"output.schemas"},
    "jsonschema_specifications": {"output.schemas"},
    "referencing": {"output.schemas"},
    "wcwidth": {"tui.widths"},
    "tomlkit": {"hosts.config_editors"},
    "sqlite3": {"sessions.index", "sessions.text_index", "agents.sqlite_index"},
}
"""Libraries that cost start-up time, and the modules that may import each, inside functions only."""

LOADED_ON_USE = "servers.http."
"""Modules that only functions of other packages import: they may import such a library at their top."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__") if name != "__init__" else ""] = path
    return found


MODULES = modules()


def layer(module: str) -> int | None:
    """Return the layer of a module: its own row wins over its folder's."""
    for number, names in enumerate(LAYERS):
        if module in names:
            return number
    folder = module.split(".", maxsplit=1)[0]
    return next((number for number, names in enumerate(LAYERS) if folder in names), None)


@cache
def imported(path: Path, *, top_only: bool = False) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def own_imports(path: Path) -> set[str]:
    stripped = {name.removeprefix("retinue.") for name in imported(path) if name.startswith("retinue.")}
    return {name for name in stripped if name in MODULES}


@pytest.mark.parametrize("module", [name for name in MODULES if name and not name.startswith("testing")])
def test_imports_point_strictly_down(module):
    mine = layer(module)
    assert mine is not None, f"{module} is in no layer: say where it belongs"
    for other in own_imports(MODULES[module]):
        theirs = layer(other)
        same_folder = module.split(".", maxsplit=1)[0] == other.split(".", maxsplit=1)[0]
        assert theirs is not None, f"{module} imports {other}, which is in no layer"
        is_started = module.startswith("cli.commands.") and other.startswith(STARTED_BY_COMMANDS)
        assert theirs < mine or same_folder or is_started, f"{module} must not import {other}"


NAMED_PARTS = {"single", "sticky", "fanout", "nested", "pi", "claude", "offline", "scripted"}
"""The toolsets and the engines."""
OTHER_MEANINGS = {
    "model.tasks": {"single"},  # a mode of a plan
    "agents.dialects": {"pi", "claude"},  # file formats of agents, and the engine that such a file asks for
}
"""Modules in which such a word means something else."""
BELOW_NAMED_PARTS = (
    "model",
    "support",
    "config",
    "agents",
    "prompts",
    "guards",
    "output",
    "sessions",
    "transcripts",
    "runtime",
)


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in BELOW_NAMED_PARTS])
def test_no_toolset_and_no_engine_is_named_below_its_folder(module):
    """Toolsets and engines say what they need by flags, so that a new one changes nothing below them."""
    found = {
        node.value
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip() in NAMED_PARTS
    }
    assert found <= OTHER_MEANINGS.get(module, set())


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("engines")])
def test_engines_import_no_sessions_agents_guards_or_settings(module):
    forbidden = ("sessions", "agents", "guards", "config.settings", "runtime")
    assert [name for name in own_imports(MODULES[module]) if name.startswith(forbidden)] == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("guards")])
def test_guards_see_only_the_model(module):
    allowed = ("model", "guards")
    assert [name for name in own_imports(MODULES[module]) if not name.startswith(allowed)] == []


@pytest.mark.parametrize(
    "module", [name for name in MODULES if name.split(".")[0] in {"toolsets", "tui", "cli", "servers", "hosts"}]
)
def test_toolsets_and_interfaces_see_no_engine_and_no_store(module):
    seen = own_imports(MODULES[module])
    assert [name for name in seen if name.startswith("engines") and name != "engines.base"] == []
    assert [name for name in seen if name.startswith("sessions") and name not in VALUES_OF_SESSIONS] == []


VALUES_OF_SESSIONS = {"sessions.store", "sessions.messages"}
"""Modules with the values a store returns, without a store."""


def test_toolsets_do_not_import_each_other():
    for module in MODULES:
        if module.startswith("toolsets."):
            others = {name.split(".")[1] for name in own_imports(MODULES[module]) if name.startswith("toolsets.")}
            assert others <= {"base", "inputs", module.split(".")[1]}, module


@pytest.mark.parametrize("library", HEAVY)
def test_heavy_libraries_are_imported_in_one_place_and_on_use(library):
    users = {name for name, path in MODULES.items() if library in {i.split(".")[0] for i in imported(path)}}
    assert users <= HEAVY[library]
    for user in users:
        if user.startswith(LOADED_ON_USE):
            continue
        at_start = {name.split(".")[0] for name in imported(MODULES[user], top_only=True)}
        assert library not in at_start, f"{user} imports {library} before it is needed"


def test_modules_of_the_http_server_are_imported_on_use():
    for module, path in MODULES.items():
        if not module.startswith(LOADED_ON_USE):
            at_start = {name.removeprefix("retinue.") for name in imported(path, top_only=True)}
            assert not [name for name in at_start if name.startswith(LOADED_ON_USE)], module


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_docstring(module):
    assert ast.get_docstring(ast.parse(MODULES[module].read_text())), f"{module or '__init__'} has no docstring"


@pytest.mark.parametrize("module", MODULES)
def test_no_group_of_a_pattern_is_repeated_possessively(module):
    """Python before 3.11.5, as Debian 12 has it, matches `(?:…)*+` wrongly where the group can backtrack."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            assert not re.search(r"\)(?:[*+?]|\{[0-9,]+\})\+", text), f"{module}:{node.lineno}"
