"""The official conformance suite and the MCP inspector against a real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.engines_real.install import node_and_npm, skip
from tests.frontends.mcp.install import CLIENTS, FOLDER

pytestmark = [pytest.mark.process, pytest.mark.real]

TOOLS = Path(__file__).parents[3] / ".tools"
PATIENCE = 60.0
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
]
"""Those for any server; the others call tools, resources and prompts that only the suite's own example has."""


def script(name: str) -> list[str]:
    """The command of an installed program."""
    if not CLIENTS.is_in(TOOLS):
        skip("The MCP suite and inspector are not here: `make test` installs them from a package registry.")
    return [str(node_and_npm()[0]), str(TOOLS / FOLDER / "node_modules" / "@modelcontextprotocol" / name)]


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[int, str]]:
    """A server's port and token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "retinue", "mcp", "--engine", "scripted", "--http", "0"],
        cwd=tmp_path,
        env=environ(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    port = int(re.findall(r":(\d+)/", process.stderr.readline())[0])
    token = Path(process.stderr.readline().split(" in ")[1].strip()).read_text().strip()
    yield port, token
    process.kill()
    process.communicate()


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


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_official_suite_finds_nothing_wrong(server, tmp_path, scenario):
    command = script("conformance/dist/index.js")
    async with introduced(*server) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        code, said = await run([*command, "server", "--url", url, "--scenario", scenario], tmp_path)
    assert code == 0, said


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
    assert json.loads(said)["structuredContent"] == {"count": 0}
