"""Parse the definitions of MCP servers, in the spelling of every tool that has them, and fill in variables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.model.mcp import RESERVED_LABELS, McpServer, NamedSecrets, ServerTransport
from retinue.model.runs import Secret
from retinue.model.tool_names import make_label
from retinue.output.redaction.redactor import find_secrets

SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar")

MAX_SERVERS = 32
"""Servers of one agent; the others are left out and reported."""
MILLISECONDS_FROM = 1000.0
"""Timeouts from here on are milliseconds, as Claude Code and Gemini CLI write them; others are seconds, as in pi."""
MIN_TIMEOUT, MAX_TIMEOUT = 0.1, 86_400.0

_TRANSPORTS: Mapping[str, ServerTransport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
_OAUTH_KEYS = ("oauth", "authprovidertype", "headershelper")
NEEDS_OAUTH = (
    "{} is set, and signing in is not supported: give the server a token in headers, such as "
    "Authorization: Bearer ${{TOKEN}}"
)
RESERVED = "the name belongs to Retinue itself: give the agent the tool Agent instead"
NO_START = "it has neither a command nor a url"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BARE_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

Definition = Mapping[str, Any]


class ServersFormatError(ValueError):
    """A value is no list of names or definitions of servers."""


class UnsetVariableError(Exception):
    """A variable of a definition is not set and has no default."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


# -- definitions -----------------------------------------------------------------------------------


def parse_servers(value: object, *, source: str = "") -> tuple[McpServer, ...]:
    """Return the servers of a list of names and definitions, or of a mapping of definitions.

    A definition that cannot be used is a server with a problem.

    Raises:
        ServersFormatError: it is neither a list nor a mapping.
    """
    return tuple(_drop_repeated(_read_servers(value, source)))


def parse_server(name: str, given: object, *, source: str = "") -> McpServer:
    """Return the server of one definition, with the problem if it cannot be used."""
    if not isinstance(given, Mapping):
        return McpServer(name=name, source=source, problem="its definition is not a mapping")
    values = {_normalize(str(key)): value for key, value in given.items()}
    command, *words = _list_texts(values.get("command")) or [""]
    url = _first_text(values, "url", "httpurl", "serverurl")
    server = McpServer(
        name=name,
        source=source,
        transport=_choose_transport(values, command=command, url=url),
        command=command,
        args=(*words, *_list_texts(values.get("args"))),
        cwd=_text(values.get("cwd")),
        environment=_read_pairs(values, "env", "environment"),
        url=url,
        headers=(*_read_pairs(values, "headers", "httpheaders"), *_read_variable_headers(values)),
        start_timeout=_read_timeout(values, "startuptimeoutsec", "startuptimeoutms", "starttimeout"),
        call_timeout=_read_timeout(values, "tooltimeoutsec", "timeout"),
        only_tools=_read_only_tools(values),
        excluded_tools=tuple(_list_texts(values.get("excludetools") or values.get("disabledtools"))),
    )
    return structs.replace(server, problem=_find_problem(server, values))


def _read_servers(value: object, source: str) -> Iterator[McpServer]:
    if isinstance(value, str):
        value = [part for part in map(str.strip, value.split(",")) if part]
    if isinstance(value, Mapping):
        yield from (parse_server(str(name), given, source=source) for name, given in value.items())
    elif isinstance(value, Sequence):
        for entry in value:
            if isinstance(entry, McpServer):
                yield entry
            elif isinstance(entry, str):
                yield _make_reference(entry.strip())
            elif isinstance(entry, Mapping):
                yield from _read_entry(entry, source)
            else:
                raise ServersFormatError
    else:
        raise ServersFormatError


def _read_entry(entry: Mapping[Any, Any], source: str) -> Iterator[McpServer]:
    """Yield the servers of an entry of a list: `{github: {command: …}}`, or `{name: github, command: …}`."""
    if isinstance(entry.get("name"), str) and not isinstance(entry.get("command", ""), Mapping):
        yield parse_server(str(entry["name"]), entry, source=source)
        return
    for name, given in entry.items():
        # `github:` without a definition is a name.
        yield _make_reference(str(name)) if given in (None, "") else parse_server(str(name), given, source=source)


def _make_reference(name: str) -> McpServer:
    return McpServer(name=name, problem=RESERVED if make_label(name).lower() in RESERVED_LABELS else "")


def _drop_repeated(servers: Iterator[McpServer]) -> Iterator[McpServer]:
    labels: set[str] = set()
    for server in servers:
        label = server.label.lower()
        if len(labels) == MAX_SERVERS:
            return
        if label not in labels:
            labels.add(label)
            yield server


def _choose_transport(values: Definition, *, command: str, url: str) -> ServerTransport:
    named = _normalize(_first_text(values, "type", "transport"))
    if named in _TRANSPORTS:
        return _TRANSPORTS[named]
    if command or not url:
        return "stdio"
    return "sse" if url.partition("?")[0].rstrip("/").endswith("/sse") else "http"


def _find_problem(server: McpServer, values: Definition) -> str:
    named = _first_text(values, "type", "transport")
    auth = values.get("auth")
    oauth = next((key for key in _OAUTH_KEYS if values.get(key) not in (None, "", "false", False)), "")
    if server.label.lower() in RESERVED_LABELS:
        return RESERVED
    if str(values.get("disabled", "")).lower() == "true" or str(values.get("enabled", "")).lower() == "false":
        return "it is disabled in its definition"
    if named and _normalize(named) not in _TRANSPORTS:
        return f"its type {named[:40]!a} is not supported: use stdio, http or sse"
    if oauth or isinstance(auth, Mapping) or str(auth or "").lower() == "oauth":
        return NEEDS_OAUTH.format(oauth or "auth")
    if server.transport == "stdio" and not server.command:
        return NO_START
    if server.transport != "stdio" and not re.match(r"https?://|\$\{", server.url):
        return "its url is not an http or https address" if server.url else NO_START
    return ""


def _read_only_tools(values: Definition) -> tuple[str, ...] | None:
    given = next((values[key] for key in ("includetools", "enabledtools", "tools") if key in values), None)
    found = _list_texts(given)
    return None if given is None or "*" in found else tuple(found)


def _read_pairs(values: Definition, *keys: str) -> NamedSecrets:
    given: Mapping[Any, Any] = next((values[key] for key in keys if isinstance(values.get(key), Mapping)), {})
    return tuple((str(name), Secret(_text(value))) for name, value in given.items())


def _read_variable_headers(values: Definition) -> NamedSecrets:
    """Return the headers whose values a definition takes from variables by name."""
    named = values.get("envhttpheaders")
    found = {str(name): f"${{{value}}}" for name, value in named.items()} if isinstance(named, Mapping) else {}
    if token := _first_text(values, "bearertoken"):
        found["Authorization"] = f"Bearer {token}"
    if variable := _first_text(values, "bearertokenenvvar", "bearertokenenv"):
        found["Authorization"] = f"Bearer ${{{variable}}}"
    return tuple((name, Secret(value)) for name, value in found.items())


def _read_timeout(values: Definition, *keys: str) -> float | None:
    key = next((key for key in keys if key in values), None)
    try:
        number = float(_text(values[key])) if key else math.nan
    except ValueError:
        return None
    if not math.isfinite(number) or number <= 0:
        return None
    if key and (key.endswith("ms") or (number >= MILLISECONDS_FROM and not key.endswith("sec"))):
        number /= 1000.0
    return min(max(number, MIN_TIMEOUT), MAX_TIMEOUT)


def _list_texts(value: object) -> list[str]:
    if value is None or value == "":
        return []
    return [_text(value)] if isinstance(value, str) or not isinstance(value, Sequence) else [*map(_text, value)]


def _first_text(values: Definition, *keys: str) -> str:
    return next((str(values[key]).strip() for key in keys if isinstance(values.get(key), str)), "")


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _normalize(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


# -- variables -------------------------------------------------------------------------------------


def expand_server(server: McpServer, environ: Mapping[str, str]) -> McpServer:
    """Return the server with `${NAME}` and `${NAME:-default}` replaced, as Claude Code does.

    One whose variable is neither set nor has a default has a problem.
    """
    if server.problem or server.is_reference:
        return server
    try:
        return structs.replace(
            server,
            command=expand_text(server.command, environ),
            args=tuple(expand_text(part, environ) for part in server.args),
            cwd=expand_text(server.cwd, environ),
            url=expand_text(server.url, environ),
            environment=_expand_pairs(server.environment, environ, bare=True),
            headers=_expand_pairs(server.headers, environ),
        )
    except UnsetVariableError as error:
        return structs.replace(server, problem=f"the variable {error.name} is not set")


def expand_text(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with its variables replaced.

    Raises:
        UnsetVariableError: one is not set, and has no default.
    """

    def find(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise UnsetVariableError(name)
        return value

    return _VARIABLE.sub(find, text)


def _expand_pairs(pairs: NamedSecrets, environ: Mapping[str, str], *, bare: bool = False) -> NamedSecrets:
    return tuple((name, Secret(_expand_value(secret.reveal(), environ, bare=bare))) for name, secret in pairs)


def _expand_value(text: str, environ: Mapping[str, str], *, bare: bool) -> str:
    # `"TOKEN": "$TOKEN"` is Gemini CLI's spelling; a `$` inside a longer text is kept.
    if bare and (found := _BARE_VARIABLE.fullmatch(text)) and found[1] in environ:
        return environ[found[1]]
    return expand_text(text, environ)


def list_secret_values(server: McpServer) -> Iterator[str]:
    """Yield the values of an expanded server that must be redacted wherever they appear."""
    for _, secret in server.headers:
        value = secret.reveal()
        yield value
        yield from value.split(" ", 1)[1:]  # `Bearer …`
    # The value of any variable may be a secret, unless it is a path, a number or a word.
    yield from find_secrets({f"{name}_SECRET": secret.reveal() for name, secret in server.environment})


def list_script_files(servers: Iterable[McpServer], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the existing programs and scripts in any of the folders that the servers would execute from there."""
    found = (path for server in servers for folder in folders for path in _list_scripts(server, folder))
    return tuple(dict.fromkeys(found))


def _list_scripts(server: McpServer, folder: Path) -> Iterator[str]:
    for word in (server.command, *server.args):
        path = os.path.normpath(os.path.join(folder, server.cwd, word)) if word and "\0" not in word else ""  # noqa: PTH118
        # Other files that it names are its data, which may change with each run.
        is_code = path.endswith(SCRIPT_SUFFIXES) or os.access(path, os.X_OK)
        if is_code and Path(path).is_relative_to(folder) and os.path.isfile(path):  # noqa: PTH113
            yield path
