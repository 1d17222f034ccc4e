"""The models of a server on this computer or in its network, such as Ollama, asked once with a short timeout."""

from __future__ import annotations

from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

SERVER_TIMEOUT = 0.5
"""Seconds such a server has to answer: it is near, and a command waits for it."""
MAX_LISTING_BYTES = 2**20


class _ServedModel(Struct, frozen=True):
    id: str


class _ModelListing(Struct, frozen=True):
    data: tuple[_ServedModel, ...] | None = None


def list_served_models(base_url: str) -> Sequence[str] | None:
    """Return the names of the models at `{base_url}/models`, in the server's order; None if it does not answer."""
    place = urlsplit(base_url)
    connect = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = connect(place.hostname or "", place.port, timeout=SERVER_TIMEOUT)
    try:
        connection.request("GET", f"{place.path.rstrip('/')}/models")
        with connection.getresponse() as response:
            content = response.read(MAX_LISTING_BYTES)
        listing = msgspec.json.decode(content, type=_ModelListing)
    except (OSError, HTTPException, msgspec.MsgspecError, UnicodeError):
        return None
    finally:
        connection.close()
    return [model.id for model in listing.data or () if model.id]
