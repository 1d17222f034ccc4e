"""The Retinue extension inside both versions of the real pi: tools, windows, and shutdown."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.real.pi_rpc import QUIET, PiRpc, Record, rpc, select_events
from tests.real.variants import NEWEST
from tests.support.model_server import ScriptedTurn, script64
from tests.support.pi_setup import alive

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

MODEL = ("--model", "local/scripted-1")
FANOUT = ["delegate_to_subagents", "get_subagent_output", "get_subagent_session", "list_subagent_profiles"]
READS = script64([{"tool": "read", "args": {"path": "a.txt"}}, {"text": "It is XYZZY."}])
FINALIZES = script64(
    [{"tool": "subagent_finalize", "args": {"status": "SUCCESS", "result": "It is XYZZY."}}],
)
INTERRUPTED = "Session was interrupted (main agent session ended unexpectedly)"
SLEEPS = script64([{"text": "I wait.", "tool": "bash", "args": {"command": "sleep 600"}}, {"text": "never"}])
HOST_ONLY_TOOL = """
export default (pi) => pi.registerTool({
  name: "only_here", label: "x", description: "x", parameters: { type: "object", properties: {} },
  execute: async () => ({ content: [{ type: "text", text: "x" }], details: {} }),
});
"""


class PiWithExtension:
    """A pi with the extension, as installed by `retinue install pi`."""

    def __init__(self, environ: dict[str, str], project: Path, home: Path, start: Callable[..., Any]) -> None:
        self.environ, self.project, self.home = environ, project, home
        self.start = start
        """`async with inside.start(…) as pi`."""

    async def retinue(self, *arguments: str) -> list[Any]:
        done = await self.run([sys.executable, "-m", "retinue", *arguments])
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        with anyio.fail_after(60):
            return await anyio.run_process(
                command, cwd=self.project, env=self.environ, stdin=subprocess.DEVNULL, check=False
            )


@pytest.fixture
def extended_pi(pi, server, project, tmp_path, add_extension):
    home = tmp_path / "home"
    environ = {
        **pi.environ_in(home, server.url),
        "RETINUE_ENGINE": "pi",
        "RETINUE_MODEL": "local/scripted-1",
        "RETINUE_STATE": str(tmp_path / "state"),
    }
    extension = add_extension(home)

    def start(*options: str, **more: str):
        return rpc(pi, {**environ, **more}, project, *MODEL, "-e", str(extension), *options)

    yield PiWithExtension(environ, project, home, start)
    assert alive(home) == [], "nothing outlives pi"


def delegation_step(*prompts: str) -> dict[str, Any]:
    tasks = [{"name": f"n{number}", "prompt": prompt} for number, prompt in enumerate(prompts, 1)]
    return {"tool": "delegate_to_subagents", "args": {"tasks": tasks}}


def result_of(records: list[Record], tool: str) -> Record:
    (end,) = (record for record in select_events(records, "tool_execution_end") if record["toolName"] == tool)
    return end


def text_of(end: Record) -> str:
    return str(end["result"]["content"][0]["text"])


def entries_of(records: list[Record], kind: str) -> list[Any]:
    """Return the data of the entries of this type that were written to pi's session."""
    written = [record["entry"] for record in select_events(records, "entry_appended")]
    return [entry["data"] for entry in written if entry.get("customType") == kind]


def drawn_lines(records: list[Record]) -> list[str]:
    """Return the lines of the only call that was drawn from a view."""
    (stored,) = entries_of(records, "pi-subagents-view")
    return ["".join(text for text, _ in line) for line in stored["view"]["lines"]]


def has_sleeping_children(record: Record, count: int = 1) -> bool:
    """Return whether a record shows this many sleeping children."""
    if record["type"] != "tool_execution_update":
        return False
    windows = record["partialResult"]["details"]["windows"]
    return sum("sleep 600" in json.dumps(window) for window in windows) >= count


async def wait_until_gone(home: Path, words: str = "") -> None:
    """Wait until this home has no process whose command contains these words."""
    with anyio.fail_after(20):
        while found := [command for command in alive(home) if words in command]:
            try:
                process = os.pidfd_open(int(found[0].split()[0]))
            except ProcessLookupError:
                continue
            try:
                await anyio.wait_readable(process)
            finally:
                os.close(process)


async def test_model_of_the_host_delegates_and_gets_the_answers(extended_pi, server):
    tasks = [{"name": "n1", "prompt": READS}, {"name": "n2", "prompt": "x", "profile": "nobody"}]
    steps = [ScriptedTurn(tool="delegate_to_subagents", args={"tasks": tasks}), ScriptedTurn(text="I have them.")]
    async with extended_pi.start("--no-session") as pi:
        records = await pi.prompt(f"Go. {script64(steps)}")
        code, out, err = await pi.end()
    assert (code, out) == (0, b"")
    assert b"rror" not in err
    end = result_of(records, "delegate_to_subagents")
    first, second = text_of(end).splitlines()
    assert first.startswith("✓ n1: completed (session: ")
    assert second.startswith('✗ n2: error — Unknown profile: "nobody".')
    assert not end["isError"]
    assert set(end["result"]["details"]) == {"windows", "maxLinesPerWindow", "globalStatus", "sessionIds"}
    lines = drawn_lines(records)
    assert lines[0] == "Sub-agents: 1 done, 1 error"
    assert lines[2:4] == ["  read → a.txt", "  It is XYZZY."]
    assert any(record["type"] == "tool_execution_update" for record in records), "partial results come first"
    last = server.requests[-1].messages[-1]
    assert (last.role, last.text) == ("tool", text_of(end))
    stored = [(data["taskName"], data["status"]) for data in entries_of(records, "pi-subagents")]
    assert sorted(stored) == [("n1", "completed"), ("n1", "running"), ("n2", "error"), ("n2", "running")]


async def test_tools_are_registered_before_the_first_prompt_and_absent_in_children(extended_pi, server):
    async with extended_pi.start("--no-session") as pi:
        await pi.prompt(f"Go. {script64([delegation_step(READS), {'text': 'Done.'}])}")
    host, *children, last = (request.tools for request in server.requests)
    assert list(host[-4:]) == list(last[-4:]) == FANOUT
    assert len(children) == 2
    assert all(not set(tools) & set(FANOUT) for tools in children), "though children load the user's extensions, too"


@NEWEST
async def test_events_have_the_session_id_and_tool_call_id_of_pi(extended_pi):
    async with extended_pi.start("--no-session") as pi:
        session = (await pi.state())["sessionId"]
        records = await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
    call = result_of(records, "delegate_to_subagents")["toolCallId"]
    events = await extended_pi.retinue("events", session)
    assert {(event["root"], event["parentToolUseId"]) for event in events} == {(session, call)}


@NEWEST
@pytest.mark.parametrize(
    ("toolset", "step", "keys"),
    [
        ("single", {"tool": "subagent", "args": {"agent": "explorer", "task": READS}}, {"mode", "runId", "results"}),
        (
            "sticky",
            {"tool": "subagent", "args": {"agent": "explorer", "task": FINALIZES}},
            {"sessionId", "finalized"},
        ),
        ("nested", {"tool": "spawn_subagent", "args": {"agent": "explorer", "task": READS}}, {"mode", "results"}),
    ],
)
async def test_extension_registers_the_tools_of_the_chosen_toolset(extended_pi, toolset, step, keys):
    async with extended_pi.start("--no-session", RETINUE_SURFACE=toolset) as pi:
        records = await pi.prompt(script64([step, {"text": "Done."}]))
    end = result_of(records, step["tool"])
    assert text_of(end).endswith("It is XYZZY.")
    assert set(end["result"]["details"]) == keys
    assert drawn_lines(records)[1].startswith("✓ explorer (local/scripted-1) • 1 tool • ")


@NEWEST
async def test_task_of_the_host_chooses_schema_and_model_and_gets_a_structured_result(extended_pi, server):
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    finalizes = {"tool": "subagent_finalize", "args": {"status": "SUCCESS", "result": {"word": "XYZZY"}}}
    choices = {"outputSchema": schema, "model": "local/scripted-1", "effort": "off"}
    task = {"name": "n1", "prompt": script64([finalizes]), **choices}
    step = {"tool": "delegate_to_subagents", "args": {"tasks": [task]}}
    async with extended_pi.start("--no-session", RETINUE_MODELS="local/*") as pi:
        end = result_of(await pi.prompt(script64([step, {"text": "Done."}])), "delegate_to_subagents")
    assert end["result"]["details"]["structured"] == [{"word": "XYZZY"}]
    offered = json.dumps(server.requests[0].body["tools"])
    assert all(f'"{name}": {{' in offered for name in choices)


async def test_tool_error_of_a_toolset_keeps_its_details(extended_pi):
    step = {"tool": "get_subagent_output", "args": {"sessionId": "0123456789abcdef"}}
    async with extended_pi.start("--no-session") as pi:
        end = result_of(await pi.prompt(script64([step, {"text": "Done."}])), "get_subagent_output")
    assert end["isError"]
    assert text_of(end).startswith('Session "0123456789abcdef" not found.')
    assert end["result"]["details"]["error"]["code"] == "session_not_found"


async def test_abort_ends_child_runs_and_keeps_their_output(extended_pi):
    async with extended_pi.start("--no-session") as pi:
        await pi.ask("prompt", message=script64([delegation_step(SLEEPS, SLEEPS), {"text": "never"}]))
        await pi.until(lambda record: has_sleeping_children(record, 2))
        _, records = await pi.ask("abort")
        end = result_of(records, "delegate_to_subagents")
        assert [window["status"] for window in end["result"]["details"]["windows"]] == ["error", "error"]
        assert "I wait." in end["result"]["details"]["windows"][0]["lines"]
        await wait_until_gone(extended_pi.home, "sleep 600")
        session = end["result"]["details"]["sessionIds"][0]
        again = {"tool": "get_subagent_output", "args": {"sessionId": session}}
        found = await pi.prompt(script64([again, {"text": "Done."}]))
    assert text_of(result_of(found, "get_subagent_output")) == "I wait."


@pytest.mark.parametrize("how", ["closes", "is killed"])
async def test_end_of_pi_ends_retinue_and_all_children(extended_pi, how):
    async with extended_pi.start("--no-session") as pi:
        await pi.ask("prompt", message=script64([delegation_step(SLEEPS), {"text": "never"}]))
        await pi.until(has_sleeping_children)
        if how == "is killed":
            pi.process.send_signal(signal.SIGKILL)
            await pi.process.wait()
        else:
            assert (await pi.end())[0] == 0
    await wait_until_gone(extended_pi.home)


async def test_reopened_pi_session_knows_its_subagents(extended_pi, tmp_path):
    file = str(tmp_path / "one.jsonl")
    async with extended_pi.start("--session", file) as pi:
        records = await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
        session = result_of(records, "delegate_to_subagents")["result"]["details"]["sessionIds"][0]
        await pi.end()
    stale = {"sessionId": "feedfeedfeedfeed", "taskName": "stale", "prompt": "x", "status": "running", "messages": []}
    entries = [json.loads(line) for line in Path(file).read_text().splitlines()]
    nested: Any = "x"
    for _ in range(500):
        nested = [nested]
    broken: list[Any] = [
        None,
        7,
        "pi-subagents",
        [],
        {},
        nested,
        {**stale, "status": "odd"},
        {**stale, "status": "toString"},
        {**stale, "status": "__proto__"},
        {**stale, "status": ["running"]},
        {**stale, "taskName": 7},
        {**stale, "sessionId": "__proto__"},
        {**stale, "sessionId": "a" * 100_000},
        {**stale, "messages": {"length": 0}},
        {**stale, "messages": [None]},
        {**stale, "messages": [{"role": {}}]},
        {**stale, "messages": [{"role": "user"}] * 1_001},
        {name: value for name, value in stale.items() if name != "messages"},
    ]
    views: list[Any] = [None, {}, {"toolCallId": 7, "view": {}}]
    views += [
        {"toolCallId": "call", "view": view}
        for view in (None, {"lines": 7, "expanded": []}, {"lines": [[["x"]]], "expanded": []}, {"lines": [nested]})
    ]
    written = [("pi-subagents", data) for data in (stale, *broken)] + [("pi-subagents-view", data) for data in views]
    for number, (kind, data) in enumerate(written):
        entry = {"type": "custom", "customType": kind, "data": data, "id": f"{number:08}"}
        entries.append({**entry, "parentId": entries[-1]["id"], "timestamp": entries[-1]["timestamp"]})
    torn = '{"type":"custom","customType":"pi-subagents","data":{"sessionId":"feedfeedfe'
    Path(file).write_text("".join(json.dumps(entry) + "\n" for entry in entries) + torn)
    async with extended_pi.start("--session", file) as pi:
        assert await command_text(pi) == (
            f"✓ n1: completed (session: {session})\n"
            "✗ stale: error — Session was interrupted (main agent session ended unexpectedly) "
            "(session: feedfeedfeedfeed)"
        )
        step = {"tool": "get_subagent_output", "args": {"sessionId": session}}
        found = await pi.prompt(script64([step, {"text": "Done."}]))
        assert text_of(result_of(found, "get_subagent_output")) == "It is XYZZY."
        await pi.ask("new_session")
        assert await command_text(pi) == "No sub-agents in this conversation yet."


async def command_text(pi: PiRpc) -> str:
    _, events = await pi.ask("prompt", message="/subagents")
    (notice,) = (event for event in events if event.get("method") == "notify")
    return str(notice["message"])


@NEWEST
async def test_new_pi_session_is_another_conversation(extended_pi):
    roots = []
    async with extended_pi.start("--no-session") as pi:
        for _ in range(2):
            roots.append((await pi.state())["sessionId"])
            await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
            await pi.ask("new_session")
            await wait_until_gone(extended_pi.home, f"--root {roots[-1]}")
    assert len(set(roots)) == 2
    for root in roots:
        assert (await extended_pi.retinue("events", root))[-1]["type"] == "run_ended"


@NEWEST
async def test_installed_arguments_apply_to_the_single_bridge_process(extended_pi):
    await extended_pi.run([sys.executable, "-m", "retinue", "install", "pi", "--yes", "--", "--timeout", "7m"])
    async with extended_pi.start("--no-session") as pi:
        await pi.ask("prompt", message=script64([delegation_step(SLEEPS, SLEEPS), {"text": "never"}]))
        *_, record = await pi.until(has_sleeping_children)
        assert [window["timeout"] for window in record["partialResult"]["details"]["windows"]] == [420, 420]
        (bridge,) = (command for command in alive(extended_pi.home) if " bridge " in command)
        assert bridge.rstrip().endswith("--timeout 7m")


async def test_delegation_policy_is_in_the_system_prompt_on_request(extended_pi, server):
    for arguments in ([], ["--", "--policy"]):
        await extended_pi.run([sys.executable, "-m", "retinue", "install", "pi", "--yes", *arguments])
        async with extended_pi.start("--no-session") as pi:
            await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
    systems = [request.system for request in server.requests]
    plain, told = systems[: len(systems) // 2], systems[len(systems) // 2 :]
    (policy,) = await extended_pi.retinue("tools", "--policy", "--json")
    assert not any("Delegate focused work" in system for system in plain)
    host, *children, last = told
    assert host == last
    assert host.endswith(policy["policy"])
    assert not any("Delegate focused work" in system for system in children), (
        "what agents are told is Retinue's to say"
    )


async def test_killed_bridge_fails_the_call_and_is_restarted_for_the_next(extended_pi):
    async with extended_pi.start("--no-session") as pi:
        await pi.ask("prompt", message=script64([delegation_step(SLEEPS), delegation_step(READS), {"text": "Done."}]))
        *_, record = await pi.until(has_sleeping_children)
        sessions = record["partialResult"]["details"]["sessionIds"]
        (bridge,) = (int(command.split()[0]) for command in alive(extended_pi.home) if " bridge " in command)
        os.kill(bridge, signal.SIGKILL)
        failed, worked = select_events(await pi.wait_idle(), "tool_execution_end")
    assert failed["isError"]
    first, second = text_of(failed).splitlines()
    assert first == "Retinue has ended (SIGKILL): what ran is kept, see `retinue sessions`."
    assert second == f"✗ n1: error — {INTERRUPTED} (session: {sessions[0]})"
    assert text_of(worked).startswith("✓ n1: completed")


@NEWEST
async def test_pi_without_retinue_continues_and_shows_the_reason(extended_pi, server):
    file = extended_pi.home / "agent" / "extensions" / "retinue.js"
    command = next(line for line in file.read_text().splitlines() if "export default" in line)
    settings = json.loads(command[command.index("{") : -2])
    gone = file.read_text().replace(json.dumps(settings["command"]), json.dumps(["/nowhere/retinue"]))
    file.write_text(gone)
    async with extended_pi.start("--no-session") as pi:
        _, events = await pi.ask("prompt", message=script64([{"text": "Hello."}]))
        records = [*events, *await pi.wait_idle()]
    (notice,) = (event for event in records if event.get("method") == "notify")
    assert notice["message"].startswith("Retinue could not be started (/nowhere/retinue: ")
    assert server.requests[0].tools == ("read", "bash", "edit", "write")


async def test_no_tools_are_offered_where_delegation_is_switched_off(extended_pi, server):
    async with extended_pi.start("--no-session", RETINUE_ENABLED="false") as pi:
        await pi.prompt(script64([{"text": "Hello."}]))
    assert server.requests[0].tools == ("read", "bash", "edit", "write")


async def test_tools_are_offered_again_once_retinue_can_be_started(extended_pi, server, tmp_path):
    file = extended_pi.home / "agent" / "extensions" / "retinue.js"
    link = tmp_path / "retinue"
    (command,) = re.findall(r'"command": \["(.*?)"\]', file.read_text())
    file.write_text(file.read_text().replace(command, str(link)))
    async with extended_pi.start("--no-session") as pi:
        await pi.ask("prompt", message=script64([{"text": "Hello."}]))
        await pi.wait_idle()
        link.symlink_to(command)
        await pi.prompt(script64([{"text": "Hello."}]))
    built_in = ("read", "bash", "edit", "write")
    assert [request.tools for request in server.requests] == [built_in, (*built_in, *FANOUT)]


@NEWEST
async def test_tool_that_only_the_host_has_does_not_fail_a_child_run(extended_pi, tmp_path):
    (tmp_path / "only.js").write_text(HOST_ONLY_TOOL)
    async with extended_pi.start("--no-session", "-e", str(tmp_path / "only.js")) as pi:
        records = await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
    assert text_of(result_of(records, "delegate_to_subagents")).startswith("✓ n1: completed")


@NEWEST
async def test_pi_in_print_mode_ends_after_its_answer(extended_pi, pi):
    steps = script64([delegation_step(READS), {"text": "All done."}])
    extension = str(extended_pi.home / "agent" / "extensions" / "retinue.js")
    done = await extended_pi.run([*pi.argv, "-p", *QUIET, *MODEL, "--no-session", "-e", extension, "--", steps])
    assert (done.returncode, done.stdout) == (0, b"All done.\n")


@pytest.fixture
async def screen(extended_pi, pi, tmp_path):
    """Start pi on a terminal and wait until it is ready for input."""
    if shutil.which("tmux") is None:
        pytest.skip("There is no tmux to look at a screen with.")
    extension = str(extended_pi.home / "agent" / "extensions" / "retinue.js")
    command = [*pi.argv, *QUIET, *MODEL, "--no-session", "-e", extension]
    terminal_screen = Screen(
        tmp_path / "tmux", command, {**extended_pi.environ, "TERM": "xterm-256color"}, extended_pi.project
    )
    try:
        await terminal_screen.until("scripted-1")
        terminal_screen.press("Delegate, please.")
        await terminal_screen.until("Delegate, please.")
        yield terminal_screen
    finally:
        terminal_screen.close()
        await wait_until_gone(extended_pi.home)


async def test_run_windows_are_drawn_on_the_screen(screen, extended_pi, server):
    lines = script64([{"text": "\n".join(f"Line {number}." for number in range(1, 31))}])
    step = {"text": "I delegate.", **delegation_step(READS, lines, SLEEPS)}
    server.script = [{**step, "args": {**step["args"], "profile": "nobody"}}, step, {"text": "All done."}]
    await screen.until("I delegate.", pressing="Enter")  # repeated: pi accepts no key while it starts
    await screen.until("delegate_to_subagents 3 sub-agents (default profile: nobody)")
    rows = await screen.until("Sub-agents: 1 running, 2 done", "bash → sleep 600", "Line 30.", "It is XYZZY.")
    at = max(number for number, line in enumerate(rows) if line.strip() == "delegate_to_subagents 3 sub-agents")
    shown = [line.strip() for line in rows[at + 1 :] if line.strip()]
    assert shown[1].startswith("✓ n1 (local/scripted-1) • 1 tools • ")
    assert shown[2:4] == ["read → a.txt", "It is XYZZY."]
    assert "Line 10." not in shown, "a window shows the newest 15 lines"
    assert any(line.endswith("s/600s") and "n3 (local/scripted-1)" in line for line in shown)
    screen.press("C-o")
    assert "   Line 10." in [line.rstrip() for line in await screen.until("Line 10.")]
    screen.press("C-o")
    screen.press("Escape")
    await screen.until("Sub-agents: 2 done, 1 error")
    await wait_until_gone(extended_pi.home, "sleep 600")


@NEWEST
async def test_fetched_output_is_truncated_on_the_screen_only(screen, extended_pi, server):
    profiles = extended_pi.home / "agent" / "agent-profiles"
    profiles.mkdir()
    for number in range(20):
        (profiles / f"p{number}.md").write_text(f"---\nname: profile-{number}\ntools: read\n---\nYou read.\n")
    whole = "\n".join(f"Line {number}." for number in range(1, 63))

    def decide(request):
        if "62." in request.prompt:
            return {"text": whole}
        turn = sum(message.role == "assistant" for message in request.messages)
        texts = "".join(message.text for message in request.messages)
        session = {"sessionId": found[1]} if (found := re.search(r"session: ([0-9a-f]{16})", texts)) else {}
        return [
            delegation_step("Say it up to 62."),
            {"tool": "get_subagent_output", "args": session},
            {"tool": "get_subagent_session", "args": session},
            {"tool": "list_subagent_profiles"},
            {"text": "All done."},
        ][turn]

    server.script = decide
    await screen.until("delegate_to_subagents 1 sub-agent", pressing="Enter")
    rows = [line.strip() for line in await screen.until("All done.")]
    assert rows.count("... (47 more lines)") == 2
    for tool in ("get_subagent_output", "get_subagent_session"):
        at = next(number for number, line in enumerate(rows) if line.startswith(f"{tool} "))
        below = [line for line in rows[at + 1 :] if line][:16]
        assert below == [*(f"Line {number}." for number in range(1, 16)), "... (47 more lines)"]
    assert sum(line.startswith("profile: profile-") for line in rows) == 20
    results = [message.text for message in server.requests[-1].messages if message.role == "tool"]
    assert results[1].startswith(whole)


class Screen:
    """A terminal of 100 columns and 120 lines in which a program runs."""

    def __init__(self, socket: Path, command: list[str], environ: dict[str, str], cwd: Path) -> None:
        self._socket = socket
        clean = ["env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        self._tmux("new-session", "-d", "-x", "100", "-y", "120", "-c", str(cwd), *clean, *command)

    async def until(self, *words: str, pressing: str = "") -> list[str]:
        """Wait until all of these words are on the screen and return its lines."""
        rows = ""
        with anyio.move_on_after(30):
            while not all(word in rows for word in words):
                if pressing:
                    self.press(pressing)
                rows = await anyio.to_thread.run_sync(self._tmux, "capture-pane", "-p")
        assert all(word in rows for word in words), f"{words} never came on the screen:\n{rows}"
        return rows.splitlines()

    def press(self, keys: str) -> None:
        """Type a text, or press a key by its name."""
        self._tmux("send-keys", keys)

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments],
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout
