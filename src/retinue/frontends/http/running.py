"""A server that runs already, asked for another link."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

from retinue.frontends.http.routes import BASE
from retinue.frontends.http.serving import Served
from retinue.frontends.server import Unservable
from retinue.frontends.web.serving import LOCAL
from retinue.frontends.web.tokens import read_token

PATIENCE = 3.0
"""Seconds it has to answer."""


def already_served(state: Path, port: int) -> Served | None:
    """What the server of this state folder on this port is known by; None if there is none."""
    try:
        file, token = read_token(state)
    except Unservable:
        return None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(LOCAL, port, timeout=PATIENCE)
    try:
        connection.request("POST", f"{BASE}/links", b"{}", headers)
        answer = connection.getresponse()
        link = json.loads(answer.read(4096))["link"] if answer.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()
    if not isinstance(link, str):
        return None
    return Served(address=link.partition("/login")[0], link=link, port=port, token_file=str(file))
