"""The built-in agents: complete, harmless, and of one form."""

from __future__ import annotations

import re

import pytest

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.dialects import AgentSource, read_agent
from retinue.agents.parse import _parse_plain_lines
from retinue.agents.registry import BUILTIN_ORDER
from retinue.agents.search_paths import BUILTIN_FOLDER
from retinue.agents.tool_policy import compute_grant
from retinue.engines.base import EngineCapabilities
from retinue.model.runs import RemovedTool, ToolGrant

LOCAL = ("read", "grep", "find", "ls")
WRITING = ("write", "edit", "bash")
WEB = ("web_search", "fetch_content", "get_search_content", "convert_content")


def agent(name: str) -> Agent:
    found = read_agent(BUILTIN_FOLDER / f"{name}.md", AgentSource(SourceLayer.BUILTIN))
    assert isinstance(found, Agent), found
    return found


def test_package_has_five_built_in_agents():
    assert sorted(path.stem for path in BUILTIN_FOLDER.iterdir()) == sorted(BUILTIN_ORDER)


@pytest.mark.parametrize("name", BUILTIN_ORDER)
def test_built_in_agents_parse_without_notices_and_without_yaml(name):
    found = agent(name)
    assert (found.name, found.notices, found.unknown) == (name, (), ())
    assert found.description
    header = (BUILTIN_FOLDER / f"{name}.md").read_text().split("---\n")[1]
    assert _parse_plain_lines(header) is not None


@pytest.mark.parametrize("name", [name for name in BUILTIN_ORDER if name != "implementer"])
def test_built_in_agents_only_read_and_run_without_optional_tools(name):
    optional = WEB if name == "researcher" else ("lsp",)
    found = agent(name).to_profile()
    assert found.tools.readonly
    grant = compute_grant(
        found, engine="offline", capabilities=EngineCapabilities(tools=frozenset(LOCAL)), allow_write=False
    )
    assert grant == ToolGrant(tools=LOCAL, missing=optional)


def test_implementer_has_writing_tools_with_allow_write_only():
    found = agent("implementer").to_profile()
    capabilities = EngineCapabilities(tools=frozenset((*LOCAL, *WRITING)))
    assert compute_grant(found, engine="api", capabilities=capabilities) == ToolGrant(
        tools=(*LOCAL, *WRITING), missing=("lsp",)
    )
    assert compute_grant(found, engine="api", capabilities=capabilities, allow_write=False) == ToolGrant(
        tools=LOCAL, removed=tuple(RemovedTool(tool, "allow_write") for tool in WRITING), missing=("lsp",)
    )


def test_implementer_runs_on_an_engine_without_writing_tools():
    grant = compute_grant(
        agent("implementer").to_profile(),
        engine="offline",
        capabilities=EngineCapabilities(tools=frozenset(LOCAL)),
    )
    assert grant == ToolGrant(tools=LOCAL, missing=("lsp", *WRITING))


@pytest.mark.parametrize("name", BUILTIN_ORDER)
def test_built_in_agents_state_method_evidence_and_form(name):
    body = agent(name).body
    assert re.findall(r"^## (Method|Rules|Output)$", body, re.MULTILINE) == ["Method", "Rules", "Output"]
    template = body.split("## Output")[1]
    assert "## Findings" in template
    for word in ("path:line", "delegate", "Change nothing", "never"):
        assert word.lower() in body.lower()
    assert 25 <= len((BUILTIN_FOLDER / f"{name}.md").read_text().splitlines()) <= 60
