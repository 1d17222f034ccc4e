"""The SQLite index of agents: written only when it differs, and restored after damage."""

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.registry import AgentSet
from retinue.agents.sqlite_index import AgentIndex, IndexRow
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import ScriptedEngine


def engine_info(name="pi", missing=None, **more):
    return EngineInfo(
        name=name,
        capabilities=EngineCapabilities(tools=frozenset()),
        make=ScriptedEngine,
        not_installed_reason=lambda: missing,
        **more,
    )


def make_agent_set(*agents):
    return AgentSet(agents, accepted={})


SCOUT = Agent(
    name="scout", description="Scouts", model="big", tools=("Read",), layer=SourceLayer.VAULT, source="/v/scout"
)
ROW = IndexRow("scout", "Scouts", "vault", "/v/scout", "", "big", '["read"]', 1, "auto", None)


@pytest.fixture
def index(tmp_path):
    return AgentIndex(tmp_path / "state" / "agents.sqlite")


def test_index_has_a_row_for_each_agent_outside_projects(index):
    local = Agent(name="local", layer=SourceLayer.PROJECT, source="/p/local.md")
    mine = Agent(name="mine", layer=SourceLayer.PROGRAM)
    off = Agent(name="off", enabled=False, no_tools=True, engine="claude", layer=SourceLayer.USER, source="/u/off.md")
    weaker = Agent(name="scout", layer=SourceLayer.USER, source="/u/scout.md")
    assert index.reconcile(make_agent_set(mine, local, SCOUT, off, weaker), {"pi": engine_info()}, "auto")
    assert index.rows() == [
        IndexRow("off", "", "user", "/u/off.md", "", None, "[]", 0, "claude", 'Unknown engine "claude".'),
        ROW,
    ]


def test_index_replaces_undecodable_bytes_of_file_names(index):
    odd = Agent(name="odd", layer=SourceLayer.USER, source="/u/\udcff.md")
    index.reconcile(make_agent_set(odd), {"pi": engine_info()}, "auto")
    assert [row.source for row in index.rows()] == ["/u/\ufffd.md"]


def test_index_file_is_private(index, tmp_path):
    index.reconcile(make_agent_set(SCOUT), {}, "auto")
    path = tmp_path / "state" / "agents.sqlite"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["agents.sqlite"], "nothing is left beside it"


def test_current_index_is_not_rewritten(index, tmp_path):
    people = make_agent_set(SCOUT)
    assert index.reconcile(people, {"pi": engine_info()}, "auto")
    assert not index.reconcile(people, {"pi": engine_info()}, "auto")
    assert not index.reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    another = AgentIndex(tmp_path / "state" / "agents.sqlite")
    assert not another.reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto"), (
        "another process finds it as it should be"
    )


def test_index_follows_changed_logins(index):
    people = make_agent_set(SCOUT)
    index.reconcile(people, {"pi": engine_info(missing="No key.")}, "auto")
    assert [row.cannot_run for row in index.rows()] == ["No key."]
    assert index.reconcile(people, {"pi": engine_info()}, "auto")
    assert [row.cannot_run for row in index.rows()] == [None]


def test_offline_engine_does_not_count_for_auto(index):
    index.reconcile(make_agent_set(SCOUT), {"offline": engine_info("offline", uses_models=False)}, "auto")
    assert [row.cannot_run for row in index.rows()] == ["No engine with a language model is configured."]


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b"no database at all"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: (path.unlink(), path.symlink_to("/nonexistent/elsewhere")),
    ],
    ids=["deleted", "overwritten", "emptied", "cut off", "a link"],
)
def test_damaged_index_is_restored(index, tmp_path, damage):
    path = tmp_path / "state" / "agents.sqlite"
    index.reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    damage(path)
    assert AgentIndex(path).reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    assert index.rows() == [ROW]
    assert not path.is_symlink()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no database")])
def test_deleted_index_is_restored_without_other_changes(index, tmp_path, damage):
    people, engines = make_agent_set(SCOUT), {"pi": engine_info()}
    index.reconcile(people, engines, "auto")
    damage(tmp_path / "state" / "agents.sqlite")
    assert index.reconcile(people, engines, "auto")
    assert index.rows() == [ROW]


def test_unwritable_index_raises_no_error(tmp_path):
    (tmp_path / "state").write_text("a file")
    index = AgentIndex(tmp_path / "state" / "agents.sqlite")
    index.reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    assert index.rows() is None


def test_folder_at_the_index_path_is_left_alone(tmp_path):
    (tmp_path / "agents.sqlite" / "precious").mkdir(parents=True)
    AgentIndex(tmp_path / "agents.sqlite").reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    assert [path.name for path in tmp_path.iterdir()] == ["agents.sqlite"]
    assert (tmp_path / "agents.sqlite" / "precious").is_dir()


def test_locked_index_is_replaced_without_waiting(index, tmp_path):
    index.reconcile(make_agent_set(SCOUT), {"pi": engine_info()}, "auto")
    holder = sqlite3.connect(tmp_path / "state" / "agents.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    other = AgentIndex(tmp_path / "state" / "agents.sqlite")
    looking = threading.Thread(target=other.reconcile, args=(make_agent_set(SCOUT), {"pi": engine_info()}, "auto"))
    looking.start()
    looking.join(2)
    assert not looking.is_alive(), "SQLite waits for 5 seconds unless it is told not to"
    holder.close()
    assert index.rows() == [ROW]
