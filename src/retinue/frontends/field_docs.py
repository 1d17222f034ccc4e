"""What is said under the fields of a type, read from its source: the one place where it stands."""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct


def said_under_fields(kind: type[Struct]) -> dict[str, str]:
    """The sentences under the fields of a class itself, in the words of JSON; none without its source."""
    import ast
    import inspect

    try:
        (body,) = ast.parse(inspect.getsource(kind)).body
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = in_json(said)
    return found


def in_json(said: str) -> str:
    """A sentence as a line, in the words of JSON."""
    return " ".join(said.split()).replace("None", "null")
