"""The official conformance suite and the MCP inspector against a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.real.install import node_and_npm, skip
from tests.servers.mcp import exchange
from tests.servers.mcp.diagnostics import open_diagnostics_server
from tests.servers.mcp.install import CLIENTS, FOLDER

pytestmark = [pytest.mark.process, pytest.mark.real]

TOOLS = Path(__file__).parents[3] / ".tools"
PATIENCE = 120.0
BEFORE, CURRENT = "2025-11-25", "2026-07-28"
"""The protocol revisions under test."""

OF_ANY_SERVER = {
    "server-initialize": [BEFORE],
    "server-session-lifecycle": [BEFORE],
    "ping": [BEFORE],
    "server-stateless": [CURRENT],
    "http-header-validation": [CURRENT],
    "caching": [CURRENT],
    "input-required-result-unsupported-methods": [CURRENT],
    "tools-list": [BEFORE, CURRENT],
    "prompts-list": [BEFORE, CURRENT],
    "server-sse-multiple-streams": [BEFORE, CURRENT],
    "dns-rebinding-protection": [BEFORE, CURRENT],
}
"""Scenarios for `retinue mcp` itself, with the revisions they apply to."""

OF_EXAMPLE = {
    "tools-call-simple-text": [BEFORE, CURRENT],
    "tools-call-error": [BEFORE, CURRENT],
    "tools-call-with-progress": [BEFORE, CURRENT],
    "json-schema-2020-12": [BEFORE, CURRENT],
    "prompts-get-simple": [BEFORE, CURRENT],
    "tasks-lifecycle": [CURRENT],
    "tasks-capability-negotiation": [CURRENT],
    "tasks-wire-fields": [CURRENT],
    "tasks-request-state-removal": [CURRENT],
    "tasks-request-headers": [CURRENT],
    "tasks-dispatch-and-envelope": [CURRENT],
}
"""Scenarios that need the tools and prompts of the suite's own example, which are mounted for them."""

OF_TRANSPORT = {
    "logging-set-level": [BEFORE],
    "tools-call-with-logging": [BEFORE],
    "tools-call-sampling": [BEFORE],
    "tools-call-elicitation": [BEFORE],
    "elicitation-sep1034-defaults": [BEFORE],
    "elicitation-sep1330-enums": [BEFORE],
    "resources-subscribe": [BEFORE],
    "resources-unsubscribe": [BEFORE],
    "completion-complete": [BEFORE, CURRENT],
    "tools-call-image": [BEFORE, CURRENT],
    "tools-call-audio": [BEFORE, CURRENT],
    "tools-call-embedded-resource": [BEFORE, CURRENT],
    "tools-call-mixed-content": [BEFORE, CURRENT],
    "resources-list": [BEFORE, CURRENT],
    "resources-read-text": [BEFORE, CURRENT],
    "resources-read-binary": [BEFORE, CURRENT],
    "resources-templates-read": [BEFORE, CURRENT],
    "prompts-get-with-args": [BEFORE, CURRENT],
    "prompts-get-embedded-resource": [BEFORE, CURRENT],
    "prompts-get-with-image": [BEFORE, CURRENT],
    "sep-2164-resource-not-found": [CURRENT],
    "http-custom-header-server-validation": [CURRENT],
    "input-required-result-basic-elicitation": [CURRENT],
    "input-required-result-basic-sampling": [CURRENT],
    "input-required-result-basic-list-roots": [CURRENT],
    "input-required-result-request-state": [CURRENT],
    "input-required-result-multiple-input-requests": [CURRENT],
    "input-required-result-multi-round": [CURRENT],
    "input-required-result-missing-input-response": [CURRENT],
    "input-required-result-non-tool-request": [CURRENT],
    "input-required-result-result-type": [CURRENT],
    "input-required-result-tampered-state": [CURRENT],
    "input-required-result-capability-check": [CURRENT],
    "input-required-result-ignore-extra-params": [CURRENT],
    "input-required-result-validate-input": [CURRENT],
}
"""Scenarios that need what no tool of ours does, run against an SDK server with our authentication and transport."""

ASKS_CLIENT = "asks the client for something during a call; a tool of ours never does"
RESOURCES = "is about resources; ours are none, agents are prompts"
SKILLS = "is about skills as resources, an extension of which we offer nothing"

SCENARIOS = {**OF_ANY_SERVER, **OF_EXAMPLE, **OF_TRANSPORT}

NOT_OURS = {
    "server-sse-polling": "wants a stream that can be resumed; long work is found again by its id instead",
    "sep-2640-skills-directory": SKILLS,
    "sep-2640-skills-enumeration": SKILLS,
    "sep-2640-skills-manifest": SKILLS,
    "tasks-mrtr-input": "wants a task that asks the client for something; none of ours ever does",
    "tasks-mrtr-composition": "the same",
    "tasks-status-notifications": "checks nothing yet",
    "tasks-required-task-error": "calls a tool that is a task or nothing; ours answer every client",
}
"""Scenarios that are not run, with the reason."""

CHECKS_NOT_OURS = {
    "sep-2575-server-rejects-undeclared-capability": ASKS_CLIENT,
    "sep-2575-missing-capability-http-400": ASKS_CLIENT,
    "sep-2575-http-server-no-independent-requests-on-stream": ASKS_CLIENT,
    "sep-2575-server-no-log-without-loglevel": "calls a tool that logs; none of ours does",
    "sep-2549-resources-list-caching-hints": RESOURCES,
    "sep-2549-resources-templates-list-caching-hints": RESOURCES,
    "tasks-result-type-complete-on-non-task-responses": ASKS_CLIENT,
}
"""Checks that may fail in scenarios that are run, with the reason."""


def script(name: str) -> list[str]:
    """Return the command of an installed program."""
    if not CLIENTS.is_in(TOOLS):
        skip("The MCP suite and inspector are not here: `make test` installs them from a package registry.")
    return [str(node_and_npm()[0]), str(TOOLS / FOLDER / "node_modules" / "@modelcontextprotocol" / name)]


@contextmanager
def started(place: Path) -> Iterator[tuple[int, str]]:
    """Start a server process, and yield its port and token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "retinue", "mcp", "--engine", "scripted", "--background", "--http", "0"],
        cwd=place,
        env=environ(place),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    port = int(re.findall(r":(\d+)/", process.stderr.readline())[0])
    token = Path(process.stderr.readline().split(" in ")[1].strip()).read_text().strip()
    try:
        yield port, token
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[int, str]]:
    """Yield the port and token of a server process."""
    with started(tmp_path) as found:
        yield found


def environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


async def run(command: list[str], place: Path) -> tuple[int, str]:
    """Run a program, and return its exit code and output."""
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(command, cwd=place, env=environ(place), check=False, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode()


# -- the suite -------------------------------------------------------------------------------------


@asynccontextmanager
async def open_token_proxy(port: int, token: str) -> AsyncIterator[int]:
    """Open a proxy that adds the token to requests, which the suite cannot send, and yield its port."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    own = listener.extra(SocketAttribute.local_port)

    async def forward(client: SocketStream) -> None:
        server = await anyio.connect_tcp("127.0.0.1", port)
        async with client, server, anyio.create_task_group() as group:
            group.start_soon(forward_responses, server, client, group)
            await forward_requests(client, server)
            group.cancel_scope.cancel()

    async def forward_requests(client: SocketStream, server: SocketStream) -> None:
        rest, missing = b"", 0
        with until_disconnect():
            while chunk := await client.receive():
                rest += chunk
                while rest and (missing or b"\r\n\r\n" in rest):
                    if not missing:
                        head, _, rest = rest.partition(b"\r\n\r\n")
                        found = re.search(rb"(?i)content-length: *(\d+)", head)
                        missing = int(found[1]) if found else 0
                        head = head.replace(b":%d" % own, b":%d" % port)
                        await server.send(head + b"\r\nAuthorization: Bearer " + token.encode() + b"\r\n\r\n")
                    body, rest = rest[:missing], rest[missing:]
                    missing -= len(body)
                    if body:
                        await server.send(body)

    async def forward_responses(server: SocketStream, client: SocketStream, group: Any) -> None:
        with until_disconnect():
            while True:
                await client.send(await server.receive())
        group.cancel_scope.cancel()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, forward)
        yield own
        group.cancel_scope.cancel()


def until_disconnect() -> AbstractContextManager[None]:
    """Return a block that ends when the other side disconnects."""
    return suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


Reports = dict[tuple[str, str], dict[str, str]]
"""The status of each check, by scenario and revision."""


async def run_suite(port: int, token: str, place: Path, *extensions: str) -> Reports:
    """Run the suite against a server for each revision, and these extension scenarios, all at once."""
    reports: Reports = {}

    async def run_scenarios(revision: str, *which: str) -> None:
        folder = Path(tempfile.mkdtemp(dir=place))
        command = [*script("conformance/dist/index.js"), "server", "--url", url, "--spec-version", revision]
        _, output = await run([*command, *which, "-o", str(folder)], folder)
        found = list(folder.glob("*/checks.json"))
        assert found, output
        for file in found:
            scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
            reports[scenario, revision] = {check["id"]: check["status"] for check in json.loads(file.read_text())}

    async with open_token_proxy(port, token) as own, anyio.create_task_group() as group:
        url = f"http://127.0.0.1:{own}/mcp"
        for scenario in extensions:
            group.start_soon(run_scenarios, CURRENT, "--scenario", scenario, "--force")
        for revision in (BEFORE, CURRENT):
            group.start_soon(run_scenarios, revision, "--suite", "all")
    return reports


def list_cases(scenarios: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(scenario, revision) for scenario, revisions in scenarios.items() for revision in revisions]


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Reports:
    script("conformance/dist/index.js")
    place, tasks = tmp_path_factory.mktemp("suite"), [name for name in OF_EXAMPLE if name.startswith("tasks-")]

    async def of_example() -> Reports:
        async with open_diagnostics_server(tmp_path_factory.mktemp("example")) as (port, token):
            return await run_suite(port, token, place, *tasks)

    async def of_transport() -> Reports:
        async with exchange.open_exchange_server() as (port, token):
            return await run_suite(port, token, place)

    with started(tmp_path_factory.mktemp("any")) as (port, token):
        any_server_reports = anyio.run(lambda: run_suite(port, token, place))
    found = [
        (OF_ANY_SERVER, any_server_reports),
        (OF_EXAMPLE, anyio.run(of_example)),
        (OF_TRANSPORT, anyio.run(of_transport)),
    ]
    return {key: reports[key] for scenarios, reports in found for key in list_cases(scenarios)}


@pytest.mark.parametrize(("scenario", "revision"), list_cases(SCENARIOS))
def test_official_conformance_suite_passes(reports, scenario, revision):
    checks = reports[scenario, revision]
    failed = {check for check, status in checks.items() if status not in {"SUCCESS", "SKIPPED", "INFO"}}
    assert failed <= CHECKS_NOT_OURS.keys()
    assert "SUCCESS" in checks.values()


def test_skipped_conformance_checks_still_fail(reports):
    passed = {check for checks in reports.values() for check, status in checks.items() if status == "SUCCESS"}
    assert passed.isdisjoint(CHECKS_NOT_OURS)


async def test_every_conformance_scenario_runs_or_has_a_reason(tmp_path):
    _, output = await run([*script("conformance/dist/index.js"), "list", "--server"], tmp_path)
    known = re.findall(r"^  - (\S+)", output, re.MULTILINE)
    assert sorted(known) == sorted([*SCENARIOS, *NOT_OURS])


# -- the inspector ---------------------------------------------------------------------------------

SERVER = (sys.executable, "-m", "retinue", "mcp", "--engine", "scripted")


@pytest.mark.parametrize("surfaces", ["single,fanout", "sticky,nested"])
async def test_inspector_finds_every_schema_portable(tmp_path, surfaces):
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", *SERVER]
    code, output = await run(
        [*command, "--toolset", surfaces, "--background", "--method", "tools/list", "--strict"], tmp_path
    )
    assert code == 0, output


async def test_inspector_gets_an_answer_on_stdio(tmp_path):
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", *SERVER, "--method", "tools/call"]
    arguments = ["--tool-name", "subagent", "--tool-arg", "agent=explorer", "--tool-arg", "task=look"]
    code, output = await run([*command, *arguments], tmp_path)
    assert code == 0, output
    assert json.loads(output)["content"][0]["text"] == "A scripted answer of explorer to: look"


async def test_inspector_gets_an_answer_over_http(server, tmp_path):
    port, token = server
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", f"http://127.0.0.1:{port}/mcp"]
    header = ["--header", f"Authorization: Bearer {token}", "--method", "tools/call"]
    code, output = await run([*command, *header, "--tool-name", "list_subagent_profiles"], tmp_path)
    assert code == 0, output
    assert json.loads(output)["structuredContent"]["count"] == 0
