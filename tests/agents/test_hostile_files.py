"""Agent files that are no files, too large, or lead elsewhere: named, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.ordinary_user import as_ordinary_user, open_folder

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.agents.parse import AgentFileError, read_bytes

USER = AgentSource(SourceLayer.USER)
HEADER = "---\nname: big\n---\n"


def project(root: Path) -> AgentSource:
    return AgentSource(SourceLayer.PROJECT, AgentDialect.MARKDOWN, str(root), within=root)


def test_a_prompt_of_a_megabyte_works(tmp_path):
    path = tmp_path / "big.md"
    path.write_text(HEADER + "word " * 200_000)
    agent = read_agent(path, USER)
    assert isinstance(agent, Agent)
    assert len(agent.body) == 999_999


def test_a_file_over_two_mebibytes_is_refused(tmp_path):
    path = tmp_path / "big.md"
    path.write_text(HEADER + "x" * 2**21)
    assert read_agent(path, USER) == Diagnostic(str(path), f"is too large ({2**21 + 18} bytes; at most {2**21})")


def test_a_sparse_file_of_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "sparse.md"
    with path.open("wb") as file:
        file.truncate(5 * 2**30)
    assert read_agent(path, USER) == Diagnostic(str(path), f"is too large ({5 * 2**30} bytes; at most {2**21})")


def test_a_fifo_is_not_waited_for(tmp_path):
    path = tmp_path / "fifo.md"
    os.mkfifo(path)
    assert read_agent(path, USER) == Diagnostic(str(path), "is not a regular file")


def test_a_device_behind_a_link_is_not_opened(tmp_path):
    path = tmp_path / "zero.md"
    path.symlink_to("/dev/zero")
    assert read_agent(path, USER) == Diagnostic(str(path), "is not a regular file")


def test_a_folder_named_like_a_file_is_said_to_be_one(tmp_path):
    path = tmp_path / "folder.md"
    path.mkdir()
    assert read_agent(path, USER) == Diagnostic(str(path), "is a directory, not a file")


def test_links_that_go_round_or_nowhere_are_named(tmp_path):
    one, two, gone = tmp_path / "one.md", tmp_path / "two.md", tmp_path / "gone.md"
    one.symlink_to(two)
    two.symlink_to(one)
    gone.symlink_to(tmp_path / "nothing")
    assert read_agent(one, USER) == Diagnostic(str(one), "is a link that cannot be followed")
    assert read_agent(gone, USER) == Diagnostic(str(gone), "is missing")


@pytest.mark.parametrize("around", ["a file", "its folder"])
def test_links_that_go_round_in_a_project_are_named_too(repository, around):
    loop = repository / "loop"
    loop.symlink_to(loop)
    path = loop if around == "a file" else loop / "x.md"
    assert read_agent(path, project(repository)) == Diagnostic(str(path), "is a link that cannot be followed")


def test_a_user_may_link_a_file_into_place(tmp_path, write):
    target = write(tmp_path / "dotfiles" / "linked.md")
    path = tmp_path / "agents" / "linked.md"
    path.parent.mkdir()
    path.symlink_to(target)
    agent = read_agent(path, USER)
    assert isinstance(agent, Agent)
    assert agent.source == str(path)


def test_a_project_link_inside_the_repository_is_followed(repository, write):
    target = write(repository / "shared" / "linked.md")
    path = repository / "linked.md"
    path.symlink_to(target)
    assert isinstance(read_agent(path, project(repository)), Agent)


def test_a_project_link_out_of_the_repository_is_not_read(repository, tmp_path, write):
    secret = write(tmp_path / "private.md", body="secret")
    path = repository / "leak.md"
    path.symlink_to(secret)
    found = read_agent(path, project(repository))
    assert found == Diagnostic(str(path), f"leads out of the repository, to {secret}; it is not read")


def test_a_sibling_whose_name_begins_like_the_repository_is_outside(repository, tmp_path, write):
    outside = write(tmp_path / "repository-of-others" / "x.md")
    path = repository / "x.md"
    path.symlink_to(outside)
    assert isinstance(read_agent(path, project(repository)), Diagnostic)


LOCKED = """
import json, sys
from pathlib import Path
from retinue.agents.agent import SourceLayer
from retinue.agents.dialects import AgentSource, read_agent
from tests.support.ordinary_user import drop_rights

path = Path(sys.argv[1], "locked.md")
drop_rights()
path.write_text("---\\nname: locked\\n---\\n")
path.chmod(0)
print(json.dumps(str(read_agent(path, AgentSource(SourceLayer.USER)))))
"""


@pytest.mark.process
def test_a_file_that_may_not_be_read_says_so():
    with open_folder() as folder:
        told = as_ordinary_user(LOCKED, str(folder))
    assert told == f"{folder / 'locked.md'}: cannot be read: Permission denied"


def test_a_name_with_a_nul_is_no_path():
    with pytest.raises(AgentFileError, match="has no usable name"):
        read_bytes(Path("a\0b"))


def test_a_nul_in_the_text_is_refused_with_its_line(tmp_path):
    path = tmp_path / "nul.md"
    path.write_bytes(b"---\nname: x\n---\na\0b")
    assert read_agent(path, USER) == Diagnostic(str(path), "contains a NUL byte; it is not a text file", 4)


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", ".", "..", "-rf", "x" * 65, "a\u200bb", "\u202eabc", "cafe\u0301", "café", "a:b", "$(id)", "a;b"],
)
def test_a_name_that_could_mean_more_than_a_name_is_refused(tmp_path, write, name):
    found = read_agent(write(tmp_path / "x.md", f'name: "{name}"'), USER)
    assert isinstance(found, Diagnostic)
    assert found.text.startswith(f"the name {name!a} cannot be called")


@pytest.mark.parametrize(
    ("content", "reason", "line"),
    [
        (b"---\nname: smart\ndescription: It\x92s\n---\n", "is not UTF-8 (byte 0x92); save it as UTF-8", 3),
        ("---\nname: x\n---\n".encode("utf-16"), "is UTF-16; save it as UTF-8", 1),
    ],
)
def test_another_encoding_is_named(tmp_path, content, reason, line):
    path = tmp_path / "windows.md"
    path.write_bytes(content)
    assert read_agent(path, USER) == Diagnostic(str(path), reason, line)
