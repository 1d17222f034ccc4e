"""The OpenAPI document of the API, built from the request and response types of its routes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct, inspect

from retinue import __version__
from retinue.model.event_codec import event_schema as schema_of_events
from retinue.servers.http.idempotency import IDEMPOTENCY_HEADER, KEY_PATTERN, MAX_KEY_CHARS
from retinue.servers.http.inputs import LoginBody, WatchQuery
from retinue.servers.http.installation import LoginResponse
from retinue.servers.http.live_runs import BlockUpdate
from retinue.servers.http.routes import API_BASE, ApiRoute
from retinue.servers.http.schemas import ErrorResponse, EventPage, ResyncMessage, RunRow, StreamedEvent


def field_docstrings(kind: type[Struct]) -> Mapping[str, str]:
    """Return the docstrings under the fields of a class, in JSON terms; none without its source."""
    return _module_docstrings(kind.__module__).get(kind.__name__, {})


@cache
def _module_docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields of each class of a module, which is parsed once for all of them."""
    import ast
    import inspect

    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {
        node.name: {
            field.target.id: to_json_terms(below.value.value)
            for field, below in pairwise(node.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def to_json_terms(text: str) -> str:
    """Return a docstring as one line with `null` for `None`."""
    return " ".join(text.split()).replace("None", "null")


REF_TEMPLATE = "#/components/schemas/{name}"
ERROR_DESCRIPTIONS = {
    "400": "The request is invalid.",
    "401": "The request has no valid token or cookie.",
    "403": "The origin, the host or the action is not allowed.",
    "404": "Not found.",
    "409": "The request is not possible in the current state.",
    "421": "The request is not for this server.",
    "500": "Internal error of the server; the runs continue.",
    "503": "The store cannot be used, or there are too many requests.",
}
BODY_ERROR_DESCRIPTIONS = {
    "408": "The body was not received in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "The conversation has reached its limit of started runs.",
}
STREAM_MESSAGES: Mapping[str, type[Struct]] = {
    "happened": StreamedEvent,
    "row": RunRow,
    "delta": BlockUpdate,
    "resync": ResyncMessage,
}
"""Messages of the event stream, with the types of their data."""


def build_document(routes: Sequence[ApiRoute]) -> bytes:
    """Return the document as JSON."""
    types = list(_list_types(routes))
    schemas, components = msgspec.json.schema_components(types, ref_template=REF_TEMPLATE)
    known = dict(zip(types, schemas, strict=True))
    parts = {**components, **_query_enums(routes), **_event_schemas()}
    for kind in types:
        _add_descriptions(kind, parts)
    _link_event_schema(parts)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"{API_BASE}{route.path}", {})[route.method.lower()] = _route_operation(route, known)
    paths[f"{API_BASE}/login"] = {"post": _login_operation(known)}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Retinue",
                "version": __version__,
                "description": "List, start, cancel and resume runs of agents. Times are in seconds.",
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


def _list_types(routes: Sequence[ApiRoute]) -> Iterator[type[Struct]]:
    found: list[type[Struct]] = [ErrorResponse, LoginResponse, LoginBody, *STREAM_MESSAGES.values()]
    for route in routes:
        found += [kind for kind in (route.response, route.body) if kind]
    yield from dict.fromkeys(found)


# -- schemas ---------------------------------------------------------------------------------------


def _event_schemas() -> dict[str, Any]:
    """Return the schema of an event and its parts, with a prefix, as some have the names of response types."""
    written = msgspec.json.encode(schema_of_events()).replace(b'"#/$defs/', b'"#/components/schemas/Event.')
    whole = msgspec.json.decode(written)
    parts = whole.pop("$defs")
    described = {"description": "An event of a run: one line of its record.", **whole}
    return {"Event": described, **{f"Event.{name}": part for name, part in parts.items()}}


def _link_event_schema(parts: dict[str, Any]) -> None:
    """Refer to the event schema where events are sent as raw JSON."""
    event = {"$ref": REF_TEMPLATE.format(name="Event")}
    parts[EventPage.__name__]["properties"]["events"]["items"] = event
    parts[StreamedEvent.__name__]["properties"]["event"] = event


def _add_descriptions(kind: type[Struct], parts: dict[str, Any]) -> None:
    """Add the docstrings under the fields of a type and of its nested types."""
    for each in _nested_structs(inspect.type_info(kind)):
        properties = parts.get(each.__name__, {}).get("properties", {})
        for name, about in _field_docs(each).items():
            if name in properties:
                properties[name] = {**properties[name], "description": about}


def _field_docs(kind: type[Struct]) -> dict[str, str]:
    """Return the docstrings of the fields of a type, inherited ones too, by their JSON names."""
    docs: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, Struct) and each is not Struct:
            docs |= field_docstrings(each)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {wire: docs[name] for name, wire in names if name in docs}


def _nested_structs(info: Any, seen: set[type] | None = None) -> Iterator[type[Struct]]:
    seen = set() if seen is None else seen
    match info:
        case inspect.StructType(cls=kind, fields=fields) if kind not in seen:
            seen.add(kind)
            yield kind
            for field in fields:
                yield from _nested_structs(field.type, seen)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _nested_structs(each, seen)
        case inspect.VarTupleType(item_type=item):
            yield from _nested_structs(item, seen)
        case _:
            pass


# -- operations ------------------------------------------------------------------------------------


def _route_operation(route: ApiRoute, known: dict[type[Struct], Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _responses(route, known), **_error_responses(has_body=bool(route.body))},
    }
    if route.takes_idempotency_key:
        reused = {**operation["responses"]["409"], "description": "The idempotency key was used with another body."}
        operation["responses"]["422"] = reused
    if route.body:
        content = {"application/json": {"schema": known[route.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(route: ApiRoute, known: dict[type[Struct], Any]) -> dict[str, Any]:
    schema = known[route.response] if route.response else {"type": "string"}
    description: dict[str, Any] = {
        "description": route.summary,
        "content": {media: {"schema": schema} for media in route.media},
    }
    if route.query is WatchQuery:
        description["x-messages"] = {name: known[kind] for name, kind in STREAM_MESSAGES.items()}
    return description


def _login_operation(known: dict[type[Struct], Any]) -> dict[str, Any]:
    return {
        "summary": "Exchange the code of a sign-in link, or the token, for a browser's cookie.",
        "operationId": "postLogin",
        "security": [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": known[LoginBody]}}},
        "responses": {
            "200": {"description": "Signed in.", "content": {"application/json": {"schema": known[LoginResponse]}}},
            **_error_responses(has_body=True),
        },
    }


def _error_responses(*, has_body: bool) -> dict[str, Any]:
    refusal = {"$ref": REF_TEMPLATE.format(name="ErrorResponse")}
    content = {"application/json": {"schema": refusal}}
    faults = {**ERROR_DESCRIPTIONS, **(BODY_ERROR_DESCRIPTIONS if has_body else {})}
    return {
        status: {"description": description, "content": content} for status, description in sorted(faults.items())
    }


def _path_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    _, parts = msgspec.json.schema_components([route.query], ref_template=REF_TEMPLATE)
    docs = _field_docs(route.query)
    for name, schema in parts[route.query.__name__]["properties"].items():
        parameter = {"name": name, "in": "query", "required": False, "schema": schema}
        yield {**parameter, "description": docs[name]} if name in docs else parameter


def _query_enums(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the schemas that parameters refer to."""
    queries = {route.query for route in routes}
    _, parts = msgspec.json.schema_components(queries, ref_template=REF_TEMPLATE)
    own = {query.__name__ for query in queries}
    return {name: schema for name, schema in parts.items() if name not in own}


def _header_parameters(route: ApiRoute) -> Iterator[dict[str, Any]]:
    if route.query is WatchQuery:
        about = "The id of the last received message; takes precedence over `after`."
        schema = {"type": "string"}
        yield {"name": "Last-Event-ID", "in": "header", "required": False, "schema": schema, "description": about}
    if route.takes_idempotency_key:
        about = (
            "A request whose key was used within the last 24 hours starts nothing and returns the run of the first "
            "request, also after a restart of the server."
        )
        yield {
            "name": IDEMPOTENCY_HEADER,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": KEY_PATTERN},
            "description": about,
        }


def _operation_id(route: ApiRoute) -> str:
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + "".join(word.capitalize() for word in words)
