"""Tests of the environment each host gives its servers, and of the variables it is asked to pass."""

from __future__ import annotations

import pytest

from retinue.composition import available_engines
from retinue.hosts.environments import list_needed_variables
from retinue.hosts.hosts import HOSTS

OURS = {
    "HOME": "/home/me",
    "PATH": "/nowhere",
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "OPENAI_API_KEY": "",
    "GROQ_API_KEY": "$GROQ_API_KEY",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "RETINUE_STATE": "/state",
    "RETINUE_INSTANCE": "of this process",
    "PI_CODING_AGENT_DIR": "/pi",
    "XDG_STATE_HOME": "/xdg",
    "XDG_SESSION_ID": "2",
    "https_proxy": "http://me:pw@proxy:3128",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
    "DATABASE_URL": "postgres://",
    "EDITOR": "vi",
}
NEEDED = (
    "ANTHROPIC_API_KEY",
    "NODE_EXTRA_CA_CERTS",
    "PI_CODING_AGENT_DIR",
    "RETINUE_STATE",
    "XDG_STATE_HOME",
    "https_proxy",
)


def test_needed_variables_are_set_and_of_configured_engines_folders_and_network():
    assert list_needed_variables(OURS, available_engines(OURS).values()) == NEEDED


def test_clouds_are_needed_only_where_an_engine_uses_them(tmp_path):
    pi = tmp_path / "pi"
    pi.touch(0o755)
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path), "AWS_PROFILE": "dev", "AWS_REGION": "eu-west-1"}
    assert list_needed_variables(environ, available_engines(environ).values()) == ("AWS_PROFILE", "AWS_REGION")
    with_key = {**environ, "MISTRAL_API_KEY": "key", "OPENAI_API_KEY": "key"}
    (tmp_path / ".pi" / "agent").mkdir(parents=True)
    (tmp_path / ".pi" / "agent" / "settings.json").write_text('{"defaultProvider": "openai"}')
    assert list_needed_variables(with_key, available_engines(with_key).values()) == (
        "MISTRAL_API_KEY",
        "OPENAI_API_KEY",
    )


def test_codex_passes_a_few_variables_and_those_it_is_asked_to_pass():
    rules = HOSTS["codex"].environment
    assert rules.build_environment(OURS, {}) == {"HOME": "/home/me", "PATH": "/nowhere"}
    entry = rules.name_variables({"command": "retinue"}, NEEDED)
    assert entry == {"command": "retinue", "env_vars": list(NEEDED)}
    assert rules.build_environment(OURS, {**entry, "env": {"MORE": "1"}}) == {
        "HOME": "/home/me",
        "PATH": "/nowhere",
        "MORE": "1",
        **{name: OURS[name] for name in NEEDED},
    }


def test_gemini_removes_what_looks_like_a_secret_unless_its_entry_names_it():
    rules = HOSTS["gemini"].environment
    passed = rules.build_environment(OURS, {})
    removed = {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY", "AWS_SECRET_ACCESS_KEY", "https_proxy"}
    assert OURS.keys() - passed.keys() == {*removed, "NODE_EXTRA_CA_CERTS", "DATABASE_URL"}
    entry = rules.name_variables({}, NEEDED)
    assert entry["env"]["https_proxy"] == "$https_proxy"
    assert {name: rules.build_environment(OURS, entry)[name] for name in NEEDED} == {
        name: OURS[name] for name in NEEDED
    }
    assert rules.build_environment({}, {"env": {"A": "$A", "B": "${B:-2}"}}) == {"A": "$A", "B": "2"}


@pytest.mark.parametrize("host", sorted(HOSTS.keys() - {"codex", "gemini"}))
def test_other_hosts_pass_everything_and_need_no_names(host):
    rules = HOSTS[host].environment
    assert rules.name_variables({"command": "retinue"}, NEEDED) == {"command": "retinue"}
    key = "environment" if host == "opencode" else "env"
    assert rules.build_environment(OURS, {key: {"MORE": "1"}}) == {**OURS, "MORE": "1"}


@pytest.mark.parametrize("entry", [{"env": 1}, {"env_vars": "A"}, {"env_vars": [1, None]}, {"env": ["A"]}])
@pytest.mark.parametrize("host", HOSTS)
def test_malformed_entry_of_a_person_is_no_error(host, entry):
    assert HOSTS[host].environment.build_environment({"PATH": "/bin"}, entry) == {"PATH": "/bin"}
