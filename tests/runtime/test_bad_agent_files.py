"""Agent files that contradict themselves, mix dialects or are broken: refused by name, with the next step."""

from __future__ import annotations

import pytest
from tests.support.repositories import write_files
from tests.support.retinue_factory import scripted, stage

from retinue.engines.base import EngineCapabilities
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, TextStep
from retinue.model.errors import ErrorCode

PLAIN = scripted(
    ScriptedEngine(TextStep(text="ok")),
    EngineCapabilities(tools=frozenset({"read", "bash"}), enforces=CAPABILITIES.enforces, default_tools=("read",)),
)
"""An engine that lacks most tools."""

MIXED = {
    "opencode's rules in a file of Claude Code": (".claude/agents/x.md", "permission: {bash: deny}", "permission"),
    "Codex' sandbox in a file of Claude Code": (".claude/agents/x.md", "sandbox_mode: read-only", "sandbox_mode"),
    "Claude Code's mode in a file of opencode": (
        ".config/opencode/agent/x.md",
        "permissionMode: plan",
        "permissionMode",
    ),
    "Claude Code's mode in a file of Gemini CLI": (".gemini/agents/x.md", "permissionMode: plan", "permissionMode"),
    "Codex' sandbox in a file of Copilot": (".copilot/agents/x.agent.md", "sandbox_mode: read-only", "sandbox_mode"),
    "a misspelled mode of Claude Code": (".claude/agents/x.md", "permissionMode: planning", "permissionMode"),
    "an unknown sandbox of Codex": (".claude/agents/x.md", "sandbox_mode: docker", "sandbox_mode"),
    "rules of opencode in a file of ours": (".config/retinue/agents/x.md", "permission: {edit: ask}", "permission"),
}


@pytest.mark.parametrize("case", MIXED)
async def test_restriction_of_another_dialect_refuses_the_run_by_its_key(scratch_home, case):
    path, line, key = MIXED[case]
    write_files(scratch_home, {path: f"---\nname: x\ndescription: d\n{line}\n---\nWork.\n"})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        failure = (await retinue.run("x", "Look")).failure
    assert failure
    assert (failure.code, failure.reason) == (ErrorCode.UNSUPPORTED, "restriction")
    assert failure.message == (
        f'Agent "x" is restricted by {key} in {scratch_home / path}, which cannot be enforced here. Nothing was run. '
        "Remove the key there, or write the restriction as tools, readonly or sandbox."
    )


BROKEN = {
    "opencode's switches in a file of Claude Code": (
        ".claude/agents/x.md", "---\nname: x\ntools: {write: false}\n---\nWork.\n",
        "tools: {'write': 'false'} is not a list of names",
    ),
    "Markdown in a file of Codex": (
        ".codex/agents/x.toml", "---\nname: x\n---\nWork.\n", "is not valid TOML: ",
    ),
    "a table of Codex that is not closed": (
        ".codex/agents/x.toml", 'name = "x"\nsandbox_mode = "read-only\n',
        "is not valid TOML: ",
    ),
    "a remote agent of Gemini CLI": (
        ".gemini/agents/x.md", "---\nname: x\nkind: remote\nagent_card_url: http://localhost\n---\n",
        "is a remote agent (A2A), which cannot be run here",
    ),
    "a flag that is neither on nor off": (
        ".cursor/agents/x.md", "---\nname: x\nreadonly: mostly\n---\nWork.\n", "readonly: 'mostly' is not true or false",
    ),
    "an isolation that does not exist": (
        ".claude/agents/x.md", "---\nname: x\nisolation: container\n---\nWork.\n",
        "isolation: 'container' is not worktree or none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
async def test_broken_file_is_reported_and_named_when_its_agent_is_called(scratch_home, case):
    path, text, reason = BROKEN[case]
    write_files(scratch_home, {path: text})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        (problem,) = retinue.roster().problems
        failure = (await retinue.run("x", "Look")).failure
    assert failure
    assert failure.code is ErrorCode.UNKNOWN_AGENT
    assert problem.text.startswith(reason)
    assert (problem.file, failure.detail["broken"]) == (str(scratch_home / path), str(problem))


async def test_allow_and_deny_list_at_once_are_refused_where_their_tool_knows_only_one(scratch_home):
    path = scratch_home / ".config/retinue/agents/x.md"
    write_files(
        scratch_home, {".config/retinue/agents/x.md": "---\nname: x\ntools: read\ndenied_tools: bash\n---\nW.\n"}
    )
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        failure = (await retinue.run("x", "Look")).failure
    assert failure
    assert failure.code is ErrorCode.CONFLICT
    assert failure.message == (
        f'Agent "x" ({path}) has both an allow list and a deny list of tools. Nothing was started. '
        "Keep one of the two."
    )


async def test_allow_and_deny_list_of_claude_code_grant_the_rest(scratch_home):
    header = "---\nname: x\ntools: Read, Bash, Grep\ndisallowedTools: Bash\n---\nWork.\n"
    write_files(scratch_home, {".claude/agents/x.md": header})
    async with stage(scratch_home, TextStep(text="ok")) as retinue:
        result = await retinue.run("x", "Look", allow_write=True)
    assert (result.failure, result.actual.tools_granted) == (None, ("read", "grep"))


async def test_entry_of_a_list_may_have_spaces_and_is_one_tool(scratch_home):
    write_files(scratch_home, {
        ".copilot/agents/x.agent.md": "---\nname: x\ntools: ['read', 'Microsoft Docs']\n---\nWork.\n"
    })  # fmt: skip
    async with stage(scratch_home, engines=PLAIN) as retinue:
        result = await retinue.run("x", "Look", allow_write=True)
    assert (result.failure, result.actual.tools_missing) == (None, ("Microsoft Docs",))


@pytest.mark.parametrize(
    ("tools", "hint"),
    [
        ("websearch_, web_serch", "Did you mean web_search?"),
        ("baash, bassh, reed", "Did you mean bash, read?"),
    ],
)
async def test_suggestions_name_each_tool_once(scratch_home, tools, hint):
    write_files(scratch_home, {".config/retinue/agents/x.md": f"---\nname: x\ntools: {tools}\n---\nWork.\n"})
    async with stage(scratch_home, engines=PLAIN) as retinue:
        failure = (await retinue.run("x", "Look")).failure
    assert failure
    assert f" {hint} Nothing was started." in failure.message
