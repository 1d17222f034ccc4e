"""Budgets of a process with many conversations: limited in number, and exact after an eviction."""

from __future__ import annotations

from typing import Any

import anyio
from msgspec import structs
from tests.support.retinue_factory import stage

from retinue.client import Retinue
from retinue.engines.scripted import RunCallback, Script, reply
from retinue.model.errors import ErrorCode
from retinue.model.results import RunResult, Usage
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext, Plan, Task
from retinue.runtime.budgets import ConversationBudgets
from retinue.sessions.memory import MemoryStore

TWENTY = Usage(input=15, output=5)


def in_conversation(retinue: Retinue, root: str, **settings: Any) -> CallContext:
    call = retinue.call("nested", **settings)
    return structs.replace(call, lineage=structs.replace(call.lineage, root=root))


async def run(retinue: Retinue, root: str, task: str = "Look", **settings: Any) -> RunResult:
    plan = Plan(tasks=(Task(agent="explorer", prompt=task),))
    return (await retinue.run_plan(plan, in_conversation(retinue, root, **settings)))[0]


def small(retinue: Retinue, store: MemoryStore) -> ConversationBudgets:
    """Replace the budgets of a Retinue by ones with room for two conversations."""
    retinue._orchestrator.budgets = accounts = ConversationBudgets(store, max_conversations=2)
    return accounts


async def test_evicted_conversation_is_counted_again_from_the_store(scratch_home):
    store = MemoryStore()
    async with stage(scratch_home, reply("ok", usage=TWENTY), store=store) as retinue:
        accounts = small(retinue, store)
        for root in ("first", "first", "second", "third", "fourth"):
            assert (await run(retinue, root)).failure is None
        assert len(accounts) == 2
        spent = await run(retinue, "first", max_conversation_tokens=30)
        assert spent.failure
        assert (spent.failure.code, spent.failure.reason) == (ErrorCode.BUDGET, "max_conversation_tokens")


async def test_conversation_with_active_runs_is_not_evicted(scratch_home):
    store, begun, go_on = MemoryStore(), anyio.Event(), anyio.Event()

    async def wait() -> None:
        begun.set()
        await go_on.wait()

    def script(spec: RunSpec) -> Script:
        return (RunCallback(wait), reply("ok")) if spec.task == "Wait" else (reply("ok"),)

    async with stage(scratch_home, script, store=store) as retinue, anyio.create_task_group() as group:
        accounts = small(retinue, store)
        group.start_soon(run, retinue, "first", "Wait")
        await begun.wait()
        purse = accounts.budget("first")
        for root in ("second", "third", "fourth"):
            await run(retinue, root)
        assert accounts.budget("first") is purse
        go_on.set()
