"""An agent as a Python object, and its profile."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from retinue.agents.agent import Agent, Diagnostic, SourceLayer, is_valid_name
from retinue.agents.dialects import AgentSource, read_agent
from retinue.model.agents import AgentProfile, ToolPolicy
from retinue.model.hooks import Hook
from retinue.model.runs import Secret
from retinue.model.sandbox import SandboxMode


def test_agent_is_defined_in_one_line_of_python():
    agent = Agent(name="auditor", description="Audits", body="You audit.", tools=("read", "Grep"), readonly=True)
    assert agent.to_profile() == AgentProfile(
        name="auditor",
        description="Audits",
        body="You audit.",
        tools=ToolPolicy(allow=("read", "grep"), readonly=True),
    )


def test_profile_has_only_fields_of_agent_profile():
    kept = set(Agent.__struct_fields__) - set(AgentProfile.__struct_fields__)
    assert {"persona", "memory", "api_key", "unknown", "notices"} <= kept
    texts: dict[str, Any] = {"persona": "PERSONA", "memory": "MEMORY", "unknown": ("UNKNOWN",)}
    agent = Agent(name="a", api_key=Secret("SECRET"), notices=(Diagnostic("f", "REMARK"),), **texts)
    assert agent.to_profile() == AgentProfile(name="a")
    assert "SECRET" not in repr(agent)


def test_profile_has_every_shared_field_of_the_agent():
    values: dict[str, Any] = {
        "name": "all",
        "description": "d",
        "body": "b",
        "layer": "user",
        "source": "/s",
        "level": "/",
        "digest": "abc",
        "engine": "pi",
        "provider": "p",
        "model": "m",
        "fallback_models": ("n",),
        "thinking": "low",
        "append_system_prompt": "more",
        "hooks": (Hook(event="SubagentStart", command="true"),),
        "extensions": ("e",),
        "no_extensions": True,
        "load_skills": ("s",),
        "suggested_skills": ("t",),
        "no_skills": True,
        "no_context_files": True,
        "extra_args": ("--verbose",),
        "environment": ("CI",),
        "output_schema": "{}",
        "title": "The auditor",
        "is_foreign": True,
        "isolation": "worktree",
        "sandbox": SandboxMode.STRICT,
        "timeout": 1.0,
        "max_turns": 2,
        "max_subagent_depth": 0,
        "output": "o",
        "default_reads": ("r",),
        "color": "red",
        "avatar_emoji": "x",
    }
    assert {*values, "tools"} == {*AgentProfile.__struct_fields__}
    assert Agent(**values).to_profile() == AgentProfile(**values)


def test_lists_are_converted_to_tuples():
    assert Agent(name="a", tools=["read"]) == Agent(name="a", tools=("read",))


def test_string_instead_of_names_is_a_type_error():
    with pytest.raises(TypeError, match="Agent a: tools must be a list of names, not one string"):
        Agent(name="a", tools="read, grep")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("timeout", 0, "timeout must be at least 1 and finite, not 0"),
        ("timeout", math.inf, "timeout must be at least 1 and finite, not inf"),
        ("timeout", math.nan, "timeout must be at least 1 and finite, not nan"),
        ("max_turns", 0, "max_turns must be at least 1 and finite, not 0"),
        ("max_subagent_depth", -1, "max_subagent_depth must be at least 0 and finite, not -1"),
    ],
)
def test_limit_out_of_range_is_a_value_error(field, value, message):
    with pytest.raises(ValueError, match=f"Agent a: {message}"):
        Agent(name="a", **{field: value})


def test_smallest_limits_are_accepted():
    agent = Agent(name="a", timeout=1, max_turns=1, max_subagent_depth=0)
    assert (agent.timeout, agent.max_turns, agent.max_subagent_depth) == (1, 1, 0)


def test_invalid_agent_name_is_a_value_error():
    with pytest.raises(ValueError, match=r"Agent name 'a b' is invalid: use letters"):
        Agent(name="a b")


@pytest.mark.parametrize("name", ["explorer", "Code_Reviewer-2", "ops.planner", "3000", "a" * 64])
def test_ordinary_agent_names_are_valid(name):
    assert is_valid_name(name)


@pytest.mark.parametrize("name", ["", "a\n", ".a", "_a", "a b", "a" * 65])
def test_hostile_agent_names_are_invalid(name):
    assert not is_valid_name(name)


def test_delegation_tool_in_a_list_requests_delegation():
    policy = Agent(name="a", tools=("Read", "Task"), optional_tools=("subagent",)).to_profile().tools
    assert policy == ToolPolicy(allow=("read",), delegates=True)


def test_agents_named_by_delegation_tools_are_the_only_callable_ones():
    policy = Agent(name="a", tools=("Read", "Agent(explorer, tester)", "Task(reviewer)")).to_profile().tools
    named = ("explorer", "tester", "reviewer")
    assert policy == ToolPolicy(allow=("read",), delegates=True, callable_agents=named)


def test_allowed_subagents_narrow_those_that_tools_name():
    agent = Agent(name="a", tools=("Agent(explorer, tester)",), allowed_subagents=("tester", "reviewer"))
    assert agent.to_profile().tools.callable_agents == ("tester",)


def test_denied_delegation_with_a_name_denies_that_agent_only():
    policy = Agent(name="a", delegates=True, denied_tools=("Agent(explorer)", "bash")).to_profile().tools
    assert policy == ToolPolicy(deny=("bash",), delegates=True, uncallable_agents=("explorer",))


def test_tools_with_two_names_are_granted_once():
    policy = Agent(name="a", tools=("Edit", "MultiEdit", "edit", "Glob", "find")).to_profile().tools
    assert policy.allow == ("edit", "find")


SCHEMA_FILES = {
    "yaml": """output_schema:
  type: object
  properties:
    total: {type: integer, minimum: 1}
    kind: {enum: ["1", two, true, null]}
  required: [total]
  additionalProperties: false""",
    "json text": """response_schema: |
  {"type": "object", "properties": {"total": {"type": "integer", "minimum": 1},
   "kind": {"enum": ["1", "two", true, null]}}, "required": ["total"], "additionalProperties": false}""",
    "flow": """outputSchema: {"type": "object", "properties": {"total": {"type": "integer", "minimum": 1},
  "kind": {"enum": ["1", "two", true, null]}}, "required": ["total"], "additionalProperties": false}""",
}


@pytest.mark.parametrize("header", SCHEMA_FILES.values(), ids=list(SCHEMA_FILES))
def test_output_schema_of_a_file_keeps_numbers_booleans_and_null(header, tmp_path):
    path = tmp_path / "counter.md"
    path.write_text(f"---\nname: counter\n{header}\n---\nYou count.\n")
    agent = read_agent(path, AgentSource(SourceLayer.USER))
    assert isinstance(agent, Agent)
    assert json.loads(str(agent.output_schema)) == {
        "type": "object",
        "properties": {"total": {"type": "integer", "minimum": 1}, "kind": {"enum": ["1", "two", True, None]}},
        "required": ["total"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("value", ["true", "[a, b]", "'{\"type\": '"])
def test_output_schema_that_is_no_object_makes_the_file_unusable(value, tmp_path):
    path = tmp_path / "counter.md"
    path.write_text(f"---\nname: counter\noutput_schema: {value}\n---\nYou count.\n")
    found = read_agent(path, AgentSource(SourceLayer.USER))
    assert isinstance(found, Diagnostic)
    assert "is not a JSON object" in found.text


def test_output_schema_of_a_program_is_kept_as_json_text():
    agent = Agent(name="counter", output_schema={"type": "integer"})
    assert agent.to_profile().output_schema == '{"type":"integer"}'
