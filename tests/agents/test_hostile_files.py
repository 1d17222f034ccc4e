"""Hostile agent files: not regular, too large, linked elsewhere, wrong encoding."""

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


def test_prompt_of_one_megabyte_is_read(tmp_path):
    path = tmp_path / "big.md"
    path.write_text(HEADER + "word " * 200_000)
    agent = read_agent(path, USER)
    assert isinstance(agent, Agent)
    assert len(agent.body) == 999_999


def test_agent_file_over_two_mebibytes_is_refused(tmp_path):
    path = tmp_path / "big.md"
    path.write_text(HEADER + "x" * 2**21)
    assert read_agent(path, USER) == Diagnostic(str(path), f"is too large ({2**21 + 18} bytes; at most {2**21})")


def test_sparse_file_of_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "sparse.md"
    with path.open("wb") as file:
        file.truncate(5 * 2**30)
    assert read_agent(path, USER) == Diagnostic(str(path), f"is too large ({5 * 2**30} bytes; at most {2**21})")


def test_fifo_is_refused_without_blocking(tmp_path):
    path = tmp_path / "fifo.md"
    os.mkfifo(path)
    assert read_agent(path, USER) == Diagnostic(str(path), "is not a regular file")


def test_device_behind_a_link_is_not_opened(tmp_path):
    path = tmp_path / "zero.md"
    path.symlink_to("/dev/zero")
    assert read_agent(path, USER) == Diagnostic(str(path), "is not a regular file")


def test_folder_named_like_an_agent_file_is_reported(tmp_path):
    path = tmp_path / "folder.md"
    path.mkdir()
    assert read_agent(path, USER) == Diagnostic(str(path), "is a directory, not a file")


def test_looping_and_broken_links_are_reported(tmp_path):
    one, two, gone = tmp_path / "one.md", tmp_path / "two.md", tmp_path / "gone.md"
    one.symlink_to(two)
    two.symlink_to(one)
    gone.symlink_to(tmp_path / "nothing")
    assert read_agent(one, USER) == Diagnostic(str(one), "is a link that cannot be followed")
    assert read_agent(gone, USER) == Diagnostic(str(gone), "is missing")


@pytest.mark.parametrize("around", ["a file", "its folder"])
def test_looping_links_in_a_project_are_reported(repository, around):
    loop = repository / "loop"
    loop.symlink_to(loop)
    path = loop if around == "a file" else loop / "x.md"
    assert read_agent(path, project(repository)) == Diagnostic(str(path), "is a link that cannot be followed")


def test_linked_agent_file_of_the_user_is_read(tmp_path, write):
    target = write(tmp_path / "dotfiles" / "linked.md")
    path = tmp_path / "agents" / "linked.md"
    path.parent.mkdir()
    path.symlink_to(target)
    agent = read_agent(path, USER)
    assert isinstance(agent, Agent)
    assert agent.source == str(path)


def test_project_link_inside_the_repository_is_followed(repository, write):
    target = write(repository / "shared" / "linked.md")
    path = repository / "linked.md"
    path.symlink_to(target)
    assert isinstance(read_agent(path, project(repository)), Agent)


def test_project_link_out_of_the_repository_is_refused(repository, tmp_path, write):
    secret = write(tmp_path / "private.md", body="secret")
    path = repository / "leak.md"
    path.symlink_to(secret)
    found = read_agent(path, project(repository))
    assert found == Diagnostic(str(path), f"leads out of {repository}, to {secret}, and is ignored")


def test_sibling_with_the_repository_name_as_prefix_is_outside(repository, tmp_path, write):
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
def test_unreadable_agent_file_is_reported():
    with open_folder() as folder:
        message = as_ordinary_user(LOCKED, str(folder))
    assert message == f"{folder / 'locked.md'}: cannot be read: Permission denied"


def test_path_with_a_nul_is_refused():
    with pytest.raises(AgentFileError, match="has no usable name"):
        read_bytes(Path("a\0b"))


def test_nul_in_the_text_is_refused_with_its_line(tmp_path):
    path = tmp_path / "nul.md"
    path.write_bytes(b"---\nname: x\n---\na\0b")
    assert read_agent(path, USER) == Diagnostic(str(path), "contains a NUL byte; it is not a text file", 4)


FOLDED_NAMES = {
    "../x": "x", "a/b": "a-b", "-rf": "rf", "cafe\u0301": "cafe", "café": "cafe", "a:b": "a-b", "$(id)": "id",
    "a;b": "a-b", "FP&A Analyst": "fp-a-analyst", "SRE (Site Reliability Engineer)": "sre-site-reliability-engineer",
}  # fmt: skip


@pytest.mark.parametrize("title", FOLDED_NAMES)
def test_title_becomes_a_name_without_path_and_markup(tmp_path, write, title):
    found = read_agent(write(tmp_path / "x.md", f'name: "{title}"'), USER)
    assert isinstance(found, Agent)
    assert (found.name, found.title) == (FOLDED_NAMES[title], title)


@pytest.mark.parametrize("name", [".", "..", "x" * 65, "a\u200bb", "\u202eabc", "\u0435xplorer", "日本語"])
def test_name_that_is_invisible_too_long_or_looks_like_another_is_refused(tmp_path, write, name):
    found = read_agent(write(tmp_path / "x.md", f'name: "{name}"'), USER)
    assert isinstance(found, Diagnostic)
    assert found.text.startswith(f"the name {name!a} is invalid")


@pytest.mark.parametrize(
    ("content", "reason", "line"),
    [
        (b"---\nname: smart\ndescription: It\x92s\n---\n", "is not UTF-8 (byte 0x92); save it as UTF-8", 3),
        ("---\nname: x\n---\n".encode("utf-16"), "is UTF-16; save it as UTF-8", 1),
    ],
)
def test_text_that_is_not_utf_8_is_refused_with_its_encoding(tmp_path, content, reason, line):
    path = tmp_path / "windows.md"
    path.write_bytes(content)
    assert read_agent(path, USER) == Diagnostic(str(path), reason, line)
