"""Asking a person whether one of the project's own agents may run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import click

from retinue.agents.agent import Agent
from retinue.cli.agent_text import render_summary
from retinue.cli.printing import print_error
from retinue.client import Retinue


def is_interactive() -> bool:
    """Whether someone is there to be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_for_trust(retinue: Retinue, names: Iterable[str]) -> None:
    """Asks about each of these agents that waits to be accepted; does nothing where nobody can answer."""
    if not is_interactive():
        return
    roster = retinue.roster()
    for name in dict.fromkeys(names):
        agent = roster.find_awaiting_trust(name)
        if agent is None:
            continue
        click.secho(f"{name} is this project's own agent, and not trusted as it is now written:", err=True, bold=True)
        print_agent(agent)
        if confirm_trust():
            trust_agent(retinue, agent)


def print_agent(agent: Agent) -> None:
    """Says what an agent is and can do."""
    for line in render_summary(agent):
        click.echo(f"  {line}", err=True)


def confirm_trust() -> bool:
    """Asks whether to accept what was shown; no answer is no."""
    return click.confirm("Accept it, as it is written now?", default=False, err=True)


def trust_agent(retinue: Retinue, agent: Agent) -> bool:
    """Remembers that the agent may run; whether it could, and if not, says why."""
    return _update_trust(lambda: retinue.trust.accept(agent), f"{agent.name} could not be accepted")


def revoke_trust(retinue: Retinue, agent: Agent) -> bool:
    """Forgets that the agent may run; the same."""
    return _update_trust(lambda: retinue.trust.revoke(agent.source or ""), f"{agent.name} is trusted as before")


def _update_trust(change: Callable[[], object], failed: str) -> bool:
    try:
        change()
    except OSError as error:
        print_error(f"{failed}: {error.filename}: {error.strerror}.")
        return False
    return True
