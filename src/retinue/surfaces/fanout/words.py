"""The words of seed 003: how it tells a failure, a profile, the profiles there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from retinue.agents.definition import Layer
from retinue.agents.roster import Entry, Status
from retinue.models import join_model
from retinue.orchestrator import Orchestrator
from retinue.output.frame import one_line
from retinue.retelling import clean
from retinue.surfaces.base import add_skipped_file
from retinue.types import Call, Code, Failure, Subagent

NO_PROFILES = "No subagent profiles found. Add .md files to ~/.pi/agent/agent-profiles/ or .pi/agent-profiles/."
NOT_SPAWNED = "Failed to spawn sub-agent process"
NOTHING_TO_SPAWN = "no_engine"
"""The reason why no process was even tried: the core says what to do."""

CONFLICTS: Mapping[str, str] = {
    "suggested_skills": 'has both "suggestedSkills" and "noSkills" set. These are mutually exclusive — '
    "--no-skills would override --skill flags.",
    "load_skills": 'has both "loadSkills" and "noSkills" set. These are mutually exclusive — '
    "--no-skills disables skill discovery.",
    "tools": 'has both "tools" (allowlist) and "excludeTools" (blacklist) set. These are mutually exclusive — '
    "choose one or the other.",
}
"""What a profile that contradicts itself is told, by the core's reason."""

MOST_NAMED = 100
"""Profiles in a message."""
MOST_VALUE = 200
"""Characters of one setting in a summary."""
PREVIEW = 80
"""Characters of a system prompt."""


class Words:
    """Speaks for one call: which profiles there are depends on where it is made."""

    def __init__(self, orchestrator: Orchestrator, call: Call) -> None:
        self._orchestrator = orchestrator
        self._call = call

    def sentence(self, failure: Failure) -> str:
        """The failure in the seed's words; what the seed does not name stands as the core says it."""
        agent = failure.detail.get("agent")
        match failure.code:
            case Code.UNKNOWN_AGENT:
                unknown = f'Unknown profile: "{agent}". Available profiles: {self._available}'
                return add_skipped_file(failure, unknown)
            case Code.SPAWN_FAILED if failure.reason != NOTHING_TO_SPAWN:
                return f"{NOT_SPAWNED}: {failure.message}"
            case Code.CONFLICT if told := CONFLICTS.get(failure.reason or ""):
                return f'Profile "{agent}" {told}'
            case _:
                return failure.message

    def told(self, failure: Failure) -> str:
        """The same as it may leave: it may quote input, which no record has masked."""
        return clean(self._orchestrator.masked(self.sentence(failure)))

    def masked(self, text: str) -> str:
        return self._orchestrator.masked(text)

    def summary(self, agent: Subagent) -> str:
        """Seed 003's profile summary."""
        return self.masked(", ".join(_facts(agent)))

    def profiles(self) -> Mapping[str, str]:
        """The summaries of the profiles there are, by name, each with the beginning of its prompt.

        What is not trusted is told by its name alone: the rest of it is the project's text.
        """
        found: dict[str, str] = {}
        for entry in self._entries():
            name = entry.agent.name
            if entry.status is Status.USED:
                found[name] = self.masked(", ".join(_facts(entry.agent.as_subagent(), preview=True)))
            elif entry.status is Status.UNTRUSTED:
                found.setdefault(name, f"profile: {name}, not trusted by the user (retinue agents trust {name})")
        return found

    @cached_property
    def _available(self) -> str:
        names = [entry.agent.name for entry in self._entries() if entry.status is Status.USED]
        more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"{', '.join(names[:MOST_NAMED]) or '(none)'}{more}"

    def _entries(self) -> Iterator[Entry]:
        """Definitions that someone wrote: built-in ones can be called and are no profiles."""
        listing = self._orchestrator.roster(self._call).listing()
        return (entry for entry in listing if entry.agent.layer is not Layer.BUILTIN)


def _facts(agent: Subagent, *, preview: bool = False) -> Iterator[str]:
    yield f"profile: {agent.name}"
    if agent.model:
        yield f"model={_value(join_model(agent.provider, agent.model) or '')}"
    elif agent.provider:
        yield f"provider={_value(agent.provider)}"
    if agent.thinking:
        yield f"thinking={_value(agent.thinking)}"
    if body := agent.body.strip():
        yield f'custom-system-prompt ("{clean(one_line(body, PREVIEW))}")' if preview else "custom-system-prompt"
    if agent.append_system_prompt.strip():
        yield "appended-system-prompt"
    yield from _tools(agent)
    for name, skills in (("suggestedSkills", agent.suggested_skills), ("loadSkills", agent.load_skills)):
        if skills:
            yield f"{name}={_list(skills)}"


def _tools(agent: Subagent) -> Iterator[str]:
    policy = agent.tools
    if policy.nothing:
        yield "no-tools"
    elif policy.allow is not None:
        yield f"tools={_list(policy.allow)}"
    elif policy.deny:
        yield f"excludeTools={_list(policy.deny)}"
    elif policy.readonly:
        yield "readonly"


def _list(names: Iterable[str]) -> str:
    return f"[{_value(', '.join(names))}]"


def _value(text: str) -> str:
    return clean(one_line(text, MOST_VALUE))
