"""Every route of the API in one table: what it is asked, what it answers. The OpenAPI document is made from it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from retinue.servers.http.inputs import EmptyQuery

API_BASE = "/api/v1"


class ApiRequest(Struct, frozen=True):
    """A request, parsed."""

    name: str
    """What stands in the place of `{…}` in the path."""
    query: Any
    body: Any


Handler = Callable[[ApiRequest], Awaitable[Any]]


class ApiRoute(Struct, frozen=True, kw_only=True, dict=True):
    """One thing to ask or to do."""

    method: str
    path: str
    """Below the base."""
    summary: str
    handle: Handler
    query: type[Struct] = EmptyQuery
    body: type[Struct] | None = None
    response: Any = None
    """The type of the answer; None: no JSON."""
    status: int = 200
    media: tuple[str, ...] = ("application/json",)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{\w+\}", r"([^/]{1,256})", self.path))


def find_route(routes: Mapping[str, list[ApiRoute]], method: str, path: str) -> tuple[ApiRoute, str] | None:
    """The route of a path, and what stands in the place of its `{…}`; None if there is none.

    A path of another method is found as None, too: see `methods`.
    """
    for route in routes.get(method, ()):
        if found := route.pattern.fullmatch(path):
            return route, found[1] if found.groups() else ""
    return None


def list_methods(routes: Mapping[str, list[ApiRoute]], path: str) -> list[str]:
    """The methods that a path has."""
    return [method for method in routes if find_route(routes, method, path)]
