"""Process trees without pidfds: selected from a listing, found and killed with psutil."""

import os
import subprocess

import anyio
import pytest

from retinue.engines.process.other_tree import WindowsTree, _list_with_psutil, select_group
from retinue.support.processes import ProcInfo, read_process


def entry(pid: int, parent: int, group: int, *, is_dead: bool = False) -> ProcInfo:
    return ProcInfo(pid, parent, group, 0, 0, is_dead)


def test_group_tree_selects_live_processes_by_group_and_parents():
    table = [
        entry(1, 0, 1),
        entry(10, 1, 10, is_dead=True),
        entry(11, 10, 10),
        entry(12, 11, 12),
        entry(13, 1, 10),
        entry(14, 1, 14),
        entry(15, 12, 12, is_dead=True),
    ]
    assert select_group(10, table) == {11, 12, 13}
    assert select_group(10, []) == set()


@pytest.mark.process
def test_psutil_lists_the_same_parent_and_group_as_proc():
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        listed = {each.pid: each for each in _list_with_psutil()}[process.pid]
        read = read_process(process.pid)
        assert read is not None
        assert (listed.parent, listed.group, listed.is_dead) == (read.parent, read.group, read.is_dead)
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
def test_windows_tree_finds_and_kills_a_grandchild_whose_parent_exited():
    script = "setsid sleep 1000 & echo $!; read x"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        grandchild = int(process.stdout.readline())
        tree = WindowsTree()
        tree.set_root(process.pid)
        assert {handle.pid for handle in anyio.run(tree.list_live)} == {process.pid, grandchild}
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (handle,) = anyio.run(tree.list_live)
        assert handle.pid == grandchild
        handle.signal(15)
        with anyio.from_thread.start_blocking_portal() as portal:
            while portal.call(tree.list_live):
                portal.call(tree.wait_until_gone, [handle])
