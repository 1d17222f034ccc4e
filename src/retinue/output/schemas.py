"""Check output schemas (JSON Schema 2020-12), and the results of agents against them.

A schema may come from a model: it is bounded in size, refers to nothing outside itself, and cannot make validation
endless. The only module that imports `jsonschema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from retinue.output.untrusted_text import to_one_line

MAX_SCHEMA_BYTES = 64 * 2**10
MAX_SUBSCHEMAS = 1000
"""Schemas within a schema."""
MAX_DEPTH = 64
"""Levels of a schema and of a result."""
MAX_RESULT_BYTES = 2**20
MAX_REFERENCES = 10_000
"""References followed to validate one result: some schemas double them with every level."""
MAX_VIOLATIONS = 5
MAX_MESSAGE_CHARS = 300
"""Characters of one violation, which quotes the value."""
MATCH_TIMEOUT = 0.2
"""Seconds a pattern may take on one text."""

Path = tuple[str | int, ...]

_IN_PLACE = {"not": "one", "if": "one", "then": "one", "else": "one"}
_IN_PLACE |= dict.fromkeys(("allOf", "anyOf", "oneOf"), "list") | {"dependentSchemas": "map"}
"""Keywords whose schemas judge the same value, by the form of their argument."""
_DESCENDING = dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), "map")
_DESCENDING |= {"prefixItems": "list"}
_DESCENDING |= dict.fromkeys(
    ("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"), "one"
)
_KEYWORDS = _IN_PLACE | _DESCENDING
_DEFINITIONS = ("$defs", "definitions")
_FORBIDDEN = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor")


class OutputSchemaError(ValueError):
    """A schema that cannot be used; the message has the path and the rule."""


class _TooManyReferencesError(Exception):
    """The references of a schema would make its validation endless."""


def parse_schema(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema as a JSON object, from its text or a mapping, after all checks.

    Raises:
        OutputSchemaError: it is no schema, too large, endless, or refers to something outside itself.
    """
    # The whole schema becomes a part of another one.
    schema = {name: part for name, part in decode_schema(given).items() if name not in {"$schema", "$id"}}
    nodes = dict(_walk(schema))
    metaschema, known = _make_metaschema(), frozenset(map(id, nodes.values()))
    for path, node in nodes.items():
        _check_node(path, node, schema, known)
        for error in metaschema.iter_errors(node):
            raise _refuse((*path, *error.absolute_path), str(error.validator), error.message)
    _check_cycles(schema, nodes)
    return schema


def decode_schema(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema as a JSON object of its own, without any check of its content.

    Raises:
        OutputSchemaError: the file does not contain a JSON object, or too large.
    """
    try:
        text = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
        if len(text) > MAX_SCHEMA_BYTES:
            raise OutputSchemaError(f"has {len(text)} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError) as error:
        raise OutputSchemaError(f"is not a JSON object: {to_one_line(str(error), MAX_MESSAGE_CHARS)}") from error


def find_violations(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return where a value breaks a parsed schema, a line with path and rule each; None if it does not."""
    try:
        size = len(msgspec.json.encode(value))
        if size > MAX_RESULT_BYTES:
            return f"$ (size): the result has {size} bytes; at most {MAX_RESULT_BYTES} are allowed"
        errors = list(islice(_make_validator(schema).iter_errors(value), MAX_VIOLATIONS))
    except RecursionError:
        return "$ (depth): the result is nested too deeply"
    except _TooManyReferencesError:
        limit = f"more than {MAX_REFERENCES} references would be followed to validate the result"
        return f"$ ($ref): {limit}; make the result smaller"
    except TimeoutError:
        return f"$ (pattern): a pattern took longer than {MATCH_TIMEOUT:g}s to match"
    lines = (f"{each.json_path} ({each.validator}): {each.message}" for each in errors)
    return "\n".join(to_one_line(line, MAX_MESSAGE_CHARS) for line in lines) or None


def match_result(schema: Mapping[str, Any], value: Any) -> tuple[Any, str | None]:
    """Return a result as the value that matches a parsed schema, and its violations if none does.

    Models write objects as JSON text at times: that counts as the object.
    """
    violations = find_violations(schema, value)
    if violations is None or not isinstance(value, str):
        return value, violations
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return value, violations
    return (decoded, None) if find_violations(schema, decoded) is None else (value, violations)


def embed_schema(schema: Mapping[str, Any], at: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a parsed schema as the part of another one at the pointer `at`, and the definitions for its root."""

    def change(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        return {name: _embed_member(name, member, change, at) for name, member in node.items()}

    whole: dict[str, Any] = change(dict(schema))
    definitions = {name: whole.pop(name) for name in _DEFINITIONS if name in whole}
    return whole, definitions


def _embed_member(name: str, member: Any, change: Callable[[Any], Any], at: str) -> Any:
    if name == "$ref":
        is_definition = member.startswith(tuple(f"#/{kind}/" for kind in _DEFINITIONS))
        return member if is_definition else f"{at}{member[1:]}"
    match _KEYWORDS.get(name), member:
        case "map", dict():
            return {key: change(part) for key, part in member.items()}
        case "list", list():
            return [change(part) for part in member]
        case "one", _:
            return change(member)
    return member


# -- checks of a schema ------------------------------------------------------------------------------


def _walk(schema: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield every schema within a schema, itself first, with its path.

    Raises:
        OutputSchemaError: there are too many, or they are nested too deeply.
    """
    pending: list[tuple[Path, dict[str, Any]]] = [((), schema)]
    count = 0
    while pending:
        path, node = pending.pop()
        count += 1
        if count > MAX_SUBSCHEMAS or len(path) > MAX_DEPTH:
            limits = f"{MAX_SUBSCHEMAS} parts or {MAX_DEPTH} levels"
            raise OutputSchemaError(f"has more than {limits}: make the schema smaller")
        yield path, node
        pending += [((*path, *steps), part) for steps, part in _parts(node, _KEYWORDS) if isinstance(part, dict)]


def _parts(node: Mapping[str, Any], keywords: Mapping[str, str]) -> Iterator[tuple[Path, Any]]:
    """Yield the direct parts of a schema under these keywords, each with its relative path."""
    for name, form in keywords.items():
        match form, node.get(name):
            case "map", dict() as members:
                yield from (((name, key), part) for key, part in members.items())
            case "list", list() as members:
                yield from (((name, number), part) for number, part in enumerate(members))
            case "one", dict() as part:
                yield (name,), part


def _check_node(path: Path, node: dict[str, Any], root: dict[str, Any], known: frozenset[int]) -> None:
    """Check the rules that the metaschema does not have.

    Raises:
        OutputSchemaError: it refers to something outside the schema, or has a pattern that cannot be used.
    """
    for name in _FORBIDDEN:
        if name in node:
            raise _refuse(path, name, "is not supported: use $ref and $defs")
    if path and "$id" in node:
        raise _refuse(path, "$id", "is not supported within a schema")
    reference = node.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith("#"):
            raise _refuse(path, "$ref", f"{reference!a} is outside the schema: move the definition to $defs")
        target = _resolve(root, reference)
        if not isinstance(target, bool) and id(target) not in known:
            raise _refuse(path, "$ref", f"{reference!a} does not refer to a schema")
    properties = node.get("patternProperties")
    for pattern in (node.get("pattern"), *(properties if isinstance(properties, dict) else ())):
        if isinstance(pattern, str):
            _check_pattern(path, pattern)


def _check_pattern(path: Path, pattern: str) -> None:
    import regex

    try:
        regex.compile(pattern)
    except (regex.error, RecursionError) as error:
        raise _refuse(path, "pattern", f"{pattern!a} is not a regular expression: {error}") from error


def _resolve(root: dict[str, Any], reference: str) -> Any:
    """Return what a reference within the schema points to; None if there is nothing."""
    from urllib.parse import unquote

    found: Any = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        match found:
            case dict():
                found = found.get(key)
            case list() if re.fullmatch("[0-9]{1,4}", key) and int(key) < len(found):
                found = found[int(key)]
            case _:
                return None
    return found if reference == "#" or reference.startswith("#/") else None


@lru_cache(maxsize=1)
def _make_metaschema() -> Any:
    """Return a validator of one schema without the schemas within it.

    The official metaschema judges all of them at once, by dynamic references, and takes seconds for a large schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema_specifications import REGISTRY

    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    whole = Draft202012Validator.META_SCHEMA
    for vocabulary in whole["allOf"]:
        rules = REGISTRY.contents(f"{whole['$id'].rpartition('/')[0]}/{vocabulary['$ref']}")
        properties |= rules.get("properties", {})
        definitions |= rules.get("$defs", {})
    return Draft202012Validator(_without_dynamic_references({"$defs": definitions, "properties": properties}))


def _without_dynamic_references(node: Any) -> Any:
    match node:
        case {"$dynamicRef": str()}:
            return {"type": ["object", "boolean"]}
        case dict():
            return {name: _without_dynamic_references(member) for name, member in node.items()}
        case list():
            return [_without_dynamic_references(member) for member in node]
    return node


def _check_cycles(root: dict[str, Any], nodes: Mapping[Path, dict[str, Any]]) -> None:
    """Check that no schema leads to itself without a step into the value, which would never end.

    Raises:
        OutputSchemaError: one does.
    """
    finished: set[int] = set()
    for path, start in nodes.items():
        active: set[int] = set()
        stack: list[tuple[dict[str, Any], Iterator[Any]]] = []
        pending: Any = start
        while True:
            if isinstance(pending, dict) and id(pending) not in finished:
                if id(pending) in active:
                    raise _refuse(path, "$ref", "refers to itself without end")
                active.add(id(pending))
                stack.append((pending, _same_value_parts(root, pending)))
            while stack and (pending := next(stack[-1][1], None)) is None:
                done, _ = stack.pop()
                active.discard(id(done))
                finished.add(id(done))
            if not stack:
                break


def _same_value_parts(root: dict[str, Any], node: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that judge the same value as this one."""
    yield from (part for _, part in _parts(node, _IN_PLACE) if part is not None)
    if isinstance(node.get("$ref"), str):
        yield _resolve(root, node["$ref"])


def _refuse(path: Iterable[str | int], rule: str, problem: str) -> OutputSchemaError:
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return OutputSchemaError(to_one_line(f"${where} ({rule}): {problem}", MAX_MESSAGE_CHARS))


# -- validation of a value ---------------------------------------------------------------------------


def _make_validator(schema: Mapping[str, Any]) -> Any:
    """Return a validator whose work is bounded and which loads nothing."""
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    follow = Draft202012Validator.VALIDATORS["$ref"]
    followed = 0

    def follow_reference(validator: Any, reference: str, value: Any, part: Any) -> Iterator[Any]:
        nonlocal followed
        followed += 1
        if followed > MAX_REFERENCES:
            raise _TooManyReferencesError
        yield from follow(validator, reference, value, part) or ()

    rules = {
        "$ref": follow_reference,
        "pattern": _match_pattern,
        "patternProperties": _match_properties,
        "uniqueItems": _find_repeated_items,
    }
    return validators.extend(Draft202012Validator, rules)(schema, registry=Registry())


def _match_pattern(validator: Any, pattern: str, value: Any, _part: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _match_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _part: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, member in value.items():
            if _matches(pattern, name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _matches(pattern: str, text: str) -> bool:
    import regex

    return regex.search(pattern, text, timeout=MATCH_TIMEOUT) is not None


def _find_repeated_items(validator: Any, is_required: bool, value: Any, _part: Any) -> Iterator[Any]:
    # The library compares every pair; a list of a hundred thousand objects would take minutes.
    from jsonschema import ValidationError

    if is_required and validator.is_type(value, "array"):
        encode = msgspec.json.Encoder(order="deterministic").encode
        if len({encode(item) for item in value}) < len(value):
            yield ValidationError("contains the same item more than once")
