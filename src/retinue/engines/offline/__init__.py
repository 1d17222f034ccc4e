"""The offline engine: the agent loop on a model made of rules. It needs no key and no network, and says so."""

from __future__ import annotations

from collections.abc import Coroutine

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
    confines=True,
)


class OfflineEngine:
    def __init__(self) -> None:
        self._readers: CapacityLimiter | None = None

    def run(self, spec: RunSpec, emit: Emit) -> Coroutine[object, object, None]:
        # Imported here, so that reading the capabilities loads no rules.
        from retinue.engines.agent_loop import run_agent_loop
        from retinue.engines.offline.rule_model import RuleModel
        from retinue.engines.tools import make_local_toolbox
        from retinue.engines.tools.base import MAX_READERS

        self._readers = self._readers or CapacityLimiter(MAX_READERS)
        toolbox = make_local_toolbox(
            spec.cwd, self._readers, search_path=spec.environment.get("PATH"), sandbox=spec.sandbox
        )
        return run_agent_loop(RuleModel(spec), spec, toolbox, emit)
