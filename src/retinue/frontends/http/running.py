"""A server that runs already, and another link to it."""

from __future__ import annotations

import time
from pathlib import Path

from retinue.control.announcing import address_on
from retinue.frontends.http.api import link
from retinue.frontends.http.codes import new_code
from retinue.frontends.http.serving import Served
from retinue.frontends.server import Unservable
from retinue.frontends.web.tokens import users_token


def already_served(state: Path, port: int) -> Served | None:
    """What the server of this state folder on this port is known by; None if there is none.

    Nobody is asked: whoever else has the port must not hear of the token, nor name the link.
    """
    address = address_on(state, port)
    if address is None:
        return None
    try:
        token = users_token(state)
    except Unservable:
        return None
    once = link(address, new_code(token, port, time.time()))
    return Served(address=address, link=once, port=port, token_file=str(token.file))
