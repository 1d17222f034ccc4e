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
from tests.engines_real.install import node_and_npm, skip
from tests.frontends.mcp.diagnostics import served
from tests.frontends.mcp.install import CLIENTS, FOLDER

pytestmark = [pytest.mark.process, pytest.mark.real]

TOOLS = Path(__file__).parents[3] / ".tools"
PATIENCE = 120.0
BEFORE, CURRENT = "2025-11-25", "2026-07-28"
"""The revisions of the protocol that are held to."""

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
"""Held against `retinue mcp` as it is, in the revisions they are about."""

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
"""Want tools and prompts that only the suite's own example has: held against the same server with those mounted."""

ASKS_CLIENT = "asks the client for something during a call; a tool of ours never does"
TEXT_ONLY = "wants content other than text; agents answer with text"
RESOURCES = "is about resources; ours are none, agents are prompts"
ENDLESS = "wants a stream that can be resumed; long work is found again by its id instead"

NOT_OURS = {
    "logging-set-level": "is about the protocol's logging, which is deprecated; progress says what agents do",
    "tools-call-with-logging": "the same",
    "completion-complete": "is about completing arguments; ours are tasks in free words",
    "tools-call-image": TEXT_ONLY,
    "tools-call-audio": TEXT_ONLY,
    "tools-call-embedded-resource": TEXT_ONLY,
    "tools-call-mixed-content": TEXT_ONLY,
    "tools-call-sampling": ASKS_CLIENT,
    "tools-call-elicitation": ASKS_CLIENT,
    "elicitation-sep1034-defaults": ASKS_CLIENT,
    "elicitation-sep1330-enums": ASKS_CLIENT,
    "server-sse-polling": ENDLESS,
    "resources-list": RESOURCES,
    "resources-read-text": RESOURCES,
    "resources-read-binary": RESOURCES,
    "resources-templates-read": RESOURCES,
    "resources-subscribe": RESOURCES,
    "resources-unsubscribe": RESOURCES,
    "sep-2164-resource-not-found": RESOURCES,
    "sep-2640-skills-directory": RESOURCES,
    "sep-2640-skills-enumeration": RESOURCES,
    "sep-2640-skills-manifest": RESOURCES,
    "prompts-get-with-args": "gets a prompt with two arguments; ours have one, the task",
    "prompts-get-embedded-resource": TEXT_ONLY,
    "prompts-get-with-image": TEXT_ONLY,
    "http-custom-header-server-validation": "is about tools that mirror arguments into headers; none of ours does",
    "tasks-mrtr-input": ASKS_CLIENT,
    "tasks-mrtr-composition": ASKS_CLIENT,
    "tasks-status-notifications": "checks nothing yet",
    "tasks-required-task-error": "calls a tool that is a task or nothing; ours answer every client",
    "input-required-result-basic-elicitation": ASKS_CLIENT,
    "input-required-result-basic-sampling": ASKS_CLIENT,
    "input-required-result-basic-list-roots": ASKS_CLIENT,
    "input-required-result-request-state": ASKS_CLIENT,
    "input-required-result-multiple-input-requests": ASKS_CLIENT,
    "input-required-result-multi-round": ASKS_CLIENT,
    "input-required-result-missing-input-response": ASKS_CLIENT,
    "input-required-result-non-tool-request": ASKS_CLIENT,
    "input-required-result-result-type": ASKS_CLIENT,
    "input-required-result-tampered-state": ASKS_CLIENT,
    "input-required-result-capability-check": ASKS_CLIENT,
    "input-required-result-ignore-extra-params": ASKS_CLIENT,
    "input-required-result-validate-input": ASKS_CLIENT,
}
"""Not held against us, and why."""

CHECKS_NOT_OURS = {
    "sep-2575-server-rejects-undeclared-capability": ASKS_CLIENT,
    "sep-2575-missing-capability-http-400": ASKS_CLIENT,
    "sep-2575-http-server-no-independent-requests-on-stream": ASKS_CLIENT,
    "sep-2575-server-no-log-without-loglevel": "calls a tool that logs; none of ours does",
    "sep-2549-resources-list-caching-hints": RESOURCES,
    "sep-2549-resources-templates-list-caching-hints": RESOURCES,
    "tasks-result-type-complete-on-non-task-responses": ASKS_CLIENT,
}
"""Single checks of scenarios that are held against us otherwise."""


def script(name: str) -> list[str]:
    """The command of an installed program."""
    if not CLIENTS.is_in(TOOLS):
        skip("The MCP suite and inspector are not here: `make test` installs them from a package registry.")
    return [str(node_and_npm()[0]), str(TOOLS / FOLDER / "node_modules" / "@modelcontextprotocol" / name)]


@contextmanager
def started(place: Path) -> Iterator[tuple[int, str]]:
    """The port and the token of a real server."""
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
    """A server's port and token."""
    with started(tmp_path) as found:
        yield found


def environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


async def run(command: list[str], place: Path) -> tuple[int, str]:
    """What a program ended with and said."""
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(command, cwd=place, env=environ(place), check=False, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode()


# -- the suite -------------------------------------------------------------------------------------


@asynccontextmanager
async def introduced(port: int, token: str) -> AsyncIterator[int]:
    """The port of one who hands requests on with the token: the suite cannot send one."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    own = listener.extra(SocketAttribute.local_port)

    async def hand_on(client: SocketStream) -> None:
        server = await anyio.connect_tcp("127.0.0.1", port)
        async with client, server, anyio.create_task_group() as group:
            group.start_soon(pass_back, server, client, group)
            await pass_on(client, server)
            group.cancel_scope.cancel()

    async def pass_on(client: SocketStream, server: SocketStream) -> None:
        rest, missing = b"", 0
        with gone():
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

    async def pass_back(server: SocketStream, client: SocketStream, group: Any) -> None:
        with gone():
            while True:
                await client.send(await server.receive())
        group.cancel_scope.cancel()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, hand_on)
        yield own
        group.cancel_scope.cancel()


def gone() -> AbstractContextManager[None]:
    """A block that ends when the other side does."""
    return suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


Reports = dict[tuple[str, str], dict[str, str]]
"""What became of each check, by scenario and revision."""


async def held_against(port: int, token: str, place: Path, *extensions: str) -> Reports:
    """What the suite finds in a server: all it has for each revision, and these scenarios of extensions; at once."""
    reports: Reports = {}

    async def hold(revision: str, *which: str) -> None:
        folder = Path(tempfile.mkdtemp(dir=place))
        command = [*script("conformance/dist/index.js"), "server", "--url", url, "--spec-version", revision]
        _, said = await run([*command, *which, "-o", str(folder)], folder)
        found = list(folder.glob("*/checks.json"))
        assert found, said
        for file in found:
            scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
            reports[scenario, revision] = {check["id"]: check["status"] for check in json.loads(file.read_text())}

    async with introduced(port, token) as own, anyio.create_task_group() as group:
        url = f"http://127.0.0.1:{own}/mcp"
        for scenario in extensions:
            group.start_soon(hold, CURRENT, "--scenario", scenario, "--force")
        for revision in (BEFORE, CURRENT):
            group.start_soon(hold, revision, "--suite", "all")
    return reports


def each(scenarios: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(scenario, revision) for scenario, revisions in scenarios.items() for revision in revisions]


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Reports:
    script("conformance/dist/index.js")
    place, tasks = tmp_path_factory.mktemp("suite"), [name for name in OF_EXAMPLE if name.startswith("tasks-")]

    async def of_example() -> Reports:
        async with served(tmp_path_factory.mktemp("example")) as (port, token):
            return await held_against(port, token, place, *tasks)

    with started(tmp_path_factory.mktemp("any")) as (port, token):
        of_any_server = anyio.run(lambda: held_against(port, token, place))
    return {**anyio.run(of_example), **{key: of_any_server[key] for key in each(OF_ANY_SERVER)}}


@pytest.mark.parametrize(("scenario", "revision"), [*each(OF_ANY_SERVER), *each(OF_EXAMPLE)])
def test_the_official_suite_finds_nothing_wrong(reports, scenario, revision):
    checks = reports[scenario, revision]
    failed = {check for check, status in checks.items() if status not in {"SUCCESS", "SKIPPED", "INFO"}}
    assert failed <= CHECKS_NOT_OURS.keys()
    assert "SUCCESS" in checks.values()


def test_no_check_is_left_out_that_would_pass(reports):
    passed = {
        check
        for key in [*each(OF_ANY_SERVER), *each(OF_EXAMPLE)]
        for check, status in reports[key].items()
        if status == "SUCCESS"
    }
    assert passed.isdisjoint(CHECKS_NOT_OURS)


async def test_every_scenario_is_held_against_us_or_there_is_a_reason(tmp_path):
    _, said = await run([*script("conformance/dist/index.js"), "list", "--server"], tmp_path)
    known = re.findall(r"^  - (\S+)", said, re.MULTILINE)
    assert sorted(known) == sorted([*OF_ANY_SERVER, *OF_EXAMPLE, *NOT_OURS])


# -- the inspector ---------------------------------------------------------------------------------

SERVER = (sys.executable, "-m", "retinue", "mcp", "--engine", "scripted")


@pytest.mark.parametrize("surfaces", ["single,fanout", "sticky,nested"])
async def test_the_inspector_finds_every_schema_portable(tmp_path, surfaces):
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", *SERVER]
    code, said = await run(
        [*command, "--surface", surfaces, "--background", "--method", "tools/list", "--strict"], tmp_path
    )
    assert code == 0, said


async def test_the_inspector_gets_an_answer_on_stdio(tmp_path):
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", *SERVER, "--method", "tools/call"]
    arguments = ["--tool-name", "subagent", "--tool-arg", "agent=explorer", "--tool-arg", "task=look"]
    code, said = await run([*command, *arguments], tmp_path)
    assert code == 0, said
    assert json.loads(said)["content"][0]["text"] == "A scripted answer of explorer to: look"


async def test_the_inspector_gets_an_answer_over_http(server, tmp_path):
    port, token = server
    command = [*script("inspector/clients/launcher/build/index.js"), "--cli", f"http://127.0.0.1:{port}/mcp"]
    header = ["--header", f"Authorization: Bearer {token}", "--method", "tools/call"]
    code, said = await run([*command, *header, "--tool-name", "list_subagent_profiles"], tmp_path)
    assert code == 0, said
    assert json.loads(said)["structuredContent"]["count"] == 0
