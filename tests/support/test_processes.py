"""Processes of a run are recognized, however they hide; the user's own are not mistaken for them."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.support.ordinary_user import as_ordinary_user
from tests.support.run_children import WAYS, open_adopted_client, open_run_client

from retinue.engines.claude.installation import find_claude
from retinue.engines.pi.installation import find_pi
from retinue.engines.process.supervisor import ContainmentKind
from retinue.support.processes import RUN_PROCESSES_KNOWN, WATCHDOG_MODULE, find_program, is_run_process

pytestmark = [pytest.mark.process, pytest.mark.skipif(not RUN_PROCESSES_KNOWN, reason="Linux")]


def test_processes_of_the_user_belong_to_no_run():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        assert [is_run_process(pid) for pid in (1, os.getpid(), child.pid)] == [False] * 3
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("containment", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER])
@pytest.mark.parametrize("way", WAYS)
async def test_process_of_a_run_is_recognized(way, containment):
    async with open_run_client(way, "report_pid", containment=containment) as pid:
        assert is_run_process(pid)


@contextmanager
def killed(pid):
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("way", WAYS)
def test_process_that_a_watchdog_adopted_is_recognized(way):
    with open_adopted_client(way, "report_pid") as pid, killed(pid):
        assert is_run_process(pid)


@pytest.mark.parametrize("options", [["-c"], ["-I", "-c"], ["-S", "-I", "-c"]], ids=["plain", "one", "swapped"])
def test_process_below_a_program_with_other_options_belongs_to_no_run(options):
    program = f"import subprocess; {WATCHDOG_MODULE} = subprocess.run(['sh', '-c', 'echo $$; exec sleep 1000'])"
    parent = subprocess.Popen([sys.executable, *options, program], stdout=subprocess.PIPE)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    with killed(pid):
        assert not is_run_process(pid)
    parent.communicate()


UNDUMPABLE = """
import json, os, signal, sys
from pathlib import Path
from retinue.support.processes import is_run_process, split_processes
from tests.support import run_children
from tests.support.ordinary_user import drop_rights

drop_rights()
sys.executable = "/usr/bin/python3"
with run_children.open_adopted_client("undumpable", "report_pid") as pid:
    hidden = os.access(f"/proc/{pid}/environ", os.R_OK)
    print(json.dumps([hidden, is_run_process(pid), pid in split_processes()[0]]))
    os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="no interpreter that every user may run")
def test_process_of_a_run_that_may_not_be_read_is_recognized_by_its_parents():
    assert as_ordinary_user(UNDUMPABLE) == [False, True, True]


def test_process_that_is_gone_counts_as_one_of_a_run():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert is_run_process(gone.pid)


@pytest.mark.parametrize("entries", [("",), (".",), ("bin",), ("", ".", "bin")])
def test_programs_of_the_working_directory_are_not_taken_for_engines(entries, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name in ("pi", "claude", "bin/pi", "bin/claude"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("retinue.engines.claude.installation._find_bundled", lambda: None)
    environ = {"HOME": str(tmp_path), "PATH": os.pathsep.join(entries)}
    assert find_pi(environ) is None
    assert find_claude(environ) is None


def test_program_in_an_absolute_folder_is_found(tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("tool", f".:{tmp_path}:") == str(program)
    assert find_program("tool", "") is None
