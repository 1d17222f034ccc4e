"""What a child process sees of our environment: a list of names, what its engine needs, what its agent asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ALLOWED = frozenset(
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


def seen_by_child(
    environ: Mapping[str, str], engine: Iterable[str] = (), agent: Iterable[str] = ()
) -> dict[str, str]:
    """What a child sees of the environment. A name of the engine's that ends in `*` stands for all that begin so."""
    needed = tuple(engine)
    names = ALLOWED | {*needed, *agent}
    prefixes = (*ALLOWED_PREFIXES, *(name[:-1] for name in needed if name.endswith("*")))
    # Proxies are commonly written in lower case.
    return {
        name: value
        for name, value in environ.items()
        if name in names or name.upper() in ALLOWED or name.startswith(prefixes)
    }
