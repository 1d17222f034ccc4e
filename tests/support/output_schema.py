"""An output schema for tests, with a result that matches it and one that does not."""

SCHEMA = {
    "type": "object",
    "properties": {"files": {"type": "array", "items": {"$ref": "#/$defs/file"}}, "total": {"type": "integer"}},
    "required": ["files", "total"],
    "$defs": {"file": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
}
GOOD = {"files": [{"path": "a.py"}], "total": 1}
BAD = {"files": [{}], "total": 1}
