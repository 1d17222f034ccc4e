"""The variables of the environment that a child process gets."""

from retinue.config.run_environment import build_child_environment

OURS = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "https_proxy": "http://proxy",
    "AWS_SECRET_ACCESS_KEY": "not for everyone",
    "ANTHROPIC_API_KEY": "the provider's",
    "PI_OFFLINE": "1",
    "PI_CODING_AGENT_DIR": "/pi",
    "DEPLOY_TARGET": "staging",
    "RETINUE_STATE": "/state",
}


def test_child_environment_has_only_allowed_variables():
    assert build_child_environment(OURS) == {"PATH": "/bin", "LC_ALL": "C", "https_proxy": "http://proxy"}


def test_child_environment_adds_variables_of_engine_and_agent():
    seen = build_child_environment(OURS, engine=["ANTHROPIC_API_KEY", "PI_*"], agent=["DEPLOY_TARGET", "NOT_SET"])
    assert seen.keys() - build_child_environment(OURS).keys() == {
        "ANTHROPIC_API_KEY",
        "PI_OFFLINE",
        "PI_CODING_AGENT_DIR",
        "DEPLOY_TARGET",
    }


def test_agent_variables_have_no_wildcards():
    assert build_child_environment(OURS, agent=["*", "AWS_*"]) == build_child_environment(OURS)
