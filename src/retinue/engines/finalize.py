"""The tool with which an agent says what came of its task, where the caller asks for that."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.engines.toolbox import Tool, ToolError, tool


def finalize_tool() -> Tool:
    """Checks the arguments; the loop that called it reports the finalization and ends the run."""
    return tool(subagent_finalize)


async def subagent_finalize(
    status: Literal["SUCCESS", "ERROR"],
    result: Annotated[str, Meta(description="The answer; with ERROR, partial findings")] = "",
    error: Annotated[str, Meta(description="Why the task could not be done")] = "",
) -> str:
    """Report the final result of this task. Must be your last action."""
    if status == "SUCCESS" and not result.strip():
        raise ToolError("SUCCESS requires a non-empty result")
    if status == "ERROR" and not error.strip():
        raise ToolError("ERROR requires a non-empty error")
    return "finalized"
