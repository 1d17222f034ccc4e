"""The agents that a run may delegate to, as engines that announce them get them."""

from __future__ import annotations

from pathlib import Path

from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import Script, ScriptedEngine, reply
from retinue.model.runs import AgentDescription, RunSpec
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

KEY = "ghp_" + "a1B2" * 9
LEAD = Agent(name="lead", description="Leads.", body="You lead.", tools=("read", "subagent"))
WORKER = Agent(
    name="worker",
    description="Works.\nAlways.",
    body=f"You work with {KEY}.",
    persona="You are witty.",
    memory="Tea at five.",
    tools=("read",),
    optional_tools=("lsp",),
)
STRANGE = "---\nname: strange\ndescription: Not accepted.\ntools: bash\n---\nYou write.\n"


async def list_agents_of_lead(folder: Path) -> tuple[AgentDescription, ...]:
    """Return the agents that a lead gets while it works in the folder."""
    found: list[AgentDescription] = []

    def script(spec: RunSpec) -> Script:
        assert spec.delegation
        found.extend(spec.delegation.list_agents())
        return (reply("led"),)

    async with Retinue(
        cwd=folder,
        engine="scripted",
        engines=scripted(ScriptedEngine(script)),
        agents=[LEAD, WORKER],
        environ={"HOME": str(folder), "TMPDIR": str(folder)},
        store=MemoryStore(),
    ) as retinue:
        await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead."),)), retinue.call("nested"))
    return tuple(found)


async def test_agent_list_of_a_run_has_no_persona_memory_or_keys(tmp_path: Path):
    of_project = tmp_path / ".retinue" / "agents"
    of_project.mkdir(parents=True)
    (of_project / "strange.md").write_text(STRANGE)
    agents = {agent.name: agent for agent in await list_agents_of_lead(tmp_path)}
    assert {"explorer", "lead", "worker"} <= agents.keys()
    assert "strange" not in agents, "nobody has accepted it"
    worker = agents["worker"]
    assert (worker.description, worker.tools) == ("Works. Always.", ("read", "lsp"))
    assert worker.body.startswith("You work with ")
    assert not [word for word in (KEY, "witty", "Tea") if word in str(agents)]
