"""Tool calls and results condensed to a line or two."""

import pytest

from retinue.runtime.progress import ToolCallItem
from retinue.tui.event_lines import format_call, format_error, format_result

CLAUDE_TRUNCATED = (
    "(Showing 100 of 150 matching files; 50 more are not listed. Narrow the pattern or path to see the rest.)"
)
"""The end of a truncated result of `Glob` in Claude Code 2.1."""


@pytest.mark.parametrize(
    ("name", "args", "line"),
    [
        ("read", {"path": "a.py"}, "read → a.py"),
        ("read", {"path": "a.py", "offset": 10}, "read → a.py:10"),
        ("read", {"path": "a.py", "offset": 10, "limit": 50}, "read → a.py:10+50"),
        ("read", {"path": "a.py", "limit": 50}, "read → a.py:1+50"),
        ("grep", {"pattern": "x.*y"}, "grep → /x.*y/"),
        ("grep", {"pattern": "x", "glob": "*.py"}, "grep → /x/ → *.py"),
        ("grep", {"pattern": "x", "path": "src"}, "grep → /x/ → src"),
        ("ls", {"path": "src/"}, "ls → src/"),
        ("ls", {}, "ls → ."),
        ("find", {"pattern": "*.ts", "path": "src/"}, "find → *.ts in src/"),
        ("find", {"pattern": "*.ts", "path": "."}, "find → *.ts"),
        ("bash", {"command": "make test\nmake check"}, "bash → make test"),
        ("edit", {"path": "a.py", "oldText": "x", "newText": "y\nz"}, "edit → a.py +2/-1"),
        (
            "edit",
            {"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}, {"oldText": "", "newText": "z"}]},
            "edit → a.py (2 edits) +2/-1",
        ),
        ("write", {"path": "a.py", "content": "x\ny\n"}, "write → a.py +2"),
        ("subagent", {"agent": "explorer", "task": "look\nhard"}, "subagent → explorer: look"),
        ("spawn_subagent", {"agent": "explorer", "task": "look"}, "spawn_subagent → explorer: look"),
        (
            "spawn_subagent",
            {"mode": "parallel", "tasks": [{"agent": "explorer"}, {"agent": "tester"}, 1]},
            "spawn_subagent → parallel: explorer, tester",
        ),
        ("web_search", {"query": "rich live"}, "web_search → rich live"),
        ("write_todos", {"mode": "append", "todos": [{"text": "a"}, {"text": "b"}]}, "write_todos → 2 todos written"),
        ("edit_todos", {"action": "complete", "indices": [0, 2]}, "edit_todos → complete [0, 2]"),
        ("get_subagent_output", {"sessionId": "a3f7b9c2d1e8f4a1"}, "get_subagent_output → a3f7b9c2d1e8f4a1"),
        ("unheard_of", {"b": [1], "a": None}, 'unheard_of → {"b":[1],"a":null}'),
        ("unheard_of", {}, "unheard_of"),
        (
            "subagent_finalize",
            {"status": "SUCCESS", "result": "In a.py.\nLine 4."},
            "subagent_finalize → SUCCESS: In a.py.",
        ),
        (
            "subagent_finalize",
            {"status": "ERROR", "error": "No access.", "result": "half"},
            "subagent_finalize → ERROR: No access.",
        ),
        (
            "subagent_finalize",
            {"status": "SUCCESS", "result": {"total": 3, "ok": True}},
            'subagent_finalize → SUCCESS: {"total":3,"ok":true}',
        ),
    ],
)
def test_tool_call_is_one_line(name, args, line):
    assert format_call(name, args) == line


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            {"tasks": [{"profile": "writer"}, {"profile": "researcher"}, {"name": "x"}], "profile": "researcher"},
            "3 sub-agents (default profile: researcher) profiles: [writer, researcher]",
        ),
        (
            {"tasks": [{"profile": "writer"}, {"profile": "nobody"}, {"profile": "writer"}]},
            "3 sub-agents profiles: [writer, nobody]",
        ),
        ({"tasks": [{"name": "x"}]}, "1 sub-agent"),
        ({"tasks": "none"}, "0 sub-agents"),
    ],
)
def test_delegation_call_shows_its_tasks_and_profiles(args, line):
    assert format_call("delegate_to_subagents", args) == f"delegate_to_subagents {line}"


def test_recursive_arguments_have_a_placeholder():
    endless: dict[str, object] = {}
    endless["itself"] = endless
    deep: object = None
    for _ in range(100_000):
        deep = [deep]
    assert format_call("unheard_of", endless) == "unheard_of → (arguments cannot be shown)"
    assert format_call("unheard_of", {"a": deep}) == "unheard_of → (arguments cannot be shown)"


@pytest.mark.parametrize(
    "name",
    [
        "read",
        "grep",
        "ls",
        "find",
        "bash",
        "edit",
        "write",
        "subagent",
        "fetch_content",
        "delegate_to_subagents",
        "write_todos",
        "edit_todos",
    ],
)
@pytest.mark.parametrize("value", [None, 3, ["x"], {"y": 1}])
def test_arguments_of_any_type_are_formatted(name, value):
    names = ("path", "pattern", "command", "content", "edits", "newText", "offset", "agent", "url", "tasks", "todos")
    assert format_call(name, dict.fromkeys(names, value)).startswith(name)


@pytest.mark.parametrize(
    ("name", "result", "line"),
    [
        ("ls", "a.py\nb.py\nlib/", "2 files, 1 dir"),
        ("ls", "lib/", "1 dir"),
        ("ls", "", "(empty)"),
        ("ls", "(empty directory)", "(empty)"),
        ("ls", "a\nb/\n\n[500 entries limit reached. Use limit=1000 for more.]", "1 file, 1 dir+"),
        ("find", "a.ts\nb.ts\nc.ts", "3 matches"),
        ("find", "a.ts", "1 match"),
        ("find", "No files found matching pattern", "0 matches"),
        ("find", "a.ts\n\n[1 results limit reached. Use limit=2 for more, or refine pattern.]", "1 match+"),
        ("find", "a.ts\n\n[Could not read lib.]", "1 match"),
        ("find", "No files found", "0 matches"),
        ("find", f"a.ts\nb.ts\n{CLAUDE_TRUNCATED}", "2 matches+"),
        ("find", "a.ts\n(Results are truncated. Consider using a more specific path or pattern.)", "1 match+"),
        ("find", "a.ts\n(draft)", "2 matches"),
        ("find", "(draft)", "1 match"),
        ("ls", "(empty directory)\n\n[Could not read lib.]", "(empty)"),
        ("read", "text", None),
    ],
)
def test_listing_result_is_counted(name, result, line):
    assert format_result(ToolCallItem("1", name, {}, result)) == line


def test_failed_call_shows_the_first_line_of_its_result():
    assert format_error(ToolCallItem("1", "ls", {}, "\nNo such folder\nmore", is_error=True)) == "No such folder"
    assert format_error(ToolCallItem("1", "ls", {}, "", is_error=True)) == "failed"
    violations = "The result does not match its schema:\n$.title (type): 5 is not of type 'string'\n$ (required): …"
    assert format_error(ToolCallItem("1", "subagent_finalize", {}, violations, is_error=True)) == (
        "The result does not match its schema: $.title (type): 5 is not of type 'string'"
    )
    assert format_error(ToolCallItem("1", "ls", {}, "Failed:", is_error=True)) == "Failed:"
    assert format_result(ToolCallItem("1", "ls", {}, "No such folder", is_error=True)) is None
    assert format_error(ToolCallItem("1", "ls", {}, "a.py")) is None
