"""Tests of our entry in real configurations of every host: added, found and removed, nothing else changed."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from retinue.hosts.changes import ConfigChange, apply_change, plan_install, plan_uninstall
from retinue.hosts.config_editors import UnsupportedConfigError
from retinue.hosts.hosts import HOSTS, Host, HostMachine
from retinue.hosts.own_command import own_command
from retinue.hosts.status import file_uri_to_path, find_installations

FILES = Path(__file__).parent / "files"
COMMAND = ("/opt/retinue/bin/retinue",)
SPEAK_MCP = [host for host in HOSTS.values() if host.speaks_mcp]
each_host = pytest.mark.parametrize("host", HOSTS.values(), ids=list(HOSTS))
each_real_file = pytest.mark.parametrize("host", SPEAK_MCP, ids=[host.name for host in SPEAK_MCP])


def sample_config(host: Host) -> bytes:
    """Return a configuration written by the current version of the host."""
    return next(FILES.glob(f"{host.name}.*")).read_bytes()


def parse_config(host: Host, content: bytes) -> Any:
    return tomllib.loads(content.decode()) if host.name == "codex" else json.loads(content)


def servers(host: Host, content: bytes) -> Any:
    key = {"codex": "mcp_servers", "opencode": "mcp", "vscode": "servers"}.get(host.name, "mcpServers")
    return parse_config(host, content)[key]


def install(host: Host, file: Path, **more: Any) -> ConfigChange:
    change = plan_install(
        file,
        host.editor,
        host.make_entry(more.get("command", COMMAND), more.get("toolset"), more.get("arguments", ())),
    )
    apply_change(change)
    return change


def uninstall(host: Host, file: Path) -> ConfigChange:
    change = plan_uninstall(file, host.editor)
    apply_change(change)
    return change


@pytest.fixture
def file(tmp_path, host):
    path = tmp_path / "deep" / Path(host.project_path).name
    if host.speaks_mcp:
        path.parent.mkdir()
        path.write_bytes(sample_config(host))
        path.chmod(0o640)
    return path


@each_real_file
def test_install_adds_the_entry_and_changes_nothing_else(host, file):
    before = file.read_bytes()
    install(host, file)
    after = file.read_bytes()
    found = servers(host, after)
    assert found.pop("retinue") == host.make_entry(COMMAND, None, ())
    assert found == servers(host, before)
    ends = {line for line in after.splitlines(keepends=True) if line.strip()}
    changed = [line for line in before.splitlines(keepends=True) if line.strip() and line not in ends]
    assert len(changed) <= 1, "at most a comma is added to a line"
    assert file.with_name(f"{file.name}.before-retinue").read_bytes() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert after.count(b"\r\n") in {0, after.count(b"\n")}, "line ends are all of one kind, as before"


@each_real_file
def test_second_install_changes_nothing_and_uninstall_restores_every_byte(host, file):
    before = file.read_bytes()
    install(host, file)
    assert not install(host, file).is_needed
    uninstall(host, file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name]
    assert not uninstall(host, file).is_needed


@each_real_file
def test_uninstall_keeps_later_changes_of_others(host, file):
    install(host, file)
    changed = file.read_bytes().replace(b"demo", b"other").replace(b"server-name", b"other")
    file.write_bytes(changed.replace(b"playwright", b"other"))
    uninstall(host, file)
    assert list(servers(host, file.read_bytes())) == ["other"]


@each_host
def test_install_creates_a_missing_file_and_uninstall_removes_it(host, tmp_path):
    file = tmp_path / "not" / "there" / "yet"
    install(host, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert host.editor.find_entry(file.read_text()) == host.make_entry(COMMAND, None, ())
    uninstall(host, file)
    assert list(file.parent.iterdir()) == []


@each_host
def test_entry_of_an_earlier_installation_is_replaced(host, file):
    original = file.read_bytes() if file.exists() else None
    install(host, file, command=("/old/retinue",))
    install(host, file, toolset="nested")
    assert host.editor.find_entry(file.read_text()) == host.make_entry(COMMAND, "nested", ())
    assert "/old/retinue" not in file.read_text()
    uninstall(host, file)
    assert (file.read_bytes() if file.exists() else None) == original


@each_host
def test_unreadable_file_is_left_unchanged(host, tmp_path):
    contents = [b"{ not [ any = thing", b"\xff\xfe", b'{"a": 1} trailing']
    for number, content in enumerate(contents):
        file = tmp_path / f"{number}"
        file.write_bytes(content)
        for change in (install, uninstall):
            with pytest.raises(UnsupportedConfigError):
                change(host, file)
        assert file.read_bytes() == content
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(UnsupportedConfigError, match="the path is a "):
            install(host, tmp_path / name)


def test_install_keeps_a_link(tmp_path):
    host, elsewhere = HOSTS["claude"], tmp_path / "dotfiles.json"
    elsewhere.write_bytes(sample_config(host))
    (tmp_path / "link.json").symlink_to(elsewhere)
    install(host, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert "retinue" in servers(host, elsewhere.read_bytes())


def test_file_that_changes_between_plan_and_write_is_left_unchanged(tmp_path):
    host, file = HOSTS["claude"], tmp_path / ".claude.json"
    file.write_bytes(sample_config(host))
    change = plan_install(file, host.editor, host.make_entry(COMMAND, None, ()))
    file.write_text("{}")
    with pytest.raises(UnsupportedConfigError, match="changed in the meantime"):
        apply_change(change)
    assert file.read_text() == "{}"


@each_host
def test_read_only_file_is_left_unchanged(host, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        install(host, file)
    file.chmod(0o400)
    before = file.read_bytes()
    with pytest.raises(UnsupportedConfigError, match="the file is read-only"):
        install(host, file, toolset="sticky")
    assert (file.read_bytes(), list(file.parent.iterdir())) == (before, [file])


def test_extension_of_another_author_is_left_unchanged(tmp_path):
    file = tmp_path / "retinue.js"
    file.write_text("export default () => {};\n")
    with pytest.raises(UnsupportedConfigError, match="not written by Retinue"):
        install(HOSTS["pi"], file)


def test_configuration_paths_follow_the_variables_of_the_hosts(tmp_path):
    environ = {
        "HOME": "/home/me",
        "PI_CODING_AGENT_DIR": "~/p",
        "CLAUDE_CONFIG_DIR": "/c",
        "CODEX_HOME": "/x",
        "GEMINI_CLI_HOME": "/g",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    assert {name: str(host.config_path(HostMachine(environ, "linux"), None)) for name, host in HOSTS.items()} == {
        "pi": "/home/me/p/extensions/retinue.js",
        "claude": "/c/.claude.json",
        "codex": "/x/config.toml",
        "gemini": "/g/.gemini/settings.json",
        "opencode": f"{tmp_path}/opencode/opencode.json",
        "cursor": "/home/me/.cursor/mcp.json",
        "vscode": f"{tmp_path}/Code/User/mcp.json",
    }
    (tmp_path / "opencode").mkdir()
    (tmp_path / "opencode" / "opencode.jsonc").touch()
    assert HOSTS["opencode"].config_path(HostMachine(environ), None).name == "opencode.jsonc"
    assert (
        str(HOSTS["vscode"].config_path(HostMachine(environ), Path("/some/project")))
        == "/some/project/.vscode/mcp.json"
    )


def test_only_vs_code_has_another_path_on_macos():
    on = {platform: HostMachine({"HOME": "/Users/me"}, platform) for platform in ("linux", "darwin")}
    moved = {
        name
        for name, host in HOSTS.items()
        if host.config_path(on["linux"], None) != host.config_path(on["darwin"], None)
    }
    assert moved == {"vscode"}
    assert str(HOSTS["vscode"].config_path(on["darwin"], None)) == (
        "/Users/me/Library/Application Support/Code/User/mcp.json"
    )


def test_windows_paths_are_below_the_profile_whatever_home_is(tmp_path):
    profile, roaming = tmp_path / "Users" / "me", tmp_path / "Roaming"
    environ = {"HOME": "/c/Users/me", "USERPROFILE": str(profile), "APPDATA": str(roaming)}
    assert {name: host.config_path(HostMachine(environ, "win32"), None) for name, host in HOSTS.items()} == {
        "pi": profile / ".pi" / "agent" / "extensions" / "retinue.js",
        "claude": profile / ".claude.json",
        "codex": profile / ".codex" / "config.toml",
        "gemini": profile / ".gemini" / "settings.json",
        "opencode": profile / ".config" / "opencode" / "opencode.json",
        "cursor": profile / ".cursor" / "mcp.json",
        "vscode": roaming / "Code" / "User" / "mcp.json",
    }
    del environ["APPDATA"]
    assert HOSTS["vscode"].config_path(HostMachine(environ, "win32"), None) == (
        profile / "AppData" / "Roaming" / "Code" / "User" / "mcp.json"
    )


@each_host
def test_file_uri_of_a_windows_path_is_converted_back(host, tmp_path):
    command = (r"C:\Users\Jörg Müller\new\tools\Scripts\retinue.EXE",)
    install(host, tmp_path / "file", command=command)
    entry = host.editor.find_entry((tmp_path / "file").read_text())
    assert entry == host.make_entry(command, None, ())
    first, *_ = entry["command"] if isinstance(entry["command"], list) else [entry["command"]]
    assert first == command[0]
    assert uninstall(host, tmp_path / "file").after is None


@pytest.mark.parametrize(
    ("uri", "platform", "path"),
    [
        ("file:///C:/Program%20Files/index.js", "win32", "C:/Program Files/index.js"),
        ("file:///home/a%20b/index.js", "linux", "/home/a b/index.js"),
        ("file:///home/index.js", "win32", "/home/index.js"),
    ],
)
def test_missing_extension_is_found_by_its_uri(uri, platform, path):
    assert file_uri_to_path(uri, platform) == path


# -- what doctor sees ------------------------------------------------------------------------------


@each_host
def test_working_installation_has_no_fault(host, tmp_path):
    machine = HostMachine({"HOME": str(tmp_path)})
    file = host.config_path(machine, None)
    install(host, file, command=own_command())
    (found,) = find_installations(machine, tmp_path)
    assert (found.status.name, found.status.file, found.status.fault) == (host.name, str(file), None)


@each_host
def test_missing_command_is_a_fault_with_what_to_do(host, tmp_path):
    machine = HostMachine({"HOME": str(tmp_path / "home")})
    install(host, host.config_path(machine, tmp_path), command=("/nowhere/retinue",))
    (found,) = find_installations(machine, tmp_path)
    assert found.status.fault == (
        f"{host.title} starts a program that does not exist (/nowhere/retinue). "
        f"Run: retinue install {host.name} --project"
    )


@each_host
def test_remedy_installs_the_same_entry_again(host, tmp_path):
    machine = HostMachine({"HOME": str(tmp_path)})
    file = host.config_path(machine, None)
    install(host, file, command=own_command(), toolset="sticky", arguments=("--engine", "pi"))
    (found,) = find_installations(machine, tmp_path / "elsewhere")
    assert found.status.remedy == f"retinue install {host.name} --toolset sticky -- --engine pi"
    install(host, file, command=own_command())
    (found,) = find_installations(machine, tmp_path / "elsewhere")
    assert found.status.remedy == f"retinue install {host.name}"


@each_real_file
def test_unreadable_file_that_names_retinue_is_a_fault(host, tmp_path):
    machine = HostMachine({"HOME": str(tmp_path)})
    file = host.config_path(machine, None)
    install(host, file)
    broken = file.read_text() + "= ["
    file.write_text(broken)
    (found,) = find_installations(machine, tmp_path / "elsewhere")
    assert found.status.fault
    assert found.status.fault.startswith(
        f"{host.title} cannot read {file}, which names Retinue: the file is not valid "
    )
    file.write_text(broken.replace("retinue", "other"))
    assert list(find_installations(machine, tmp_path / "elsewhere")) == []


def test_missing_extension_is_a_fault(tmp_path):
    host, machine = HOSTS["pi"], HostMachine({"HOME": str(tmp_path)})
    entry = {**host.make_entry(own_command(), None, ()), "extension": "file:///nowhere/index.js"}
    apply_change(plan_install(host.config_path(machine, None), host.editor, entry))
    (found,) = find_installations(machine, tmp_path / "elsewhere")
    assert found.status.fault
    assert "loads an extension that no longer exists (file:///nowhere/index.js)" in found.status.fault
