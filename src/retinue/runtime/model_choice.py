"""The model and the thinking level that a call chooses for its tasks, within the user's setting `models`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import structs

from retinue.config.settings import Settings
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.providers import CLAUDE_ALIASES, find_listed_model
from retinue.model.tasks import Plan, Task
from retinue.output.provider_errors import AUTH, MODEL_UNAVAILABLE
from retinue.output.untrusted_text import to_one_line

MAX_SHOWN_CHARS = 300
"""Characters of the models that a message names."""
UNUSABLE_MODEL_REASONS = frozenset({AUTH, MODEL_UNAVAILABLE, "no_key", "no_model", "no_provider", "unknown_provider"})
"""Failures before the first answer that another model may not have."""


def drop_unlisted_choices(plan: Plan, settings: Settings) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of another model without the choices it may not make, and a notice on each kind of them.

    Other models choose only what the user lists: without a list they would pick weaker or dearer models unasked.
    """
    patterns = settings.models
    if patterns:
        ignored = dict.fromkeys(
            task.model for task in plan.tasks if task.model and not find_listed_model(task.model, patterns)
        )
        if not ignored:
            return plan, ()
        tasks = tuple(structs.replace(task, model=None) if task.model in ignored else task for task in plan.tasks)
        names = to_one_line(", ".join(filter(None, ignored)), MAX_SHOWN_CHARS)
        notice = f"Ignored model {names}: allowed are {_join_patterns(patterns)} (setting models)"
        return structs.replace(plan, tasks=tasks), (notice,)
    chosen = [name for name in ("model", "effort") if any(getattr(task, name) for task in plan.tasks)]
    if not chosen:
        return plan, ()
    tasks = tuple(structs.replace(task, model=None, effort=None) for task in plan.tasks)
    notice = f"Ignored {' and '.join(chosen)}: the setting models lists no model that a call may choose"
    return structs.replace(plan, tasks=tasks), (notice,)


def apply_choices(
    task: Task, agent: AgentProfile, settings: Settings, explicit_settings: Collection[str]
) -> AgentProfile | Failure:
    """Return the agent with the model and the thinking level of its task, or why it cannot have that model."""
    effort = settings.effort if "effort" in explicit_settings else agent.thinking or settings.effort
    agent = structs.replace(agent, thinking=task.effort or effort)
    if task.model is None:
        return agent
    model = task.model if settings.models is None else find_listed_model(task.model, settings.models)
    if model is None:
        return unlisted_model(task.model, settings.models or ())
    # A model of another provider is written with it; one without a provider is a model of the agent's.
    return structs.replace(agent, model=model, provider=None if "/" in model else agent.provider)


def unlisted_model(model: str, patterns: Collection[str]) -> Failure:
    """Return the failure of choosing a model that the user's list does not have."""
    name = to_one_line(model, MAX_SHOWN_CHARS)
    spelling = "" if "/" in model or model in CLAUDE_ALIASES else ", with its provider (PROVIDER/MODEL)"
    message = (
        f'The model "{name}" is not among those that a call may choose: {_join_patterns(patterns)} (setting models). '
        f"Nothing was started. Choose one of these models{spelling}, or add yours to models in your config.toml."
    )
    return Failure(ErrorCode.INVALID_INPUT, message, "models")


def name_model_line(failure: Failure, model: str | None, file: str | None) -> Failure:
    """Return a failure to reach a model with the line of the agent's file that names the model, and the way out."""
    if file is None or failure.reason not in UNUSABLE_MODEL_REASONS:
        return failure
    advice = (
        f"The model {model} comes from the `model` line of {file}. Change or remove that line, choose another model "
        "for this run (`--model`), or set up a provider that has it."
    )
    return structs.replace(failure, message=f"{failure.message}\n{advice}")


def describe_unapplied_choices(task: Task, not_applied: Collection[str]) -> Iterator[str]:
    """Yield the choices of a task that its engine did not apply, by their names in the input."""
    if task.model and "model" in not_applied:
        yield f"model {to_one_line(task.model, MAX_SHOWN_CHARS)}"
    if task.effort and "thinking" in not_applied:
        yield f"effort {task.effort}"


def _join_patterns(patterns: Collection[str]) -> str:
    return to_one_line(", ".join(patterns), MAX_SHOWN_CHARS) or "none"
