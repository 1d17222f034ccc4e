"""No process of the same user can read the environment of `retinue`, unless it is debugged."""

from __future__ import annotations

import sys

import pytest
from tests.support.ordinary_user import as_ordinary_user

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="Linux")]

INSPECT = """
import ctypes, io, json, os, sys
from retinue.cli.group import root
from retinue.cli.main import main
from tests.support.ordinary_user import drop_rights

drop_rights()
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a program has it that was started by this user

def is_readable_by_others():
    if (pid := os.fork()) == 0:
        try:
            open(f"/proc/{os.getppid()}/environ", "rb").close()
            os.listdir(f"/proc/{os.getppid()}/fd")
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0

found = [is_readable_by_others()]
os.environ["RETINUE_DEBUG"] = sys.argv[1]
stdout, sys.stdout = sys.stdout, io.StringIO()
try:
    main(["--version"])
except SystemExit:
    sys.stdout = stdout
found.append(is_readable_by_others())
print(json.dumps(found))
"""


def test_environment_of_a_command_is_closed_to_other_processes_of_the_user():
    assert as_ordinary_user(INSPECT, "") == [True, False]


def test_environment_of_a_command_that_is_debugged_stays_readable():
    assert as_ordinary_user(INSPECT, "1") == [True, True]
