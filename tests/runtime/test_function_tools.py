"""Python functions as tools of an agent: definition, calls, and engines that cannot call them."""

from __future__ import annotations

import pytest
from tests.engines.api.conftest import environment
from tests.support.model_server import ModelServer, ScriptedTurn

from retinue import Agent, Retinue
from retinue.model.errors import ErrorCode
from retinue.sessions.memory import MemoryStore


def stock(product: str, minimum: int = 0) -> dict[str, int]:
    """Return the stock of a product by warehouse."""
    if product == "unicorn":
        raise KeyError(product)
    return {"north": 3 + minimum}


async def price(product: str) -> str:
    """Return the price of a product."""
    return f"{product}: 7"


def untyped(product):
    return product


def variadic(*products: str) -> str:
    return ""


def read(path: str) -> str:
    return path


CLERK = Agent(name="clerk", description="Knows the stock.", tools=["ls", stock, price])
ANSWER = ScriptedTurn(text="Seven.")


async def ask(tmp_path, agent: Agent, *turns: ScriptedTurn, engine: str = "api"):
    """Run a task of the agent and return its result and the requests that the model server got."""
    async with (
        ModelServer([*turns]) as server,
        Retinue(
            agents=[agent],
            engine=engine,
            cwd=tmp_path,
            state=tmp_path,
            store=MemoryStore(),
            environ=environment(server.url),
        ) as retinue,
    ):
        result = await retinue.run(agent.name, "How many?", model="anthropic/scripted-1")
        return result, server.requests


def test_functions_and_names_are_kept_apart():
    assert (CLERK.tools, CLERK.functions) == (("ls",), (stock, price))
    assert CLERK.to_profile().tools.allow == ("ls",)


@pytest.mark.parametrize("tools", [[untyped], [variadic], [7], [dict]])
def test_tool_that_is_no_annotated_function_is_refused(tools):
    with pytest.raises(TypeError, match="Agent clerk"):
        Agent(name="clerk", tools=tools)


@pytest.mark.parametrize("tools", [[read], [stock, stock], [lambda: ""]])
def test_function_without_a_name_of_its_own_is_refused(tools):
    with pytest.raises(ValueError, match="Agent clerk"):
        Agent(name="clerk", tools=tools)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("stock", {"product": "lamp", "minimum": 1}, '{"north":4}'),
        ("price", {"product": "lamp"}, "lamp: 7"),
        ("stock", {"product": "unicorn"}, "stock failed: KeyError: 'unicorn'"),
        ("stock", {"product": 3, "minimum": "x"}, "Invalid arguments for stock"),
    ],
)
async def test_model_calls_a_function_and_gets_its_result(tmp_path, name, args, expected):
    result, requests = await ask(tmp_path, CLERK, ScriptedTurn(tool=name, args=args), ANSWER)
    assert result.failure is None
    assert result.text == "Seven."
    assert expected in requests[-1].messages[-1].text


async def test_functions_stay_on_a_readonly_agent_and_go_with_no_tools(tmp_path):
    _, requests = await ask(tmp_path, Agent(name="clerk", tools=[stock], readonly=True), ANSWER)
    assert requests[0].tools == ("stock",)
    _, requests = await ask(tmp_path, Agent(name="clerk", tools=[stock], no_tools=True), ANSWER)
    assert not requests[0].tools


async def test_engine_that_cannot_call_functions_fails_by_name(tmp_path):
    result, _ = await ask(tmp_path, CLERK, engine="offline")
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "functions")
    assert "stock, price" in result.failure.message
