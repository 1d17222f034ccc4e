"""Hooks and the guard of files on api, on both versions of pi and on Claude Code: one gate before every tool call."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engines.api.conftest import environment
from tests.real.claude_install import need_claude
from tests.real.programs import Program, Step, claude_program, pi_program
from tests.support.mcp_servers import stdio_definition
from tests.support.model_server import ModelServer, script64

from retinue import Agent, Retinue
from retinue.model.errors import ErrorCode
from retinue.model.events import Notice, ToolReturned
from retinue.model.hooks import Hook
from retinue.model.tasks import Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

DONE = {"text": "Done."}


@pytest.fixture(params=["api", "pi_0_87", "pi_1_5", "claude"])
def program(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Path) -> Program:
    home = tmp_path / "home"
    if request.param == "claude":
        need_claude()
        return claude_program(home, server.url)
    if request.param == "api":
        return Program(
            engine="api",
            model="openai/scripted-1",
            environ={"HOME": str(home), "PATH": "/usr/bin:/bin", **environment(server.url)},
            agents=home,
            has_prompt=str.startswith,
        )
    return pi_program(request.getfixturevalue(request.param), home, server.url)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", f"import json, sys; given = json.load(sys.stdin)\n{code}"])


def before(command: str, matcher: str = "", **fields: Any) -> Hook:
    return Hook(event="PreToolUse", command=command, matcher=matcher, **fields)


def worker(*hooks: Hook, **fields: Any) -> Agent:
    tools = ("read", "write", "edit", "bash")
    return Agent(
        **{"name": "worker", "description": "Works.", "body": "You work.", "tools": tools, "hooks": hooks} | fields
    )


def bash_step(program: Program, command: str) -> Step:
    return program.tool_step("bash", command=command)


def edit_step(program: Program, file: Path, old: str, new: str) -> Step:
    if program.engine == "claude":
        return {"tool": "Edit", "args": {"file_path": str(file), "old_string": old, "new_string": new}}
    if program.engine == "pi":
        return {"tool": "edit", "args": {"path": str(file), "edits": [{"oldText": old, "newText": new}]}}
    return {"tool": "edit", "args": {"path": str(file), "oldText": old, "newText": new}}


class Played:
    def __init__(self, results: Any, records: Any) -> None:
        self.results = results
        self.result = results[0]
        events = [record.event for record in records]
        self.returned = [(each.name, each.text, each.is_error) for each in events if isinstance(each, ToolReturned)]
        self.notices = [each.message for each in events if isinstance(each, Notice) and each.code == "hook"]


async def play(program: Program, project: Path, tmp_path: Path, agent: Agent, *scripts: list[Step]) -> Played:
    """Run the agent once for each script, side by side."""
    async with (
        Retinue(
            cwd=project,
            engine=program.engine,
            agents=[agent],
            environ=program.environ,
            state=tmp_path / "state",
            settings={"model": program.model, "allow_write": True},
        ) as retinue,
        retinue.events() as watcher,
    ):
        tasks = [Task(agent="worker", prompt=script64(script)) for script in scripts]
        results = await retinue.delegate(tasks)
        return Played(results, list(watcher.drain()))


async def test_hook_denies_a_call_before_it_is_executed(program, project, tmp_path):
    mark, seen = tmp_path / "mark", tmp_path / "seen.json"
    hook = before(
        python(f"json.dump(given, open({str(seen)!r}, 'w')); print('no touching', file=sys.stderr); sys.exit(2)"),
        "Bash",
    )
    played = await play(program, project, tmp_path, worker(hook), [bash_step(program, f"touch {mark}"), DONE])
    assert played.result.failure is None
    ((name, text, is_error),) = played.returned
    assert (name, is_error, mark.exists()) == ("bash", True, False)
    assert "Denied by the PreToolUse(Bash) hook `" in text
    assert "no touching" in text
    given = json.loads(seen.read_text())
    assert given["tool_name"] == "Bash"
    assert given["tool_input"]["command"] == f"touch {mark}"
    assert (given["agent_type"], given["agent_id"]) == ("worker", played.result.run)


async def test_hook_changes_the_input_and_adds_context(program, project, tmp_path, server):
    output = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {"command": "echo changed"},
            "additionalContext": "Mind the gap.",
        }
    }
    hook = before(f"cat >/dev/null; printf %s {shlex.quote(json.dumps(output))}", "Bash")
    played = await play(program, project, tmp_path, worker(hook), [bash_step(program, "echo given"), DONE])
    assert played.result.failure is None
    ((_, text, is_error),) = played.returned
    assert not is_error
    assert "changed" in text
    assert "given" not in text
    assert "Mind the gap." in json.dumps(server.requests[-1].body)


@pytest.mark.parametrize("command", ["exit 1", "kill -9 $$", "echo {", "sleep 100"])
async def test_hook_that_fails_to_decide_denies(program, project, tmp_path, command):
    mark = tmp_path / "mark"
    agent = worker(before(command, timeout=1))
    played = await play(program, project, tmp_path, agent, [bash_step(program, f"touch {mark}"), DONE])
    ((_, text, is_error),) = played.returned
    assert (is_error, mark.exists(), len(played.notices)) == (True, False, 1)
    assert "could not decide" in text


async def test_hook_sees_paths_as_the_tool_resolves_them(program, project, tmp_path):
    seen = tmp_path / "seen"
    hook = before(
        python(f"print(given['tool_name'], given['tool_input']['file_path'], file=open({str(seen)!r}, 'a'))")
    )
    file = project / "a.txt"
    script = [
        program.read_step(file),
        edit_step(program, file, "XYZZY", "plugh"),
        DONE,
    ]
    played = await play(program, project, tmp_path, worker(hook), script)
    assert [is_error for _, _, is_error in played.returned] == [False, False]
    assert seen.read_text().splitlines() == [f"Read {file}", f"Edit {file}"]
    assert "plugh" in file.read_text()


async def test_end_hook_makes_the_agent_go_on_in_its_session(program, project, tmp_path, server):
    mark = tmp_path / "mark"
    again = script64([{"text": "Done again."}])
    hook = Hook(
        event="SubagentStop", command=f"test -e {mark} || {{ touch {mark}; echo 'Test it. {again}' >&2; exit 2; }}"
    )
    played = await play(program, project, tmp_path, worker(hook), [{"text": "First answer."}])
    assert (played.result.failure, played.result.text) == (None, "Done again.")
    assert [attempt.reason for attempt in played.result.actual.attempts] == ["first", "hook"]
    assert "First answer." in json.dumps(server.requests[-1].body)


async def test_start_hook_adds_context_to_the_first_request(program, project, tmp_path, server):
    output = {"hookSpecificOutput": {"hookEventName": "SubagentStart", "additionalContext": "Mind the gap."}}
    hook = Hook(event="SubagentStart", command=f"printf %s {shlex.quote(json.dumps(output))}")
    played = await play(program, project, tmp_path, worker(hook), [DONE])
    assert (played.result.failure, played.result.text) == (None, "Done.")
    assert "Mind the gap." in json.dumps(server.requests[0].body)


async def test_second_run_that_changes_a_file_is_refused_until_it_reads_it_again(program, project, tmp_path):
    file = project / "shared.txt"
    file.write_text("one\nother\n")
    read, wrote, repaired = (tmp_path / name for name in ("read", "wrote", "repaired"))
    wait = "while ! test -e {}; do sleep 0.05; done"
    first = [bash_step(program, wait.format(read)), program.read_step(file), edit_step(program, file, "one", "two"), bash_step(program, f"touch {wrote}"),
             bash_step(program, wait.format(repaired)), DONE]  # fmt: skip
    second = [program.read_step(file), bash_step(program, f"touch {read}; {wait.format(wrote)}"), edit_step(program, file, "other", "three"),
              program.read_step(file), edit_step(program, file, "other", "three"),
              bash_step(program, f"touch {repaired}"), DONE]  # fmt: skip
    played = await play(program, project, tmp_path, worker(), first, second)
    assert [result.failure for result in played.results] == [None, None]
    errors = [text for _, text, is_error in played.returned if is_error]
    assert len(errors) == 1
    assert f"{file} was changed by the task" in errors[0]
    assert "since you read it" in errors[0]
    assert file.read_text() == "two\nthree\n"
    assert [
        [notice for notice in each.actual.notices if "was refused" in notice] != [] for each in played.results
    ] == [
        False,
        True,
    ]


async def test_hook_denies_delegation_as_task_and_agent(program, project, tmp_path):
    hook = before("echo alone >&2; exit 2", "Task")
    lead = worker(hook, tools=("read", "Task"))
    step = program.tool_step("spawn_subagent", agent="explorer", task="Look.")
    steps = [step, DONE]
    if program.engine == "claude":
        native = {"subagent_type": "explorer", "prompt": "Look.", "description": "A look"}
        steps = [step, {"tool": "Agent", "args": native}, DONE]
    played = await play(program, project, tmp_path, lead, steps)
    assert played.result.failure is None
    assert len(played.returned) == len(steps) - 1
    assert all(is_error and "Denied by the PreToolUse(Task) hook `" in text for _, text, is_error in played.returned)


async def test_hook_denies_calls_of_mcp_servers(program, project, tmp_path):
    seen = tmp_path / "seen.json"
    hook = before(python(f"json.dump(given, open({str(seen)!r}, 'w')); sys.exit(2)"), "mcp__docs__.*")
    agent = worker(hook, tools=("read", "mcp__docs__*"), mcp_servers={"docs": stdio_definition()})
    step = {"tool": "mcp__docs__search", "args": {"query": "bus"}}
    played = await play(program, project, tmp_path, agent, [step, DONE])
    assert played.result.failure is None
    ((_, text, is_error),) = played.returned
    assert is_error
    assert "Denied by the PreToolUse(mcp__docs__.*) hook `" in text
    given = json.loads(seen.read_text())
    assert (given["tool_name"], given["tool_input"]) == ("mcp__docs__search", {"query": "bus"})


async def test_pi_that_cannot_ask_refuses_agents_with_hooks(pi, server, project, tmp_path):
    program = pi_program(pi, tmp_path / "home", server.url)
    agent = worker(before("true"), extra_args=("--verbose",))
    played = await play(program, project, tmp_path, agent, [DONE])
    failure = played.result.failure
    assert failure is not None
    assert (failure.code, failure.reason) == (ErrorCode.UNSUPPORTED, "hook")
    assert "The PreToolUse hooks of agent" in failure.message
