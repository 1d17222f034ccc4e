"""Leases: one owner at a time, and none after its death."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.model.errors import ErrorCode
from retinue.sessions.lease import acquire_lease, adopt_lease, busy_failure, is_held, live_owners, read_owner
from retinue.sessions.store import LeaseOwner

OWNER = LeaseOwner(
    session="a" * 32, run="b" * 32, pid=4711, host="box", started=0.0, boot="boot-1", control="/run/x.sock"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases" / "aaaaaaaa"


def test_lease_is_held_until_released(path):
    lease = acquire_lease(path, OWNER)
    assert lease
    assert is_held(path)
    assert acquire_lease(path, OWNER) is None
    assert adopt_lease(path) is None
    assert read_owner(path) == OWNER
    assert list(live_owners(path.parent)) == [OWNER]
    lease.release()
    assert not is_held(path)
    assert not path.exists()
    assert list(live_owners(path.parent)) == []
    lease.release()


def test_abandoned_lease_can_be_adopted_or_acquired(path):
    first = acquire_lease(path, OWNER)
    assert first
    first.abandon()
    assert path.exists()
    adopted = adopt_lease(path)
    assert adopted
    adopted.abandon()
    second = acquire_lease(path, OWNER)
    assert second
    second.release()
    assert adopt_lease(path) is None


def test_lease_released_during_acquisition_has_one_owner(path):
    """A lock on a file that was unlinked meanwhile does not count."""
    first = acquire_lease(path, OWNER)
    assert first
    onlooker = os.open(path, os.O_RDWR)
    first.release()
    second = acquire_lease(path, OWNER)
    assert second
    assert os.fstat(onlooker).st_ino != path.stat().st_ino or os.fstat(onlooker).st_nlink == 0
    os.close(onlooker)
    assert acquire_lease(path, OWNER) is None
    second.release()


def test_lease_without_content_is_held(path):
    lease = acquire_lease(path, OWNER)
    assert lease
    path.write_bytes(b"")
    assert read_owner(path) is None
    assert acquire_lease(path, OWNER) is None
    assert busy_failure("a" * 32, None).message == (
        f"Session {'a' * 32} is still running. Nothing was changed. Wait until the run has ended."
    )
    lease.release()


def test_busy_failure_names_the_owner_and_the_cancel_command():
    failure = busy_failure("a" * 32, OWNER)
    assert failure.code == ErrorCode.SESSION_BUSY
    assert failure.message == (
        f"Session {'a' * 32} is still running: process 4711 on box is running its run {'b' * 32} "
        "since 1970-01-01 00:00:00 UTC. Nothing was changed. "
        "Wait until the run has ended, or cancel it: retinue cancel aaaaaaaa."
    )
    assert failure.detail == {"session": "a" * 32, "run": "b" * 32, "pid": 4711, "host": "box", "since": 0.0}


@pytest.mark.process
def test_lease_goes_to_one_of_several_processes_until_it_dies(path):
    children = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("lease_child.py"), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    answers = [child.stdout.readline() for child in children if child.stdout]
    assert sorted(answers) == ["lost\n", "lost\n", "won\n"]
    winner = children[answers.index("won\n")]
    owner = read_owner(path)
    assert owner is not None
    assert owner.pid == winner.pid
    assert acquire_lease(path, OWNER) is None
    winner.send_signal(signal.SIGKILL)
    winner.wait()
    lease = acquire_lease(path, OWNER)
    assert lease
    lease.release()
    for child in children:
        child.communicate()
