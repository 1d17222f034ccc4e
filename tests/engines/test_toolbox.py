"""Tools made of functions: their schemas, arguments and results."""

import threading
from typing import Annotated, Literal

import anyio
import pytest
from msgspec import Meta

from retinue.engines.toolbox import AgentToolbox, ToolOutcome, ToolSchema, make_tool
from retinue.model.runs import ToolArguments, ToolFunction, ToolUse
from retinue.output.truncate import MAX_TOOL_BYTES


async def search(
    place: str,
    word: Annotated[str, Meta(description="What to look for")],
    *,
    match_case: bool = False,
    kind: Literal["file", "line"] = "file",
    limit: int | None = None,
) -> str:
    """Look for a word.

    Everywhere.
    """
    return f"{place}: {word} {match_case} {kind} {limit}"


async def call(function: ToolFunction, args: ToolArguments, *bound: object) -> ToolOutcome:
    tool = make_tool(function, *bound)
    return await AgentToolbox([tool]).call(ToolUse("1", tool.schema.name, args))


def test_schema_has_name_docstring_and_unbound_parameters():
    assert make_tool(search, "here").schema == ToolSchema(
        "search",
        "Look for a word.\n\nEverywhere.",
        {
            "title": "search",
            "type": "object",
            "properties": {
                "word": {"type": "string", "description": "What to look for"},
                "matchCase": {"type": "boolean", "default": False},
                "kind": {"enum": ["file", "line"], "default": "file"},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["word"],
            "additionalProperties": False,
        },
    )


async def test_null_and_quoted_number_arguments_are_accepted():
    args = {"word": "a", "limit": "5", "kind": None, "matchCase": True}
    assert await call(search, args, "here") == ToolOutcome("here: a True file 5")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({}, "Object missing required field `word`"),
        ({"word": 3}, "Expected `str`, got `int` - at `$.word`"),
        ({"word": "a", "kind": "x"}, "Invalid enum value 'x' - at `$.kind`"),
        ({"word": "a", "place": "there"}, "Object contains unknown field `place`"),
    ],
)
async def test_invalid_arguments_are_named_in_the_error(args, complaint):
    outcome = await call(search, args, "here")
    assert outcome == ToolOutcome(
        f"Invalid arguments for search: {complaint}. Its parameters: word, matchCase, kind, limit", is_error=True
    )


async def test_plain_function_runs_in_a_thread():
    def where() -> str:
        return threading.current_thread().name

    outcome = await call(where, {})
    assert outcome.text != threading.current_thread().name


async def test_cancelled_run_does_not_wait_for_a_plain_function():
    release = threading.Event()

    def block() -> str:
        release.wait(10)
        return "late"

    with anyio.move_on_after(0.01) as scope:
        await call(block, {})
    release.set()
    assert scope.cancelled_caught


async def test_huge_result_is_truncated_with_a_notice():
    async def flood() -> str:
        return "line\n" * 100_000

    outcome = await call(flood, {})
    assert outcome.text.startswith("line\nline\n")
    assert outcome.text.endswith(
        "\n\n[Showing the first 2000 of 100001 lines, 9.8 KB of 488.3 KB. Ask for a smaller part to see the "
        "remainder.]"
    )
    assert len(outcome.text) < MAX_TOOL_BYTES + 200


async def test_surrogates_in_a_result_are_replaced():
    async def odd() -> str:
        return "a\ud800b"

    assert await call(odd, {}) == ToolOutcome("a?b")


def test_parameter_without_name_or_annotation_is_refused():
    async def positional(word: str, /) -> str:
        return word

    async def bare(word):
        return word

    with pytest.raises(TypeError, match="by name"):
        make_tool(positional)
    with pytest.raises(TypeError, match="word needs an annotation"):
        make_tool(bare)


async def test_empty_toolbox_reports_that_there_are_no_tools():
    outcome = await AgentToolbox().call(ToolUse("1", "read", {}))
    assert outcome == ToolOutcome("Unknown tool: read. Available tools: (none)", is_error=True)
