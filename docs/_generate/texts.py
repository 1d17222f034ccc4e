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
        happened="The call is wrong: a missing or empty task, too many tasks, a bad `cwd`, a timeout below a second.",
        do="Correct what the message names.",
    ),
    ErrorCode.DISABLED: FailureText(
        happened="The setting `enabled` is off.",
        do="Set it to true; `retinue doctor` shows where it was set.",
        refuses=True,
    ),
    ErrorCode.UNKNOWN_AGENT: FailureText(
        happened="No agent of this name is found from here.",
        do="Look at `retinue agents`. A file that could not be used is named there with the reason.",
    ),
    ErrorCode.AGENT_DISABLED: FailureText(
        happened="The agent is switched off, or `project_agents` forbids the project's own agents.",
        do="Remove `enabled: false` from its file, or change `project_agents`.",
    ),
    ErrorCode.AGENT_UNTRUSTED: FailureText(
        happened="The agent is the project's own and has not been accepted, or has changed since you accepted it.",
        do="`retinue agents trust NAME`.",
    ),
    ErrorCode.UNKNOWN_ENGINE: FailureText(
        happened="There is no engine of this name.",
        do="Choose one that the message lists; `retinue doctor` shows them.",
    ),
    ErrorCode.UNKNOWN_SKILL: FailureText(
        happened="The agent names a skill that is not found, or one of the project's that it is not given unasked.",
        do="Correct the name; the message lists the skills there are. See [skills](../agents.md#skills).",
    ),
    ErrorCode.CONFLICT: FailureText(
        happened="Two things contradict each other: an allow list and a deny list in one file, a forbidden extra "
        "argument, one session named by two tasks, or a task handed on with little changed.",
        do="Keep one of the two, as the message says.",
    ),
    ErrorCode.UNSUPPORTED: FailureText(
        happened="The engine lacks a tool the agent needs, cannot keep one of its restrictions, or cannot continue "
        "a session.",
        do="Choose another engine, move the tool to `optional_tools`, or lift the restriction.",
    ),
    ErrorCode.DEPTH_EXCEEDED: FailureText(
        happened="The caller already stands as deep as `max_depth` allows.",
        do="Do the work where you are.",
        refuses=True,
    ),
    ErrorCode.SPAWN_LIMIT: FailureText(
        happened="The agents below one root call have started `max_spawns` runs.",
        do="Do the rest without delegating, or raise `max_spawns` in your `config.toml`.",
        refuses=True,
    ),
    ErrorCode.SESSION_NOT_FOUND: FailureText(
        happened="No session has this id.",
        do="`retinue sessions` lists them; 8 digits of an id are enough.",
        refuses=True,
    ),
    ErrorCode.SESSION_BUSY: FailureText(
        happened="Another process is carrying out a run of this session.",
        do="Wait for it to end, or stop that process.",
        refuses=True,
    ),
    ErrorCode.TIMEOUT: FailureText(
        happened="The run took longer than its timeout, and longer than its tool calls bought beyond it.",
        do="Resume the session with a longer timeout.",
    ),
    ErrorCode.IDLE_TIMEOUT: FailureText(
        happened="Nothing happened for `idle_timeout` seconds while no tool was running.",
        do="Resume the session, or raise `idle_timeout`.",
    ),
    ErrorCode.LOOP: FailureText(
        happened="The agent made the same tool call again and again, or two calls in turn with unchanged results.",
        do="Ask more precisely. `looping_tool_count` and `looping_pair_count` set what counts as a loop.",
    ),
    ErrorCode.BUDGET: FailureText(
        happened="The turns, tokens or dollars of the run were spent before a final answer.",
        do="Resume the session, or raise `max_turns`, `max_tokens` or `max_cost`, or those of the conversation.",
    ),
    ErrorCode.OUTPUT_LIMIT: FailureText(
        happened="The child wrote more than 64 MiB of output or errors, or more than 1 GiB in all.",
        do="Ask for less at once.",
    ),
    ErrorCode.NOT_FINALIZED: FailureText(
        happened="The agent ended without the finalize call it was asked for, as the agents of `sticky` are.",
        do="Resume the session to ask again.",
    ),
    ErrorCode.PROVIDER: FailureText(
        happened="The model's provider failed, after all retries and fallback models. `reason` says how: "
        "`rate_limit`, `quota`, `auth`, `model_unavailable`, `network`, `overloaded`, `server_error`, "
        "`context_overflow`, `refused`, `bad_request` or `other`.",
        do="Try again later, give the agent `fallback_models`, or mend the key.",
    ),
    ErrorCode.ENGINE: FailureText(
        happened="The engine itself failed or crashed.",
        do="Read the message. The runs beside it went on.",
    ),
    ErrorCode.SPAWN_FAILED: FailureText(
        happened="The engine could not be started: its name is unknown, something it needs is missing, or none has a "
        "language model and `offline` was not asked for.",
        do="`retinue doctor` shows every engine and what it lacks.",
    ),
    ErrorCode.SIGNALLED: FailureText(
        happened="The child process was ended by a signal that Retinue did not send.",
        do="Look for who sent it; the system does when memory runs out.",
    ),
    ErrorCode.ABORTED: FailureText(
        happened="You stopped it, or the program that called it did.",
        do="Resume the session to go on.",
    ),
    ErrorCode.INTERRUPTED: FailureText(
        happened="The process that carried out the run ended before the run did.",
        do="Resume the session; everything up to that moment is in it.",
    ),
    ErrorCode.STORAGE: FailureText(
        happened="The record of a session cannot be read or locked, so it cannot be continued.",
        do="Mend what the message names: a full disk, permissions, a record of a newer version.",
    ),
}

UNUSED = "Accepted and shown; no run uses it."
"""Added to the meaning of a key that no code uses."""
RESERVED = "Reserved: nothing reports it yet."
"""Added to the meaning of a code that no code reports."""

KEYS: Mapping[str, str] = {
    "name": "How the agent is called. Without it, the name of the file, which is reported.",
    "description": "One sentence on what it is for. Other agents choose by it; it is the prompt if there is no body.",
    "tools": "What it may use. Leave it out to inherit; `none` for no tools; `*` is the same as leaving it out.",
    "denied_tools": "What is taken from the inherited tools. Beside `tools` it is a conflict, except in Claude "
    "files, where it is taken from them.",
    "optional_tools": "Wanted where the engine has them, not missed where it does not.",
    "readonly": "Only tools that read, whatever the lists say.",
    "no_tools": "No tools at all; beats every list.",
    "grants": "What its own children may have at most.",
    "delegates": "Asks for [tools to delegate](../agents.md#agents-that-delegate), as `subagent` in `tools` does.",
    "enabled": "`false` switches the agent off.",
    "disabled": "`true` switches the agent off.",
    "engine": "What executes it, unless the call names another.",
    "provider": "Whose models answer, in the engine's words.",
    "model": "The model, in the engine's words; `inherit` or nothing means the engine's default.",
    "fallback_models": "The models to try next on rate limit, quota, authentication, an unavailable model or network "
    "trouble.",
    "thinking": "How hard to think.",
    "append_system_prompt": "Added at the end of the system prompt.",
    "extensions": "Extensions to load; `false` or `none` means `no_extensions`.",
    "no_extensions": "No extensions. An engine that cannot keep this is refused.",
    "load_skills": "[Skills](../agents.md#skills) whose text goes into the system prompt.",
    "suggested_skills": "Skills to point to: name, description and file.",
    "no_skills": "No skills; contradicts the two above.",
    "no_context_files": "No context files of the project. An engine that cannot keep this is refused.",
    "extra_args": "Arguments for the engine's program. Only flags that take something away or show more pass.",
    "environment": "Names of environment variables that its process gets beside the [usual ones](../engines.md).",
    "api_key": "A key for the provider. Ignored in a project's file; never printed.",
    "timeout": "How long a run may take.",
    "timeout_ms": "The same in milliseconds.",
    "max_turns": "Assistant messages a run may take.",
    "max_subagent_depth": "How deep the runs below it may stand, if less than `max_depth`.",
    "output": "Where its answer is to be written.",
    "output_schema": "JSON Schema of its results: YAML, or JSON text. Its runs must finalize with such a value.",
    "default_reads": "Files that are put before every task, read from the directory it works in.",
    "default_progress": "Whether it reports progress. It always does.",
    "color": "Its color on a screen.",
    "avatar_emoji": "Its picture on a screen.",
}
"""By the first spelling."""

VALUES: Mapping[str, str] = {
    "parse_text": "text",
    "parse_optional_text": "text, or `none`",
    "parse_model": "text, or `inherit`",
    "parse_secret": "text",
    "parse_flag": "`true` or `false`",
    "parse_thinking": "`off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
    "parse_names": "names",
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
    "EventSource.run": "Id of the run: 32 hex digits. A session's first run has the session's id.",
    "EventSource.session": "Id of the session the run belongs to.",
    "EventSource.root": "Id of the root conversation: everything one process, or one caller, asked for.",
    "EventSource.parent_run": "The run that asked for this one; null below the root conversation.",
    "EventSource.parent_tool_use_id": "The tool call that asked for it; never empty.",
    "EventSource.depth": "1 for a run the root conversation asked for.",
    "RunQueued.name": "What the run is called on a screen.",
    "RunQueued.agent": "Who does it.",
    "RunQueued.task": "What was asked, as the caller gave it.",
    "RunQueued.cwd": "Where it works.",
    "RunQueued.surface": "Whose defaults apply.",
    "RunQueued.engine": "What executes it.",
    "RunQueued.model": "The model that was asked for.",
    "RunQueued.timeout": "Seconds it may take.",
    "RunQueued.tools": "The tools it was granted.",
    "RunQueued.resumes": "Whether it continues a session.",
    "RunQueued.vault": "The user's vault, in which its beginning and its end are told, too.",
    "RunQueued.layer": "Where the agent's definition comes from.",
    "RunQueued.digest": "SHA-256 of the agent's file.",
    "RunQueued.provider": "The provider that was asked for.",
    "RunQueued.thinking": "How hard it was asked to think.",
    "AttemptStarted.number": "Counts from 1.",
    "AttemptStarted.reason": "`first`, `retry`, `fallback` or `finalize`.",
    "AttemptStarted.model": "The model it is tried with.",
    "TextDelta.text": "The next piece of a text block.",
    "ThinkingDelta.text": "The next piece of a thinking block.",
    "ToolDelta.call": "Id of the tool call.",
    "ToolDelta.text": "What it printed.",
    "OutputBytesCounted.stderr": "Of error output.",
    "OutputBytesCounted.raw": "Of everything.",
    "Thinking.text": "One whole thinking block.",
    "Text.text": "The block.",
    "ToolCalled.call": "Id of the call, unique within the run.",
    "ToolCalled.name": "The tool.",
    "ToolCalled.args": "Its arguments, as the model gave them.",
    "ToolReturned.call": "Id of the call it answers.",
    "ToolReturned.name": "The tool.",
    "ToolReturned.text": "What the model is shown of it.",
    "ToolReturned.is_error": "Whether the tool failed.",
    "MessageEnded.role": "Always the same.",
    "MessageEnded.stop_reason": "Why the model stopped.",
    "MessageEnded.model": "The model that wrote it.",
    "MessageEnded.usage": "What it consumed.",
    "ModelChanged.before": "The model that failed.",
    "ModelChanged.after": "The next one.",
    "ModelChanged.reason": "Why, such as `rate_limit`.",
    "SteeringDelivered.text": "What it was told, masked like all text.",
    "DeadlineExtended.seconds": "How much it was given.",
    "Notice.code": "What kind of notice, such as `storage` or `stopped_after_answer`.",
    "Notice.message": "What to know.",
    "Compaction.summary": "What the agent goes on from, masked like all text.",
    "Finalized.finalization": "What it says of its task.",
    "ProcessEnded.end": "How the process ended.",
    "RunEnded.text": "The answer, or what there was of it.",
    "RunEnded.answer": "What the text is.",
    "RunEnded.failure": "Why it did not complete; absent if it did.",
    "RunEnded.exit_code": "0 only if it completed.",
    "RunEnded.usage": "Summed over its messages and attempts.",
    "RunEnded.elapsed": "Seconds from `run_started`.",
    "RunEnded.finalized": "What the agent says of its task.",
    "RunEnded.actual": "What really happened.",
    "ExecutionReport.engine": "What executed the run.",
    "ExecutionReport.declared_model": "The model that was asked for.",
    "ExecutionReport.tools_granted": "The tools it could use.",
    "ExecutionReport.tools_removed": "Tools it asked for and did not get.",
    "ExecutionReport.tools_missing": "Optional tools the engine does not have.",
    "ExecutionReport.tools_used": "How often each tool was called.",
    "ExecutionReport.not_applied": "Wishes of the agent that the engine does not know.",
    "ExecutionReport.limits": "The limits in force.",
    "ExecutionReport.attempts": "Every try.",
    "ExecutionReport.nested_usage": "What the runs below it consumed; not part of its own usage.",
    "ExecutionReport.dropped_bytes": "Bytes of output that were not kept.",
    "ExecutionReport.process": "How the child process ended; null without one.",
    "ExecutionReport.notices": "What a person should know that did not end the run.",
    "Attempt.number": "Counts from 1.",
    "Attempt.model": "The model it was made with.",
    "Attempt.failure": "Why it failed; null if it did not.",
    "Failure.code": "What kind of failure.",
    "Failure.message": "What happened, what was kept, what to do.",
    "Usage.input": "Tokens read.",
    "Usage.output": "Tokens written.",
    "Usage.cache_read": "Tokens read from the provider's cache.",
    "Usage.cache_write": "Tokens written to it.",
    "Usage.turns": "Assistant messages.",
    "Limits.timeout": "Seconds the run may take.",
    "Limits.idle_timeout": "Seconds without an event while no tool runs.",
    "Limits.loop_count": "Identical tool calls in a row that are a loop.",
    "Limits.pair_count": "Unchanged pairs of calls that are a loop.",
    "Limits.max_turns": "Assistant messages.",
    "Limits.max_tokens": "Tokens of all kinds together.",
    "Limits.max_cost": "Dollars.",
    "Limits.max_conversation_tokens": "Tokens of all runs of the conversation together.",
    "Limits.max_conversation_cost": "Dollars of all runs of the conversation together.",
    "Limits.stdout_bytes": "Of output worth keeping.",
    "Limits.stderr_bytes": "Of error output.",
    "Limits.finalize_retries": "Corrections after a missing finalization.",
    "RemovedTool.tool": "The tool.",
    "RemovedTool.by": "`denied`, `readonly`, `no_tools`, `allow_write`, `authority`, `engine`, `depth` or `home`.",
    "Finalization.status": "Whether the agent holds its task to be done.",
    "Finalization.result": "What it found.",
    "Finalization.error": "What went wrong.",
    "ProcessEnd.code": "Its exit code.",
    "ProcessEnd.signal": "The signal that ended it.",
    "ProcessEnd.stderr": "The end of what it wrote to stderr, if it failed or ended before its agent was done.",
}
"""Of values on the wire, where the code leaves it to the field's name."""
