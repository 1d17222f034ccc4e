"""The OpenAPI document of the API, made from the types its routes take and give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, inspect

from retinue import __version__
from retinue.events import schema as schema_of_events
from retinue.frontends.field_docs import said_under_fields
from retinue.frontends.http.blocks import Written
from retinue.frontends.http.inputs import Login, Watch
from retinue.frontends.http.installation import LoggedIn
from retinue.frontends.http.outcomes import Refusal
from retinue.frontends.http.routes import BASE, Route
from retinue.frontends.http.values import Events, Happened, Resync, RunRow

TEMPLATE = "#/components/schemas/{name}"
FAULTS = {
    "400": "The request is wrong as it is.",
    "401": "Neither token nor cookie.",
    "403": "Not from here, or not allowed.",
    "404": "There is no such thing.",
    "409": "Not now.",
    "421": "Not meant for this server.",
    "500": "A fault of the server itself; the runs go on.",
    "503": "The store cannot be used, or too many ask.",
}
FAULTS_OF_BODIES = {
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "The conversation has started as many runs as it may.",
}
MESSAGES: Mapping[str, type[Struct]] = {
    "happened": Happened,
    "row": RunRow,
    "delta": Written,
    "resync": Resync,
}
"""Of the stream, with their data."""


def document(routes: Sequence[Route]) -> bytes:
    """The document, as JSON."""
    types = list(_types(routes))
    schemas, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    known = dict(zip(types, schemas, strict=True))
    parts = {**components, **_events()}
    for kind in types:
        _describe(kind, parts)
    _name_events(parts)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"{BASE}{route.path}", {})[route.method.lower()] = _operation(route, known)
    paths[f"{BASE}/login"] = {"post": _login(known)}
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
    found: list[type[Struct]] = [Refusal, LoggedIn, Login, *MESSAGES.values()]
    for route in routes:
        found += [kind for kind in (route.gives, route.body) if kind]
    yield from dict.fromkeys(found)


# -- schemas ---------------------------------------------------------------------------------------


def _events() -> dict[str, Any]:
    """The schema of an event and its parts; some have the names of answers, so all are told apart."""
    written = msgspec.json.encode(schema_of_events()).replace(b'"#/$defs/', b'"#/components/schemas/Event.')
    whole = msgspec.json.decode(written)
    parts = whole.pop("$defs")
    described = {"description": "Something that happened in a run: one line of its record.", **whole}
    return {"Event": described, **{f"Event.{name}": part for name, part in parts.items()}}


def _name_events(parts: dict[str, Any]) -> None:
    """Says of what is passed on as it was written that it is an event."""
    event = {"$ref": TEMPLATE.format(name="Event")}
    parts[Events.__name__]["properties"]["events"]["items"] = event
    parts[Happened.__name__]["properties"]["event"] = event


def _describe(kind: type[Struct], parts: dict[str, Any]) -> None:
    """Adds what stands under the fields of a type, and of the types within it."""
    for each in _within(inspect.type_info(kind)):
        properties = parts.get(each.__name__, {}).get("properties", {})
        for name, about in _docs(each).items():
            if name in properties:
                properties[name] = {**properties[name], "description": about}


def _docs(kind: type[Struct]) -> dict[str, str]:
    """What stands under the fields of a type, inherited ones too, by their names on the wire."""
    told: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, Struct) and each is not Struct:
            told |= said_under_fields(each)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {wire: told[name] for name, wire in names if name in told}


def _within(info: Any, seen: set[type] | None = None) -> Iterator[type[Struct]]:
    seen = set() if seen is None else seen
    match info:
        case inspect.StructType(cls=kind, fields=fields) if kind not in seen:
            seen.add(kind)
            yield kind
            for field in fields:
                yield from _within(field.type, seen)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _within(each, seen)
        case inspect.VarTupleType(item_type=item):
            yield from _within(item, seen)
        case _:
            pass


# -- operations ------------------------------------------------------------------------------------


def _operation(route: Route, known: dict[type[Struct], Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": route.about,
        "operationId": _name(route),
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": {str(route.status): _gives(route, known), **_faults(has_body=bool(route.body))},
    }
    if route.body:
        content = {"application/json": {"schema": known[route.body]}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _gives(route: Route, known: dict[type[Struct], Any]) -> dict[str, Any]:
    schema = known[route.gives] if route.gives else {"type": "string"}
    told: dict[str, Any] = {
        "description": route.about,
        "content": {media: {"schema": schema} for media in route.media},
    }
    if route.query is Watch:
        told["x-messages"] = {name: known[kind] for name, kind in MESSAGES.items()}
    return told


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
            **_faults(has_body=True),
        },
    }


def _faults(*, has_body: bool) -> dict[str, Any]:
    refusal = {"$ref": TEMPLATE.format(name="Refusal")}
    content = {"application/json": {"schema": refusal}}
    faults = {**FAULTS, **(FAULTS_OF_BODIES if has_body else {})}
    return {status: {"description": about, "content": content} for status, about in sorted(faults.items())}


def _in_path(route: Route) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(route: Route) -> Iterator[dict[str, Any]]:
    _, parts = msgspec.json.schema_components([route.query], ref_template=TEMPLATE)
    docs = _docs(route.query)
    for name, schema in parts[route.query.__name__]["properties"].items():
        told = {"name": name, "in": "query", "required": False, "schema": schema}
        yield {**told, "description": docs[name]} if name in docs else told


def _in_headers(route: Route) -> Iterator[dict[str, Any]]:
    if route.query is Watch:
        about = "The id of the last message that was seen; it wins over `after`."
        schema = {"type": "string"}
        yield {"name": "Last-Event-ID", "in": "header", "required": False, "schema": schema, "description": about}


def _name(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + "".join(word.capitalize() for word in words)
