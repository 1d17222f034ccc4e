"""Find the MCP servers that the user, or a project, has configured for any tool, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.mcp_servers import expand_server, list_script_files, parse_server
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


class ServerFiles:
    """The files with servers, each read again when it has changed."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def load(self, file: Path) -> dict[str, Any]:
        """Return the content of a file; empty if there is none that can be read."""
        try:
            status = file.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._read.get(file)
            if known is None or known[0] != stamp:
                found = msgspec.json.decode(read_regular_file(file, MAX_CONFIG_BYTES))
                known = self._read[file] = (stamp, found if isinstance(found, dict) else {})
        except (OSError, FileTooLargeError, ValueError, RecursionError):  # msgspec's errors are value errors
            return {}
        return known[1]


class ServerFinder:
    """Finds the servers of agents in one directory."""

    def __init__(self, cwd: Path, environ: Mapping[str, str], files: ServerFiles | None = None) -> None:
        self._levels = find_project_levels(cwd)
        self._environ = environ
        self._files = files or ServerFiles()

    def find_servers(self, agent: Agent) -> tuple[McpServer, ...]:
        """Return the servers of an agent, ready to start or with the problem: those it defines, and those it names.

        It names them among its servers, or by tools such as `mcp__github__search`; a tool whose server is nowhere
        configured names none. The servers of a project are found for agents of that project only.
        """
        return tuple(expand_server(server, self._environ) for server in self._find_definitions(agent))

    def list_servers(self, agent: Agent) -> tuple[McpServer, ...]:
        """Return the servers of an agent as they are defined, without values of variables, each with its problem."""
        definitions = self._find_definitions(agent)
        return tuple(
            structs.replace(each, problem=expand_server(each, self._environ).problem) for each in definitions
        )

    def find_project_files(self, agent: Agent) -> Iterator[str]:
        """Yield the files of the project that define or are servers of an agent: accepting the agent covers them."""
        servers = self._find_definitions(agent)
        sources = dict.fromkeys(server.source for server in servers if server.source)
        yield from (source for source in sources if any(Path(source).is_relative_to(one) for one in self._levels))
        yield from list_script_files((expand_server(one, self._environ) for one in servers), self._levels)

    def _find_definitions(self, agent: Agent) -> list[McpServer]:
        found = [self._resolve(server, agent) for server in agent.parsed_servers]
        labels = {_fold(server.label) for server in found}
        others = (label for label in agent.servers_of_tools if label not in labels)
        configured = (self._find_configured(label, agent) for label in others)
        return [server for server in (*found, *configured) if server]

    def _resolve(self, server: McpServer, agent: Agent) -> McpServer:
        if not server.is_reference:
            return server
        found = self._find_configured(_fold(server.label), agent)
        return found or structs.replace(server, problem=NOT_CONFIGURED)

    def _find_configured(self, label: str, agent: Agent) -> McpServer | None:
        """Return the configured server of a folded name: for an agent of the project the project's comes first."""
        own = _pick(label, self._list_user_servers())
        shared = _pick(label, self._list_project_servers())
        if agent.layer is SourceLayer.PROJECT:
            return shared or own
        if own or not shared:
            return own
        problem = PROJECT_ONLY.format(Path(shared.source).name)
        return McpServer(name=shared.name, source=shared.source, problem=problem)

    def _list_user_servers(self) -> Iterator[McpServer]:
        environ, home = self._environ, home_folder(self._environ)
        yield from self._read_file(config_folder(environ) / "mcp.json")
        folder = claude_folder(environ)
        file = (folder if environ.get("CLAUDE_CONFIG_DIR") else folder.parent) / ".claude.json"
        projects = self._files.load(file).get("projects")
        for level in self._levels:
            yield from _make_servers(projects.get(str(level)) if isinstance(projects, dict) else None, file)
        yield from self._read_file(file)
        yield from self._read_file(pi_folder(environ) / "mcp.json")
        yield from self._read_file(home / ".gemini" / "settings.json")
        yield from self._read_file(home / ".cursor" / "mcp.json")

    def _list_project_servers(self) -> Iterator[McpServer]:
        for level in self._levels:
            for name in PROJECT_FILES:
                yield from self._read_file(level / name)

    def _read_file(self, file: Path) -> Iterator[McpServer]:
        yield from _make_servers(self._files.load(file), file)


def _pick(label: str, servers: Iterable[McpServer]) -> McpServer | None:
    return next((server for server in servers if _fold(server.label) == label), None)


def _fold(label: str) -> str:
    parts = split_mcp_name(f"mcp__{label}")
    return parts[0] if parts else label


def _make_servers(value: object, file: Path) -> Iterator[McpServer]:
    servers = value.get(SERVERS_KEY) if isinstance(value, dict) else None
    if isinstance(servers, dict):
        yield from (parse_server(name, given, source=str(file)) for name, given in servers.items())
