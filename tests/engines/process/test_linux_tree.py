"""Processes are found in /proc, and no other process is ever signalled."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest
from tests.support.processes import descriptors

from retinue.engines.process.linux_tree import LinuxProcessTree, has_marker, open_handles
from retinue.support.processes import add_descendants, list_processes, read_process

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
REUSE = Path(__file__).with_name("pid_reuse_program.py")


def test_process_with_parentheses_in_its_name_is_read(tmp_path):
    named = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", named)
    process = subprocess.Popen([named, "1000"], start_new_session=True)
    try:
        process_info = read_process(process.pid)
        assert process_info is not None
        assert (process_info.parent, process_info.session, process_info.is_dead) == (os.getpid(), process.pid, False)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        dead = read_process(process.pid)
        assert dead == process_info._replace(is_dead=True)
    finally:
        process.kill()
        process.wait()
    assert read_process(process.pid) is None


def test_list_processes_includes_this_process():
    assert os.getpid() in {process_info.pid for process_info in list_processes()}


def test_marker_is_found_in_a_very_large_environment():
    environ = {f"V{number}": "x" * 1000 for number in range(200)} | {"Z": "the-mark"}
    command = ["sh", "-c", "echo up; read x"]
    process = subprocess.Popen(command, env=environ | {"PATH": os.environ["PATH"]}, stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    try:
        assert has_marker(process.pid, b"the-mark")
        assert not has_marker(process.pid, b"another-mark")
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def test_unconfirmed_process_handle_is_closed():
    process = subprocess.Popen(["sleep", "1000"])
    before = descriptors(os.getpid())
    try:
        assert open_handles([process.pid], set) == []
        assert descriptors(os.getpid()) == before
        (held,) = open_handles([process.pid], lambda: {process.pid})
        process.kill()
        process.wait()
        held.signal(signal.SIGTERM)  # no effect, even if its pid was reused
        held.close()
        assert open_handles([process.pid], lambda: {process.pid}) == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="makes a namespace for process numbers")
def test_reused_pid_is_not_signalled():
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, str(REUSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode == 3:
        pytest.skip("numbers cannot be chosen here")
    assert (done.stdout, done.stderr) == ("recognised before: True\nheld after: []\nthe other lives: True\n", "")


def test_tree_without_live_processes_is_empty():
    process = subprocess.Popen(["true"], start_new_session=True)
    tree = LinuxProcessTree("no-such-mark")
    tree.set_root(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert anyio.run(tree.list_live) == []
    process.wait()


def test_add_descendants_follows_parents_to_any_depth():
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 99}
    assert add_descendants({2}, parents) == {2, 3, 4}
    assert add_descendants({2, 5}, parents) == {2, 3, 4, 5, 6}
    assert add_descendants({8}, {8: 9, 9: 8}) == {8, 9}
