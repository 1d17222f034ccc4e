"""Arguments, environment and session of a Claude Code process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from retinue.config.run_environment import write_prompt_files
from retinue.engines.claude.tools import (
    NATIVE_DELEGATION_TOOLS,
    SERVER_NAME,
    list_own_tools,
    to_mcp_tool_name,
    to_retinue_name,
)
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.model.events import Notice
from retinue.model.runs import Limits, RunSpec, process_limits
from retinue.model.tool_names import MCP_PREFIX, is_delegation, is_on_server, to_claude_name

CLAUDE_VARIABLES = {
    # No traffic except to the provider: no telemetry, no updates, no error reports.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # A subagent has no memory.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # A run ends with its answer: background work would be cut off, or end the run twice.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Otherwise our own tools are hidden behind a search for tools.
    "ENABLE_TOOL_SEARCH": "false",
    # Only our agents exist: none of Claude Code's own, and no copies of the run itself.
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS": "1",
    "CLAUDE_CODE_FORK_SUBAGENT": "0",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}
"""Variables set for every child."""

RETRY_VARIABLES = {"CLAUDE_CODE_MAX_RETRIES": "3"}
"""As many as pi makes; Claude Code's ten take minutes to report a wrong key. The user's own number wins."""

THINKING_OFF = "off"
EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""Claude Code's names for the thinking levels."""

OVERRIDE_SETTINGS = msgspec.json.encode({"disableAllHooks": True, "env": CLAUDE_VARIABLES}).decode()
"""Settings that override loaded ones: no hooks but our permission hook, and the switches as set here."""

API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
"""The variable Claude Code reads its key from, and the one a spec keeps its agent's key in."""


def build_command(spec: RunSpec, program: str, folder: Path, *, session: str, resumes: bool) -> ChildCommand:
    """Return the command of a process for this run; `folder` holds what is too long or too private for arguments."""
    prompts = {"--system-prompt-file": spec.system_prompt, "--append-system-prompt-file": spec.append_prompt}
    served = [*([SERVER_NAME] if list_own_tools(spec) else []), *list_server_labels(spec)]
    servers = {name: {"type": "sdk", "name": name} for name in served}
    # Which tools these servers have is known once they have started; the permission hook allows those only.
    allowed = [*list_allowed_tools(spec), *(f"{MCP_PREFIX}{label}" for label in list_server_labels(spec))]
    arguments = [
        *("--output-format", "stream-json", "--input-format", "stream-json"),
        *("--verbose", "--include-partial-messages"),
        # Without settings, no servers, plugins, skills or CLAUDE.md of the user are loaded.
        *(
            f"--setting-sources={','.join(list_setting_sources(spec))}",
            "--settings",
            OVERRIDE_SETTINGS,
            "--strict-mcp-config",
        ),
        *("--mcp-config", msgspec.json.encode({"mcpServers": servers}).decode()),
        # The tools that exist, and those allowed without asking; others are refused, since nobody can be asked.
        *("--tools", ",".join([*list_builtin_tools(spec), *(NATIVE_DELEGATION_TOOLS if spec.delegation else ())])),
        *("--permission-mode", "dontAsk", "--allowedTools", ",".join(allowed)),
        f"--resume={session}" if resumes else f"--session-id={session}",
        *write_prompt_files(folder, prompts),
        *_preference_arguments(spec),
    ]
    start = (program, *arguments)
    return ChildCommand(
        argv=start,
        cwd=spec.cwd,
        environ=_build_environment(spec),
        stdin=StdinMode.PIPE,
        private_streams=True,
        limits=process_limits(spec.limits),
    )


def list_setting_sources(spec: RunSpec) -> tuple[str, ...]:
    """Return the setting sources to load; none if the agent may not have everything they add."""
    agent = spec.agent
    return () if agent.no_context_files or agent.no_skills or agent.no_extensions else spec.setting_sources


def list_unapplied_preferences(spec: RunSpec) -> Iterator[Notice]:
    """Yield a notice on each preference that is not applied."""
    if spec.setting_sources and not list_setting_sources(spec):
        message = (
            "Claude Code's settings are not loaded (claude_settings): tools and instructions from them may be "
            "missing."
        )
        yield Notice("not_applied", message)
    thinking = spec.agent.thinking
    if thinking and thinking != THINKING_OFF and thinking not in EFFORTS:
        known = ", ".join((THINKING_OFF, *EFFORTS))
        message = f"Claude Code has no thinking level {thinking!r} (it has: {known}); its default is used."
        yield Notice("not_applied", message, preference="thinking")


def list_builtin_tools(spec: RunSpec) -> list[str]:
    """Return the granted tools that are Claude Code's own, by its names."""
    own, labels = list_own_tools(spec), list_server_labels(spec)
    return [
        to_claude_name(tool)
        for tool in spec.grant.tools
        if tool not in own and not is_delegation(tool) and not any(is_on_server(tool, label) for label in labels)
    ]


def list_allowed_tools(spec: RunSpec) -> list[str]:
    """Return all tools the run may use, by Claude Code's names, but those of the MCP servers of its agent."""
    return [*list_builtin_tools(spec), *map(to_mcp_tool_name, list_own_tools(spec))]


def list_server_labels(spec: RunSpec) -> tuple[str, ...]:
    """Return the MCP servers of the run's agent. Claude Code sees them as servers of this process."""
    return spec.tool_servers.labels if spec.tool_servers else ()


def list_preapproved_tools(spec: RunSpec) -> list[str]:
    """Return the allowed tools that skip the permission hook: without settings only granted tools exist."""
    if list_setting_sources(spec):
        return []
    gate = spec.gate
    return [tool for tool in list_builtin_tools(spec) if gate is None or not gate.covers(to_retinue_name(tool))]


def find_cost_limit(limits: Limits) -> tuple[float, str] | None:
    """Return the cost at which Claude Code must stop, and its setting: it alone knows the cost during a run."""
    bounds = ((limits.max_cost, "max_cost"), (limits.max_conversation_cost, "max_conversation_cost"))
    return min(((dollars, name) for dollars, name in bounds if dollars), default=None)


def _preference_arguments(spec: RunSpec) -> list[str]:
    arguments = []
    if spec.model:
        # pi's spelling.
        arguments.append(f"--model={spec.model.removeprefix('anthropic/')}")
    if effort := EFFORTS.get(spec.agent.thinking or ""):
        arguments += ["--effort", effort]
    if spec.agent.thinking == THINKING_OFF:
        arguments += ["--thinking", "disabled"]
    if bound := find_cost_limit(spec.limits):
        arguments += ["--max-budget-usd", f"{bound[0]:f}"]
    if spec.agent.no_skills:
        arguments.append("--disable-slash-commands")
    return arguments


def _build_environment(spec: RunSpec) -> dict[str, str]:
    secrets = {name: secret.reveal() for name, secret in spec.secrets.items()}
    key = secrets.pop(API_KEY_VARIABLE, None)
    # Keys of other providers are not passed on.
    given = {API_KEY_VARIABLE: key} if key and spec.agent.provider in {None, "anthropic"} else {}
    return {**RETRY_VARIABLES, **spec.environment, **secrets, **given, **CLAUDE_VARIABLES}
