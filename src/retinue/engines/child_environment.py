"""What a child process sees of our environment: a list of names, what its engine needs, what its agent asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.model.runs import RunSpec

ALLOWED_VARIABLES = frozenset(
    {
        "COLORTERM",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        # What it takes to reach a provider from behind a company's wall.
        "ALL_PROXY",
        "CURL_CA_BUNDLE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        # What Windows programs do not start without.
        "APPDATA",
        "COMSPEC",
        "LOCALAPPDATA",
        "PATHEXT",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "USERPROFILE",
        "WINDIR",
    }
)
"""Of no use to a thief, or needed by every program."""

ALLOWED_PREFIXES = ("LC_",)


def build_child_environment(
    environ: Mapping[str, str], engine: Iterable[str] = (), agent: Iterable[str] = ()
) -> dict[str, str]:
    """What a child sees of the environment. A name of the engine's that ends in `*` stands for all that begin so."""
    needed = tuple(engine)
    names = ALLOWED_VARIABLES | {*needed, *agent}
    prefixes = (*ALLOWED_PREFIXES, *(name[:-1] for name in needed if name.endswith("*")))
    # Proxies are commonly written in lower case.
    return {
        name: value
        for name, value in environ.items()
        if name in names or name.upper() in ALLOWED_VARIABLES or name.startswith(prefixes)
    }


def build_prompt(spec: RunSpec) -> str:
    """The prompt, after what was said before where the program's own session does not know it."""
    if spec.native_session or not spec.history:
        return spec.prompt
    earlier = "\n\n".join(f"[{message.role}]\n{message.text}" for message in spec.history if message.text)
    return f"Earlier in this conversation:\n\n{earlier}\n\nNow:\n\n{spec.prompt}"


def write_prompt_files(folder: Path, prompts: Mapping[str, str]) -> list[str]:
    """Arguments that name the prompts, by their flags, leaving out those that say nothing.

    Each is in a file of its own: an argument could be too long, and others could read it.
    """
    return [part for flag, text in prompts.items() if text for part in (flag, _write_prompt_file(folder, flag, text))]


def _write_prompt_file(folder: Path, flag: str, text: str) -> str:
    path = folder / f"{flag.strip('-')}.md"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)
