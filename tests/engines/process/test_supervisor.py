"""Several supervisors in one program: none treats processes of another as its own orphans."""

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


def test_end_of_one_engines_child_leaves_children_of_another_running():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("alive\n", "")
