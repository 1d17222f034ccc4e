"""The start of pi: every field of an agent is passed on or reported; no secret or long text is an argument."""

from pathlib import Path

import pytest
from msgspec import structs

from retinue.engines.pi.installation import PiInstallation
from retinue.engines.pi.launch import EXTENSION_PATH, list_unapplied_preferences, plan_launch
from retinue.model.agents import AgentProfile
from retinue.model.events import Notice
from retinue.model.runs import Secret, ToolGrant
from retinue.testing.engines import make_run_spec

PI = PiInstallation("/bin/pi", (1, 5, 0), (1, 1))
SESSION = "0123456789abcdef0123456789abcdef"
USUAL = ("-e", str(EXTENSION_PATH), "--no-themes", "-np")


@pytest.fixture
def spec(tmp_path):
    def make_spec(agent=None, **fields):
        agent = AgentProfile(name="scout", **(agent or {}))
        fields = {"session": SESSION, "native_folder": str(tmp_path / "native"), **fields}
        return structs.replace(make_run_spec(tmp_path), agent=agent, **fields)

    return make_spec


@pytest.mark.parametrize(
    ("agent", "model", "arguments"),
    [
        ({}, None, ()),
        ({}, "local/m", ("--model", "local/m")),
        ({"provider": "local"}, "m", ("--provider", "local", "--model", "m")),
        ({"thinking": "high"}, None, ("--thinking", "high")),
        ({"no_extensions": True}, None, ("-ne", "--no-mcp")),
        ({"extensions": ("a.ts", "b.ts")}, None, ("-e", "a.ts", "-e", "b.ts")),
        ({"no_skills": True}, None, ("--no-skills",)),
        ({"no_context_files": True}, None, ("-nc",)),
        ({"extra_args": ("--verbose",)}, None, ("--verbose",)),
    ],
)
def test_fields_of_an_agent_become_arguments(spec, agent, model, arguments):
    assert plan_launch(spec(agent, model=model), PI).key.arguments == (*USUAL, *arguments)


def test_versions_without_mcp_get_no_mcp_flag(spec):
    start = plan_launch(spec({"no_extensions": True}), structs.replace(PI, version=(0, 87, 1)))
    assert "--no-mcp" not in start.key.arguments


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (
            {"thinking": "deeply"},
            "pi has no thinking level 'deeply' (it has: off, minimal, low, medium, high, xhigh, max)",
        ),
        ({"provider": "local"}, "The provider 'local' is ignored, because no model is set."),
    ],
)
def test_unapplied_preferences_are_reported(spec, agent, sentence):
    run = spec(agent)
    (notice,) = list_unapplied_preferences(run, plan_launch(run, PI))
    assert notice.message.startswith(sentence)
    assert notice.preference in agent
    assert plan_launch(run, PI).key.arguments == USUAL


@pytest.mark.parametrize("way", ["conversing", "once"])
def test_prompts_and_secrets_are_not_in_the_arguments(spec, tmp_path, way):
    secret = "hunter2hunter2"
    run = spec(
        prompt="the task " * 9,
        system_prompt="the system " * 9,
        append_prompt="the rest " * 9,
        secrets={"PI_API_KEY": Secret(secret)},
        grant=ToolGrant(tools=("read", "bash")),
        finalize=True,
    )
    start = plan_launch(run, PI)
    command = start.oneshot_command(run, tmp_path) if way == "once" else start.rpc_command()
    said = " ".join(command.argv)
    assert [text for text in ("the task", "the system", "the rest", secret) if text in said] == []
    assert command.environ["PI_API_KEY"] == secret
    if way == "once":
        assert said.endswith(
            f"--system-prompt {tmp_path}/system-prompt.md --append-system-prompt {tmp_path}/append-system-prompt.md"
        )
        assert "--tools read,bash,subagent_finalize" in said
        assert (tmp_path / "system-prompt.md").stat().st_mode & 0o777 == 0o600


def test_agent_without_tools_gets_the_no_tools_flag(spec, tmp_path):
    run = spec(grant=ToolGrant())
    assert "--no-tools" in plan_launch(run, PI).oneshot_command(run, tmp_path).argv


@pytest.mark.parametrize(
    "change",
    [
        {"cwd": "/elsewhere"},
        {"model": "local/other"},
        {"environment": {"COLOUR": "red"}},
        {"secrets": {"PI_API_KEY": Secret("another key")}},
        {"agent": AgentProfile(name="scout", thinking="high")},
        {"agent": AgentProfile(name="scout", no_context_files=True)},
    ],
)
def test_process_key_depends_on_everything_fixed_at_start(spec, change):
    assert plan_launch(structs.replace(spec(), **change), PI).key != plan_launch(spec(), PI).key


def test_process_key_is_equal_for_other_prompts_and_tools(spec):
    changed = structs.replace(
        spec(),
        system_prompt="other",
        prompt="other",
        grant=ToolGrant(tools=("ls",)),
        agent=AgentProfile(name="other"),
    )
    assert plan_launch(changed, PI).key == plan_launch(spec(), PI).key


def test_process_key_contains_no_secret(spec):
    assert "hunter2" not in repr(plan_launch(spec(secrets={"PI_API_KEY": Secret("hunter2hunter2")}), PI).key)


def test_an_updated_pi_has_another_key(spec):
    assert plan_launch(spec(), structs.replace(PI, stamp=(2, 2))).key != plan_launch(spec(), PI).key


def test_the_session_file_is_named_by_agent_and_session(spec, tmp_path):
    assert plan_launch(spec(), PI).session == str(
        tmp_path / "native" / "scout_01234567-89ab-cdef-0123-456789abcdef.jsonl"
    )


def test_session_file_of_an_earlier_attempt_is_moved_aside(spec, tmp_path):
    for content in ("first", "second"):
        Path(plan_launch(spec(), PI).session or "").write_text(content)
    plan_launch(spec(), PI)
    kept = sorted((file.name.split(".", 1)[1], file.read_text()) for file in (tmp_path / "native").iterdir())
    assert kept == [("1.jsonl", "first"), ("2.jsonl", "second")]


def test_continued_session_file_stays_in_place(spec, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text("x")
    assert plan_launch(spec(native_session=str(path)), PI).session == str(path)
    assert path.read_text() == "x"


def test_run_without_writable_folder_has_no_session_file(spec, tmp_path):
    (tmp_path / "file").write_text("")
    run = spec(native_folder=str(tmp_path / "file" / "native"))
    start = plan_launch(run, PI)
    assert start.rpc_command().argv[-1] == "--no-session"
    message = f"pi's own session file is not kept: {tmp_path}/file/native cannot be written."
    assert list(list_unapplied_preferences(run, start)) == [Notice("not_applied", message)]
