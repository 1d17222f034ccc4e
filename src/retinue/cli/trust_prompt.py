"""Ask whether an agent of the project may run, and summarize it first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from retinue.agents.agent import Agent
from retinue.agents.tool_policy import READ_ONLY_TOOLS
from retinue.cli.printing import print_error, render_table
from retinue.client import Retinue
from retinue.model.hooks import Hook
from retinue.model.providers import join_model
from retinue.model.runs import Secret

SECRET_MASK = "****"  # noqa: S105 - printed instead of a secret
MAX_COVERED_FILES = 40
"""Files that an agent names, in a summary."""
MAX_SUMMARY_COLUMNS = 500
"""Characters of a line of a summary."""

_HIDDEN_FIELDS = frozenset(
    {
        "name",
        "description",
        "body",
        "persona",
        "memory",
        "layer",
        "mcp_servers",
        "source",
        "level",
        "digest",
        "named_files",
        "unknown",
        "notices",
    }
)
"""Fields that are printed in a form of their own, or not at all."""


def ask_for_trust(retinue: Retinue, names: Iterable[str]) -> None:
    """Ask about each of these agents that waits to be trusted, and trust those that are accepted."""
    roster = retinue.roster()
    for name in dict.fromkeys(names):
        agent = roster.find_awaiting_trust(name)
        if agent is None:
            continue
        click.secho(
            f"{name} belongs to this project and has not been approved, or has changed since you approved it:",
            err=True,
            bold=True,
        )
        print_agent(agent, retinue.describe_servers(agent))
        if confirm_trust():
            trust_agent(retinue, agent)


def print_agent(agent: Agent, servers: Iterable[str]) -> None:
    """Print the summary of an agent, with its MCP servers, also those that the project's files define."""
    for line in render_summary(agent, servers):
        click.echo(f"  {line}", err=True)


def confirm_trust() -> bool:
    """Ask whether to trust the printed agent; no answer means no."""
    return click.confirm("Approve this version?", default=False, err=True)


def trust_agent(retinue: Retinue, agent: Agent) -> bool:
    """Store that the agent is trusted and return whether that succeeded; print the error if not."""
    return _update_trust(lambda: retinue.trust.accept(agent), f"{agent.name} could not be approved")


def revoke_trust(retinue: Retinue, agent: Agent) -> bool:
    """Store that the agent is not trusted and return whether that succeeded; print the error if not."""
    return _update_trust(
        lambda: retinue.trust.revoke(agent.source or ""), f"{agent.name} is still approved in its earlier version"
    )


def _update_trust(change: Callable[[], object], failed: str) -> bool:
    try:
        change()
    except OSError as error:
        print_error(f"{failed}: {error.filename}: {error.strerror}.")
        return False
    return True


def describe_tools(agent: Agent) -> str:
    """Return the tools of an agent in a few words."""
    policy = agent.to_profile().tools
    if policy.nothing:
        return "none"
    if policy.requested is None:
        words = "read-only" if policy.readonly else "inherited"
    else:
        granted = [tool for tool in policy.requested if not policy.readonly or tool in READ_ONLY_TOOLS]
        words = ", ".join(granted) or "none"
    denied = f" without {', '.join(policy.deny)}" if policy.deny else ""
    return f"{words}{denied}{', delegates' if policy.delegates else ''}"


def render_summary(agent: Agent, servers: Iterable[str] = ()) -> list[str]:
    """Render what to inspect before trusting an agent: name, file, purpose, tools, model and risky fields."""
    rows = [
        ["name", agent.name],
        ["file", agent.source or agent.layer],
        ["about", agent.description],
        ["tools", describe_tools(agent)],
        ["model", join_model(agent.provider, agent.model) or agent.provider or "the engine's default"],
        *([name, value] for name, value in _list_risky_fields(agent)),
        *(["MCP server", server] for server in servers),
        *(["covers", path] for path in agent.named_files[:MAX_COVERED_FILES]),
        ["covers", f"{len(agent.named_files) - MAX_COVERED_FILES} more files"]
        if len(agent.named_files) > MAX_COVERED_FILES
        else ["covers", ""],
    ]
    # Not cut to the screen: half a path is not enough to decide about trust.
    return render_table([row for row in rows if row[1]], columns=MAX_SUMMARY_COLUMNS)


def list_set_fields(agent: Agent) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a definition sets, with secrets masked."""
    for name in agent.__struct_fields__:
        value = getattr(agent, name)
        if name not in _HIDDEN_FIELDS and value not in (None, "", (), False) and not (name == "enabled" and value):
            yield name, SECRET_MASK if isinstance(value, Secret) else value


def format_value(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(part, Hook) for part in value):
        return ", ".join(f"{hook.event} {hook.description}" for hook in value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _list_risky_fields(agent: Agent) -> Iterator[tuple[str, str]]:
    """Yield the fields that execute, redirect or read something."""
    names = (
        *(
            "engine",
            "extensions",
            "load_skills",
            "suggested_skills",
            "extra_args",
            "environment",
            "output",
        ),
        *("default_reads", "api_key"),
    )
    yield from ((hook.event, hook.description) for hook in agent.hooks)
    yield from ((name, format_value(value)) for name, value in list_set_fields(agent) if name in names)
