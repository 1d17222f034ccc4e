"""Folders of the user and of projects, also on unusual machines."""

from pathlib import Path

import pytest

from retinue.config.directories import (
    config_folder,
    engine_session_file,
    expand_user_path,
    find_project_levels,
    home_folder,
    pi_folder,
    state_folder,
    sticky_session_dir,
)

HOME = {"HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "/home/ada/.local/state/retinue"),
        ({"XDG_STATE_HOME": "/state"}, "/state/retinue"),
        ({"XDG_STATE_HOME": "relative"}, "/home/ada/.local/state/retinue"),
        ({"XDG_STATE_HOME": "/state", "RETINUE_STATE": "/own"}, "/own"),
        ({"RETINUE_STATE": "~/mine"}, "/home/ada/mine"),
    ],
)
def test_state_is_kept_in_one_absolute_place(environ, folder):
    assert state_folder(HOME | environ) == Path(folder)


def test_config_and_pi_folders_follow_their_variables():
    assert config_folder(HOME) == Path("/home/ada/.config/retinue")
    assert config_folder(HOME | {"XDG_CONFIG_HOME": "/config"}) == Path("/config/retinue")
    assert pi_folder(HOME) == Path("/home/ada/.pi/agent")
    assert pi_folder(HOME | {"PI_CODING_AGENT_DIR": "~/pi"}) == Path("/home/ada/pi")


def test_a_relative_home_counts_as_none():
    assert home_folder({"HOME": "here"}).is_absolute()


def test_the_home_of_somebody_else_is_not_looked_up():
    assert expand_user_path("~nobody/x", HOME) == Path("~nobody/x").absolute()


def test_a_project_goes_up_to_its_repository(tmp_path):
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_project_levels(inner) == (inner, tmp_path / "a", tmp_path)


def test_directory_outside_a_repository_is_the_only_level(tmp_path):
    assert find_project_levels(tmp_path / "x") == (tmp_path / "x",)


def test_inaccessible_folder_is_not_a_repository():
    assert find_project_levels(Path("/" + "a" * 300)) == (Path("/" + "a" * 300),)


def test_sticky_sessions_are_kept_by_the_real_path_of_their_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    home = Path("/home/ada")
    folder = sticky_session_dir(home, str(tmp_path / "real"))
    assert folder.parent == home / ".pi" / "subagent-sessions"
    assert len(folder.name) == 16
    assert sticky_session_dir(home, str(tmp_path / "link")) == folder
    assert sticky_session_dir(home, str(tmp_path)) != folder


@pytest.mark.parametrize(("agent", "safe"), [("scout", "scout"), ("../x y", "_x_y"), ("..", "agent"), ("", "agent")])
def test_an_engines_own_session_is_a_file_named_by_agent_and_session(agent, safe):
    session = "550e8400e29b41d4a716446655440000"
    file = engine_session_file(Path("/f"), agent, session)
    assert file == Path(f"/f/{safe}_550e8400-e29b-41d4-a716-446655440000.jsonl")
