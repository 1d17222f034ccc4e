"""Layered settings: precedence, limits of project files, and reports about ignored values."""

from pathlib import Path

import pytest

from retinue.composition import FOREIGN_SETTINGS, TOOLSET_DEFAULTS
from retinue.config import settings as config_settings
from retinue.config.settings import (
    SETTING_RULES,
    ResolvedSettings,
    SettingProblem,
    Settings,
    SettingsLayer,
    SettingValue,
    environment_layer,
)
from retinue.config.settings_files import SettingsFiles
from retinue.model.runs import Limits, process_limits


def resolve_settings(toolset: str, layers: list[SettingsLayer]) -> ResolvedSettings:
    return config_settings.resolve_settings(toolset, layers, TOOLSET_DEFAULTS)


def user(**values) -> SettingsLayer:
    return SettingsLayer(name="user", values=values)


def project(**values) -> SettingsLayer:
    return SettingsLayer(name="project", values=values, is_project=True)


def test_every_setting_has_rules_and_every_rule_a_setting():
    assert set(SETTING_RULES) == set(Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        ("single", (900.0, 180.0, 1, False)),
        ("sticky", (1800.0, 0.0, 1, True)),
        ("fanout", (600.0, 0.0, 3, True)),
        ("nested", (1800.0, 0.0, 3, True)),
    ],
)
def test_each_toolset_has_its_own_defaults(surface, expected):
    found = resolve_settings(surface, []).settings
    assert (found.timeout, found.idle_timeout, found.max_depth, found.allow_write) == expected


def test_the_call_wins_over_the_environment_over_the_project_over_the_user():
    layers = [
        SettingsLayer(name="call", values={"timeout": 1}),
        environment_layer({"RETINUE_TIMEOUT": "2"}),
        project(timeout=3),
        user(timeout=4),
    ]
    seen = [resolve_settings("nested", layers[i:]).settings.timeout for i in range(4)]
    assert seen == [1, 2, 3, 4]


def test_every_setting_has_its_source():
    found = resolve_settings("fanout", [user(timeout=4)])
    assert found.sources["timeout"] == SettingValue(4.0, "user")
    assert found.sources["max_tasks"] == SettingValue(16, "default of fanout")


def test_table_of_a_toolset_wins_over_the_flat_keys_of_its_file():
    layer = user(timeout=100, fanout={"timeout": 200})
    assert resolve_settings("fanout", [layer]).settings.timeout == 200
    assert resolve_settings("nested", [layer]).settings.timeout == 100


def test_a_project_may_lower_a_limit_and_not_raise_it():
    assert resolve_settings("nested", [project(timeout=60)]).settings.timeout == 60
    found = resolve_settings("nested", [project(timeout=7200)])
    assert found.settings.timeout == 1800
    assert found.problems == (SettingProblem("project", "timeout = 7200 would raise a limit (1800.0); ignored"),)


def test_switching_a_guard_off_counts_as_raising_it():
    found = resolve_settings("nested", [project(looping_tool_count=0, max_turns=5)])
    assert (found.settings.looping_tool_count, found.settings.max_turns) == (5, 5)


@pytest.mark.parametrize("key", ["max_memory_bytes", "max_processes", "max_disk_bytes"])
def test_project_may_lower_what_the_processes_of_a_run_may_use(key):
    limits = [process_limits(resolve_settings("nested", [project(**{key: 50})]).settings.limits())]
    for theirs in (50, 0, 200):
        found = resolve_settings("nested", [project(**{key: theirs}), user(**{key: 100})])
        limits.append(process_limits(found.settings.limits()))
    assert limits == [{key: 50}, {key: 50}, {key: 100}, {key: 100}]


@pytest.mark.parametrize(
    "key", ["project_agents", "allow_write", "fetch_private_addresses", "vault", "engine", "enabled", "model"]
)
def test_project_cannot_set_user_settings(key):
    value = {"enabled": False, "allow_write": True, "fetch_private_addresses": True, "project_agents": "allow"}.get(
        key, "x"
    )
    found = resolve_settings("nested", [project(**{key: value})])
    assert found.settings == Settings()
    assert found.problems == (SettingProblem("project", f"{key} cannot be set by a project; ignored"),)


def test_values_out_of_range_are_clamped_and_reported():
    found = resolve_settings("fanout", [user(extend_timeout_debounce=999, looping_tool_count=-1)])
    assert (found.settings.extend_timeout_debounce, found.settings.looping_tool_count) == (300, 0)
    assert len(found.problems) == 2


@pytest.mark.parametrize("value", ["soon", True, [1], {}, float("nan"), float("inf"), None])
def test_values_of_a_wrong_type_are_ignored_and_reported(value):
    found = resolve_settings("fanout", [user(timeout=value)])
    assert found.settings.timeout == 600
    assert [problem.source for problem in found.problems] == ["user"]


@pytest.mark.parametrize(("value", "seconds"), [(90, 90.0), ("90", 90.0), ("15m", 900.0), (" 2H ", 7200.0)])
def test_timeout_may_have_a_unit(value, seconds):
    found = resolve_settings("fanout", [user(timeout=value)])
    assert (found.settings.timeout, found.problems) == (seconds, ())


def test_unknown_settings_are_reported():
    found = resolve_settings("fanout", [user(timeoutt=5, fanout={"nope": 1})])
    assert ["timeoutt" in p.message or "fanout.nope" in p.message for p in found.problems] == [True, True]


def test_environment_values_are_converted_from_strings():
    layer = environment_layer({"RETINUE_ALLOW_WRITE": "yes", "RETINUE_MAX_TASKS": "8", "RETINUE_STATE": "/x"})
    found = resolve_settings("single", [layer])
    assert (found.settings.allow_write, found.settings.max_tasks, found.problems) == (True, 8, ())


def test_limits_follow_the_settings():
    assert resolve_settings("fanout", []).settings.limits() == Limits(timeout=600, grace=30, ceiling=2400)
    single = resolve_settings("single", []).settings.limits()
    assert single == Limits(timeout=900, grace=0, ceiling=900, idle_timeout=180, retry_attempts=2)


# -- files -----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def settings_of(home: Path, cwd: Path, surface: str = "fanout"):
    return SettingsFiles({"HOME": str(home)}, TOOLSET_DEFAULTS, FOREIGN_SETTINGS).resolve(surface, cwd)


def test_the_users_and_the_projects_files_are_read(scratch_home, tmp_path):
    write(scratch_home / ".config/retinue/config.toml", "timeout = 300\n[single]\ntimeout = 100\n")
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    near = write(tmp_path / "a/.retinue/config.toml", "max_tasks = 3")
    found = settings_of(scratch_home, inner)
    assert (found.settings.timeout, found.sources["max_tasks"]) == (300, SettingValue(3, str(near)))


def test_pi_subagent_settings_are_read_project_over_user(scratch_home, tmp_path):
    write(
        scratch_home / ".pi/agent/settings.json", '{"subagents": {"looping_tool_count": 9, "maxLinesPerWindow": 30}}'
    )
    write(tmp_path / ".pi/settings.json", '{"subagents": {"looping_tool_count": 7}, "theme": "dark"}')
    found = settings_of(scratch_home, tmp_path)
    assert (found.settings.looping_tool_count, found.settings.max_lines_per_window) == (7, 30)
    assert settings_of(scratch_home, tmp_path, "nested").settings.looping_tool_count == 5


def test_own_settings_file_wins_over_a_pi_file_of_the_same_level(scratch_home, tmp_path):
    write(scratch_home / ".pi/agent/settings.json", '{"subagents": {"looping_tool_count": 9}}')
    write(scratch_home / ".config/retinue/config.toml", "looping_tool_count = 8")
    assert settings_of(scratch_home, tmp_path).settings.looping_tool_count == 8


def test_devkit_milliseconds_become_seconds(scratch_home, tmp_path):
    content = '{"subagents": {"timeoutMs": 300000, "allowWrite": true, "maxDepth": 0, "retry": {"maxAttempts": 3}}}'
    write(scratch_home / ".pi/agent/extensions/devkit-pi/config.json", content)
    found = settings_of(scratch_home, tmp_path, "single").settings
    assert (found.timeout, found.allow_write, found.max_depth, found.retry_attempts) == (300, True, 0, 3)


@pytest.mark.parametrize("content", ["timeout = ", "[[", "\x00", "timeout = 5\ntimeout = 6", "x = " + "[" * 50_000])
def test_broken_settings_file_is_reported_and_ignored(scratch_home, tmp_path, content):
    path = write(scratch_home / ".config/retinue/config.toml", content)
    found = settings_of(scratch_home, tmp_path)
    assert found.settings == resolve_settings("fanout", []).settings
    assert [problem.source for problem in found.problems] == [str(path)]


def test_a_changed_file_is_read_again(scratch_home, tmp_path):
    path = write(scratch_home / ".config/retinue/config.toml", "timeout = 300")
    files = SettingsFiles({"HOME": str(scratch_home)}, TOOLSET_DEFAULTS, FOREIGN_SETTINGS)
    assert files.resolve("fanout", tmp_path).settings.timeout == 300
    write(path, "timeout = 4000")
    assert files.resolve("fanout", tmp_path).settings.timeout == 4000


@pytest.mark.parametrize("linked", [".retinue", ".retinue/config.toml"])
def test_settings_of_a_project_behind_a_link_out_of_it_are_ignored_and_reported(scratch_home, tmp_path, linked):
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / ".git").mkdir(parents=True)
    write(outside / "config.toml", "timeout = 5\n")
    place = project / linked
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside if linked == ".retinue" else outside / "config.toml")
    found = settings_of(scratch_home, project)
    assert found.settings.timeout == 600.0
    file = str(project / ".retinue" / "config.toml")
    assert found.problems == (SettingProblem(file, "is a link out of the project and is ignored"),)


def test_settings_of_a_project_behind_a_link_within_it_are_read(scratch_home, tmp_path):
    (tmp_path / ".git").mkdir()
    write(tmp_path / "shared" / "config.toml", "timeout = 5\n")
    (tmp_path / ".retinue").symlink_to("shared")
    found = settings_of(scratch_home, tmp_path)
    assert (found.settings.timeout, found.problems) == (5.0, ())


def test_settings_file_in_the_home_directory_counts_as_the_users(scratch_home):
    write(scratch_home / ".pi/settings.json", '{"subagents": {"looping_tool_count": 0}}')
    found = settings_of(scratch_home, scratch_home)
    assert found.settings.looping_tool_count == 5, "a project's file, even in the home folder, only lowers"


def test_every_toolset_default_is_an_existing_setting():
    assert {key for table in TOOLSET_DEFAULTS.values() for key in table} <= set(SETTING_RULES)


def test_too_deep_json_in_a_pi_file_is_reported_and_ignored(scratch_home, tmp_path):
    path = write(tmp_path / ".pi/settings.json", "[" * 200_000)
    found = settings_of(scratch_home, tmp_path)
    assert found.settings == resolve_settings("fanout", []).settings
    assert [problem.source for problem in found.problems] == [str(path)]


@pytest.mark.parametrize("layer", [user, project])
def test_huge_number_is_clamped(layer):
    found = resolve_settings("nested", [layer(max_turns=int("9" * 400))])
    assert found.settings.max_turns == 2**53
    assert "out of range" in found.problems[0].message


def test_a_vault_may_be_below_home(scratch_home, tmp_path):
    write(scratch_home / ".config/retinue/config.toml", 'vault = "~/vault"')
    assert settings_of(scratch_home, tmp_path).settings.vault == str(scratch_home / "vault")


# -- models that calls may choose ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "patterns"),
    [
        (user(models=["anthropic/*", " openai/gpt-* "]), ("anthropic/*", "openai/gpt-*")),
        (environment_layer({"RETINUE_MODELS": "anthropic/*, openai/gpt-*"}), ("anthropic/*", "openai/gpt-*")),
        (user(models=[]), ()),
        (environment_layer({}), None),
    ],
)
def test_models_are_patterns(layer, patterns):
    found = resolve_settings("nested", [layer])
    assert (found.settings.models, found.problems) == (patterns, ())


@pytest.mark.parametrize("value", [7, [7], ["x" * 201], ["a\nb"]])
def test_models_that_are_no_patterns_are_ignored_and_reported(value):
    found = resolve_settings("nested", [user(models=value)])
    assert found.settings.models is None
    assert [problem.message.split(" = ")[0] for problem in found.problems] == ["models"]


def test_a_project_may_narrow_the_models_of_the_user():
    layers = [project(models=["anthropic/claude-haiku-*", "openai/*"]), user(models=["anthropic/*"])]
    found = resolve_settings("nested", layers)
    assert found.settings.models == ("anthropic/claude-haiku-*",)
    message = "models: openai/* ignored: your list (anthropic/*) does not cover it"
    assert found.problems == (SettingProblem("project", message),)


def test_a_project_cannot_list_models_where_the_user_lists_none():
    found = resolve_settings("nested", [project(models=["openai/*"])])
    assert found.settings.models is None
    message = "models ignored: a project can only shorten your list"
    assert found.problems == (SettingProblem("project", message),)


def test_effort_is_a_thinking_level_and_not_a_projects_to_set():
    assert resolve_settings("nested", [user(effort="high")]).settings.effort == "high"
    assert resolve_settings("nested", [project(effort="high")]).settings.effort is None
    assert resolve_settings("nested", [user(effort="extreme")]).settings.effort is None


@pytest.mark.parametrize(
    ("theirs", "expected"), [("off", "workspace"), ("workspace", "workspace"), ("strict", "strict")]
)
def test_project_can_only_tighten_the_sandbox(theirs, expected):
    found = resolve_settings("nested", [project(sandbox=theirs), user(sandbox="workspace")])
    assert found.settings.sandbox == expected
    assert bool(found.problems) == (theirs == "off")


@pytest.mark.parametrize("value", ["strickt", "", True, 1, None, ["strict"]])
def test_unreadable_sandbox_is_the_strictest_one(value):
    found = resolve_settings("nested", [user(sandbox=value)])
    assert found.settings.sandbox == "strict"
    assert found.problems == (
        SettingProblem("user", f"sandbox = {value!r}: expected one of off, workspace, strict; strict is used"),
    )


def test_environment_wins_over_the_users_sandbox():
    layers = [environment_layer({"RETINUE_SANDBOX": " Off "}), user(sandbox="strict")]
    assert resolve_settings("nested", layers).settings.sandbox == "off"


@pytest.mark.parametrize("key", ["sandbox_read", "sandbox_write", "sandbox_hosts"])
def test_project_cannot_widen_the_sandbox(key):
    found = resolve_settings("nested", [project(**{key: ["/data"]})])
    assert found.settings == Settings()
    assert found.problems == (SettingProblem("project", f"{key} cannot be set by a project; ignored"),)


def test_paths_and_hosts_of_the_sandbox_are_lists():
    layer = environment_layer({"RETINUE_SANDBOX_READ": "~/data, /srv/x", "RETINUE_SANDBOX_HOSTS": "github.com"})
    found = resolve_settings("nested", [layer, user(sandbox_write=["~/.cache"])])
    assert found.settings.sandbox_read == ("~/data", "/srv/x")
    assert (found.settings.sandbox_write, found.settings.sandbox_hosts) == (("~/.cache",), ("github.com",))
    assert found.problems == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sandbox_read", "data"),
        ("sandbox_read", "/"),
        ("sandbox_read", "~"),
        ("sandbox_write", ["/x\0"]),
        ("sandbox_write", [1]),
        ("sandbox_hosts", "https://github.com"),
        ("sandbox_hosts", "a*b.org"),
        ("sandbox_hosts", "github.com:0"),
        ("sandbox_hosts", "github.com:http"),
    ],
)
def test_impossible_paths_and_hosts_of_the_sandbox_are_reported(key, value):
    found = resolve_settings("nested", [user(**{key: value})])
    assert found.settings == Settings()
    assert [problem.message.split(" ignored: expected")[0] for problem in found.problems] == [f"{key} = {value!r}"]
