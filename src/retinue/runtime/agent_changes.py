"""What changed in an agent's definition since the run that is continued."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.agents import AgentProfile
from retinue.model.events import RunQueued

NONE = "none"


def describe_changes(last: RunQueued, agent: AgentProfile, model: str | None, tools: Iterable[str]) -> str | None:
    """Return a notice about a definition that is not the one of the last run; None if it is, or none is known."""
    if last.agent != agent.name or (last.digest, last.layer) == (agent.digest, agent.layer) or not last.layer:
        return None
    changes = [
        f"{name}: {before or NONE} → {after or NONE}"
        for name, before, after in (
            ("layer", last.layer, agent.layer),
            ("model", last.model, model),
            ("provider", last.provider, agent.provider),
            ("thinking", last.thinking, agent.thinking),
            ("tools", ", ".join(last.tools), ", ".join(tools)),
        )
        if before != after
    ]
    return (
        f'The definition of the agent "{agent.name}" has changed since the last run of this session '
        f"({'; '.join(changes) or 'its instructions or other fields'}). This run uses the new one."
    )
