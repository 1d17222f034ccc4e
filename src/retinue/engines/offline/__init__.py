"""The offline engine: the agent loop on a model made of rules. It needs no key and no network, and says so."""

from __future__ import annotations

from retinue.engines.base import EngineCapabilities

CAPABILITIES = EngineCapabilities(
    tools=frozenset({"read", "grep", "find", "ls"}),
    enforces=frozenset({"tools", "readonly", "no_tools", "no_extensions", "no_skills", "no_context_files", "gate"}),
    resumes=True,
    finalizes=True,
    delegates=True,
    calls_servers=True,
    reports_cost=True,
    confines=True,
)
