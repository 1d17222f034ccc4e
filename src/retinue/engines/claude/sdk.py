"""The only module that imports the Claude Agent SDK: it serves our tools, the permission hook and the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from retinue.engines.base import engine_error
from retinue.engines.claude.tools import (
    CALL_ARGUMENT,
    NATIVE_DELEGATION_TOOLS,
    SERVER_NAME,
    TOOL_PREFIX,
    convert_arguments,
    to_mcp_tool_name,
    to_retinue_name,
)
from retinue.engines.claude.wire import ClaudeTransport
from retinue.engines.toolbox import AgentToolbox, ToolSchema
from retinue.model.errors import ErrorCode
from retinue.model.runs import AgentDescription, GateDecision, ToolGate, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL, MCP_PREFIX, SPAWN_TOOL, is_delegation, to_claude_name

if TYPE_CHECKING:
    from claude_agent_sdk import AgentDefinition, ClaudeSDKClient, HookMatcher, McpSdkServerConfig, Transport
    from mcp_types import Tool

GATE_TIMEOUT = 86_400.0
"""Seconds of the permission hook: what decides in it has limits of its own, and a denial needs its reason."""
MAX_RESULT_CHARS = 100_000
"""Characters, more than any of our tools returns; Claude Code moves larger results to a file."""
NATIVE_DELEGATION_REFUSED = (
    f"Claude Code's own subagents are not allowed here, because Retinue could not limit or record them. Use the tool "
    f"{to_mcp_tool_name(SPAWN_TOOL)} instead."
)

START_FAILED = "Claude Code did not start: {}. No model was called. Another version may work: run `retinue doctor`."


class FinalizeState:
    """Whether a finalize call was valid: the run then ends without another model request."""

    def __init__(self) -> None:
        self.is_done = False


async def import_sdk() -> None:
    """Import the SDK, which takes a second or two, in a thread; a stopped run does not wait for it."""
    await anyio.to_thread.run_sync(__import__, "claude_agent_sdk", abandon_on_cancel=True)


@asynccontextmanager
async def connect_client(
    wire: ClaudeTransport,
    toolbox: AgentToolbox,
    allowed: Collection[str],
    agents: Collection[AgentDescription] = (),
    *,
    preapproved: Collection[str] = (),
    gate: ToolGate | None = None,
    servers: Mapping[str, AgentToolbox] = MappingProxyType({}),
) -> AsyncIterator[ClaudeSDKClient | None]:
    """Connect to the Claude Code at the end of the wire; None if its output ended before it answered.

    Claude Code can call the tools of the toolbox, and executes only the allowed tools, given by its own names; the
    `preapproved` ones skip the permission hook, and the gate decides about those it covers. The agents are announced
    to its model. The `servers` are those of the run's agent, with their tools under the names that Claude Code has
    for them.

    Raises:
        EngineError: Claude Code does not understand the SDK.
    """
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    finalizing = FinalizeState()
    # The SDK passes on any hook of Claude Code, but its types list only some of them.
    hooks: Any = {
        "PreToolUse": [_permission_hook(frozenset(allowed), preapproved, gate)],
        "PostToolBatch": [_stop_after_finalize_hook(finalizing)],
    }
    options = ClaudeAgentOptions(
        mcp_servers={
            **({SERVER_NAME: _tool_server(toolbox, finalizing)} if toolbox.schemas else {}),
            **{label: _tool_server(tools, finalizing, label) for label, tools in servers.items()},
        },
        agents={agent.name: _agent_definition(agent) for agent in agents},
        hooks=hooks,
        # The task is plain text: a leading slash or an @ in it has no meaning.
        verbatim_prompts=True,
    )
    client = ClaudeSDKClient(options, transport=cast("Transport", wire))
    try:
        is_connected = await wire.run_unless_ended(client.connect)
    except Exception as error:  # the SDK raises plain exceptions for unexpected answers
        raise engine_error(START_FAILED.format(error), code=ErrorCode.SPAWN_FAILED) from error
    try:
        yield client if is_connected else None
    finally:
        await client.disconnect()


def _agent_definition(agent: AgentDescription) -> AgentDefinition:
    from claude_agent_sdk import AgentDefinition

    # It reads an empty list as "all"; these agents are only announced, as it runs none itself.
    tools = None if agent.tools is None else list(map(to_claude_name, agent.tools)) or ["none"]
    # If one agent has no description, Claude Code rejects all of them.
    return AgentDefinition(agent.description or agent.name, agent.body or agent.name, tools)


async def send_text(client: ClaudeSDKClient, name: str, text: str) -> None:
    """Send a text to the agent while it works; its delivery is reported under this name, a UUID."""

    async def messages() -> AsyncIterator[dict[str, Any]]:
        yield {
            "type": "user",
            "message": {"role": "user", "content": text},
            "parent_tool_use_id": None,
            "uuid": name,
        }

    await client.query(messages())


def _permission_hook(allowed: frozenset[str], preapproved: Collection[str], gate: ToolGate | None) -> HookMatcher:
    """Return the permission hook: whatever makes a tool available, only granted tools are executed.

    Calling the hook takes Claude Code longer than reading a file.
    """
    from claude_agent_sdk import HookMatcher

    async def check(hook_input: Any, use: str | None, _context: Any) -> Any:
        name = hook_input["tool_name"]
        if name not in allowed:
            is_its_own = name in NATIVE_DELEGATION_TOOLS and to_mcp_tool_name(SPAWN_TOOL) in allowed
            reason = NATIVE_DELEGATION_REFUSED if is_its_own else f"Tool {to_retinue_name(name)} not found"
            return _hook_decision(permissionDecision="deny", permissionDecisionReason=reason)
        answer: dict[str, Any] = {}
        arguments = hook_input["tool_input"]
        is_delegating = is_delegation(to_retinue_name(name))
        if is_delegating:
            arguments = convert_arguments(arguments)
        if gate and gate.covers(to_retinue_name(name)):
            decision = await _ask_gate(gate, ToolUse(use or "", name, arguments))
            if decision.denied is not None:
                return _hook_decision(permissionDecision="deny", permissionDecisionReason=decision.denied)
            if decision.args is not None:
                arguments = decision.args
                answer |= {"permissionDecision": "allow", "updatedInput": arguments}
            if decision.context:
                answer["additionalContext"] = decision.context
        if is_delegating:
            answer |= {"permissionDecision": "allow", "updatedInput": {**arguments, CALL_ARGUMENT: use}}
        return _hook_decision(**answer) if answer else {}

    return HookMatcher(
        matcher=_match_all_except(preapproved), hooks=[check], timeout=GATE_TIMEOUT, on_failure="block"
    )


async def _ask_gate(gate: ToolGate, use: ToolUse) -> GateDecision:
    """Return the decision about a call, of one of our own tools in our names."""
    is_own = use.name.startswith(TOOL_PREFIX) or use.name in NATIVE_DELEGATION_TOOLS
    if is_own:
        return await gate.check(ToolUse(use.id, to_retinue_name(use.name), use.args))
    return await gate.check_native(use)


def _match_all_except(tools: Collection[str]) -> str | None:
    """Return the pattern that matches every other tool; None if it matches all."""
    names = [tool for tool in tools if tool.isalnum()]  # valid in every regular expression dialect
    return f"^(?!(?:{'|'.join(names)})$)" if names else None


def _hook_decision(**decision: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def _stop_after_finalize_hook(finalizing: FinalizeState) -> HookMatcher:
    """Stop after a good finalize call, once the other calls of the same message have returned."""
    from claude_agent_sdk import HookMatcher

    async def check(_given: Any, _use: str | None, _context: Any) -> Any:
        return {"continue_": False, "stopReason": "finalized"} if finalizing.is_done else {}

    return HookMatcher(hooks=[check])


def _tool_server(toolbox: AgentToolbox, finalizing: FinalizeState, name: str = SERVER_NAME) -> McpSdkServerConfig:
    """Return the server of our tools, which validate their arguments themselves; or that of another server's tools.

    The SDK's own server would do that by the schemas alone, and a pattern in an output schema may take endless time.
    """
    import mcp_types as types
    from mcp.server import Server

    prefix = "" if name == SERVER_NAME else f"{MCP_PREFIX}{name}__"
    listing = types.ListToolsResult(tools=[_to_mcp_tool(schema, prefix) for schema in toolbox.schemas])

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        return listing

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        use = arguments.pop(CALL_ARGUMENT, "")
        outcome = await toolbox.call(ToolUse(use, f"{prefix}{params.name}", arguments))
        if not prefix and params.name == FINALIZE_TOOL and not outcome.is_error:
            finalizing.is_done = True
        text = types.TextContent(type="text", text=outcome.text)
        images = [types.ImageContent(type="image", data=one.data, mime_type=one.media_type) for one in outcome.images]
        return types.CallToolResult(content=[text, *images], is_error=outcome.is_error)

    server = Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
    return {"type": "sdk", "name": name, "instance": server}


def _to_mcp_tool(schema: ToolSchema, prefix: str) -> Tool:
    import mcp_types as types

    return types.Tool(
        name=schema.name.removeprefix(prefix),
        description=schema.description,
        input_schema=dict(schema.schema),
        # Of the calls in one message, Claude Code runs only those of read-only tools in parallel.
        annotations=types.ToolAnnotations(read_only_hint=not prefix and schema.name != FINALIZE_TOOL),
        _meta={"anthropic/maxResultSizeChars": MAX_RESULT_CHARS},
    )
