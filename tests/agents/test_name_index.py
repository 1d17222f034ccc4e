"""The index of names: a run reads the files of its own agents only, and finds what it would find without the index."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.agents.agent import Agent
from retinue.agents.name_index import MAX_UNKNOWN_FILES, MIN_FILES, NameIndex
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore
from retinue.model.errors import Failure

FOLDER = ".claude/agents"
MakeRegistry = Callable[[], AgentRegistry]


@pytest.fixture
def make_registry(scratch_home: Path) -> MakeRegistry:
    """Return a maker of registries as new processes have them, whose clock is an hour ahead."""

    def make() -> AgentRegistry:
        trust, names = TrustStore(scratch_home / "state/trust.json"), NameIndex(scratch_home / "state/names.json")
        folders = SearchPaths({"HOME": str(scratch_home)})
        return AgentRegistry(folders, trust, names=names, clock=lambda: time.time_ns() + 3600 * 10**9)

    return make


@pytest.fixture
def many(scratch_home: Path, repository: Path, write, make_registry: MakeRegistry) -> Path:
    """Return the folder of as many agents as are indexed, which were read once."""
    for number in range(MIN_FILES):
        write(scratch_home / FOLDER / f"file-{number}.md", f"name: agent-{number}", body=f"body {number}")
    assert len(make_registry().for_directory(repository).names()) == MIN_FILES + 5
    return scratch_home / FOLDER


def found_body(registry: AgentRegistry, repository: Path, name: str) -> str:
    """Return the prompt of the agent that a name calls, which must be the one that all agents have under this name."""
    found = registry.for_names(repository, [name]).find(name)
    whole = registry.for_directory(repository).find(name)
    assert found == whole
    return found.body if isinstance(found, Agent) else found.code


OPENED = """
import json, sys, time
from pathlib import Path
from retinue.agents.name_index import NameIndex
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore

home, repository, name = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
registry = AgentRegistry(
    SearchPaths({"HOME": home}), TrustStore(Path(home, "state/trust.json")), names=NameIndex(Path(home, "state/names.json"))
)
found = registry.for_names(Path(repository), [name]).find(name)
print(json.dumps([found.body, [path for path in opened if path.startswith(home) and path.endswith(".md")]]))
"""


@pytest.mark.process
@pytest.mark.parametrize("name", ["agent-7", "An Expert (of all)"])
def test_agent_is_found_without_opening_the_files_of_others(
    many, scratch_home, repository, write, make_registry, name
):
    write(many / "file-7.md", "name: agent-7", "title: An Expert (of all)", body="the seventh")
    assert make_registry().for_directory(repository).find("agent-7")
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(scratch_home), str(repository), name],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # Twice by its title: what is called by a title may have a stronger definition.
    opened = [str(many / "file-7.md")] * (1 if name == "agent-7" else 2)
    assert json.loads(done.stdout) == ["the seventh", opened]


def test_small_tree_has_no_index(scratch_home, repository, write, make_registry):
    write(scratch_home / FOLDER / "one.md")
    make_registry().for_directory(repository)
    assert not (scratch_home / "state/names.json").exists()


def test_changed_and_new_files_are_found_at_once(many, repository, write, make_registry):
    write(many / "file-3.md", "name: renamed", body="changed")
    write(many / "new.md", "name: added", body="new")
    assert [found_body(make_registry(), repository, name) for name in ("renamed", "added")] == ["changed", "new"]
    assert isinstance(make_registry().for_names(repository, ["agent-3"]).find("agent-3"), Failure)


def test_stronger_definition_in_a_new_file_is_used(many, scratch_home, repository, write, make_registry):
    write(scratch_home / ".config/retinue/agents/x.md", "name: agent-5", body="stronger")
    assert found_body(make_registry(), repository, "agent-5") == "stronger"


def test_agent_of_a_project_takes_no_name_of_an_indexed_agent(many, repository, write, make_registry):
    write(repository / ".claude/agents/x.md", "name: agent-5", "tools: read", body="of the project")
    assert found_body(make_registry(), repository, "agent-5") == "body 5"


def test_unknown_name_is_refused_with_all_names(many, repository, make_registry):
    found = make_registry().for_names(repository, ["agent-x"]).find("agent-x")
    assert isinstance(found, Failure)
    assert f"and {MIN_FILES + 5 - 100} more" in found.message


def test_broken_file_of_an_agent_is_reported_with_its_name(many, repository, make_registry):
    (many / "agent-9.md").write_text("---\nname: agent-9\n")
    found = make_registry().for_names(repository, ["agent-9"]).find("agent-9")
    assert found == make_registry().for_directory(repository).find("agent-9")
    assert "the header is not closed" in str(found.notices if isinstance(found, Agent) else found.detail)


@pytest.mark.parametrize("content", ["", "{", '{"version": "0.0.1", "folders": {}}', '{"version": 3}'])
def test_damaged_or_older_index_is_replaced(many, scratch_home, repository, make_registry, content):
    index = scratch_home / "state/names.json"
    before = index.read_bytes()
    index.write_text(content)
    assert found_body(make_registry(), repository, "agent-7") == "body 7"
    assert index.read_bytes() == before


def test_tree_that_changed_as_a_whole_is_read_again(many, repository, write, make_registry):
    for number in range(MAX_UNKNOWN_FILES + 1):
        write(many / f"file-{number}.md", f"name: agent-{number}", body="again")
    assert found_body(make_registry(), repository, "agent-2") == "again"
