"""Which session of Claude Code's belongs to one of ours."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.engines.claude.session import new_session, pointer_of, remember, resumable
from retinue.testing.engines import run_spec
from retinue.types import RunSpec

SESSION = "6f1c0a52-9f0e-4c5e-8a55-0d5f4f1f2a11"


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return run_spec(tmp_path, native_folder=str(tmp_path / "native"), environment={"HOME": str(tmp_path)})


def resumed(spec: RunSpec) -> RunSpec:
    return replace(spec, native_session=str(pointer_of(spec)))


def record(home: Path, session: str) -> Path:
    file = home / ".claude" / "projects" / "-some-folder" / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_a_session_that_was_remembered_is_gone_on_with(spec, tmp_path):
    remember(pointer_of(spec), SESSION)
    record(tmp_path, SESSION)
    assert resumable(resumed(spec)) == SESSION
    assert resumable(spec) is None, "nobody asked to go on"
    assert stat.S_IMODE(pointer_of(spec).stat().st_mode) == 0o600


def test_the_latest_is_remembered(spec, tmp_path):
    latest = new_session()
    for session in (SESSION, latest):
        remember(pointer_of(spec), session)
        record(tmp_path, session)
    assert resumable(resumed(spec)) == latest
    assert list(pointer_of(spec).parent.iterdir()) == [pointer_of(spec)]


def test_what_claude_code_has_no_record_of_is_not_gone_on_with(spec, tmp_path):
    remember(pointer_of(spec), SESSION)
    record(tmp_path, SESSION).unlink()
    assert resumable(resumed(spec)) is None


@pytest.mark.parametrize("content", ["", "{}", '{"claude": "../../x"}', '{"claude": "--help"}', "x" * 5000])
def test_what_is_no_such_note_is_not_believed(spec, content):
    pointer_of(spec).parent.mkdir()
    pointer_of(spec).write_text(content)
    assert resumable(resumed(spec)) is None
