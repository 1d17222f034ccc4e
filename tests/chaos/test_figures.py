"""Results of several attacks as one, and the attack as an ordinary user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import msgspec
import pytest
from chaos.attack import SectionResult
from chaos.figures import ChaosResult, commit_results, merge_rows, read_committed, read_result, write_result
from chaos.users import ROOT, find_covers, prepare_user

ROW = SectionResult(
    name="kills",
    tried=4,
    held=3,
    lost=1,
    orphans=2,
    leaks=0,
    seconds=1.5,
    counts={"runs": 10},
    figures={"slowest cleanup, s": 0.3},
    problems=["event 1 is lost"],
)
RESULT = ChaosResult(
    date="2026-11-19",
    seed=7,
    minutes=2.0,
    python="3.11.7",
    system="Linux",
    cores=2,
    user="root",
    containment="cgroup",
    rows=[ROW],
)


def test_rows_of_one_section_are_added_and_the_largest_time_is_kept():
    other = msgspec.structs.replace(ROW, tried=6, held=6, lost=0, orphans=0, figures={"slowest cleanup, s": 0.1})
    clean = msgspec.structs.replace(other, name="junk", counts={}, figures={}, problems=[])
    results = [RESULT, msgspec.structs.replace(RESULT, seed=8, rows=[other, clean])]
    merged = SectionResult(
        name="kills",
        tried=10,
        held=9,
        lost=1,
        orphans=2,
        leaks=0,
        seconds=3.0,
        counts={"runs": 20},
        figures={"slowest cleanup, s": 0.3},
        problems=["event 1 is lost", "event 1 is lost"],
    )
    assert merge_rows(results) == [merged, clean]


def test_result_that_is_committed_already_is_not_added_again(tmp_path):
    path, other = tmp_path / "committed.json", msgspec.structs.replace(RESULT, seed=8)
    assert commit_results([RESULT], path) == 1
    assert commit_results([RESULT, other], path) == 1
    assert read_committed(path) == [RESULT, other]


def test_written_result_is_read_again(tmp_path):
    write_result(tmp_path / "result.json", RESULT)
    assert read_result(tmp_path / "result.json") == RESULT


def test_file_that_is_no_result_is_refused_by_add(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    command = [sys.executable, "-m", "chaos", "--add", str(tmp_path / "other.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --add: no result of `make chaos` was read: ")


def test_only_the_outermost_closed_folder_above_a_tree_is_covered(tmp_path):
    closed, open_tree = tmp_path / "closed" / "also closed" / "tree", tmp_path / "open" / "tree"
    for tree in (closed, open_tree):
        tree.mkdir(parents=True)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    closed.parent.chmod(0o700)
    closed.parents[1].chmod(0o700)
    assert find_covers([closed, open_tree]) == ([str(closed.parents[1])], [str(closed)])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can become another user")
def test_ordinary_user_runs_an_interpreter_below_a_closed_folder(tmp_path):
    prefix = prepare_user(pwd.getpwnam("nobody"), tmp_path)
    start = "import os, chaos.victim; print(os.geteuid())"
    done = subprocess.run(
        [*prefix, sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{pwd.getpwnam('nobody').pw_uid}\n"
