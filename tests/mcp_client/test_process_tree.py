"""MCP servers in the process tree of their run: ended with it, and with a killed Retinue, and inside its sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kills import wait_readable
from tests.support.mcp_servers import BAD, bad_definition, http_server
from tests.support.retinue_factory import stage
from tests.support.sandboxes import SUPPORT

from retinue import Agent
from retinue.engines.scripted import call, reply
from retinue.model.events import ToolReturned

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]
ROOT = Path(__file__).parents[2]
END_TIMEOUT = 10.0


def test_killed_retinue_leaves_no_server_and_nothing_that_a_server_started(tmp_path):
    command = [sys.executable, "-m", "tests.support.killed_mcp_run", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout
        descriptors = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        assert not any(wait_readable(descriptor, 0) for descriptor in descriptors)
        parent.kill()
        ended = [wait_readable(descriptor, END_TIMEOUT) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    assert ended == [True, True]


async def test_processes_of_a_server_end_with_the_run(tmp_path):
    (_, returned), _ = await run_in(tmp_path, {"docs": bad_definition("sleeper")})
    pids = returned.text.split("\n")[1].split()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.skipif(not (SUPPORT.bubblewrap or SUPPORT.landlock_abi), reason="no sandbox works on this machine")
@pytest.mark.parametrize("mode", ["workspace", "strict"])
async def test_server_of_a_sandboxed_run_is_inside_its_sandbox(tmp_path, mode):
    (tmp_path / "home/.ssh").mkdir(parents=True)
    private = tmp_path / "home/.ssh/id_ed25519"
    private.write_text("PRIVATE KEY")
    servers = {"docs": bad_definition("reader", env={"PRIVATE": str(private)})}
    open_answer, _ = await run_in(tmp_path, servers)
    confined_answer, notices = await run_in(tmp_path, servers, sandbox=mode, sandbox_read=[str(BAD.parent)])
    assert "PRIVATE KEY" in open_answer[1].text
    assert [notice for notice in notices if "MCP" in notice] == []
    assert confined_answer[1].text.split("\n")[1] in {"FileNotFoundError", "PermissionError"}


@pytest.mark.skipif(not SUPPORT.bubblewrap, reason="bubblewrap is not installed or does not work")
async def test_address_is_reached_from_a_strict_sandbox_only_if_it_is_listed(tmp_path):
    with http_server() as url:
        servers = {"docs": {"url": url}}
        (_, refused), notices = await run_in(tmp_path, servers, tool="search", sandbox="strict")
        host = url.split("/")[2]
        (_, found), _ = await run_in(
            tmp_path, servers, tool="search", sandbox="strict", sandbox_hosts=[host], arguments={"query": "bus"}
        )
    assert refused.is_error
    assert any("the sandbox of the run does not reach 127.0.0.1 (sandbox_hosts)" in notice for notice in notices)
    assert "found bus" in found.text


async def run_in(folder: Path, servers, *, tool="echo", arguments=None, **settings):
    """Return the last answer of a tool after a run in these settings, and the notices."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    agent = Agent(name="worker", mcp_servers=servers)
    (folder / "home").mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
    step = call(f"mcp__docs__{tool}", **(arguments or {}))
    settings = {"allow_write": True, **settings}
    async with (
        stage(work, step, reply("Done."), agents=[agent], settings=settings, environ=environ) as retinue,
        retinue.events() as watcher,
    ):
        result = await retinue.run("worker", "Work.")
        returned = [one.event for one in watcher.drain() if isinstance(one.event, ToolReturned)]
    assert (result.failure, result.text) == (None, "Done.")
    return (result, returned[-1]), result.actual.notices
