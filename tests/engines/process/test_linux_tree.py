"""How processes are recognised, and that no other is ever signalled."""

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

from retinue.engines.process.linux_tree import (
    LinuxProcessTree,
    add_descendants,
    has_marker,
    has_no_children,
    list_processes,
    open_handles,
    read_process,
)

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
REUSE = Path(__file__).with_name("pid_reuse_program.py")


def test_a_process_is_read_whatever_its_name(tmp_path):
    named = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", named)
    process = subprocess.Popen([named, "1000"], start_new_session=True)
    try:
        facts = read_process(process.pid)
        assert facts is not None
        assert (facts.parent, facts.session, facts.is_dead) == (os.getpid(), process.pid, False)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        dead = read_process(process.pid)
        assert dead == facts._replace(is_dead=True)
    finally:
        process.kill()
        process.wait()
    assert read_process(process.pid) is None


def test_all_processes_are_seen():
    assert os.getpid() in {facts.pid for facts in list_processes()}


def test_a_mark_is_found_in_a_very_large_environment():
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


def test_what_is_not_recognised_after_it_was_opened_is_let_go():
    process = subprocess.Popen(["sleep", "1000"])
    before = descriptors(os.getpid())
    try:
        assert open_handles([process.pid], set) == []
        assert descriptors(os.getpid()) == before
        (held,) = open_handles([process.pid], lambda: {process.pid})
        process.kill()
        process.wait()
        held.signal(signal.SIGTERM)  # gone, whoever has its number now
        held.close()
        assert open_handles([process.pid], lambda: {process.pid}) == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="makes a namespace for process numbers")
def test_a_number_that_now_means_another_process_is_not_signalled():
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, str(REUSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode == 3:
        pytest.skip("numbers cannot be chosen here")
    assert (done.stdout, done.stderr) == ("recognised before: True\nheld after: []\nthe other lives: True\n", "")


def test_a_tree_without_members_is_empty():
    process = subprocess.Popen(["true"], start_new_session=True)
    tree = LinuxProcessTree("no-such-mark")
    tree.set_root(process)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert anyio.run(tree.list_live) == []
    process.wait()


@pytest.mark.parametrize(
    ("script", "is_alone"),
    [
        ("echo up; read x", True),
        ("sleep 1000 & echo up; read x; kill $!", False),
        ("/bin/true; echo up; read x", False),
    ],
    ids=["nothing", "one that lives", "one that has ended"],
)
def test_it_is_known_of_a_process_whether_it_has_started_another(script, is_alone):
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert has_no_children(process.pid) == is_alone


def test_descendants_are_those_below_at_any_depth():
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 99}
    assert add_descendants({2}, parents) == {2, 3, 4}
    assert add_descendants({2, 5}, parents) == {2, 3, 4, 5, 6}
    assert add_descendants({8}, {8: 9, 9: 8}) == {8, 9}
