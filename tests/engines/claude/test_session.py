"""The Claude Code session that belongs to one of our sessions."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.engines.claude.run import find_resumable_session, new_session_id, pointer_path, write_pointer
from retinue.model.runs import RunSpec
from retinue.testing.engines import make_run_spec

SESSION = "6f1c0a52-9f0e-4c5e-8a55-0d5f4f1f2a11"


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return make_run_spec(tmp_path, native_folder=str(tmp_path / "native"), environment={"HOME": str(tmp_path)})


def with_session_pointer(spec: RunSpec) -> RunSpec:
    return replace(spec, native_session=str(pointer_path(spec)))


def record(home: Path, session: str) -> Path:
    file = home / ".claude" / "projects" / "-some-folder" / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_stored_session_is_resumed(spec, tmp_path):
    write_pointer(pointer_path(spec), SESSION)
    record(tmp_path, SESSION)
    assert find_resumable_session(with_session_pointer(spec)) == SESSION
    assert find_resumable_session(spec) is None, "nobody asked to go on"
    assert stat.S_IMODE(pointer_path(spec).stat().st_mode) == 0o600


def test_latest_session_is_stored(spec, tmp_path):
    latest = new_session_id()
    for session in (SESSION, latest):
        write_pointer(pointer_path(spec), session)
        record(tmp_path, session)
    assert find_resumable_session(with_session_pointer(spec)) == latest
    assert list(pointer_path(spec).parent.iterdir()) == [pointer_path(spec)]


def test_session_without_a_record_of_claude_code_is_not_resumed(spec, tmp_path):
    write_pointer(pointer_path(spec), SESSION)
    record(tmp_path, SESSION).unlink()
    assert find_resumable_session(with_session_pointer(spec)) is None


@pytest.mark.parametrize("content", ["", "{}", '{"claude": "../../x"}', '{"claude": "--help"}', "x" * 5000])
def test_invalid_session_pointer_is_ignored(spec, content):
    pointer_path(spec).parent.mkdir()
    pointer_path(spec).write_text(content)
    assert find_resumable_session(with_session_pointer(spec)) is None
