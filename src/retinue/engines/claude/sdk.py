"""The Claude Agent SDK, imported here alone: it serves our tools, asks our gate, and hands over the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from retinue.engines.base import engine_error
from retinue.engines.claude.own_tools import SERVER, our_name, own_name
from retinue.engines.claude.wire import Wire
from retinue.engines.toolbox import Declaration, Toolbox
from retinue.tool_names import FINALIZE
from retinue.types import Code, ToolUse

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient, HookMatcher, McpSdkServerConfig, SdkMcpTool, Transport


class Finalizing:
    """Whether a finalize call was a good one: the run then ends without asking the model again."""

    def __init__(self) -> None:
        self.is_done = False


async def load() -> None:
    """Imports the SDK, which takes most of a second, while others go on."""
    await anyio.to_thread.run_sync(__import__, "claude_agent_sdk")


@asynccontextmanager
async def connected(wire: Wire, toolbox: Toolbox, allowed: Collection[str]) -> AsyncIterator[ClaudeSDKClient | None]:
    """A conversation with the Claude Code at the end of the wire; None if its output ended before it answered.

    It can call the tools of the toolbox, and no others than the allowed ones, by its own names, are executed.

    Raises:
        EngineError: it does not understand the SDK.
    """
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError

    finalizing = Finalizing()
    options = ClaudeAgentOptions(
        mcp_servers={SERVER: _server(toolbox, finalizing)} if toolbox.declarations else {},
        hooks={"PreToolUse": [_gate(frozenset(allowed))], "PostToolUse": [_ending(finalizing)]},
        # A task is text: neither a slash at its beginning nor an @ within it means anything.
        verbatim_prompts=True,
    )
    client = ClaudeSDKClient(options, transport=cast("Transport", wire))
    try:
        is_there = await wire.unless_ended(client.connect)
    except ClaudeSDKError as error:
        raise engine_error(f"Claude Code did not begin: {error}", code=Code.SPAWN_FAILED) from error
    try:
        yield client if is_there else None
    finally:
        await client.disconnect()


def _gate(allowed: frozenset[str]) -> HookMatcher:
    """The last gate: whatever makes a tool available, only granted ones are executed."""
    from claude_agent_sdk import HookMatcher

    async def check(given: Any, _use: str | None, _context: Any) -> Any:
        name = given["tool_name"]
        if name in allowed:
            return {}
        refusal = {"permissionDecision": "deny", "permissionDecisionReason": f"Tool {our_name(name)} not found"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **refusal}}

    return HookMatcher(hooks=[check], on_failure="block")


def _ending(finalizing: Finalizing) -> HookMatcher:
    from claude_agent_sdk import HookMatcher

    async def check(_given: Any, _use: str | None, _context: Any) -> Any:
        return {"continue_": False, "stopReason": "finalized"} if finalizing.is_done else {}

    return HookMatcher(matcher=own_name(FINALIZE), hooks=[check])


def _server(toolbox: Toolbox, finalizing: Finalizing) -> McpSdkServerConfig:
    from claude_agent_sdk import create_sdk_mcp_server

    return create_sdk_mcp_server(SERVER, tools=[_tool(each, toolbox, finalizing) for each in toolbox.declarations])


def _tool(declaration: Declaration, toolbox: Toolbox, finalizing: Finalizing) -> SdkMcpTool[Any]:
    from claude_agent_sdk import tool

    @tool(declaration.name, declaration.description, declaration.schema)
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        outcome = await toolbox.call(ToolUse("", declaration.name, arguments))
        if declaration.name == FINALIZE and not outcome.is_error:
            finalizing.is_done = True
        return {"content": [{"type": "text", "text": outcome.text}], "is_error": outcome.is_error}

    return call
