"""Contents of a working directory cannot lead out of it, block the tools, or forge their output."""

import os

import anyio
import anyio.to_thread
import pytest
from anyio import CapacityLimiter
from tests.support.ordinary_user import as_ordinary_user, open_folder

from retinue.engines.toolbox import ToolError, ToolOutcome
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.base import SandboxedDirectory
from retinue.model.runs import ToolUse

SECRET = "outside secret"
OUTSIDE = "is outside the working directory. Use a path inside it."


@pytest.fixture(autouse=True)
def outside(tree):
    (tree.parent / "secret.txt").write_text(SECRET)
    (tree.parent / "tree-too").mkdir()
    (tree.parent / "tree-too" / "secret.txt").write_text(SECRET)


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "a/../../secret.txt", "/etc/passwd", "../tree-too/secret.txt", "..", "/proc/self/environ"],
)
@pytest.mark.parametrize("tool", ["read", "ls", "grep", "find"])
async def test_path_outside_the_working_directory_is_denied(call, tool, path):
    args = {"pattern": "s"} if tool in ("grep", "find") else {}
    assert await call(tool, path=path, **args) == ToolOutcome(f"Access denied: {path} {OUTSIDE}", is_error=True)


async def test_links_that_lead_outside_are_not_followed(tree, write_files, call):
    write_files({"inside.txt": "inside"})
    (tree / "file").symlink_to("../secret.txt")
    (tree / "folder").symlink_to("..")
    (tree / "zero").symlink_to("/dev/zero")
    (tree / "loop").symlink_to("loop")
    for path in ("file", "folder/secret.txt", "zero"):
        assert await call("read", path=path) == ToolOutcome(f"Access denied: {path} {OUTSIDE}", is_error=True)
    assert (await call("read", path="loop")).is_error
    assert SECRET not in (await call("grep", pattern="secret")).text
    assert (await call("ls")).text.split("\n") == [
        "file (a link; not followed)",
        "folder (a link; not followed)",
        "inside.txt",
        "loop (a link; not followed)",
        "zero (a link; not followed)",
    ]
    assert (await call("find", pattern="*")).text == "inside.txt"


async def test_links_inside_are_followed_by_name_and_not_searched_twice(tree, write_files, call):
    write_files({"a/real.txt": "needle"})
    (tree / "link").symlink_to("a")
    assert (await call("read", path="link/real.txt")).text == "needle"
    assert (await call("ls")).text == "a/\nlink/"
    assert (await call("grep", pattern="needle")).text == "a/real.txt:1: needle"


async def test_working_directory_that_is_a_link_is_its_target(tmp_path, tree, write_files):
    write_files({"a.txt": "text"})
    link = tmp_path / "link"
    link.symlink_to(tree)
    toolbox = make_local_toolbox(str(link), CapacityLimiter(1))
    assert await toolbox.call(ToolUse("1", "read", {"path": "a.txt"})) == ToolOutcome("text")
    assert await toolbox.call(ToolUse("1", "read", {"path": str(link / "a.txt")})) == ToolOutcome("text")


async def test_named_pipe_is_neither_read_nor_waited_for(tree, call):
    os.mkfifo(tree / "pipe")
    with anyio.fail_after(5):
        assert await call("read", path="pipe") == ToolOutcome(
            "pipe is not a regular file and is not read.", is_error=True
        )
        found = await call("grep", pattern="x")
    assert found.text == "No matches found"


UNREADABLE = """
import json, sys
from pathlib import Path
import anyio
from anyio import CapacityLimiter
from retinue.engines.tools import make_local_toolbox
from retinue.model.runs import ToolUse
from tests.support.ordinary_user import drop_rights

CALLS = [("grep", {"pattern": "needle"}), ("read", {"path": "c.txt"}), ("ls", {"path": "closed"})]
tree = Path(sys.argv[1])

async def outcomes():
    toolbox = make_local_toolbox(str(tree), CapacityLimiter(1), search_path=sys.argv[2] or None)
    found = [await toolbox.call(ToolUse("1", name, args)) for name, args in CALLS]
    return [[outcome.text, outcome.is_error] for outcome in found]

# Imports modules while the user may still read them.
(tree / "warm-up.txt").write_text("needle")
anyio.run(outcomes)
(tree / "warm-up.txt").unlink()
drop_rights()
for name in ("closed", "open"):
    (tree / name).mkdir()
for name in ("closed/a.txt", "open/b.txt", "c.txt"):
    (tree / name).write_text("needle")
(tree / "closed").chmod(0)
(tree / "c.txt").chmod(0)
found = anyio.run(outcomes)
(tree / "closed").chmod(0o700)
print(json.dumps(found))
"""


@pytest.mark.process
def test_unreadable_files_are_reported_and_do_not_hide_the_others(search_path):
    with open_folder() as folder:
        assert as_ordinary_user(UNREADABLE, str(folder), search_path or "") == [
            ["open/b.txt:1: needle\n\n[Could not read c.txt, closed.]", False],
            ["Permission denied: c.txt.", True],
            ["Permission denied: closed.", True],
        ]


async def test_file_names_cannot_forge_lines_or_move_the_cursor(tree, call):
    (tree / "a\nb.py:1: forged").write_text("needle")
    (tree / "c\x1b[2Jd").write_text("needle")
    (tree / os.fsdecode(b"e\xff")).write_text("needle")
    expected = [r"a\x0ab.py:1: forged", r"c\x1b[2Jd", r"e\xff"]
    assert (await call("ls")).text.split("\n") == expected
    assert (await call("find", pattern="*")).text.split("\n") == expected
    assert (await call("grep", pattern="needle")).text.split("\n") == [f"{name}:1: needle" for name in expected]


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
async def test_impossible_path_is_an_error_result(call, path):
    outcome = await call("read", path=path)
    assert outcome.is_error


async def test_missing_working_directory_is_an_error_result(tree, call):
    tree.rmdir()
    assert await call("ls") == ToolOutcome("Path not found: .. Use ls or find to see what exists.", is_error=True)


async def test_directory_swapped_for_a_link_is_not_entered(tree, write_files):
    write_files({"a/b/secret.txt": "inside"})
    folder = SandboxedDirectory(tree)
    place = folder.resolve("a/b/secret.txt")
    (tree / "a" / "b" / "secret.txt").unlink()
    (tree / "a" / "b").rmdir()
    (tree / "a" / "b").symlink_to(tree.parent)
    with pytest.raises(ToolError):
        folder.read(place)
    with pytest.raises(ToolError):
        folder.list_entries(place[:-1])


async def test_search_stops_soon_after_its_caller_is_cancelled(tree, write_files, call):
    write_files({f"{number}.txt": "a" * 60 + "b" for number in range(300)})
    # The limiter's token comes back when the thread is done, not when the caller is cancelled.
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    with anyio.move_on_after(0.05) as scope:
        await call("grep", pattern="(?=a)(a|aa)+$")
    assert scope.cancelled_caught
    with anyio.fail_after(30):
        assert not (await call("ls")).is_error
