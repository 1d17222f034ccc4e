"""Hooks of agents on the scripted engine: what they read, what they decide, and how they fail."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from tests.support.retinue_factory import scripted, stage

from retinue import Agent, Retinue
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, call, finalize, reply, spawn
from retinue.model.errors import ErrorCode
from retinue.model.events import Notice, ToolReturned
from retinue.model.hooks import Hook
from retinue.sessions.memory import MemoryStore

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


def python(code: str) -> str:
    """Return the command of a hook in Python; `given` is its input."""
    return shlex.join([sys.executable, "-c", f"import json, sys; given = json.load(sys.stdin)\n{code}"])


def answers(**output: object) -> str:
    return f"cat >/dev/null; printf %s {shlex.quote(json.dumps(output))}"


def decides(decision: str, **more: object) -> str:
    return answers(hookSpecificOutput={"hookEventName": "PreToolUse", "permissionDecision": decision, **more})


def before(command: str, matcher: str = "", **fields) -> Hook:
    return Hook(event="PreToolUse", command=command, matcher=matcher, **fields)


def worker(*hooks: Hook, **fields) -> Agent:
    return Agent(
        **{
            "name": "worker",
            "body": "You work.",
            "tools": ("read", "write", "edit", "bash"),
            "hooks": hooks,
            **fields,
        }
    )


CALL = call("bash", command="make", returns="made")


async def play(home: Path, agent: Agent, *script, task: str = "Work.", **options):
    """Return the result of a run, the results of its calls and the notices about hooks."""
    script = script or (CALL, reply("Done."))
    async with stage(home, *script, agents=[agent], **options) as retinue, retinue.events() as watcher:
        result = await retinue.run("worker", task, allow_write=True)
        events = [record.event for record in watcher.drain()]
    returned = [(event.text, event.is_error) for event in events if isinstance(event, ToolReturned)]
    notices = [event.message for event in events if isinstance(event, Notice) and event.code == "hook"]
    return result, returned, notices


# -- before a call -----------------------------------------------------------------------------------


async def test_hook_reads_the_call_as_claude_code_writes_it(scratch_home):
    seen = scratch_home / "seen.json"
    hook = before(python(f"json.dump([given, sorted(__import__('os').environ)], open({str(seen)!r}, 'w'))"), "Write")
    script = (call("write", path="sub/../a.txt", content="x"), reply("Done."))
    result, _, _ = await play(scratch_home, worker(hook), *script)
    given, environ = json.loads(seen.read_text())
    assert given == {
        "session_id": result.session,
        "transcript_path": "",
        "cwd": str(scratch_home),
        "permission_mode": "dontAsk",
        "hook_event_name": "PreToolUse",
        "agent_id": result.run,
        "agent_type": "worker",
        "tool_name": "Write",
        "tool_input": {"file_path": f"{scratch_home}/a.txt", "content": "x"},
        "tool_use_id": f"{result.run[:8]}-1",
    }
    assert "CLAUDE_PROJECT_DIR" in environ
    assert result.failure is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo no builds >&2; exit 2", "no builds"),
        ("exit 2", "The hook gave no reason."),
        (answers(decision="block", reason="not now"), "not now"),
        (decides("deny", permissionDecisionReason="forbidden"), "forbidden"),
        (
            decides("ask", permissionDecisionReason="sure?"),
            "sure? (the hook asks for a decision, and nobody is asked",
        ),
        (decides("ask"), "the hook asks for a decision"),
    ],
)
async def test_hook_denies_a_call_with_its_reason(scratch_home, command, reason):
    result, returned, notices = await play(scratch_home, worker(before(command, "Bash")))
    ((text, is_error),) = returned
    assert is_error
    assert text.startswith("Denied by the PreToolUse(Bash) hook `")
    assert reason in text
    assert (result.failure, notices) == (None, [])


@pytest.mark.parametrize(
    "command",
    ["true", "echo fine", "cat", decides("allow"), decides("defer"), answers(), answers(decision="approve")],
)
async def test_hook_allows_a_call(scratch_home, command):
    result, returned, notices = await play(
        scratch_home, worker(before(command if command != "cat" else "cat >/dev/null"))
    )
    assert (result.failure, returned, notices) == (None, [("made", False)], [])


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("exit 1", "it exited with code 1"),
        ("echo broken >&2; exit 3", "it exited with code 3: broken"),
        ("no-such-program", "it exited with code 127"),
        ("kill -9 $$", "it was ended by signal 9"),
        ('echo "{not json"', "its output is no valid answer"),
        ("echo '[]'", "its output is no valid answer"),
        (answers(decision="perhaps"), "its output is no valid answer"),
        (answers(hookSpecificOutput={"permissionDecision": 1}), "its output is no valid answer"),
        ("printf '\\377\\376'", "its output is not UTF-8"),
        ("yes", "it printed more than 256 KiB"),
        ("yes >&2", "it did not end within 1 seconds"),
        ("sleep 100 & sleep 100", "it did not end within 1 seconds"),
    ],
)
async def test_hook_that_fails_to_decide_denies_the_call_and_is_reported_by_name(scratch_home, command, fault):
    result, returned, notices = await play(scratch_home, worker(before(command, "Bash", timeout=1)))
    ((text, is_error),) = returned
    assert is_error
    assert text.startswith("Denied, because the PreToolUse(Bash) hook `")
    assert f"could not decide: {fault}" in text
    (notice,) = notices
    assert f" failed: {fault}" in notice
    assert result.actual.notices == (notice,)


async def test_hooks_see_only_the_tools_they_match(scratch_home):
    agent = worker(before("exit 2", "Write|Edit"), before("exit 2", "mcp__.*"), before("exit 2", "Bas"))
    _, returned, _ = await play(scratch_home, agent)
    assert returned == [("made", False)]


async def test_matcher_that_takes_too_long_matches(scratch_home):
    agent = worker(before("exit 2", "(a|a)*[bc]"), tools=("read", "a" * 60))
    script = (call("a" * 60, returns="called"), CALL, reply("Done."))
    _, returned, _ = await play(scratch_home, agent, *script)
    assert [is_error for _, is_error in returned] == [True, False]


async def test_first_hook_that_denies_decides(scratch_home):
    mark = scratch_home / "mark"
    agent = worker(before("true"), before("exit 2"), before(f"touch {mark}"))
    _, returned, _ = await play(scratch_home, agent)
    assert [is_error for _, is_error in returned] == [True]
    assert not mark.exists()


async def test_hooks_change_the_input_one_after_the_other_and_add_context(scratch_home):
    agent = worker(
        before(decides("allow", updatedInput={"command": "make -n"}, additionalContext="Only a dry run.")),
        before(
            python(
                "print(json.dumps({'hookSpecificOutput': {'updatedInput': "
                "{'command': given['tool_input']['command'] + ' all'}}}))"
            )
        ),
    )

    _, returned, notices = await play(
        scratch_home,
        Agent(name="worker", tools=(build,), hooks=agent.hooks),
        call("build", command="make"),
        reply("Done."),
    )
    assert returned == [("ran make -n all\n\nOnly a dry run.", False)]
    assert [" changed the input of a call of build." in notice for notice in notices] == [True, True]


def build(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


async def test_hook_that_says_stop_ends_the_run(scratch_home):
    result, _, _ = await play(scratch_home, worker(before(answers(**{"continue": False, "stopReason": "enough"}))))
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.ABORTED, "hook")
    assert "enough" in result.failure.message


async def test_secrets_in_what_a_hook_prints_are_redacted_for_the_model_and_the_record(scratch_home):
    secret = "sk-ant-api03-" + "a1B2c3D4" * 10
    _, returned, _ = await play(scratch_home, worker(before(f"echo key {secret} >&2; exit 2")))
    ((text, _),) = returned
    assert secret not in text
    assert "key " in text


async def test_hook_gets_the_environment_of_the_run_only(scratch_home, monkeypatch):
    monkeypatch.setenv("UNRELATED", "1")
    seen = scratch_home / "environ"
    await play(scratch_home, worker(before(f"env > {seen}")))
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert "UNRELATED" not in names
    assert {"HOME", "CLAUDE_PROJECT_DIR", "PI_SUBAGENT_DEPTH"} <= names


async def test_processes_that_a_hook_leaves_behind_end_with_it(scratch_home):
    pids = scratch_home / "pids"
    await play(scratch_home, worker(before(f"(setsid sleep 1000 & echo $! > {pids}) >/dev/null 2>&1")))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


async def test_cancelled_run_ends_its_hook(scratch_home):
    pipe = scratch_home / "pid"
    os.mkfifo(pipe)
    agent = worker(before(f"echo $$ > {pipe}; exec sleep 1000", timeout=600))
    async with (
        stage(scratch_home, CALL, reply("Done."), agents=[agent]) as retinue,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(retinue.run, "worker", "Work.", allow_write=True))
        pid = int(await anyio.to_thread.run_sync(pipe.read_text))
        os.kill(pid, 0)
        retinue._orchestrator.stop_all()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_finalize_call_passes_the_hooks_by(scratch_home):
    async with stage(scratch_home, finalize("It works."), agents=[worker(before("exit 2"))]) as retinue:
        result = await retinue.run("worker", "Work.", output={"type": "string"})
    assert (result.failure, result.structured) == (None, "It works.")


async def test_engine_that_asks_no_gate_refuses_agents_with_hooks_before_calls(scratch_home):
    capabilities = msgspec.structs.replace(CAPABILITIES, enforces=CAPABILITIES.enforces - {"gate"})
    engines = scripted(ScriptedEngine(CALL, reply("Done.")), capabilities)
    result, returned, _ = await play(scratch_home, worker(before("true")), engines=engines)
    assert result.failure is not None
    assert result.failure.code is ErrorCode.UNSUPPORTED
    assert "hooks (PreToolUse)" in result.failure.message
    assert returned == []


@pytest.mark.parametrize("event", ["PreToolUse", "SubagentStop"])
async def test_hook_that_is_no_command_fails_the_run_by_name(scratch_home, event):
    result, _, _ = await play(scratch_home, worker(Hook(event=event, kind="prompt")))
    assert result.failure is not None
    assert result.failure.code is ErrorCode.UNSUPPORTED
    assert f"has a {event} hook of type prompt" in result.failure.message


# -- at the start and at the end ---------------------------------------------------------------------


async def test_start_hook_adds_its_context_before_the_task(scratch_home):
    context = answers(hookSpecificOutput={"hookEventName": "SubagentStart", "additionalContext": "Mind the gap."})
    prompts = []

    def script(spec):
        prompts.append(spec.prompt)
        return [reply("Done.")]

    hooks = (
        Hook(event="SubagentStart", command=context),
        Hook(event="SubagentStart", command=context, matcher="other"),
    )
    result, _, _ = await play(scratch_home, worker(*hooks), script)
    assert (result.failure, prompts) == (None, ["Mind the gap.\n\nWork."])


@pytest.mark.parametrize("command", ["exit 2", "exit 1", "kill -9 $$", "echo {"])
async def test_start_hook_that_fails_is_reported_and_the_run_goes_on(scratch_home, command):
    result, _, notices = await play(scratch_home, worker(Hook(event="SubagentStart", command=command)))
    assert (result.failure, result.text, len(notices)) == (None, "Done.", 1)
    assert "SubagentStart hook `" in notices[0]


async def test_start_hook_stops_the_run(scratch_home):
    hook = Hook(event="SubagentStart", command=answers(**{"continue": False, "stopReason": "Sunday"}))
    result, returned, _ = await play(scratch_home, worker(hook))
    assert result.failure is not None
    assert (result.failure.code, returned) == (ErrorCode.ABORTED, [])
    assert "Sunday" in result.failure.message


async def test_end_hook_makes_the_agent_go_on_in_its_session_until_it_is_satisfied(scratch_home):
    log = scratch_home / "log"
    hook = Hook(
        event="SubagentStop",
        command=python(
            f"open({str(log)!r}, 'a').write(json.dumps([given['stop_hook_active'], given['last_assistant_message']]) + '\\n')\n"
            "if 'tested' not in given['last_assistant_message']:\n"
            "    print(json.dumps({'decision': 'block', 'reason': 'Run the tests.'}))"
        ),
    )
    prompts = []

    def script(spec):
        prompts.append((spec.prompt, [message.text for message in spec.history]))
        return [reply("Done." if len(prompts) == 1 else "Done and tested.")]

    result, _, notices = await play(scratch_home, worker(hook), script)
    assert (result.failure, result.text, notices) == (None, "Done and tested.", [])
    assert prompts == [("Work.", []), ("Run the tests.", ["Work.", "Done."])]
    assert [attempt.reason for attempt in result.actual.attempts] == ["first", "hook"]
    assert [json.loads(line) for line in log.read_text().splitlines()] == [
        [False, "Done."],
        [True, "Done and tested."],
    ]


async def test_end_hook_that_is_never_satisfied_fails_the_run_and_keeps_the_answer(scratch_home):
    hook = Hook(event="SubagentStop", command="echo not yet >&2; exit 2")
    result, _, _ = await play(scratch_home, worker(hook), reply("Done."))
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.NOT_FINALIZED, "stop_hook")
    assert result.failure.message.startswith("The answer was not accepted after 5 further attempts: not yet.")
    assert (result.text, len(result.actual.attempts)) == ("Done.", 6)


@pytest.mark.parametrize("command", ["exit 1", "kill -9 $$", "echo {"])
async def test_end_hook_that_fails_is_reported_and_the_answer_counts(scratch_home, command):
    result, _, notices = await play(scratch_home, worker(Hook(event="SubagentStop", command=command)))
    assert (result.failure, result.text) == (None, "Done.")
    assert [notice.startswith("The SubagentStop hook `") for notice in notices] == [True]


async def test_end_hook_is_bounded_by_the_time_of_the_run(scratch_home):
    agent = worker(Hook(event="SubagentStop", command="exec sleep 1000", timeout=600), timeout=1)
    async with stage(scratch_home, reply("Done."), agents=[agent]) as retinue:
        result = await retinue.run("worker", "Work.", extend_timeout_debounce=0)
    assert result.failure is not None
    assert (result.failure.code, result.text) == (ErrorCode.TIMEOUT, "Done.")


async def test_end_hook_of_a_run_that_finalizes_asks_for_another_finalize_call(scratch_home):
    mark = scratch_home / "mark"
    hook = Hook(event="SubagentStop", command=f"test -e {mark} || {{ touch {mark}; echo Again. >&2; exit 2; }}")
    scripts = ScriptedEngine.from_scripts([finalize("one")], [finalize("two")])
    async with stage(scratch_home, engines=scripted(scripts), agents=[worker(hook)]) as retinue:
        result = await retinue.run("worker", "Work.", output={"type": "string"})
    assert (result.failure, result.structured) == (None, "two")


# -- delegation, kills, sandbox ------------------------------------------------------------------------


@pytest.mark.parametrize("matcher", ["Task", "Agent", "spawn_subagent"])
async def test_hook_denies_delegation_under_every_name_of_its_tool(scratch_home, matcher):
    seen = scratch_home / "seen"
    hook = before(python(f"json.dump(given['tool_input'], open({str(seen)!r}, 'w')); sys.exit(2)"), matcher)
    lead = worker(hook, name="worker", tools=("read", "Task"))
    result, returned, _ = await play(scratch_home, lead, spawn("explorer", "Look."), reply("Done."))
    assert result.failure is None
    ((text, is_error),) = returned
    assert is_error
    assert text.startswith(f"Denied by the PreToolUse({matcher}) hook `")
    assert json.loads(seen.read_text()) == {"subagent_type": "explorer", "prompt": "Look."}


def test_killed_retinue_leaves_no_hook_running(scratch_home):
    pipe = scratch_home / "pid"
    os.mkfifo(pipe)
    agents = scratch_home / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "worker.md").write_text(
        "---\nname: worker\ndescription: Works.\ntools: Bash\nhooks:\n  PreToolUse:\n    - hooks:\n"
        f"        - command: 'echo $$ > {pipe}; exec setsid sleep 1000'\n---\nYou work.\n"
    )
    script = json.dumps({"steps": [{"call": "bash", "args": {"command": "make"}}, {"say": "Done."}]})
    environ = {"HOME": str(scratch_home), "PATH": os.environ["PATH"], "RETINUE_SCRIPT": script}
    command = [sys.executable, "-m", "retinue", "run", "worker", "Work.", "--engine", "scripted", "--allow-write"]
    with subprocess.Popen(command, env=environ, cwd=scratch_home, stdout=-3, stderr=-3) as process:
        pid = int(pipe.read_text())
        descriptor = os.pidfd_open(pid)
        process.kill()
    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)


async def test_hook_of_a_run_in_a_sandbox_is_confined_as_the_run_is(scratch_home):
    (scratch_home / ".ssh").mkdir()
    (scratch_home / ".ssh" / "id").write_text("XYZZY")
    project, script = scratch_home / "project", scratch_home / "check.sh"
    project.mkdir()
    script.write_text(f"cat {scratch_home}/.ssh/id >&2 && exit 0\necho out of reach >&2\nexit 2\n")
    options = {"cwd": project, "environ": {"HOME": str(scratch_home), "PATH": os.environ["PATH"]}}
    async with (
        Retinue(
            **options,
            engine="scripted",
            engines=scripted(ScriptedEngine(CALL, reply("Done."))),
            agents=[worker(before(f"sh {script}"))],
            store=MemoryStore(),
        ) as retinue,
        retinue.events() as watcher,
    ):
        result = await retinue.run("worker", "Work.", allow_write=True, sandbox="workspace")
        returned = [record.event for record in watcher.drain() if isinstance(record.event, ToolReturned)]
    assert result.failure is None
    assert "out of reach" in returned[0].text
    assert "XYZZY" not in returned[0].text
