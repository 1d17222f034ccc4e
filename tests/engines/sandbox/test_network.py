"""The network of a `strict` sandbox: the allowed host is reached through the proxy, and nothing else at all."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.ordinary_user import as_ordinary_user
from tests.support.sandboxes import SUPPORT, make_policy, run_script

from retinue.engines.sandbox.launch import SandboxNeeds

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not SUPPORT.bubblewrap, reason="bubblewrap is not installed or does not work"),
]


class LoopbackServer:
    """A server on loopback that answers HTTP by its name, and counts connections and datagrams."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.contacts = 0
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._udp.setblocking(False)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            self.contacts += 1
            with connection:
                connection.recv(65536)
                text = self.name.encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))

    def count_datagrams(self) -> int:
        count = 0
        while True:
            try:
                self._udp.recv(65536)
            except BlockingIOError:
                return count
            count += 1

    def close(self) -> None:
        self._tcp.close()
        self._udp.close()


@contextmanager
def loopback_servers() -> Iterator[tuple[LoopbackServer, LoopbackServer]]:
    servers = LoopbackServer("allowed"), LoopbackServer("other")
    try:
        yield servers
    finally:
        for server in servers:
            server.close()


def probe(port: int) -> str:
    """Return a script that tries every way to a server that is not allowed."""
    return (
        f"curl -sS -m 5 http://127.0.0.1:{port}/; curl -sS -m 5 http://localhost:{port}/; "
        f"curl -sS -m 5 --noproxy '*' http://127.0.0.1:{port}/; "
        f"curl -sS -m 5 -x '' telnet://127.0.0.1:{port} </dev/null; "
        f"bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'; bash -c 'echo x > /dev/udp/127.0.0.1/{port}'; "
        "/usr/bin/python3 -c 'import socket; print(socket.getaddrinfo(\"example.org\", 80))'; "
        "bash -c 'echo x > /dev/udp/192.0.2.1/53' && echo dns; ls /sys/class/net; cat /proc/net/dev | wc -l"
    )


async def test_allowed_host_is_reached_and_another_server_on_loopback_is_not(tmp_path):
    with loopback_servers() as (allowed, other):
        needs = SandboxNeeds(hosts=(f"127.0.0.1:{allowed.port}",))
        script = f"curl -sS -m 5 http://127.0.0.1:{allowed.port}/; echo; {probe(other.port)}"
        (tmp_path / "work").mkdir()
        output = await run_script(script, make_policy("strict"), tmp_path / "work", needs=needs)
        assert output.startswith("allowed\n")
        assert "other" not in output
        assert "dns" not in output
        assert f"Retinue's sandbox does not allow 127.0.0.1:{other.port}." in output
        assert (allowed.contacts, other.contacts, other.count_datagrams()) == (1, 0, 0)


async def test_users_hosts_are_reached_by_tunnel(tmp_path):
    with loopback_servers() as (allowed, other):
        (tmp_path / "work").mkdir()
        script = f"curl -sS -m 5 -p http://localhost:{allowed.port}/; echo; curl -sS -m 5 -p http://localhost:{other.port}/"
        policy = make_policy("strict", hosts=(f"localhost:{allowed.port}",))
        output = await run_script(script, policy, tmp_path / "work")
        assert output.startswith("allowed\n")
        assert "403" in output
        assert other.contacts == 0


async def test_workspace_leaves_the_network_open(tmp_path):
    with loopback_servers() as (server, _):
        (tmp_path / "work").mkdir()
        output = await run_script(f"curl -sS http://127.0.0.1:{server.port}/", make_policy(), tmp_path / "work")
        assert output == "allowed"


@pytest.mark.skipif(os.geteuid() != 0, reason="root")
def test_ordinary_user_gets_the_same_network():
    code = """
import json, os, sys, tempfile, anyio
from pathlib import Path
import anyio._backends._asyncio, retinue.engines.process.linux_tree
from tests.engines.sandbox.test_network import *
from tests.support.ordinary_user import drop_rights
sys.executable = "/usr/bin/python3"  # the interpreter of the tests may be readable by root only
drop_rights()
work = Path(tempfile.mkdtemp()) / "work"
work.mkdir()
with loopback_servers() as (allowed, other):
    needs = SandboxNeeds(hosts=(f"127.0.0.1:{allowed.port}",))
    script = f"curl -sS -m 5 http://127.0.0.1:{allowed.port}/; echo; {probe(other.port)}"
    output = anyio.run(lambda: run_script(script, make_policy("strict"), work, needs=needs))
    print(json.dumps([output, other.contacts, other.count_datagrams()]))
"""
    output, contacts, datagrams = as_ordinary_user(code)
    assert output.startswith("allowed\n"), output
    assert (contacts, datagrams) == (0, 0)
