"""The offline engine: the agent loop on a model made of rules. No key, no network.

It searches and reads with the run's own tools and answers with `path:line` evidence, and says that it is no model.

    handing    what the task asks of others: `ask explorer: …`
    terms      what a task is about
    inquiry    what the tools are asked, turn by turn, and everything found out: the `Case`
    ranking    which files and lines count     sources: what a file and a line are
    roles/     what an explorer, reviewer, tester, implementer or researcher makes of it
    form       the answer under the agent's own headings
    model      all of it behind the loop's `Model`
"""

from __future__ import annotations

from anyio import CapacityLimiter

from retinue.engines.base import Emit, EngineCapabilities
from retinue.model.runs import RunSpec

CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "grep", "find", "ls"}),
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files"}),
    resumes=True,
    finalizes=True,
    delegates=True,
    reports_cost=True,
)


class OfflineEngine:
    def __init__(self) -> None:
        self._readers: CapacityLimiter | None = None

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        # Here, so that asking what the engine can do costs no more than this file.
        from retinue.engines.agent_loop import run_agent_loop
        from retinue.engines.offline.model import RuleModel
        from retinue.engines.tools.call_budget import MAX_READERS
        from retinue.engines.tools.local import make_local_toolbox

        self._readers = self._readers or CapacityLimiter(MAX_READERS)
        await run_agent_loop(RuleModel(spec), spec, make_local_toolbox(spec.cwd, self._readers), emit)
