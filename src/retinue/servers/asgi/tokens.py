"""The tokens of HTTP clients: one file each, readable only by the user."""

from __future__ import annotations

import os
import re
import secrets
import stat
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from retinue.servers.lifecycle import ServerStartError
from retinue.support.safe_files import FileTooLargeError, read_regular_file

CLIENT_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
TOKEN_BYTES = 32
_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{32,128}")
_MAX_TOKEN_FILE_BYTES = 1024


class ClientToken(Struct, frozen=True):
    """A client's token, without the token itself."""

    file: Path
    digest: bytes

    @property
    def client(self) -> str:
        """Return the id that owns the client's sessions."""
        return f"client-{self.digest.hex()[:16]}"


def load_client_token(state: Path, name: str | None = None) -> ClientToken:
    """Return the token of the named client, or of the unnamed one; create it if it is missing.

    Raises:
        ServerStartError: the file cannot be trusted, read or created.
    """
    return _load_token(state, state / "tokens" / name if name else state / "token")


def load_user_token(state: Path) -> ClientToken:
    """Return the token that gives the user's own rights, which no client token does; create it if it is missing.

    Raises:
        ServerStartError: the file cannot be trusted, read or created.
    """
    return _load_token(state, state / "serving" / "token")


def _load_token(state: Path, file: Path) -> ClientToken:
    try:
        return ClientToken(file, digest_token(_read_token(file) or _create_token(state, file)))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerStartError(
            f"The token file {file} cannot be used: {why}. The server does not start without a token."
        ) from error


def digest_token(token: str) -> bytes:
    """Return the digest by which a token is stored and compared."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read_token(file: Path) -> str | None:
    """Return the token in a file; None if there is no file."""
    try:
        text = read_regular_file(file, _MAX_TOKEN_FILE_BYTES, follow_link=False).decode().strip()
        status = file.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except FileTooLargeError:
        text, status = "", None
    if status and os.name != "nt" and (stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.getuid()):
        raise ServerStartError(
            f"Other users can read the token file {file}. Delete the file; the next start creates a new one."
        )
    if not _TOKEN_PATTERN.fullmatch(text):
        raise ServerStartError(
            f"The token file {file} contains no token. Delete the file; the next start creates a new one."
        )
    return text


def _create_token(state: Path, file: Path) -> str:
    """Create the token file in one step and return its token, or that of a process that was faster."""
    for folder in (state, file.parent):
        folder.mkdir(0o700, parents=True, exist_ok=True)
    token, fresh = secrets.token_urlsafe(TOKEN_BYTES), file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(f"{token}\n".encode())
        _link_file(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
    return _read_token(file) or token


def _link_file(fresh: Path, file: Path) -> None:
    try:
        os.link(fresh, file)
    except FileExistsError:
        pass  # another process was faster
    except OSError:  # a file system without hard links
        fresh.replace(file)
