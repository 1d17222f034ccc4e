"""What a child process gets: allowed variables, its depth, the tools it may use, and its prompt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.model.runs import RunSpec

CHILD_VARIABLE = "PI_SUBAGENT_CHILD"
DEPTH_VARIABLE = "PI_SUBAGENT_DEPTH"
MAX_DEPTH_VARIABLE = "PI_SUBAGENT_MAX_DEPTH"
AUTHORITY_VARIABLE = "RETINUE_AUTHORITY"
"""The tools that runs of this process may have at most."""


def depth_variables(depth: int, max_depth: int) -> dict[str, str]:
    """Return the variables that mark the process of a run at this depth, so that none escapes the depth guard."""
    return {CHILD_VARIABLE: "1", DEPTH_VARIABLE: str(depth), MAX_DEPTH_VARIABLE: str(max_depth)}


def read_depth(environ: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the depth of this process and the maximum of its runs: a child process cannot become a root."""
    depth = _parse_number(environ.get(DEPTH_VARIABLE)) or 0
    if environ.get(CHILD_VARIABLE) == "1":
        depth = max(depth, 1)
    return depth, _parse_number(environ.get(MAX_DEPTH_VARIABLE))


def read_tool_ceiling(environ: Mapping[str, str]) -> frozenset[str] | None:
    """Return the tools that runs may have at most; None: as their callers choose."""
    passed = environ.get(AUTHORITY_VARIABLE)
    return None if passed is None else frozenset(filter(None, passed.split(",")))


def _parse_number(text: str | None) -> int | None:
    """Return a whole number from the environment; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() else None


FOLDER_VARIABLES = frozenset({
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
})  # fmt: skip
"""Variables of the folders of settings, state and sockets."""

NETWORK_VARIABLES = frozenset({
    "ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NODE_EXTRA_CA_CERTS", "NO_PROXY",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
})  # fmt: skip
"""Variables needed to reach a provider from behind a proxy. Proxies are commonly written in lower case."""

ALLOWED_VARIABLES = FOLDER_VARIABLES | NETWORK_VARIABLES | frozenset({
    "COLORTERM", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ",
    "USER",
    # Windows programs do not start without these.
    "APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT",
    "USERPROFILE", "WINDIR",
})  # fmt: skip
"""Variables without secrets, or needed by every program."""

ALLOWED_PREFIXES = ("LC_",)


def build_child_environment(
    environ: Mapping[str, str], engine: Iterable[str] = (), agent: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables a child gets. A name of `engine` that ends in `*` matches all names with that prefix."""
    needed = tuple(engine)
    names = ALLOWED_VARIABLES | {*needed, *agent}
    prefixes = (*ALLOWED_PREFIXES, *(name[:-1] for name in needed if name.endswith("*")))
    return {
        name: value
        for name, value in environ.items()
        if name in names or name.upper() in ALLOWED_VARIABLES or name.startswith(prefixes)
    }


def build_prompt(spec: RunSpec) -> str:
    """Return the prompt, preceded by the history if the program's own session does not contain it."""
    if spec.native_session or not spec.history:
        return spec.prompt
    earlier = "\n\n".join(f"[{message.role}]\n{message.text}" for message in spec.history if message.text)
    return f"Earlier in this conversation:\n\n{earlier}\n\nNow:\n\n{spec.prompt}"


def write_prompt_files(folder: Path, prompts: Mapping[str, str]) -> list[str]:
    """Write each non-empty prompt to a file of its own and return the arguments with flags and paths.

    As an argument, a prompt could be too long, and other users could read it.
    """
    return [part for flag, text in prompts.items() if text for part in (flag, _write_prompt_file(folder, flag, text))]


def _write_prompt_file(folder: Path, flag: str, text: str) -> str:
    path = folder / f"{flag.strip('-')}.md"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)
