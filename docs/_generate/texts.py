"""Texts of the reference pages that are not in the code: meanings of failures, agent keys and fields."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from retinue.model.errors import ErrorCode


class FailureText(Struct, frozen=True, kw_only=True):
    """The description of a failure, with what to do."""

    happened: str
    do: str
    refuses: bool = False
    """Whether it refuses the whole call, with any number of tasks."""


FAILURES: Mapping[ErrorCode, FailureText] = {
    ErrorCode.INVALID_INPUT: FailureText(
        happened="The input is invalid: an empty task, too many tasks, a bad `cwd`, a timeout below a second.",
        do="Correct what the message names.",
    ),
    ErrorCode.DISABLED: FailureText(
        happened="The setting `enabled` is off.",
        do="Set it to true; `retinue doctor` shows where it was set.",
        refuses=True,
    ),
    ErrorCode.UNKNOWN_AGENT: FailureText(
        happened="No agent of this name was found.",
        do="Run `retinue agents`; it also lists files that cannot be used, with the reason.",
    ),
    ErrorCode.AGENT_DISABLED: FailureText(
        happened="The agent is disabled, or `project_agents` forbids the project's own agents.",
        do="Remove `enabled: false` from its file, or change `project_agents`.",
    ),
    ErrorCode.AGENT_UNTRUSTED: FailureText(
        happened="The agent belongs to the project and has not been approved, or has changed since you approved it.",
        do="Review it and run `retinue agents trust NAME`.",
    ),
    ErrorCode.UNKNOWN_ENGINE: FailureText(
        happened="No engine has this name.",
        do="Choose one of the engines in the message; `retinue doctor` shows them.",
    ),
    ErrorCode.UNKNOWN_SKILL: FailureText(
        happened="The agent names a skill that was not found, or a skill of the project that this agent may not use.",
        do="Correct the name; the message lists the available skills. See [skills](../agents.md#skills).",
    ),
    ErrorCode.CONFLICT: FailureText(
        happened="A contradiction: an allow list and a deny list in one file, a forbidden extra argument, one "
        "session named by two tasks, or a run that delegates its own task.",
        do="Change what the message names.",
    ),
    ErrorCode.UNSUPPORTED: FailureText(
        happened="The engine lacks a tool that the agent needs, cannot enforce a restriction, or cannot continue a "
        "session.",
        do="Choose another engine, move the tool to `optional_tools`, or remove the restriction.",
    ),
    ErrorCode.DEPTH_EXCEEDED: FailureText(
        happened="The caller is already at depth `max_depth`.",
        do="Do the work without delegating, or raise `max_depth`.",
        refuses=True,
    ),
    ErrorCode.SPAWN_LIMIT: FailureText(
        happened="The agents below one root call have started `max_spawns` runs.",
        do="Do the rest without delegating, or raise `max_spawns` in your `config.toml`.",
        refuses=True,
    ),
    ErrorCode.SESSION_NOT_FOUND: FailureText(
        happened="No session has this id.",
        do="Run `retinue sessions list`; the first 8 digits of an id are enough.",
        refuses=True,
    ),
    ErrorCode.SESSION_BUSY: FailureText(
        happened="A run of this session is in progress.",
        do="Wait for it, or run `retinue cancel ID`.",
        refuses=True,
    ),
    ErrorCode.TIMEOUT: FailureText(
        happened="The run exceeded its timeout and its extensions.",
        do="Resume the session with a longer timeout.",
    ),
    ErrorCode.IDLE_TIMEOUT: FailureText(
        happened="Nothing happened for `idle_timeout` seconds while no tool was running.",
        do="Resume the session, or raise `idle_timeout`.",
    ),
    ErrorCode.LOOP: FailureText(
        happened="The agent repeated a tool call, a pattern of calls with unchanged results, or the same text.",
        do="Make the task more precise, or raise `looping_tool_count`, `looping_pair_count`, `looping_pattern_count` "
        "or `looping_text_count`.",
    ),
    ErrorCode.BUDGET: FailureText(
        happened="The turns, tokens or dollars of the run were spent before a final answer.",
        do="Resume the session, or raise `max_turns`, `max_tokens`, `max_cost` or the limits of the conversation.",
    ),
    ErrorCode.OUTPUT_LIMIT: FailureText(
        happened="The child process wrote more than 64 MiB of output or errors, or more than 1 GiB in total.",
        do="Split the task.",
    ),
    ErrorCode.NOT_FINALIZED: FailureText(
        happened="The agent ended without a valid `subagent_finalize` call (needed by `sticky` and output schemas).",
        do="Resume the session.",
    ),
    ErrorCode.PROVIDER: FailureText(
        happened="The model's provider failed, after all retries and fallback models. `reason` is "
        "`rate_limit`, `quota`, `auth`, `model_unavailable`, `network`, `overloaded`, `server_error`, "
        "`context_overflow`, `refused`, `bad_request` or `other`.",
        do="Try again later, give the agent `fallback_models`, or correct the key.",
    ),
    ErrorCode.ENGINE: FailureText(
        happened="The engine itself failed or crashed, or the processes of the run exceeded a limit: `reason` is "
        "`resource_limit`.",
        do="Read the message. Other runs were not affected.",
    ),
    ErrorCode.SPAWN_FAILED: FailureText(
        happened="The engine could not be started: something it needs is missing, or no engine with a language "
        "model is ready and `offline` was not requested.",
        do="Run `retinue doctor`; it shows every engine and what it lacks.",
    ),
    ErrorCode.SIGNALLED: FailureText(
        happened="The child process was ended by a signal that Retinue did not send.",
        do="Find the sender of the signal; the system sends one when memory runs out.",
    ),
    ErrorCode.ABORTED: FailureText(
        happened="The run was cancelled by you or by the calling program.",
        do="Resume the session to continue.",
    ),
    ErrorCode.INTERRUPTED: FailureText(
        happened="The process that carried out the run ended before the run did.",
        do="Resume the session; it has everything up to that point.",
    ),
    ErrorCode.STORAGE: FailureText(
        happened="The record of a session cannot be read or locked, so it cannot be continued.",
        do="Fix what the message names: a full disk, permissions, a record of a newer version.",
    ),
}

UNUSED = "Accepted and shown; no run uses it."
"""Added to the meaning of a key that no code uses."""
RESERVED = "Reserved: nothing reports it yet."
"""Added to the meaning of a code that no code reports."""

KEYS: Mapping[str, str] = {
    "name": "The agent's name. Default: the name of the file, which is reported.",
    "description": "One sentence about its purpose, by which other agents choose; the prompt if there is no body.",
    "tools": "The tools it may use. Without it, or with `*`, the caller's tools; `none` for no tools.",
    "denied_tools": "Tools removed from the inherited ones. A conflict if `tools` is set, except in Claude Code's "
    "files, where they are removed from `tools`.",
    "optional_tools": "Tools it uses if the engine has them.",
    "readonly": "Only tools that read, regardless of the lists.",
    "no_tools": "No tools at all, regardless of the lists.",
    "grants": "The tools that its child runs may have at most.",
    "delegates": "Enables [delegation](../agents.md#agents-that-delegate), as `subagent` in `tools` does.",
    "enabled": "`false` disables the agent.",
    "disabled": "`true` disables the agent.",
    "engine": "The engine, unless the call names another.",
    "provider": "The model provider, by the engine's name for it.",
    "model": "The model, by the engine's name for it. Default, and with `inherit`: the engine's default.",
    "fallback_models": "The models to try next on rate limit, quota, authentication, an unavailable model or network "
    "errors.",
    "thinking": "Reasoning effort of the model.",
    "sandbox": "The least its runs are confined; the user's setting may be stricter.",
    "append_system_prompt": "Added at the end of the system prompt.",
    "extensions": "Extensions to load; `false` or `none` means `no_extensions`.",
    "no_extensions": "No extensions. Refused on engines that cannot enforce it.",
    "load_skills": "[Skills](../agents.md#skills) whose text goes into the system prompt.",
    "suggested_skills": "Skills of which only name, description and file go into the system prompt.",
    "no_skills": "No skills; a conflict with the two keys above.",
    "no_context_files": "No context files of the project. Refused on engines that cannot enforce it.",
    "extra_args": "Arguments for the engine's program. Only options that restrict it or add output are allowed.",
    "title": "A name to show, which need not be callable.",
    "allowed_subagents": "The only agents it may delegate to, as `Agent(explorer, tester)` in `tools` says, too.",
    "isolation": "`worktree`: its runs work in a [git worktree](../worktrees.md) of their own.",
    "hooks": "Commands that are run before its tool calls, at its start and at its end; see [hooks](../hooks.md).",
    "environment": "Names of environment variables that its process gets beside the [usual ones](../engines.md).",
    "mcp_servers": "[MCP servers](../mcp-servers.md) whose tools it may have.",
    "api_key": "A key for the provider. Ignored in a project's file; never printed.",
    "timeout": "The time limit of a run.",
    "timeout_ms": "The time limit in milliseconds.",
    "max_turns": "The maximum number of assistant messages of a run.",
    "max_subagent_depth": "The depth limit for its child runs, if lower than `max_depth`.",
    "output": "A file for its answer.",
    "output_schema": "JSON Schema that its results must match: YAML, or JSON text.",
    "default_reads": "Files that are put before every task, relative to the working directory.",
    "default_progress": "Whether it reports progress. It always does.",
    "color": "Its display color.",
    "avatar_emoji": "Its display emoji.",
}
"""By the first spelling."""

VALUES: Mapping[str, str] = {
    "parse_text": "text",
    "parse_optional_text": "text, or `none`",
    "parse_model": "text, or `inherit`",
    "parse_secret": "text",
    "parse_flag": "`true` or `false`",
    "parse_sandbox": "`off`, `workspace` or `strict`",
    "parse_thinking": "`off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
    "parse_subagents": "names, or `*`",
    "parse_isolation": "`worktree` or `none`",
    "parse_hooks": "[hooks](../hooks.md)",
    "parse_names": "names",
    "parse_mcp_servers": "names of configured servers, or definitions",
    "parse_json_object": "a JSON Schema",
    "parse_arguments": "a list, or a text with commas",
    "parse_tool_list": "tools, or `none`",
    "parse_allow_list": "tools, `none` or `*`",
}
"""The values of agent keys, by the name of their parser."""

VALUES_BY_KEY: Mapping[str, str] = {
    "disabled": "`true` or `false`",
    "timeout": "seconds, at most a week",
    "timeout_ms": "milliseconds, at most a week",
    "max_turns": "1 to 10000",
    "max_subagent_depth": "0 to 64",
}
"""The values of agent keys whose parser has no name of its own."""

FIELDS: Mapping[str, str] = {
    "EventSource.run": "Id of the run: 32 hex digits. The first run of a session has the session's id.",
    "EventSource.session": "Id of the session the run belongs to.",
    "EventSource.root": "Id of the root conversation: all runs that one process or caller started.",
    "EventSource.parent_run": "The run that started this one; null at depth 1.",
    "EventSource.parent_tool_use_id": "The tool call that started it; never empty.",
    "EventSource.depth": "1 for a run that no other run started.",
    "RunQueued.name": "The display name of the run.",
    "RunQueued.agent": "The agent.",
    "RunQueued.task": "The task, as the caller wrote it.",
    "RunQueued.cwd": "The working directory.",
    "RunQueued.surface": "The toolset whose defaults apply.",
    "RunQueued.engine": "The engine.",
    "RunQueued.model": "The requested model.",
    "RunQueued.timeout": "The timeout in seconds.",
    "RunQueued.tools": "The granted tools.",
    "RunQueued.resumes": "Whether it continues a session.",
    "RunQueued.vault": "The user's vault, in which its start and end are also logged.",
    "RunQueued.layer": "The layer of the agent's definition.",
    "RunQueued.digest": "SHA-256 of the agent's file.",
    "RunQueued.provider": "The requested provider.",
    "RunQueued.thinking": "The requested level of thinking.",
    "AttemptStarted.number": "Counts from 1.",
    "AttemptStarted.reason": "`first`, `retry`, `fallback` or `finalize`.",
    "AttemptStarted.model": "The model of this attempt.",
    "TextDelta.text": "The next piece of a text block.",
    "ThinkingDelta.text": "The next piece of a thinking block.",
    "ToolDelta.call": "Id of the tool call.",
    "ToolDelta.text": "Its output since the last delta.",
    "OutputBytesCounted.stderr": "Bytes of error output.",
    "OutputBytesCounted.raw": "All bytes.",
    "ProcessUsageCounted.usage": "CPU time and memory; of a process that continues since the last count.",
    "Thinking.text": "One whole thinking block.",
    "Text.text": "The block.",
    "ToolCalled.call": "Id of the call, unique within the run.",
    "ToolCalled.name": "The tool.",
    "ToolCalled.args": "Its arguments, as the model gave them.",
    "ToolReturned.call": "Id of the call it answers.",
    "ToolReturned.name": "The tool.",
    "ToolReturned.text": "The result as the model sees it.",
    "ToolReturned.is_error": "Whether the tool failed.",
    "MessageEnded.role": "Always `assistant`.",
    "MessageEnded.stop_reason": "Why the model stopped.",
    "MessageEnded.model": "The model that wrote it.",
    "MessageEnded.usage": "Its usage.",
    "ModelChanged.before": "The model that failed.",
    "ModelChanged.after": "The next model.",
    "ModelChanged.reason": "The reason, such as `rate_limit`.",
    "SteeringDelivered.text": "The message, redacted.",
    "DeadlineExtended.seconds": "The seconds that were added.",
    "Notice.code": "The kind of notice, such as `storage` or `stopped_after_answer`.",
    "Notice.message": "The text of the notice.",
    "Compaction.summary": "The summary that replaces earlier messages, redacted.",
    "Finalized.finalization": "The outcome that the agent reported.",
    "ProcessEnded.end": "How the process ended.",
    "RunEnded.text": "The answer, or the part that was written.",
    "RunEnded.answer": "The kind of text.",
    "RunEnded.failure": "The failure; absent if the run is completed.",
    "RunEnded.exit_code": "0 only if the run is completed.",
    "RunEnded.usage": "Summed over its messages and attempts.",
    "RunEnded.elapsed": "Seconds from `run_started`.",
    "RunEnded.finalized": "The outcome that the agent reported.",
    "RunEnded.actual": "The report of the execution.",
    "ExecutionReport.engine": "The engine that executed the run.",
    "ExecutionReport.declared_model": "The requested model.",
    "ExecutionReport.tools_granted": "The granted tools.",
    "ExecutionReport.tools_removed": "Tools of the agent that were removed.",
    "ExecutionReport.tools_missing": "Optional tools that the engine does not have.",
    "ExecutionReport.tools_used": "The number of calls of each tool.",
    "ExecutionReport.not_applied": "Preferences that the engine did not apply.",
    "ExecutionReport.limits": "The limits in force.",
    "ExecutionReport.attempts": "All attempts.",
    "ExecutionReport.nested_usage": "Usage of child runs; not part of its own usage.",
    "ExecutionReport.dropped_bytes": "Bytes of output that were not kept.",
    "ExecutionReport.process": "How the child process ended; null without one.",
    "ProcessUsage.cpu_seconds": "Seconds of user and system time.",
    "ExecutionReport.notices": "Notices that did not end the run.",
    "Attempt.number": "Counts from 1.",
    "Attempt.model": "The model of the attempt.",
    "Attempt.failure": "The failure; null if there was none.",
    "Failure.code": "The kind of failure.",
    "Failure.message": "What happened, what was kept and what to do next.",
    "Usage.input": "Tokens read.",
    "Usage.output": "Tokens written.",
    "Usage.cache_read": "Tokens read from the provider's cache.",
    "Usage.cache_write": "Tokens written to the provider's cache.",
    "Usage.turns": "Assistant messages.",
    "Limits.timeout": "The timeout in seconds.",
    "Limits.idle_timeout": "Seconds without an event while no tool runs.",
    "Limits.loop_count": "Identical tool calls in a row that count as a loop.",
    "Limits.pair_count": "Unchanged pairs of calls that count as a loop.",
    "Limits.pattern_count": "Calls that differ only in a number or an id and return the same, which count as a loop.",
    "Limits.text_count": "Times an agent writes the same text that count as a loop.",
    "Limits.max_turns": "Assistant messages.",
    "Limits.max_tokens": "Tokens of all kinds together.",
    "Limits.max_cost": "Dollars.",
    "Limits.max_conversation_tokens": "Tokens of all runs of the conversation together.",
    "Limits.max_conversation_cost": "Dollars of all runs of the conversation together.",
    "Limits.stdout_bytes": "Bytes of output that are kept.",
    "Limits.stderr_bytes": "Bytes of error output.",
    "Limits.finalize_retries": "How often the agent is asked again for a missing finalization.",
    "RemovedTool.tool": "The tool.",
    "RemovedTool.by": "`denied`, `readonly`, `no_tools`, `allow_write`, `authority`, `engine`, `depth` or `home`.",
    "Finalization.status": "Whether the agent reported success.",
    "Finalization.result": "What it found.",
    "Finalization.error": "What went wrong.",
    "ExecutionReport.worktree": "The changes in its git worktree; null without one, or if nothing was changed.",
    "WorktreeChanges.path": "The folder of the worktree.",
    "WorktreeChanges.branch": "The branch with the changes.",
    "WorktreeChanges.base": "The commit that the worktree started from.",
    "WorktreeChanges.head": "The commit with the changes.",
    "WorktreeChanges.files": "Number of changed files.",
    "WorktreeChanges.insertions": "Number of added lines.",
    "WorktreeChanges.deletions": "Number of deleted lines.",
    "WorktreeChanges.patch_file": "A file with the changes as a patch.",
    "ProcessEnd.code": "Its exit code.",
    "ProcessEnd.signal": "The signal that ended it.",
    "ProcessEnd.out_of_memory": "Whether the kernel killed a process for lack of memory when it was killed.",
    "ProcessEnd.stderr": "The end of what it wrote to stderr, if it failed or ended before its agent was done.",
}
"""Of values on the wire, where the code leaves it to the field's name."""
