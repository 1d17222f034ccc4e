"""Try an engine with one task."""

from __future__ import annotations

from retinue.cli.options import RunOptions
from retinue.cli.printing import print_hint
from retinue.cli.run_output import print_failures, print_usage
from retinue.cli.runner import make_retinue, run_plan
from retinue.model.results import RunResult
from retinue.model.tasks import Plan, Task

TOOLSET = "single"
SEARCH_TASK = Task(agent="explorer", prompt="Where is the main entry point, and what does the README say it is for?")
REQUEST_TASK = Task(agent="explorer", prompt="Reply with the one word: ready")
"""One short request to a model, which costs a fraction of a cent."""
MAX_REQUESTS = 2
"""A limit of one would be announced to the model as its last turn."""


def run_trial(engine: str, task: Task, *, model: str | None = None, cwd: str | None = None) -> RunResult:
    """Give an engine one task and return its result; print its failure and what it consumed."""
    print_hint(f"Testing: {task.agent}, {task.prompt}")
    options = RunOptions(
        engine=engine, model=model, cwd=cwd, max_turns=MAX_REQUESTS if task is REQUEST_TASK else None
    )
    retinue, plan = make_retinue(options), Plan(tasks=(task,))
    results = run_plan(retinue, plan, TOOLSET, options, asks_for_trust=False)
    print_failures(results, retinue, plan.mode)
    print_usage(results, retinue, results[0].elapsed, options)
    return results[0]
