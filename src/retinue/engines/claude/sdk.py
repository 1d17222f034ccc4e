"""The Claude Agent SDK, imported here alone: it serves our tools, asks our gate, and hands over the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from retinue.engines.base import engine_error
from retinue.engines.calling_home import KnownAgent
from retinue.engines.claude.delegating import CALL, NATIVE, SPAWN, as_ours
from retinue.engines.claude.own_tools import SERVER, our_name, own_name
from retinue.engines.claude.wire import Wire
from retinue.engines.toolbox import Declaration, Toolbox
from retinue.tool_names import FINALIZE, claude_name, is_delegation
from retinue.types import Code, ToolUse

if TYPE_CHECKING:
    from claude_agent_sdk import (
        AgentDefinition,
        ClaudeSDKClient,
        HookMatcher,
        McpSdkServerConfig,
        SdkMcpTool,
        Transport,
    )

MOST_RESULT = 100_000
"""Characters, more than a tool of ours ever answers; what Claude Code takes for too much it puts aside in a file."""
NOT_HANDED_OVER = f"This Claude Code would run agents by itself, uncounted. Use the tool {own_name(SPAWN)} instead."

DID_NOT_BEGIN = (
    "Claude Code did not begin: {}. Nothing was asked of a model. Another version of it may do: see `retinue doctor`."
)


class Finalizing:
    """Whether a finalize call was a good one: the run then ends without asking the model again."""

    def __init__(self) -> None:
        self.is_done = False


async def load() -> None:
    """Imports the SDK, which takes a second or two, while others go on; a stopped run does not wait for it."""
    await anyio.to_thread.run_sync(__import__, "claude_agent_sdk", abandon_on_cancel=True)


@asynccontextmanager
async def connected(
    wire: Wire,
    toolbox: Toolbox,
    allowed: Collection[str],
    agents: Collection[KnownAgent] = (),
    *,
    unasked: Collection[str] = (),
) -> AsyncIterator[ClaudeSDKClient | None]:
    """A conversation with the Claude Code at the end of the wire; None if its output ended before it answered.

    It can call the tools of the toolbox, and no others than the allowed ones, by its own names, are executed; of the
    `unasked` among them it knows that by itself. The agents are announced to its model.

    Raises:
        EngineError: it does not understand the SDK.
    """
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    finalizing = Finalizing()
    # The SDK passes any hook of Claude Code on, but its types list only some of them.
    hooks: Any = {"PreToolUse": [_gate(frozenset(allowed), unasked)], "PostToolBatch": [_ending(finalizing)]}
    options = ClaudeAgentOptions(
        mcp_servers={SERVER: _server(toolbox, finalizing)} if toolbox.declarations else {},
        agents={agent.name: _definition(agent) for agent in agents},
        hooks=hooks,
        # A task is text: neither a slash at its beginning nor an @ within it means anything.
        verbatim_prompts=True,
    )
    client = ClaudeSDKClient(options, transport=cast("Transport", wire))
    try:
        is_there = await wire.unless_ended(client.connect)
    except Exception as error:  # what a program answers, or does not, the SDK raises as plain ones, too
        raise engine_error(DID_NOT_BEGIN.format(error), code=Code.SPAWN_FAILED) from error
    try:
        yield client if is_there else None
    finally:
        await client.disconnect()


def _definition(agent: KnownAgent) -> AgentDefinition:
    from claude_agent_sdk import AgentDefinition

    # An empty list it takes for all; these are only announced, as it runs none of its agents itself.
    tools = None if agent.tools is None else list(map(claude_name, agent.tools)) or ["none"]
    # One of them without words, and Claude Code takes none of them.
    return AgentDefinition(agent.description or agent.name, agent.body or agent.name, tools)


async def say(client: ClaudeSDKClient, name: str, text: str) -> None:
    """Says something to the agent while it works; what becomes of it is told by this name, a UUID."""

    async def one() -> AsyncIterator[dict[str, Any]]:
        yield {
            "type": "user",
            "message": {"role": "user", "content": text},
            "parent_tool_use_id": None,
            "uuid": name,
        }

    await client.query(one())


def _gate(allowed: frozenset[str], unasked: Collection[str]) -> HookMatcher:
    """The last gate: whatever makes a tool available, only granted ones are executed.

    To ask it takes Claude Code longer than reading a file does.
    """
    from claude_agent_sdk import HookMatcher

    async def check(given: Any, use: str | None, _context: Any) -> Any:
        name = given["tool_name"]
        if name not in allowed:
            is_its_own = name in NATIVE and own_name(SPAWN) in allowed
            reason = NOT_HANDED_OVER if is_its_own else f"Tool {our_name(name)} not found"
            return _decided(permissionDecision="deny", permissionDecisionReason=reason)
        if is_delegation(our_name(name)):
            return _decided(permissionDecision="allow", updatedInput={**as_ours(given["tool_input"]), CALL: use})
        return {}

    return HookMatcher(matcher=_all_but(unasked), hooks=[check], on_failure="block")


def _all_but(tools: Collection[str]) -> str | None:
    """The pattern of every other tool; None: of all."""
    names = [tool for tool in tools if tool.isalnum()]  # in whatever language of patterns
    return f"^(?!(?:{'|'.join(names)})$)" if names else None


def _decided(**decision: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def _ending(finalizing: Finalizing) -> HookMatcher:
    """Stop after a good finalize call, once the other calls of the same message have returned."""
    from claude_agent_sdk import HookMatcher

    async def check(_given: Any, _use: str | None, _context: Any) -> Any:
        return {"continue_": False, "stopReason": "finalized"} if finalizing.is_done else {}

    return HookMatcher(hooks=[check])


def _server(toolbox: Toolbox, finalizing: Finalizing) -> McpSdkServerConfig:
    from claude_agent_sdk import create_sdk_mcp_server

    return create_sdk_mcp_server(SERVER, tools=[_tool(each, toolbox, finalizing) for each in toolbox.declarations])


def _tool(declaration: Declaration, toolbox: Toolbox, finalizing: Finalizing) -> SdkMcpTool[Any]:
    from claude_agent_sdk import ToolAnnotations, tool

    # Of the calls of one message, Claude Code carries out only those of tools that read side by side.
    treated = ToolAnnotations(readOnlyHint=declaration.name != FINALIZE, maxResultSizeChars=MOST_RESULT)

    @tool(declaration.name, declaration.description, declaration.schema, treated)
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        use = arguments.pop(CALL, "")
        outcome = await toolbox.call(ToolUse(use, declaration.name, arguments))
        if declaration.name == FINALIZE and not outcome.is_error:
            finalizing.is_done = True
        return {"content": [{"type": "text", "text": outcome.text}], "is_error": outcome.is_error}

    return call
