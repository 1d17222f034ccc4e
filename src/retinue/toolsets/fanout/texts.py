"""The texts of the `fanout` toolset: failures, profile summaries, the list of profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from retinue.agents.agent import SourceLayer
from retinue.agents.registry import AgentListing, DefinitionStatus
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.providers import join_model
from retinue.model.tasks import CallContext
from retinue.output.untrusted_text import sanitize_text, to_one_line
from retinue.runtime.orchestrator import Orchestrator
from retinue.toolsets.base import add_skipped_file

NO_PROFILES = "No subagent profiles found. Add .md files to ~/.pi/agent/agent-profiles/ or .pi/agent-profiles/."
SESSION_NOT_FOUND_TEXT = '{} "{}" not found. The session may have expired or the ID is incorrect.'
SPAWN_FAILED_TEXT = "Failed to spawn sub-agent process"
NO_ENGINE_REASON = "no_engine"
"""The reason of a failure before any process was tried: its own message has the advice."""

CONFLICT_TEXTS: Mapping[str, str] = {
    "suggested_skills": 'has both "suggestedSkills" and "noSkills" set. These are mutually exclusive — '
    "--no-skills would override --skill flags.",
    "load_skills": 'has both "loadSkills" and "noSkills" set. These are mutually exclusive — '
    "--no-skills disables skill discovery.",
    "tools": 'has both "tools" (allowlist) and "excludeTools" (blacklist) set. These are mutually exclusive — '
    "choose one or the other.",
}
"""Messages for profiles that contradict themselves, by the reason of the failure."""

MAX_NAMES = 100
"""Profiles named in a message."""
MAX_VALUE_CHARS = 200
"""Characters of one setting in a profile summary."""
MAX_PREVIEW_CHARS = 80
"""Characters of a system prompt in a list of profiles."""


class FanoutTexts:
    """The texts for one call: its working directory decides which profiles exist."""

    def __init__(self, orchestrator: Orchestrator, call: CallContext) -> None:
        self._orchestrator = orchestrator
        self._call = call

    def render_failure(self, failure: Failure) -> str:
        """Return the failure in the words of the toolset; failures it has no words for keep their message."""
        agent = failure.detail.get("agent")
        match failure.code:
            case ErrorCode.UNKNOWN_AGENT:
                unknown = f'Unknown profile: "{agent}". Available profiles: {self._available_names}'
                return add_skipped_file(failure, unknown)
            case ErrorCode.SPAWN_FAILED if failure.reason != NO_ENGINE_REASON:
                return f"{SPAWN_FAILED_TEXT}: {failure.message}"
            case ErrorCode.SESSION_NOT_FOUND if name := failure.detail.get("session"):
                return SESSION_NOT_FOUND_TEXT.format("Cannot resume: session", name)
            case ErrorCode.CONFLICT if text := CONFLICT_TEXTS.get(failure.reason or ""):
                return f'Profile "{agent}" {text}'
            case _:
                return failure.message

    def render_redacted_failure(self, failure: Failure) -> str:
        """Return the failure redacted and sanitized: it may quote input."""
        return sanitize_text(self._orchestrator.redact(self.render_failure(failure)))

    def redact(self, text: str) -> str:
        return self._orchestrator.redact(text)

    def render_profile(self, agent: AgentProfile) -> str:
        """Return the settings of a profile on one line."""
        return self.redact(", ".join(_profile_facts(agent)))

    def render_profiles(self) -> Mapping[str, str]:
        """Return the summaries of all profiles by name, each with the beginning of its prompt.

        A profile that is not trusted has only its name: the rest of it is the project's text.
        """
        found: dict[str, str] = {}
        for entry in self._list_profiles():
            name = entry.agent.name
            if entry.status is DefinitionStatus.USED:
                found[name] = self.redact(", ".join(_profile_facts(entry.agent.to_profile(), preview=True)))
            elif entry.status is DefinitionStatus.UNTRUSTED:
                found.setdefault(name, f"profile: {name}, not trusted by the user (retinue agents trust {name})")
        return found

    @cached_property
    def _available_names(self) -> str:
        names = [entry.agent.name for entry in self._list_profiles() if entry.status is DefinitionStatus.USED]
        more = f", and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        return f"{', '.join(names[:MAX_NAMES]) or '(none)'}{more}"

    def _list_profiles(self) -> Iterator[AgentListing]:
        """Return the definitions that are profiles: built-in agents can be called but are not listed."""
        listing = self._orchestrator.load_agents(self._call).list_definitions()
        return (entry for entry in listing if entry.agent.layer is not SourceLayer.BUILTIN)


def _profile_facts(agent: AgentProfile, *, preview: bool = False) -> Iterator[str]:
    yield f"profile: {agent.name}"
    if agent.model:
        yield f"model={_quote_value(join_model(agent.provider, agent.model) or '')}"
    elif agent.provider:
        yield f"provider={_quote_value(agent.provider)}"
    if agent.thinking:
        yield f"thinking={_quote_value(agent.thinking)}"
    if body := agent.body.strip():
        yield (
            f'custom-system-prompt ("{sanitize_text(to_one_line(body, MAX_PREVIEW_CHARS))}")'
            if preview
            else "custom-system-prompt"
        )
    if agent.append_system_prompt.strip():
        yield "appended-system-prompt"
    yield from _tool_facts(agent)
    for name, skills in (("suggestedSkills", agent.suggested_skills), ("loadSkills", agent.load_skills)):
        if skills:
            yield f"{name}={_join_names(skills)}"


def _tool_facts(agent: AgentProfile) -> Iterator[str]:
    policy = agent.tools
    if policy.nothing:
        yield "no-tools"
    elif policy.requested is not None:
        yield f"tools={_join_names(policy.requested)}"
    elif policy.deny:
        yield f"excludeTools={_join_names(policy.deny)}"
    elif policy.readonly:
        yield "readonly"


def _join_names(names: Iterable[str]) -> str:
    return f"[{_quote_value(', '.join(names))}]"


def _quote_value(text: str) -> str:
    return sanitize_text(to_one_line(text, MAX_VALUE_CHARS))
