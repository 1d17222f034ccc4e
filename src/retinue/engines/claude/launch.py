"""How Claude Code is started for a run: its arguments, its environment, its session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from retinue.engines.child_environment import write_prompt_files
from retinue.engines.claude.tools import NATIVE_DELEGATION_TOOLS, SERVER_NAME, list_own_tools, to_mcp_tool_name
from retinue.engines.process.child import ChildCommand, StdinMode
from retinue.model.runs import Limits, RunSpec
from retinue.model.tool_names import is_delegation, to_claude_name

CLAUDE_VARIABLES = {
    # Nothing is asked of anyone but the provider: no telemetry, no updates, no error reports.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # An agent seen as a subagent has no memory.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # A run ends with its answer: what goes on behind it would be cut off, or end it twice.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Else our own tools stand behind a search for tools, and are not offered.
    "ENABLE_TOOL_SEARCH": "false",
    # The agents there are, are ours: none of Claude Code's own, and no copies of the run itself.
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS": "1",
    "CLAUDE_CODE_FORK_SUBAGENT": "0",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}
"""What every child is told."""

RETRY_VARIABLES = {"CLAUDE_CODE_MAX_RETRIES": "3"}
"""As pi has it; Claude Code's own ten take minutes to say that a key is wrong. The user's own number wins."""

THINKING_OFF = "off"
EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""What Claude Code calls the levels of thinking."""

OVERRIDE_SETTINGS = msgspec.json.encode({"disableAllHooks": True, "env": CLAUDE_VARIABLES}).decode()
"""Settings that win over those that are loaded: no hooks but our own gate, and the switches as they are here."""

API_KEY_VARIABLE, AGENT_KEY_SECRET = "ANTHROPIC_API_KEY", "PI_API_KEY"
"""Where Claude Code looks for a key, and where a spec has that of its agent."""


def build_command(spec: RunSpec, program: str, folder: Path, *, session: str, resumes: bool) -> ChildCommand:
    """A process for this run alone. `folder` is one of its own, for what is too long or too private for arguments."""
    prompts = {"--system-prompt-file": spec.system_prompt, "--append-system-prompt-file": spec.append_prompt}
    servers = {SERVER_NAME: {"type": "sdk", "name": SERVER_NAME}} if list_own_tools(spec) else {}
    arguments = [
        *("--output-format", "stream-json", "--input-format", "stream-json"),
        *("--verbose", "--include-partial-messages"),
        # Where nobody's settings are read, no servers, plugins, skills or CLAUDE.md of theirs are loaded.
        *(
            f"--setting-sources={','.join(list_setting_sources(spec))}",
            "--settings",
            OVERRIDE_SETTINGS,
            "--strict-mcp-config",
        ),
        *("--mcp-config", msgspec.json.encode({"mcpServers": servers}).decode()),
        # What exists, and what needs no leave; all else is refused, since nobody is there to be asked.
        *("--tools", ",".join([*list_builtin_tools(spec), *(NATIVE_DELEGATION_TOOLS if spec.callback else ())])),
        *("--permission-mode", "dontAsk", "--allowedTools", ",".join(list_allowed_tools(spec))),
        f"--resume={session}" if resumes else f"--session-id={session}",
        *write_prompt_files(folder, prompts),
        *_preference_arguments(spec),
    ]
    start = (program, *arguments)
    return ChildCommand(
        argv=start, cwd=spec.cwd, environ=_build_environment(spec), stdin=StdinMode.PIPE, late_fork=True
    )


def list_setting_sources(spec: RunSpec) -> tuple[str, ...]:
    """Whose settings are loaded: nobody's where the agent may not have all that they bring."""
    agent = spec.agent
    return () if agent.no_context_files or agent.no_skills or agent.no_extensions else spec.setting_sources


def list_unapplied_preferences(spec: RunSpec) -> Iterator[str]:
    """What is wished for and cannot be had, each as a sentence."""
    if spec.setting_sources and not list_setting_sources(spec):
        yield "Claude Code's settings are not loaded (claude_settings): the agent may not have what they bring."
    thinking = spec.agent.thinking
    if thinking and thinking != THINKING_OFF and thinking not in EFFORTS:
        known = ", ".join((THINKING_OFF, *EFFORTS))
        yield f"Claude Code has no thinking level {thinking!r} (it has: {known}): its own default is used."


def list_builtin_tools(spec: RunSpec) -> list[str]:
    """The granted tools that are Claude Code's own, by its names."""
    own = list_own_tools(spec)
    return [to_claude_name(tool) for tool in spec.grant.tools if tool not in own and not is_delegation(tool)]


def list_allowed_tools(spec: RunSpec) -> list[str]:
    """All that a run may use, by Claude Code's names."""
    return [*list_builtin_tools(spec), *map(to_mcp_tool_name, list_own_tools(spec))]


def list_preapproved_tools(spec: RunSpec) -> list[str]:
    """Those of them that need no word of ours: where nobody's settings are loaded, only granted ones exist."""
    return [] if list_setting_sources(spec) else list_builtin_tools(spec)


def find_cost_limit(limits: Limits) -> tuple[float, str] | None:
    """The dollars at which Claude Code breaks a run off, as nobody else knows them before its end; their setting."""
    bounds = ((limits.max_cost, "max_cost"), (limits.max_conversation_cost, "max_conversation_cost"))
    return min(((dollars, name) for dollars, name in bounds if dollars), default=None)


def _preference_arguments(spec: RunSpec) -> list[str]:
    arguments = []
    if spec.model:
        # As pi spells it.
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
    key = secrets.pop(AGENT_KEY_SECRET, None)
    # The key of another provider is not shown to this one.
    given = {API_KEY_VARIABLE: key} if key and spec.agent.provider in {None, "anthropic"} else {}
    return {**RETRY_VARIABLES, **spec.environment, **secrets, **given, **CLAUDE_VARIABLES}
