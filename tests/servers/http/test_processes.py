"""`retinue serve` as a process with real sockets, and the runs of other processes."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import ProcessStarter, wait_for

pytestmark = pytest.mark.process

TIMEOUT = 30.0
HANGS = [{"call": "ls", "args": {"path": "src"}}, {"event": {"type": "text", "text": "so far"}}, {"hang": True}]
SCRIPTED = ("--engine", "scripted")


class ServerProcess:
    """A `retinue serve` process and requests to it."""

    def __init__(self, process: ProcessStarter, *arguments: str, script: Any = None) -> None:
        self.process = process.start("serve", "--port", "0", "--json", *SCRIPTED, *arguments, script=script or HANGS)
        assert self.process.stdout
        self.printed = json.loads(self.process.stdout.readline())
        self.port: int = self.printed["port"]
        self.token = Path(self.printed["tokenFile"]).read_text().strip()
        self.headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def request(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        written = None if body is None else json.dumps(body)
        connection.request(method, f"/api/v1/{path}", written, self.headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return found

    def watch(self, query: str = "") -> Iterator[tuple[str, Any]]:
        """Open the event stream and return its messages."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        connection.request("GET", f"/api/v1/events{query}", headers=self.headers)
        answer = connection.getresponse()
        assert answer.readline() == b"retry: 1000\n"
        return self._messages(connection, answer)

    def _messages(self, connection, answer) -> Iterator[tuple[str, Any]]:
        kind = ""
        try:
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                if name == "data":
                    yield kind, json.loads(value)
        finally:
            connection.close()


def read_until_ended(messages: Iterator[tuple[str, Any]]) -> list[Any]:
    """Return the events up to the first end of a run."""
    found = []
    for _, data in messages:
        found.append(data)
        if data["event"]["type"] == "run_ended":
            return found
    raise AssertionError("the stream ended first")


def test_run_of_another_process_is_followed_from_first_to_last_event(process):
    server = ServerProcess(process)
    messages = server.watch()
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    row = next(data["row"] for _, data in messages if data["event"]["type"] == "text")
    with_owner = next(iter(server.request("GET", "runs?live=1")["runs"]))
    detail = server.request("GET", f"runs/{row['run']}")
    stopped = server.request("POST", f"runs/{row['run']}/cancel", {})
    last = read_until_ended(messages)[-1]
    assert (row["state"], row["doing"], row["tools"]) == ("running", "so far", 1)
    assert row["owner"] == with_owner["owner"] == {"pid": running.pid, "host": socket.gethostname(), "here": False}
    assert with_owner["can"] == {"cancel": True, "steer": True, "extend": True, "resume": False}
    assert detail["state"] == "running"
    assert (stopped["found"], stopped["failure"]["code"]) == (True, "aborted")
    assert last["row"]["failure"]["code"] == "aborted"
    assert running.wait(TIMEOUT) == 130


def test_run_started_before_the_server_is_followed_from_its_beginning(process):
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    wait_for(running, "so far")
    server = ServerProcess(process)
    cursor = server.request("GET", "health")["stream"]["cursor"].split("-")[0] + "-0"
    kinds = []
    for _, data in server.watch(f"?after={cursor}"):
        kinds.append(data["event"]["type"])
        if kinds[-1] == "text":
            break
    assert kinds == [
        "run_queued",
        "run_started",
        "attempt_started",
        "tool_called",
        "message_ended",
        "tool_returned",
        "text",
    ]
    extended = server.request(
        "POST", f"runs/{server.request('GET', 'runs')['runs'][0]['run']}/extend", {"seconds": 30}
    )
    assert extended["timeout"] == 930
    running.kill()


def test_killed_process_ends_its_run_as_interrupted(process):
    server = ServerProcess(process)
    messages = server.watch()
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    next(data for _, data in messages if data["event"]["type"] == "text")
    running.send_signal(signal.SIGKILL)
    events = read_until_ended(messages)
    row = events[-1]["row"]
    listed = server.request("GET", "runs")["runs"][0]
    assert len(events) == 1
    assert (row["state"], row["failure"]["code"], row["owner"]) == ("error", "interrupted", None)
    assert (listed["run"], listed["state"], listed["failure"]["code"]) == (row["run"], "error", "interrupted")
    # Following stores nothing: the next process to start stores the end.
    assert json.loads(process.run("sessions", "show", row["run"], "--json").stdout)["report"] is None


def test_run_that_ends_before_its_process_is_found_is_published(process):
    server = ServerProcess(process)
    messages = server.watch()
    assert process.run("run", "explorer", "x", *SCRIPTED, script=[{"say": "done"}]).returncode == 0
    events = read_until_ended(messages)
    assert [data["event"]["seq"] for data in events] == sorted({data["event"]["seq"] for data in events})
    assert events[0]["event"]["type"] == "run_queued"
    assert events[-1]["row"]["preview"] == "done"


def test_deltas_of_another_process_are_sent_if_requested(process):
    server = ServerProcess(process)
    messages = server.watch("?deltas=1")
    script = [
        {"call": "ls", "args": {}},
        {"wait": 1},
        {"say": "one two three four five six", "deltas": 6},
        {"hang": True},
    ]
    process.start("run", "explorer", "x", *SCRIPTED, script=script)
    data = next(data for kind, data in messages if kind == "delta")
    assert data["type"] == "text_delta"
    assert "one two three".startswith(data["text"].strip()[:3])


def test_late_watcher_receives_the_open_block_of_another_process(process):
    server = ServerProcess(process)
    first = server.watch("?deltas=1")
    script = [
        {"call": "ls", "args": {}},
        {"wait": 1},
        {"event": {"type": "text_delta", "text": "one two "}},
        {"event": {"type": "text_delta", "text": "three "}},
        {"hang": True},
    ]
    process.start("run", "explorer", "x", *SCRIPTED, script=script)
    seen = ""
    for kind, data in first:
        seen += data["text"] if kind == "delta" else ""
        if seen.endswith("three "):
            break
    first.close()  # type: ignore[attr-defined]
    kind, data = next(server.watch("?deltas=1"))
    assert (kind, data["text"], data["at"]) == ("delta", seen, 0)
    assert "one two three ".endswith(seen)


def test_stopped_process_delays_no_other_run(process):
    server = ServerProcess(process, script=[{"say": "done"}])
    messages = server.watch()
    running = process.start("run", "explorer", "x", *SCRIPTED, script=HANGS)
    run = next(data["row"]["run"] for _, data in messages if data["event"]["type"] == "text")
    running.send_signal(signal.SIGSTOP)
    try:
        refused = server.request("POST", f"runs/{run}/cancel", {})
        other = server.request("POST", "runs", {"agent": "explorer", "task": "y"})["run"]["run"]
        (last,) = (data for data in read_until_ended(messages)[-1:])
        listed = {row["run"]: row["state"] for row in server.request("GET", "runs")["runs"]}
    finally:
        running.send_signal(signal.SIGCONT)
    running.send_signal(signal.SIGKILL)
    gone = read_until_ended(messages)[-1]["row"]
    assert (refused["error"]["code"], last["row"]["run"]) == ("unsupported", other)
    assert "may be suspended" in refused["error"]["message"]
    assert listed == {run: "running", other: "completed"}
    assert (gone["run"], gone["failure"]["code"]) == (run, "interrupted")


def test_ctrl_c_ends_the_server_at_once_and_stores_its_runs(process):
    server = ServerProcess(process)
    streams = [server.watch() for _ in range(3)]
    run = server.request("POST", "runs", {"agent": "explorer", "task": "x"})["run"]["run"]
    next(data for _, data in streams[0] if data["event"]["type"] == "text")
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(4.0) == 130
    for stream in streams:
        list(stream)
    shown = json.loads(process.run("sessions", "show", run, "--json").stdout)
    assert shown["session"]["latest"]["failure"]["code"] == "aborted"
    assert "so far" in shown["transcript"]


def test_reader_that_stops_reading_does_not_delay_the_server(process):
    server = ServerProcess(process, script=[{"say": "{task}"}])
    with socket.create_connection(("127.0.0.1", server.port)) as stuck:
        lines = [f"{name}: {value}" for name, value in server.headers.items()]
        request = ["GET /api/v1/events HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *lines, "", ""]
        stuck.sendall("\r\n".join(request).encode())
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
        for _ in range(8):  # much more than the system keeps for a reader
            server.request("POST", "runs", {"agent": "explorer", "task": "x" * 900_000})
        assert server.request("GET", "health")["watchers"] == 1
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(4.0) == 130


def test_reader_that_disconnects_is_not_counted(process):
    server = ServerProcess(process)
    messages = server.watch()
    server.request("POST", "runs", {"agent": "explorer", "task": "x"})
    next(messages)
    assert server.request("GET", "health")["watchers"] == 1
    messages.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + TIMEOUT
    while server.request("GET", "health")["watchers"]:
        assert time.monotonic() < deadline


def test_second_start_prints_another_link_to_the_running_server(process):
    server = ServerProcess(process)
    again = process.run("serve", "--port", str(server.port))
    link = again.stdout.strip()
    assert again.returncode == 0
    assert link.startswith(f"http://127.0.0.1:{server.port}/login#")
    assert link != server.printed["link"]
    code = link.partition("#")[2]
    del server.headers["Authorization"]
    assert server.request("POST", "login", {"code": code}) == {"ok": True}
    assert server.request("POST", "login", {"code": code})["error"]["code"] == "unauthorized"


def test_second_start_finds_the_running_server_at_any_address(process):
    server = ServerProcess(process, "--host", "::1")
    again = process.run("serve", "--host", "::1", "--port", str(server.port))
    assert again.returncode == 0
    assert again.stdout.startswith(f"http://[::1]:{server.port}/login#")


def test_port_of_another_program_is_reported_without_sending_the_token(process):
    """An unknown program must not receive the token or choose the link."""
    ServerProcess(process).process.kill()  # leaves a token and the port file of a killed server
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = process.run("serve", "--port", str(port))
        taken.setblocking(False)
        with pytest.raises(BlockingIOError):
            taken.accept()
    assert done.returncode == 2
    assert f"Could not listen on 127.0.0.1:{port}: address already in use. Try --port {port + 1}." in done.stderr
    assert done.stdout == ""


def test_port_of_a_killed_server_is_not_reported_as_running(process):
    server = ServerProcess(process)
    server.process.kill()
    server.process.wait()
    with socket.create_server(("127.0.0.1", server.port)):
        done = process.run("serve", "--port", str(server.port))
    assert (done.returncode, done.stdout) == (2, "")


def test_servers_first_started_at_once_share_one_token(process):
    command = ("serve", "--port", "0", "--json", *SCRIPTED)
    started = [process.start(*command, script=HANGS) for _ in range(4)]
    printed = [json.loads(each.stdout.readline()) for each in started]
    (file,) = {each["tokenFile"] for each in printed}
    token = Path(file).read_text().strip()
    for each in printed:
        connection = http.client.HTTPConnection("127.0.0.1", each["port"], timeout=TIMEOUT)
        connection.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
        connection.close()
    assert [path.name for path in Path(file).parent.glob("*token*")] == ["token"]


def test_serve_prints_only_the_link_on_stdout(process):
    running = process.start("serve", "--port", "0")
    stderr = wait_for(running, "token in")
    assert running.stdout
    link = running.stdout.readline()
    assert link.startswith("http://127.0.0.1:")
    assert "/login#" in link
    assert link.partition("#")[2].strip() not in stderr
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "--listen-anywhere"),
        (("--port", "99999"), "99999"),
        (("--timeout", "0"), "timeout"),
    ],
)
def test_invalid_serve_options_fail_before_anything_starts(process, arguments, message):
    done = process.run("serve", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_listening_on_all_addresses_prints_a_warning(process):
    running = process.start("serve", "--port", "0", "--host", "0.0.0.0", "--listen-anywhere", "--name", "box.example")
    stderr = wait_for(running, "an SSH tunnel")
    assert "anyone who can reach this address and has the token" in stderr
    assert "can start agents as you, and connections are not encrypted" in stderr
    assert running.stdout
    assert running.stdout.readline().startswith("http://box.example:")
    running.kill()


def test_token_file_readable_by_others_prevents_the_start(process, scratch_home):
    file = scratch_home / ".local" / "state" / "retinue" / "serving" / "token"
    file.parent.mkdir(parents=True)
    file.write_text("x" * 43)
    file.chmod(0o644)
    done = process.run("serve", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Other users can read the token file" in done.stderr


def test_many_silent_connections_do_not_block_others(process):
    server = ServerProcess(process)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    assert server.request("GET", "health")["status"] == "ok"
    for connection in idle:
        connection.close()


def test_show_web_serves_and_opens_the_dashboard_at_the_session(process, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    browser.chmod(0o755)
    environ = {"RETINUE_STATE": str(tmp_path / "state"), "BROWSER": str(browser)}
    ran = process.run("run", "explorer", "look", "--json", *SCRIPTED, environ=environ)
    session = json.loads(ran.stdout)["session"]
    served = process.start("sessions", "show", session[:8], "--web", "--no-browser", "--json", environ=environ)
    first = json.loads(served.stdout.readline())
    assert re.fullmatch(rf"http://127\.0\.0\.1:{first['port']}/login#[0-9a-f.]+/runs/{session}", first["link"])
    again = process.run("sessions", "show", "last", "--web", environ=environ)
    assert (again.returncode, again.stdout) == (0, (tmp_path / "opened").read_text())
    assert f"Served on {first['address']}." in again.stderr
    assert first["link"] not in again.stdout
    unopened = process.run("sessions", "show", "last", "--web", environ={**environ, "BROWSER": "/nowhere/browser"})
    assert (unopened.returncode, unopened.stdout.startswith(first["address"])) == (0, True)
    assert "No browser could be opened here: open the link in one." in unopened.stderr
    served.send_signal(signal.SIGINT)
    assert served.wait(TIMEOUT) == 130


def test_show_web_of_an_unknown_session_serves_nothing(process, tmp_path):
    environ = {"RETINUE_STATE": str(tmp_path / "state")}
    done = process.run("sessions", "show", "deadbeef", "--web", "--no-browser", environ=environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'Session "deadbeef" not found.' in done.stderr
    assert not (tmp_path / "state" / "serving").exists()
    assert process.run("sessions", "show", "last", "--no-browser", environ=environ).returncode == 2
