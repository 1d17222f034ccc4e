"""Engines with processes in one program: none takes what another started for what its own children left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="Linux"),
]
PROGRAM = Path(__file__).with_name("two_supervisors_program.py")


def test_a_child_of_one_engine_that_ends_leaves_those_of_another_alone():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("alive\n", "")
