"""The OpenAPI document of the API, made from the types its routes take and give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, inspect

from retinue import __version__
from retinue.frontends.http.inputs import Login
from retinue.frontends.http.installation import LoggedIn
from retinue.frontends.http.outcomes import Refusal
from retinue.frontends.http.routes import BASE, Route

TEMPLATE = "#/components/schemas/{name}"
FAULTS = {
    "400": "The request is wrong as it is.",
    "401": "Neither token nor cookie.",
    "403": "Not from here, or not allowed.",
    "404": "There is no such thing.",
    "409": "Not now.",
    "503": "The store cannot be used, or too many ask.",
}


def document(routes: Sequence[Route]) -> bytes:
    """The document, as JSON."""
    types = list(_types(routes))
    schemas, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"{BASE}{route.path}", {})[route.method.lower()] = _operation(route, known)
    paths[f"{BASE}/login"] = {"post": _login(known)}
    parts = dict(components.items())
    parts["Event"] = {
        "type": "object",
        "description": "One event; `docs/reference/events.schema.json` has its schema.",
    }
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Retinue",
                "version": __version__,
                "description": "Runs of agents: seen, started, stopped and continued. Times are seconds.",
            },
            "security": [{"token": []}, {"cookie": []}],
            "paths": paths,
            "components": {
                "schemas": parts,
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "cookie": {"type": "apiKey", "in": "cookie", "name": "retinue_PORT"},
                },
            },
        }
    )


def _types(routes: Sequence[Route]) -> Iterator[type[Struct]]:
    found: list[type[Struct]] = [Refusal, LoggedIn, Login]
    for route in routes:
        found += [kind for kind in (route.gives, route.body) if kind]
    yield from dict.fromkeys(found)


def _operation(route: Route, known: dict[type[Struct], Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": route.about,
        "operationId": _name(route),
        "parameters": [*_in_path(route), *_in_query(route)],
        "responses": {str(route.status): _gives(route, known), **_faults()},
    }
    if route.body:
        content = {"application/json": {"schema": known[route.body]}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _gives(route: Route, known: dict[type[Struct], Any]) -> dict[str, Any]:
    schema = known[route.gives] if route.gives else {"type": "string"}
    return {"description": route.about, "content": {route.media: {"schema": schema}}}


def _login(known: dict[type[Struct], Any]) -> dict[str, Any]:
    return {
        "summary": "Buys a browser its cookie for the code of a link, or for the token.",
        "operationId": "postLogin",
        "security": [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": known[Login]}}},
        "responses": {
            "200": {
                "description": "Signed in.",
                "content": {"application/json": {"schema": known[LoggedIn]}},
            },
            **_faults(),
        },
    }


def _faults() -> dict[str, Any]:
    refusal = {"$ref": TEMPLATE.format(name="Refusal")}
    content = {"application/json": {"schema": refusal}}
    return {status: {"description": about, "content": content} for status, about in FAULTS.items()}


def _in_path(route: Route) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(route: Route) -> Iterator[dict[str, Any]]:
    info = inspect.type_info(route.query)
    assert isinstance(info, inspect.StructType)
    _, parts = msgspec.json.schema_components([route.query], ref_template=TEMPLATE)
    fields = parts[route.query.__name__]["properties"]
    for field in info.fields:
        yield {
            "name": field.encode_name,
            "in": "query",
            "required": False,
            "schema": fields[field.encode_name],
        }


def _name(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + "".join(word.capitalize() for word in words)
