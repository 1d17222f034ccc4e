"""The trust store: acceptances bound to content, safe files, harmless agents."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.trust import TrustStore, is_read_only
from retinue.model.runs import Secret


def agent(name: str = "x", digest: str = "d1", **fields: Any) -> Agent:
    return Agent(name=name, layer=SourceLayer.PROJECT, source=f"/repo/.pi/agents/{name}.md", digest=digest, **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "trust.json"


def test_new_trust_store_is_empty_and_writes_no_file(path):
    trust = TrustStore(path)
    assert trust.accepted_digests() == {}
    assert trust.fault() is None
    assert not path.parent.exists()


def test_acceptance_holds_only_for_the_accepted_content(path):
    trust = TrustStore(path)
    trust.accept(agent())
    assert trust.accepted_digests() == {"/repo/.pi/agents/x.md": "d1"}


def test_acceptance_is_stored_for_the_next_process(path):
    TrustStore(path).accept(agent())
    assert TrustStore(path).accepted_digests() == {"/repo/.pi/agents/x.md": "d1"}


def test_acceptance_by_another_process_is_noticed(path):
    mine, other = TrustStore(path), TrustStore(path)
    assert mine.accepted_digests() == {}
    other.accept(agent())
    assert mine.accepted_digests() == {"/repo/.pi/agents/x.md": "d1"}


def test_acceptance_can_be_revoked(path):
    trust = TrustStore(path)
    trust.accept(agent())
    assert trust.revoke("/repo/.pi/agents/x.md")
    assert not trust.revoke("/repo/.pi/agents/x.md")
    assert trust.accepted_digests() == {}


def test_trust_file_is_private(path):
    TrustStore(path).accept(agent())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == {
        "version": 1,
        "accepted": {"/repo/.pi/agents/x.md": {"digest": "d1", "name": "x"}},
    }
    assert sorted(file.name for file in path.parent.iterdir()) == ["trust.json", "trust.lock"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "is damaged"), (b'{"version": 2, "accepted": {}}', "has version 2"), (b'{"accepted": []}', "is damaged")],
)
def test_damaged_trust_file_trusts_nothing_with_a_diagnostic(path, content, problem):
    trust = TrustStore(path)
    trust.accept(agent())
    path.write_bytes(content)
    assert trust.accepted_digests() == {}
    assert problem in str(trust.fault())


def test_accepting_after_damage_starts_a_new_file_and_keeps_the_damaged_one(path):
    path.parent.mkdir()
    path.write_text("{")
    trust = TrustStore(path)
    trust.accept(agent())
    assert trust.accepted_digests() == {"/repo/.pi/agents/x.md": "d1"}
    assert trust.fault() is None
    assert path.with_suffix(".damaged").read_text() == "{"


def test_trust_file_writable_by_others_is_not_trusted(path):
    trust = TrustStore(path)
    trust.accept(agent())
    path.chmod(0o666)
    assert trust.accepted_digests() == {}
    assert "can be written by other users" in str(trust.fault())


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_trust_file_in_a_folder_writable_by_others_is_not_trusted(path, mode):
    trust = TrustStore(path)
    trust.accept(agent())
    path.parent.chmod(mode)
    assert trust.accepted_digests() == {}
    assert f"is in a folder that other users can write (run chmod 700 {path.parent})" in str(trust.fault())


def test_acceptance_in_a_folder_writable_by_others_is_refused(path):
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(OSError, match="is in a folder that other users can write"):
        TrustStore(path).accept(agent())
    assert list(path.parent.iterdir()) == []


def test_linked_trust_file_is_not_trusted(path, tmp_path):
    trust = TrustStore(path)
    trust.accept(agent())
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert trust.accepted_digests() == {}
    assert "is a link" in str(trust.fault())


def test_pipe_at_the_trust_path_is_refused_without_blocking(path):
    path.parent.mkdir()
    os.mkfifo(path)
    trust = TrustStore(path)
    assert trust.accepted_digests() == {}
    assert "is not a regular file" in str(trust.fault())


def test_trust_file_of_another_user_is_not_trusted(path):
    TrustStore(path).accept(agent())
    another = TrustStore(path, uid=os.geteuid() + 1)
    assert another.accepted_digests() == {}
    # An ordinary user cannot own the folder of another, either, which is checked first.
    reason = "another user" if os.geteuid() == 0 else "is in a folder"
    assert reason in str(another.fault())


def test_concurrent_acceptances_are_all_stored(path):
    names = [f"a{i}" for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: TrustStore(path).accept(agent(name)), names))
    assert len(TrustStore(path).accepted_digests()) == len(names)


def test_agent_without_a_file_cannot_be_accepted(path):
    with pytest.raises(ValueError, match="does not come from a file"):
        TrustStore(path).accept(Agent(name="x"))


HARMLESS: list[dict[str, Any]] = [
    {"tools": ("read", "grep", "find", "ls")},
    {"tools": ("Read", "Glob"), "readonly": True, "model": "haiku", "timeout": 5.0},
    {"tools": ()},
    {"no_tools": True},
]
HARMFUL: list[dict[str, Any]] = [
    {},
    {"readonly": True},
    {"tools": ("read", "bash")},
    {"tools": ("read",), "optional_tools": ("fetch_content",)},
    {"tools": ("read", "web_search"), "readonly": True},
    {"tools": ("Bash(git:*)",)},
    {"tools": ("*",)},
    {"denied_tools": ("bash",)},
    {"tools": ("read", "Task")},
    {"tools": ("read",), "delegates": True},
    {"tools": ("read",), "extensions": ("./x.ts",)},
    {"tools": ("read",), "extra_args": ("--verbose",)},
    {"tools": ("read",), "environment": ("TOKEN",)},
    {"tools": ("read",), "provider": "evil"},
    {"tools": ("read",), "model": "evil/model"},
    {"tools": ("read",), "fallback_models": ("ok", "evil/model")},
    {"tools": ("read",), "api_key": Secret("k")},
    {"tools": ("read",), "engine": "pi"},
    {"tools": ("read",), "default_reads": ("~/.ssh/id_rsa",)},
    {"tools": ("read",), "output": "x.md"},
]


@pytest.mark.parametrize("fields", HARMLESS)
def test_agent_with_local_read_tools_is_harmless(fields):
    assert is_read_only(agent(**fields))


@pytest.mark.parametrize("fields", HARMFUL)
def test_agent_with_privileged_fields_is_not_harmless(fields):
    assert not is_read_only(agent(**fields))
