"""Every route of the API in one table: what it is asked, what it answers. The OpenAPI document is made from it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from retinue.frontends.http.inputs import NoQuery

BASE = "/api/v1"


class Given(Struct, frozen=True):
    """A request, parsed."""

    name: str
    """What stands in the place of `{…}` in the path."""
    query: Any
    body: Any


Handler = Callable[[Given], Awaitable[Any]]


class Route(Struct, frozen=True, kw_only=True, dict=True):
    """One thing to ask or to do."""

    method: str
    path: str
    """Below the base."""
    about: str
    handle: Handler
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    gives: Any = None
    """The type of the answer; None: no JSON."""
    status: int = 200
    media: tuple[str, ...] = ("application/json",)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{\w+\}", r"([^/]{1,256})", self.path))


def find(routes: Mapping[str, list[Route]], method: str, path: str) -> tuple[Route, str] | None:
    """The route of a path, and what stands in the place of its `{…}`; None if there is none.

    A path of another method is found as None, too: see `methods`.
    """
    for route in routes.get(method, ()):
        if found := route.pattern.fullmatch(path):
            return route, found[1] if found.groups() else ""
    return None


def methods(routes: Mapping[str, list[Route]], path: str) -> list[str]:
    """The methods that a path has."""
    return [method for method in routes if find(routes, method, path)]
