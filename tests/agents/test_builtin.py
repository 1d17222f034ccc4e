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
from retinue.model.runs import ToolGrant

LOCAL = ("read", "grep", "find", "ls")
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


@pytest.mark.parametrize("name", BUILTIN_ORDER)
def test_built_in_agents_only_read_and_run_without_optional_tools(name):
    optional = WEB if name == "researcher" else ("lsp",)
    found = agent(name).to_profile()
    assert found.tools.readonly
    grant = compute_grant(
        found, engine="offline", capabilities=EngineCapabilities(tools=frozenset(LOCAL)), allow_write=False
    )
    assert grant == ToolGrant(tools=LOCAL, missing=optional)


@pytest.mark.parametrize("name", BUILTIN_ORDER)
def test_built_in_agents_state_method_evidence_and_form(name):
    body = agent(name).body
    assert re.findall(r"^## (Method|Rules|Output)$", body, re.MULTILINE) == ["Method", "Rules", "Output"]
    template = body.split("## Output")[1]
    assert "## Findings" in template
    for word in ("path:line", "delegate", "Change nothing", "never"):
        assert word in body
    assert 25 <= len((BUILTIN_FOLDER / f"{name}.md").read_text().splitlines()) <= 60
