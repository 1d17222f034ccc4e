"""What a child process sees of the environment."""

from retinue.engines.child_environment import build_child_environment

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


def test_a_child_sees_only_what_every_program_needs():
    assert build_child_environment(OURS) == {"PATH": "/bin", "LC_ALL": "C", "https_proxy": "http://proxy"}


def test_an_engine_gets_what_it_needs_and_an_agent_what_it_asks_for():
    seen = build_child_environment(OURS, engine=["ANTHROPIC_API_KEY", "PI_*"], agent=["DEPLOY_TARGET", "NOT_SET"])
    assert seen.keys() - build_child_environment(OURS).keys() == {
        "ANTHROPIC_API_KEY",
        "PI_OFFLINE",
        "PI_CODING_AGENT_DIR",
        "DEPLOY_TARGET",
    }


def test_an_agent_cannot_ask_for_everything_at_once():
    assert build_child_environment(OURS, agent=["*", "AWS_*"]) == build_child_environment(OURS)
