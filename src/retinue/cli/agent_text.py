"""Agent definitions as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.agents.agent import Agent
from retinue.agents.registry import AgentListing, DefinitionStatus
from retinue.cli.printing import render_table
from retinue.model.model_names import join_model
from retinue.model.runs import Secret
from retinue.output.untrusted_text import strip_control_characters, to_one_line

SECRET_MASK = "****"  # noqa: S105 - shown instead of one
MAX_SUMMARY_COLUMNS = 500
"""Characters of a value in a summary."""

_HIDDEN_FIELDS = frozenset(
    {"name", "description", "body", "persona", "memory", "layer", "source", "level", "digest", "unknown", "notices"}
)
"""Fields that are told in their own way."""

STATUS_LABELS = {
    DefinitionStatus.USED: "",
    DefinitionStatus.SHADOWED: "shadowed",
    DefinitionStatus.UNTRUSTED: "not trusted",
    DefinitionStatus.DISABLED: "disabled",
}


def describe_tools(agent: Agent) -> str:
    """What an agent may use, in a few words."""
    policy = agent.to_profile().tools
    if policy.nothing:
        return "none"
    if policy.allow is None:
        words = "read-only" if policy.readonly else "inherited"
    else:
        words = ", ".join(policy.allow) or "none"
    denied = f" without {', '.join(policy.deny)}" if policy.deny else ""
    return f"{words}{denied}{', delegates' if policy.delegates else ''}"


def render_summary(agent: Agent) -> list[str]:
    """Who it is, where it is from and what it can do: what to look at before accepting it."""
    rows = [
        ["name", agent.name],
        ["file", agent.source or agent.layer],
        ["about", agent.description],
        ["tools", describe_tools(agent)],
        ["model", join_model(agent.provider, agent.model) or agent.provider or "the engine's default"],
        *([name, value] for name, value in _list_risky_fields(agent)),
    ]
    # Not cut to the screen: half a path is no basis for trust.
    return render_table([row for row in rows if row[1]], columns=MAX_SUMMARY_COLUMNS)


def render_definition(entry: AgentListing) -> Iterator[str]:
    """Everything there is to know of a definition, but secrets."""
    agent = entry.agent
    rows = [
        ["name", agent.name],
        ["about", agent.description],
        ["layer", agent.layer],
        ["file", agent.source or ""],
        ["status", STATUS_LABELS[entry.status] or ("accepted" if entry.accepted else "used")],
        ["used instead", entry.shadowed_by or ""],
        ["shadows", ", ".join(entry.shadows)],
        ["effective tools", describe_tools(agent)],
        ["persona", _unprinted(agent, "SOUL.md") if agent.persona else ""],
        ["memory", _unprinted(agent, "MEMORY.md") if agent.memory else ""],
        *([name, format_value(value)] for name, value in list_set_fields(agent)),
        ["unknown keys", ", ".join(agent.unknown)],
        ["digest", agent.digest],
    ]
    yield from render_table([row for row in rows if row[1]], columns=MAX_SUMMARY_COLUMNS)
    yield from (f"note: {to_one_line(str(remark), MAX_SUMMARY_COLUMNS)}" for remark in agent.notices)
    if agent.body:
        yield "\n--- Prompt ---"
        yield strip_control_characters(agent.body)


def _unprinted(agent: Agent, name: str) -> str:
    """Return the path of a text that is for the agent's own conversations only: a host reads what is printed."""
    return f"{Path(agent.source).with_name(name) if agent.source else name} (not printed)"


def list_set_fields(agent: Agent) -> Iterator[tuple[str, Any]]:
    """The fields a definition sets, by name."""
    for name in agent.__struct_fields__:
        value = getattr(agent, name)
        if name not in _HIDDEN_FIELDS and value not in (None, "", (), False) and not (name == "enabled" and value):
            yield name, SECRET_MASK if isinstance(value, Secret) else value


def format_value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _list_risky_fields(agent: Agent) -> Iterator[tuple[str, str]]:
    """What it brings along that acts, redirects or reads: reason to look twice."""
    names = ("engine", "extensions", "extra_args", "environment", "output", "default_reads", "api_key")
    yield from ((name, format_value(value)) for name, value in list_set_fields(agent) if name in names)
