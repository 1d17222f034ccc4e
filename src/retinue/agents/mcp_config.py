"""Find the MCP servers that the user, or a project, has configured for any tool, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.mcp_servers import expand_server, parse_server
from retinue.config.directories import claude_folder, config_folder, find_project_levels, home_folder, pi_folder
from retinue.model.mcp import McpServer
from retinue.model.tool_names import split_mcp_name
from retinue.support.safe_files import FileTooLargeError, read_regular_file

MAX_CONFIG_BYTES = 8 * 2**20
"""Bytes of a file with servers; Claude Code keeps much else in its own."""
PROJECT_FILES = (".mcp.json", ".pi/mcp.json", ".gemini/settings.json", ".cursor/mcp.json")
"""At each level of a project, the strongest first."""
SERVERS_KEY = "mcpServers"
NOT_CONFIGURED = "no server of this name is configured"
PROJECT_ONLY = "only {} of this project defines it, and only agents of the project that you approved can use it"


def find_servers(agent: Agent, cwd: Path, environ: Mapping[str, str]) -> tuple[McpServer, ...]:
    """Return the servers of an agent, ready to start or with the problem: those it defines, and those it names.

    It names them among its servers, or by tools such as `mcp__github__search`; a tool whose server is nowhere
    configured names none. The servers of a project are found for agents of that project only.
    """
    return tuple(expand_server(server, environ) for server in _find_definitions(agent, cwd, environ))


def list_servers(agent: Agent, cwd: Path, environ: Mapping[str, str]) -> tuple[McpServer, ...]:
    """Return the servers of an agent as they are defined, without values of variables, each with its problem."""
    definitions = _find_definitions(agent, cwd, environ)
    return tuple(structs.replace(each, problem=expand_server(each, environ).problem) for each in definitions)


def _find_definitions(agent: Agent, cwd: Path, environ: Mapping[str, str]) -> list[McpServer]:
    found = [_resolve(server, agent, cwd, environ) for server in agent.parsed_servers]
    labels = {_fold(server.label) for server in found}
    others = (label for label in dict.fromkeys(_named_by_tools(agent)) if label not in labels)
    configured = (_find_configured(label, agent, cwd, environ) for label in others)
    return [server for server in (*found, *configured) if server]


def find_project_files(agent: Agent, cwd: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of the project that define servers of an agent: accepting the agent covers them."""
    yield from dict.fromkeys(
        server.source
        for server in find_servers(agent, cwd, environ)
        if server.source and any(Path(server.source).is_relative_to(level) for level in find_project_levels(cwd))
    )


def names_servers(agent: Agent) -> bool:
    """Return whether an agent has servers that are configured elsewhere, such as in its project."""
    return any(server.is_reference for server in agent.parsed_servers) or any(True for _ in _named_by_tools(agent))


def _resolve(server: McpServer, agent: Agent, cwd: Path, environ: Mapping[str, str]) -> McpServer:
    if not server.is_reference:
        return server
    found = _find_configured(_fold(server.label), agent, cwd, environ)
    return found or structs.replace(server, problem=NOT_CONFIGURED)


def _named_by_tools(agent: Agent) -> Iterator[str]:
    policy = agent.to_profile().tools
    for tool in (*(policy.allow or ()), *policy.optional):
        parts = split_mcp_name(tool)
        if parts and "*" not in parts[0]:
            yield parts[0]


def _find_configured(label: str, agent: Agent, cwd: Path, environ: Mapping[str, str]) -> McpServer | None:
    """Return the configured server of a folded name: the user's for this directory, the project's, the user's own."""
    project = agent.layer is SourceLayer.PROJECT
    own = _pick(label, _list_user_servers(cwd, environ))
    shared = _pick(label, _list_project_servers(cwd))
    if project:
        return shared or own
    if own or not shared:
        return own
    return McpServer(name=shared.name, source=shared.source, problem=PROJECT_ONLY.format(Path(shared.source).name))


def _pick(label: str, servers: Iterable[McpServer]) -> McpServer | None:
    return next((server for server in servers if _fold(server.label) == label), None)


def _fold(label: str) -> str:
    parts = split_mcp_name(f"mcp__{label}")
    return parts[0] if parts else label


def _list_user_servers(cwd: Path, environ: Mapping[str, str]) -> Iterator[McpServer]:
    home = home_folder(environ)
    yield from _read_file(config_folder(environ) / "mcp.json")
    claude = claude_folder(environ).parent if not environ.get("CLAUDE_CONFIG_DIR") else claude_folder(environ)
    file = claude / ".claude.json"
    projects = _load(file).get("projects")
    for level in find_project_levels(cwd):
        entry = projects.get(str(level)) if isinstance(projects, dict) else None
        yield from _make_servers(entry, file)
    yield from _read_file(file)
    yield from _read_file(pi_folder(environ) / "mcp.json")
    yield from _read_file(home / ".gemini" / "settings.json")
    yield from _read_file(home / ".cursor" / "mcp.json")


def _list_project_servers(cwd: Path) -> Iterator[McpServer]:
    for level in find_project_levels(cwd):
        for name in PROJECT_FILES:
            yield from _read_file(level / name)


def _read_file(file: Path) -> Iterator[McpServer]:
    yield from _make_servers(_load(file), file)


def _make_servers(value: object, file: Path) -> Iterator[McpServer]:
    servers = value.get(SERVERS_KEY) if isinstance(value, dict) else None
    if isinstance(servers, dict):
        yield from (parse_server(name, given, source=str(file)) for name, given in servers.items())


def _load(file: Path) -> dict[str, Any]:
    """Return the content of a file; empty if there is none that can be read."""
    try:
        found = msgspec.json.decode(read_regular_file(file, MAX_CONFIG_BYTES))
    except (OSError, FileTooLargeError, ValueError, RecursionError):  # msgspec's errors are value errors
        return {}
    return found if isinstance(found, dict) else {}
