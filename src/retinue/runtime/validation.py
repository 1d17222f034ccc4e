"""Validate a call before anything starts: as a whole, and each of its tasks."""

from __future__ import annotations

import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from retinue.agents.agent import Agent
from retinue.agents.tool_policy import check_extra_args, find_conflict
from retinue.config.settings import Settings
from retinue.engines.base import EngineInfo
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.providers import MAX_MODEL_CHARS, THINKING_LEVELS
from retinue.model.sandbox import SANDBOX_MODES
from retinue.model.tasks import AncestorTask, CallContext, FileSlice, Mode, Plan, Task
from retinue.prompts.compose import PREVIOUS_PLACEHOLDER, TASK_PLACEHOLDER, fill_first_step
from retinue.sessions.store import SessionSummary

RESTRICTIVE_KEY = re.compile(
    r"(?:deny|denied|disallow|forbid|block|sandbox|permission|allowed[_-]?)\w*|read[_-]?only|isolation|hooks",
    re.IGNORECASE,
)
"""Keys of agent files that look like restrictions. One that is not known is never dropped silently."""


def list_unknown_restrictions(agent: Agent) -> list[str]:
    """Return the keys of an agent's file that look like restrictions, and that nothing enforces."""
    return [key for key in agent.unknown if RESTRICTIVE_KEY.fullmatch(key)]


def find_unknown_restriction(agent: Agent | Failure) -> Failure | None:
    """Return why an agent cannot run whose file restricts it by keys that nothing enforces; None if it can."""
    if isinstance(agent, Failure):
        return None
    keys = list_unknown_restrictions(agent)
    if not keys:
        return None
    message = (
        f'Agent "{agent.name}" is restricted by {", ".join(keys)} in {agent.source}, which cannot be enforced here. '
        "Nothing was run. Remove the key there, or write the restriction as tools, readonly or sandbox."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "restriction", {"agent": agent.name, "file": agent.source or ""})


def find_uncallable(call: CallContext, agent: str | None, resolve_name: Callable[[str], str]) -> Failure | None:
    """Return why the caller may not call an agent, by its own definition; None if it may."""
    if call.may_call(agent, resolve_name):
        return None
    allowed = ", ".join(call.callable_agents) if call.callable_agents is not None else "any other"
    return Failure(
        ErrorCode.AGENT_DISABLED,
        f'This agent may not call "{agent or "default"}". It may call: {allowed or "none"}.',
        "not_callable",
        {"agent": agent or ""},
    )


# -- the whole call ----------------------------------------------------------------------------------


def validate_tasks(plan: Plan, settings: Settings) -> None:
    """Check the number of tasks and the fields of each.

    Raises:
        RefusedError: `invalid_input`, naming the task if there are several.
    """
    count = len(plan.tasks)
    if not 1 <= count <= settings.max_tasks:
        limits = f"1 to {settings.max_tasks} tasks (max_tasks)"
        raise refuse(ErrorCode.INVALID_INPUT, f"A call takes {limits}; this call has {count}")
    for number, task in enumerate(plan.tasks, 1):
        if problem := _task_problem(task, settings.max_task_bytes):
            raise refuse(ErrorCode.INVALID_INPUT, f"{f'Task {number}' if count > 1 else 'The task'} {problem}")
    if plan.mode is Mode.CHAIN:
        _validate_first_step(plan.tasks[0].prompt)


def validate_agents(agents: Iterable[AgentProfile]) -> None:
    """Check that no agent contradicts itself or passes its engine arguments that could undo its restrictions.

    Raises:
        RefusedError: `conflict`, naming the agent.
    """
    for agent in agents:
        if failure := find_conflict(agent) or check_extra_args(agent):
            raise RefusedError(failure)


def validate_sessions(tasks: Sequence[Task], sessions: Sequence[SessionSummary | None]) -> None:
    """Check that no session is continued twice at once, however its id is written.

    Raises:
        RefusedError: `conflict`.
    """
    written: dict[str, list[str]] = {}
    for task, session in zip(tasks, sessions, strict=True):
        if session and task.session:
            written.setdefault(session.session, []).append(task.session)
    for names in written.values():
        if len(names) > 1:
            raise refuse(
                ErrorCode.CONFLICT,
                f'Cannot resume: session "{names[0]}" is named by {len(names)} tasks of this call. Resume it once.',
            )


def busy_session(name: str) -> Failure:
    """Return the failure of continuing a session that is running, with the id that the caller wrote."""
    return Failure(
        ErrorCode.SESSION_BUSY,
        f'Cannot resume: session "{name}" is still running. Wait for it to complete before resuming.',
    )


def session_not_found_error(name: str) -> RefusedError:
    message = f'Cannot resume: session "{name}" not found. The ID is incorrect, or the session was deleted.'
    return RefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, message, None, {"session": name}))


def validate_session_scope(session: SessionSummary | None, task: Task, cwd: str) -> None:
    """Check that a session belongs to the agent and the directory that continue it.

    Raises:
        RefusedError: `session_not_found`, naming where it is found.
    """
    if session is None:
        raise session_not_found_error(task.session or "")
    agent = task.agent or ""
    if session.agent == agent and os.path.realpath(session.cwd) == os.path.realpath(cwd):
        return
    raise refuse(
        ErrorCode.SESSION_NOT_FOUND,
        f'Cannot resume: session "{task.session}" does not belong to agent "{agent}" in {cwd}, but to agent '
        f'"{session.agent}" in {session.cwd}. Continue the session with that agent in that directory.',
        "scope",
    )


def _validate_first_step(prompt: str) -> None:
    """Check the first step of a chain, which has nothing to refer to."""
    if PREVIOUS_PLACEHOLDER in prompt:
        raise refuse(
            ErrorCode.INVALID_INPUT,
            f"The first step of a chain has no previous answer: remove {PREVIOUS_PLACEHOLDER} from its task, or add "
            "a "
            "step before it",
        )
    if not fill_first_step(prompt).strip():
        raise refuse(
            ErrorCode.INVALID_INPUT,
            f"The first step of a chain is the task that {TASK_PLACEHOLDER} is replaced by: write the task in full "
            f"instead of {TASK_PLACEHOLDER}",
        )


def wrong_type(task: Task) -> str | None:
    """Return the problem with the types of a task's fields; None if there is none."""
    try:
        msgspec.convert(structs.asdict(task), Task)
    except (msgspec.ValidationError, TypeError) as error:
        return f"has a field of the wrong type: {error}"
    return None


def _task_problem(task: Task, max_bytes: int) -> str | None:
    if wrong := wrong_type(task):
        return wrong
    if not task.prompt.strip():
        return "is empty: write what the agent is to do"
    if "\0" in task.prompt:
        return "contains a NUL byte: remove the byte, or name the file that contains it"
    size = _byte_length(task.prompt)
    if size is None:
        return "contains half a character (a lone surrogate): remove that character"
    if size > max_bytes:
        return (
            f"has {size} bytes; the limit is {max_bytes} (max_task_bytes). "
            "Put long texts into a file and name the file in the task."
        )
    if task.timeout is not None and not 1 <= task.timeout < math.inf:
        return f"has a timeout of {task.timeout:g}: it must be a number of seconds, at least 1"
    for part in task.files:
        if not _is_valid_slice(part):
            return f"names an invalid range of {part.path}: lines are counted from 1"
    return _choice_problem(task)


def _choice_problem(task: Task) -> str | None:
    model, effort = task.model, task.effort
    if model is not None and not (model.strip() and model.isprintable() and len(model) <= MAX_MODEL_CHARS):
        return f"has an invalid model: write it as provider/model, at most {MAX_MODEL_CHARS} characters"
    if effort is not None and effort not in THINKING_LEVELS:
        return f"has the effort {effort[:20]!a}: it must be one of {', '.join(THINKING_LEVELS)}"
    if task.isolation not in {None, "none", "worktree"}:
        return f"has the isolation {str(task.isolation)[:20]!a}: it must be worktree or none"
    if task.sandbox not in {None, *SANDBOX_MODES}:
        return f"has the sandbox {str(task.sandbox)[:20]!a}: it must be one of {', '.join(SANDBOX_MODES)}"
    return None


def _byte_length(text: str) -> int | None:
    """Return the length of the text in bytes; None if it cannot be encoded."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def _is_valid_slice(part: FileSlice) -> bool:
    return all(number is None or number >= 1 for number in (part.start, part.end, part.head, part.tail))


# -- one task ----------------------------------------------------------------------------------------


def validate_cwd(cwd: str, roots: Sequence[str] | None = None) -> Failure | None:
    """Return why no run can work in this directory; None if it can. `roots` limits where it may be."""
    path = Path(cwd)
    if "\0" in cwd or not path.is_absolute():
        return Failure(ErrorCode.INVALID_INPUT, "cwd must be an absolute path", "cwd")
    if ".." in path.parts:
        return Failure(ErrorCode.INVALID_INPUT, "cwd must not contain '..' path segments", "cwd")
    if roots is not None and not _is_within(cwd, roots):
        # Before anything about the directory is revealed: callers may not know what is outside.
        return Failure(
            ErrorCode.INVALID_INPUT, f"cwd is outside of {', '.join(roots)}: {cwd}. Choose a directory inside.", "cwd"
        )
    try:
        problem = None if stat.S_ISDIR(path.stat().st_mode) else "is not a directory"
    except FileNotFoundError:
        problem = "does not exist"
    except (OSError, ValueError) as error:
        problem = f"cannot be used ({getattr(error, 'strerror', None) or error})"
    if problem is None:
        return None
    return Failure(
        ErrorCode.INVALID_INPUT, f"cwd {problem}: {cwd}. Create the directory, or choose another.", "cwd_missing"
    )


def _is_within(cwd: str, roots: Sequence[str]) -> bool:
    return cwd in roots or any(Path(os.path.realpath(cwd)).is_relative_to(os.path.realpath(root)) for root in roots)


def find_self_delegation(call: CallContext, agent: AgentProfile, task: Task, cwd: str) -> Failure | None:
    """Return why the task must not be delegated: an ancestor has the same task, or nearly the same."""
    if not any(_is_same_task(ancestor, agent.name, task.prompt, cwd) for ancestor in call.lineage.ancestors):
        return None
    return Failure(
        ErrorCode.CONFLICT,
        f"{agent.name} was already given this task, or nearly the same one, by a parent run. Do the task yourself, "
        "or "
        "delegate a narrower part of it: name the file, the function or the item.",
        "self_delegation",
    )


def _is_same_task(ancestor: AncestorTask, agent: str, task: str, cwd: str) -> bool:
    if ancestor.agent != agent or not is_same_task(ancestor.task, task):
        return False
    # A directory has several spellings: with a slash at its end, or by a link.
    return ancestor.cwd == cwd or os.path.realpath(ancestor.cwd) == os.path.realpath(cwd)


SAME_SHARE = 0.9
"""Share of an ancestor's words that makes a task nearly the same."""
SAME_LENGTH, MORE_WORDS = 1.5, 5
"""Largest length of a task that is nearly the same: this factor, and this many words more."""
VERBATIM_WORDS = 12
"""A task of so many words that is repeated within another counts as the same, whatever surrounds it."""


def is_same_task(given: str, new: str) -> bool:
    """Return whether the new task is the given one with little changed; naming something new narrows a task."""
    before, after = " ".join(given.split()), " ".join(new.split())
    if before == after:
        return True
    known, words = _count_words(before), _count_words(after)
    if known.total() >= VERBATIM_WORDS and before in after:
        return True
    is_contained = known and (known & words).total() >= SAME_SHARE * known.total()
    is_little_longer = words.total() <= SAME_LENGTH * known.total() + MORE_WORDS
    return bool(is_contained) and is_little_longer and not _names_something_new(after, known)


def _count_words(text: str) -> Counter[str]:
    """Return the words, case-folded, split at everything but letters and digits."""
    return Counter(re.findall(r"[^\W_]+", text.casefold()))


_QUOTATION = re.compile(r"\"([^\"]+\s[^\"]+)\"|`([^`]+\s[^`]+)`|“([^”]+\s[^”]+)”")
"""Matches a quotation of several words; a single quoted word such as `again` narrows nothing."""
_NAME = re.compile(r"\d\d|\w[./\\_:]\w|(?:^|\s)[~.]{0,2}/\w|[a-z][A-Z]|\w\(\)|[^\W\d]\d|\d[^\W\d]")
"""Matches a token that names a thing: a path, a file with its suffix, an identifier, a number of two digits."""


def _names_something_new(text: str, known: Counter[str]) -> bool:
    """Return whether the text names a path, file, identifier, number or quotation that is not known."""
    quoted = ("".join(groups) for groups in _QUOTATION.findall(text))
    named = (token for token in text.split() if _NAME.search(token))
    return any(_count_words(name).keys() - known.keys() for name in (*quoted, *named))


def validate_can_resume(kind: EngineInfo) -> Failure | None:
    if kind.capabilities.resumes:
        return None
    return Failure(
        ErrorCode.UNSUPPORTED, f"The {kind.name} engine cannot continue a session. Start a new session.", "resume"
    )


def validate_can_call_functions(kind: EngineInfo, agent: Agent) -> Failure | None:
    if kind.capabilities.calls_functions:
        return None
    names = ", ".join(function.__name__ for function in agent.functions)
    message = (
        f'The {kind.name} engine cannot call Python functions, and agent "{agent.name}" has {names}. '
        'Nothing was started. Use engine="api".'
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "functions", {"agent": agent.name})


def parse_output_schema(task: Task, agent: AgentProfile) -> dict[str, Any] | Failure | None:
    """Return the schema of a task's result, of its agent if it has none itself, or why it cannot be used."""
    given = agent.output_schema if task.output_schema is None else task.output_schema
    if given is None:
        return None
    from retinue.output.schemas import OutputSchemaError, parse_schema

    try:
        return parse_schema(given)
    except OutputSchemaError as error:
        whose = "The output schema" if task.output_schema is not None else f"The output schema of agent {agent.name}"
        message = f"{whose} {_as_predicate(str(error))}. Nothing was started."
        return Failure(ErrorCode.INVALID_INPUT, message, "output_schema")


def validate_can_structure(kind: EngineInfo) -> Failure | None:
    if kind.uses_models and kind.capabilities.finalizes:
        return None
    return Failure(
        ErrorCode.UNSUPPORTED,
        f"The {kind.name} engine cannot give results of an output schema. Choose another engine.",
        "output_schema",
    )


def _as_predicate(problem: str) -> str:
    return f"is invalid at {problem}" if problem.startswith("$") else problem


def validate_can_finalize(kind: EngineInfo) -> Failure | None:
    if kind.capabilities.finalizes:
        return None
    return Failure(
        ErrorCode.UNSUPPORTED,
        f"The {kind.name} engine does not support finalization. Choose another engine.",
        "finalize",
    )
