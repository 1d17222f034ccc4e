"""What comes back from the configuration folder of a sandboxed program: renewed tokens of logins, and sessions."""

import json
from pathlib import Path

import pytest

from retinue.engines.claude.confinement import PrivateClaudeConfig
from retinue.engines.pi.confinement import open_private_config

LOGIN = {"type": "oauth", "access": "a1", "refresh": "r1", "expires": 1}
KEY = {"type": "api_key", "key": "k1"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".pi/agent"
    folder.mkdir(parents=True)
    (folder / "auth.json").write_text(json.dumps({"anthropic": LOGIN, "openai": KEY}))
    settings = {"defaultModel": "x", "extensions": ["~/evil.ts"], "packages": ["npm:x"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "extensions").mkdir()
    return tmp_path


def logins(home: Path) -> object:
    return json.loads((home / ".pi/agent/auth.json").read_text())


async def test_pi_gets_copies_without_settings_that_load_code(home):
    async with open_private_config({"HOME": str(home)}, ()) as config:
        found = {path.name: json.loads(path.read_text()) for path in config.folder.iterdir() if path.is_file()}
    assert found == {"auth.json": {"anthropic": LOGIN, "openai": KEY}, "settings.json": {"defaultModel": "x"}}
    assert not config.folder.exists()


async def test_pi_gets_the_login_of_its_provider_only(home):
    async with open_private_config({"HOME": str(home)}, ("anthropic",)) as config:
        assert json.loads((config.folder / "auth.json").read_text()) == {"anthropic": LOGIN}


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (
            {"anthropic": {**LOGIN, "access": "a2", "expires": 2}},
            {"anthropic": {**LOGIN, "access": "a2", "expires": 2}},
        ),
        (
            {"anthropic": {**LOGIN, "access": "a2", "baseUrl": "http://evil"}},
            {"anthropic": {**LOGIN, "access": "a2"}},
        ),
        ({"anthropic": {**LOGIN, "access": ["a2"]}}, {"anthropic": LOGIN}),
        ({"anthropic": {**LOGIN, "expires": "soon"}}, {"anthropic": LOGIN}),
        ({"anthropic": LOGIN, "openai": {"type": "api_key", "key": "!touch evil"}}, {"anthropic": LOGIN}),
        ({"anthropic": LOGIN, "evil": {"type": "oauth", "access": "x"}}, {"anthropic": LOGIN}),
        ({}, {"anthropic": LOGIN}),
        ("not an object", {"anthropic": LOGIN}),
    ],
)
async def test_only_renewed_tokens_of_a_login_come_back(home, inside, expected):
    async with open_private_config({"HOME": str(home)}, ()) as config:
        (config.folder / "auth.json").write_text(json.dumps(inside))
        await config.collect(None)
    assert logins(home) == {**expected, "openai": KEY}


async def test_login_that_the_user_changed_meanwhile_is_kept(home):
    async with open_private_config({"HOME": str(home)}, ()) as config:
        (config.folder / "auth.json").write_text(json.dumps({"anthropic": {**LOGIN, "access": "a2"}}))
        theirs = {"anthropic": {**LOGIN, "access": "mine"}}
        (home / ".pi/agent/auth.json").write_text(json.dumps(theirs))
        await config.collect(None)
    assert logins(home) == theirs


async def test_session_goes_in_and_comes_back(home, tmp_path):
    session = tmp_path / "one.jsonl"
    session.write_text("first\n")
    async with open_private_config({"HOME": str(home)}, ()) as config:
        inside = await config.import_session(str(session))
        assert inside
        assert Path(inside).read_text() == "first\n"
        Path(inside).write_text("first\nsecond\n")
        await config.collect(str(session))
        assert not Path(inside).exists()
    assert session.read_text() == "first\nsecond\n"


async def test_session_that_was_replaced_by_a_link_does_not_come_back(home, tmp_path):
    secret, session = tmp_path / "secret", tmp_path / "one.jsonl"
    secret.write_text("PRIVATE")
    async with open_private_config({"HOME": str(home)}, ()) as config:
        inside = await config.import_session(str(session))
        assert inside
        Path(inside).symlink_to(secret)
        await config.collect(str(session))
    assert not session.exists()
    assert secret.read_text() == "PRIVATE"


def claude(tmp_path: Path) -> PrivateClaudeConfig:
    for name in ("private", "user"):
        (tmp_path / name).mkdir()
    login = {"claudeAiOauth": {"accessToken": "a1", "refreshToken": "r1", "expiresAt": 1, "scopes": ["x"]}}
    (tmp_path / "user/.credentials.json").write_text(json.dumps(login))
    (tmp_path / "user/settings.json").write_text(json.dumps({"model": "x", "hooks": {"SessionStart": []}}))
    (tmp_path / "user/.claude.json").write_text(json.dumps({"userID": "u", "projects": {}, "mcpServers": {}}))
    config = PrivateClaudeConfig(tmp_path / "private", tmp_path / "user", tmp_path / "kept")
    config.copy_configuration(tmp_path / "user/.claude.json", with_settings=True)
    return config


def test_claude_code_gets_copies_without_hooks(tmp_path):
    config = claude(tmp_path)
    assert json.loads((config.folder / "settings.json").read_text()) == {"model": "x"}
    assert json.loads((config.folder / ".claude.json").read_text()) == {"userID": "u"}


def test_renewed_tokens_and_records_of_claude_code_come_back_and_nothing_else(tmp_path):
    config = claude(tmp_path)
    renewed = {"accessToken": "a2", "refreshToken": "r2", "expiresAt": 2, "scopes": ["evil"]}
    (config.folder / ".credentials.json").write_text(json.dumps({"claudeAiOauth": renewed, "evil": {}}))
    (config.folder / "settings.json").write_text(json.dumps({"hooks": {}}))
    (config.folder / "projects/-work").mkdir(parents=True)
    (config.folder / "projects/-work/s.jsonl").write_text("record\n")
    (config.folder / "projects/-work/link.jsonl").symlink_to("/etc/hostname")
    before = (tmp_path / "user/settings.json").read_text()
    config.collect()
    login = json.loads((tmp_path / "user/.credentials.json").read_text())
    assert login == {"claudeAiOauth": {**renewed, "scopes": ["x"]}}
    assert (tmp_path / "user/settings.json").read_text() == before
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "kept").rglob("*.jsonl")] == [
        "kept/-work/s.jsonl"
    ]
