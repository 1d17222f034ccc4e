"""Output schemas: which are refused, and what is reported about values that do not match."""

from __future__ import annotations

import time

import pytest

from retinue.output.schemas import MAX_SCHEMA_BYTES, OutputSchemaError, embed_schema, find_violations, parse_schema

TREE = {
    "$defs": {"node": {"type": "object", "properties": {"kids": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}


def doubling(levels: int):
    """Return a schema whose references double with every level."""
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**parts, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def nested(levels: int):
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "is not a JSON object: "),
        ("[1]", "is not a JSON object: "),
        ('{"not":' * 8000 + "{}" + "}" * 8000, "is not a JSON object: "),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "has 65554 bytes; at most 65536 are allowed"),
        ({"properties": {f"p{n}": {} for n in range(1001)}}, "has more than 1000 parts or 64 levels"),
        (nested(200), "has more than 1000 parts or 64 levels"),
        ({"properties": {"a": {"type": "strin"}}}, "$.properties.a.type (anyOf): 'strin' is not valid"),
        ({"items": {"minimum": "3"}}, "$.items.minimum (type): '3' is not of type 'number'"),
        ({"properties": {"a": 3}}, "$.properties.a (type): 3 is not of type 'object', 'boolean'"),
        (
            {"items": {"$ref": "https://example.org/x.json"}},
            "$.items ($ref): 'https://example.org/x.json' is outside",
        ),
        ({"items": {"$ref": "other.json"}}, "$.items ($ref): 'other.json' is outside the schema"),
        ({"items": {"$ref": "#/$defs/x"}}, "$.items ($ref): '#/$defs/x' does not refer to a schema"),
        ({"default": {"$ref": "file:///x"}, "$ref": "#/default"}, "$ ($ref): '#/default' does not refer to a schema"),
        ({"$ref": "#"}, "$ ($ref): refers to itself without end"),
        ({"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]}, "refers to itself without end"),
        ({"items": {"$dynamicRef": "#x"}}, "$.items ($dynamicRef): is not supported"),
        ({"items": {"$id": "https://example.org/"}}, "$.items ($id): is not supported"),
        ({"items": {"pattern": "("}}, "$.items (pattern): '(' is not a regular expression"),
        ({"patternProperties": {"[": {}}}, "$ (pattern): '[' is not a regular expression"),
    ],
)
def test_unusable_schema_is_refused_within_a_second_with_path_and_rule(schema, problem):
    start = time.perf_counter()
    with pytest.raises(OutputSchemaError) as refused:
        parse_schema(schema)
    assert problem in str(refused.value)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    "schema",
    [
        {},
        TREE,
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "https://example.org/"}]},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.org/me",
            "type": "object",
        },
    ],
)
def test_schema_without_outside_references_is_accepted(schema):
    assert parse_schema(schema) == {name: part for name, part in schema.items() if name not in {"$schema", "$id"}}


def test_violations_have_path_rule_and_value():
    schema = parse_schema({"required": ["a", "b"], "properties": {"a": {"items": {"type": "integer"}}}})
    assert find_violations(schema, {"a": [1, "x"]}) == (
        "$ (required): 'b' is a required property\n$.a[1] (type): 'x' is not of type 'integer'"
    )
    assert find_violations(schema, {"a": [1], "b": None}) is None


def test_recursive_schema_validates_every_level():
    schema = parse_schema(TREE)
    assert find_violations(schema, {"kids": [{"kids": [{}]}]}) is None
    assert find_violations(schema, {"kids": [{"kids": [3]}]}) == "$.kids[0].kids[0] (type): 3 is not of type 'object'"


def test_work_of_a_validation_is_bounded():
    deep: object = {}
    for _ in range(300):
        deep = {"kids": [deep]}
    slow = parse_schema({"pattern": "^(a|a|b)*(a|ab)*$"})
    unique = parse_schema({"uniqueItems": True})
    assert find_violations(parse_schema(TREE), deep) == "$ (depth): the result is nested too deeply"
    assert "references would be followed" in str(find_violations(parse_schema(doubling(40)), "x"))
    assert "(pattern)" in str(find_violations(slow, "ab" * 40 + "!"))
    assert "(size)" in str(find_violations({}, "x" * 2**21))
    assert find_violations(unique, [{"n": n} for n in range(50_000)]) is None
    assert find_violations(unique, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == (
        "$ (uniqueItems): contains the same item more than once"
    )


def test_pattern_properties_are_validated():
    schema = parse_schema({"patternProperties": {"^n_": {"type": "integer"}}})
    assert find_violations(schema, {"n_a": 1, "other": "x"}) is None
    assert find_violations(schema, {"n_a": "x"}) == "$.n_a (type): 'x' is not of type 'integer'"


def test_embedded_schema_moves_definitions_to_the_root():
    schema = {
        "$defs": {"leaf": {"type": "string"}},
        "properties": {"leaf": {"$ref": "#/$defs/leaf"}, "again": {"items": {"$ref": "#"}}},
    }
    assert embed_schema(schema, "#/properties/result") == (
        {
            "properties": {"leaf": {"$ref": "#/$defs/leaf"}, "again": {"items": {"$ref": "#/properties/result"}}},
        },
        {"$defs": {"leaf": {"type": "string"}}},
    )
