"""Real programs in a sandbox, against a scripted model: they work, and reach nothing outside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.real.variants import NEWEST
from tests.support.model_server import script64
from tests.support.sandboxes import SUPPORT

from retinue import Agent, Retinue
from retinue.model.events import RunEnded
from retinue.model.results import RunResult
from retinue.model.sandbox import SandboxMechanism

pytestmark = [
    pytest.mark.real,
    pytest.mark.process,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not SUPPORT.bubblewrap, reason="bubblewrap is not installed or does not work"),
]
MODES = pytest.mark.parametrize("mode", ["workspace", "strict"])


def worker(**fields) -> Agent:
    return Agent(**{"name": "worker", "body": "You work.", "tools": ("read", "bash", "write"), **fields})


def bash(command: str, *, answer: str = "Done.") -> str:
    return script64([{"tool": "bash", "args": {"command": command}}, {"text": answer}])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a key and state that no run may read."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id_ed25519").write_text("PRIVATE KEY")
    return tmp_path / "home"


@pytest.fixture
def open_pi(pi, server, project, home, tmp_path):
    @asynccontextmanager
    async def open_context(*, agents=None, without_bubblewrap=False, **settings) -> AsyncIterator[Retinue]:
        environ = pi.environ_in(home, server.url)
        if without_bubblewrap:
            environ["PATH"] = hide_program("bwrap", environ["PATH"], tmp_path / "bin")
        async with Retinue(
            cwd=project,
            engine="pi",
            agents=agents or [worker()],
            environ=environ,
            state=tmp_path / "state",
            settings={"model": "local/scripted-1", "allow_write": True, **settings},
        ) as retinue:
            yield retinue

    return open_context


def hide_program(name: str, search_path: str, folder: Path) -> str:
    """Return a search path in which everything but this program is found."""
    folder.mkdir()
    kept = []
    for entry in search_path.split(os.pathsep):
        if not Path(entry, name).exists():
            kept.append(entry)
            continue
        for program in Path(entry).iterdir():
            link = folder / program.name
            if program.name != name and not link.exists():
                link.symlink_to(program)
        kept.append(str(folder))
    return os.pathsep.join(dict.fromkeys(kept))


def last_tool_result(server) -> str:
    return str(server.requests[-1].messages[-1].text)


@MODES
async def test_pi_works_in_the_sandbox_and_reaches_nothing_outside(open_pi, server, project, home, tmp_path, mode):
    command = (
        f"cat a.txt; echo new > made; cat made; cat {home}/.ssh/id_ed25519; ls {tmp_path}/state; echo x > {home}/x"
    )
    async with open_pi(sandbox=mode) as retinue:
        result: RunResult = await retinue.run("worker", f"Work. {bash(command)}")
    assert (result.failure, result.text) == (None, "Done.")
    assert result.actual.sandbox.mechanism is SandboxMechanism.BUBBLEWRAP_LANDLOCK
    assert result.actual.sandbox.mode == mode
    assert (project / "made").read_text() == "new\n"
    assert not (home / "x").exists()
    assert "PRIVATE" not in last_tool_result(server)
    assert result.session_file
    assert "Done." in Path(result.session_file).read_text()


@NEWEST
async def test_what_an_agent_plants_in_its_configuration_is_gone_in_the_next_run(open_pi, server, pi, home):
    """An extension of pi and a package in its settings would run outside the sandbox later."""
    extension = "export default function (pi) { require('fs').writeFileSync('planted', 'x') }"
    command = (
        "echo $PI_CODING_AGENT_DIR; mkdir -p $PI_CODING_AGENT_DIR/extensions; "
        f'echo "{extension}" > $PI_CODING_AGENT_DIR/extensions/evil.js; '
        'echo "{\\"extensions\\": [\\"/tmp/evil.js\\"]}" > $PI_CODING_AGENT_DIR/settings.json; '
        'echo "{\\"evil\\": {\\"type\\": \\"api_key\\", \\"key\\": \\"!touch evil\\"}}" > $PI_CODING_AGENT_DIR/auth.json'
    )
    async with open_pi(sandbox="workspace", warm_pool=False) as retinue:
        first = await retinue.run("worker", f"Work. {bash(command)}")
        folder = last_tool_result(server).splitlines()[0]
        second = await retinue.run("worker", f"Work. {bash('ls $PI_CODING_AGENT_DIR/extensions; ls')}")
        listed = last_tool_result(server)
    assert (first.failure, second.failure) == (None, None)
    assert Path(folder).name.startswith("retinue-home-")
    assert not Path(folder).exists()
    assert "evil" not in listed
    assert "planted" not in listed
    assert sorted(path.name for path in (home / "agent").iterdir()) == ["models.json", "settings.json"]
    assert "evil" not in (home / "agent/settings.json").read_text()


PLANT_IN_THE_PROJECT = (
    "mkdir -p .pi/extensions .claude; "
    """echo "export default () => require('fs').writeFileSync('planted', 'x')" > .pi/extensions/evil.js; """
    """echo '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch planted"}]}]}}' """
    "> .claude/settings.json; ls .pi/extensions .claude"
)


@NEWEST
@pytest.mark.parametrize("without_bubblewrap", [False, True], ids=["bubblewrap", "landlock"])
async def test_extension_that_a_sandboxed_run_plants_in_the_project_is_not_loaded_later(
    open_pi, server, pi, home, project, without_bubblewrap
):
    async with open_pi(without_bubblewrap=without_bubblewrap, warm_pool=False) as retinue:
        # As a user who lets pi load what projects bring.
        pi.environ_in(home, server.url, defaultProjectTrust="always")
        first = await retinue.run("worker", f"Work. {bash(PLANT_IN_THE_PROJECT)}", sandbox="workspace")
        planted = last_tool_result(server)
        second = await retinue.run("worker", f"Work. {bash('ls')}")
        assert not (project / "planted").exists()
        unconfined = await retinue.run("worker", f"Work. {bash(PLANT_IN_THE_PROJECT)}")
        await retinue.run("worker", f"Work. {bash('ls')}")
    assert (first.failure, second.failure, unconfined.failure) == (None, None, None)
    assert "evil.js" in planted
    (notice,) = [notice for notice in first.actual.notices if "from which agents load code" in notice]
    assert f"The agent changed {project}/.claude, {project}/.pi, from which" in notice
    assert (project / f".pi.from-run-{first.run[:8]}/extensions/evil.js").exists()
    assert (project / "planted").exists()  # without a sandbox the same extension is loaded


@NEWEST
async def test_runs_with_different_sandboxes_share_no_process(open_pi, server):
    async with open_pi() as retinue:
        for mode in ("off", "workspace", "workspace", "strict"):
            result = await retinue.run("worker", f"Work. {bash('cat /proc/1/comm; echo $PPID')}", sandbox=mode)
            assert (result.failure, result.actual.sandbox.mode) == (None, mode)
            names = last_tool_result(server)
            assert names.startswith("bwrap") == (mode != "off")


@NEWEST
async def test_sandboxed_session_is_continued(open_pi, server):
    async with open_pi(sandbox="workspace") as retinue:
        first = await retinue.run("worker", f"Remember XYZZY. {script64([{'text': 'I do.'}])}")
        second = await retinue.run("worker", f"What? {script64([{'text': 'XYZZY.'}])}", session=first.session)
    assert (first.failure, second.failure) == (None, None)
    texts = " ".join(str(message.text) for message in server.requests[-1].messages)
    assert "Remember XYZZY" in texts
    assert second.actual.notices == ()


@NEWEST
async def test_sandboxed_pi_delegates_and_its_child_is_sandboxed_too(open_pi, server, project):
    lead = worker(name="lead", tools=("read", "bash", "subagent"))
    child = script64([{"tool": "bash", "args": {"command": "cat /proc/1/comm"}}, {"text": "Worked."}])
    script = script64(
        [{"tool": "spawn_subagent", "args": {"agent": "worker", "task": f"Work. {child}"}}, {"text": "Led."}]
    )
    async with open_pi(agents=[lead, worker()]) as retinue, retinue.events(deltas=False) as watcher:
        result = await retinue.run("lead", f"Lead. {script}", sandbox="strict", max_depth=2)
        ends = [record.event for record in watcher.drain() if isinstance(record.event, RunEnded)]
    assert (result.failure, result.text) == (None, "Led.")
    assert [end.actual.sandbox.mode for end in ends] == ["strict", "strict"]
    assert [end.text for end in ends] == ["Worked.", "Led."]


@NEWEST
async def test_pi_works_under_landlock_alone(open_pi, server, project, home, tmp_path):
    (project / ".git/hooks").mkdir(parents=True, exist_ok=True)
    command = f"echo new > made; cat {home}/.ssh/id_ed25519; echo evil > .git/hooks/pre-commit; ls {tmp_path}/state"
    async with open_pi(without_bubblewrap=True, sandbox="workspace") as retinue:
        result = await retinue.run("worker", f"Work. {bash(command)}")
        strict = await retinue.run("worker", f"Work. {bash(command)}", sandbox="strict")
    assert result.failure is None
    assert result.actual.sandbox.mechanism is SandboxMechanism.LANDLOCK
    assert result.actual.sandbox.gaps
    assert [*(project / ".git/hooks").iterdir()] == []
    assert [notice for notice in result.actual.notices if "by which git executes programs" in notice]
    assert (project / "made").read_text() == "new\n"
    assert "PRIVATE" not in last_tool_result(server)
    assert strict.failure
    assert "it needs bubblewrap, and bwrap is not on the PATH" in strict.failure.message


@NEWEST
async def test_host_that_is_not_allowed_is_named_in_a_notice(open_pi, server):
    command = "curl -sS -m 5 http://127.0.0.1:9/"
    async with open_pi(sandbox="strict") as retinue:
        result = await retinue.run("worker", f"Work. {bash(command)}")
    assert result.failure is None
    assert result.actual.notices == (
        "The sandbox did not allow 127.0.0.1:9. To allow hosts, add them to the setting sandbox_hosts.",
    )


# -- Claude Code ---------------------------------------------------------------------------------


@pytest.fixture
def open_claude(server, project, home, tmp_path):
    need_claude()

    @asynccontextmanager
    async def open_context(**settings) -> AsyncIterator[Retinue]:
        async with Retinue(
            cwd=project,
            engine="claude",
            agents=[worker()],
            environ=claude_environ(home, server.url),
            state=tmp_path / "state",
            settings={"allow_write": True, **settings},
        ) as retinue:
            yield retinue

    return open_context


def claude_bash(command: str) -> str:
    return script64([{"tool": "Bash", "args": {"command": command}}, {"text": "Done."}])


@MODES
async def test_claude_code_works_in_the_sandbox_and_reaches_nothing_outside(open_claude, server, project, home, mode):
    command = f"cat a.txt; echo new > made; cat made; cat {home}/.ssh/id_ed25519; echo x > {home}/x; echo $CLAUDE_CONFIG_DIR"
    async with open_claude(sandbox=mode) as retinue:
        result = await retinue.run("worker", f"Work. {claude_bash(command)}")
        second = await retinue.run("worker", f"Go on. {script64([{'text': 'More.'}])}", session=result.session)
    assert (result.failure, result.text) == (None, "Done.")
    assert (second.failure, second.text, second.actual.notices) == (None, "More.", ())
    assert result.actual.sandbox.mode == mode
    assert (project / "made").read_text() == "new\n"
    assert not (home / "x").exists()
    texts = " ".join(str(message.text) for message in server.requests[-1].messages)
    assert "PRIVATE" not in texts
    assert "retinue-home-" in texts


async def test_hook_that_an_agent_plants_does_not_run_later(open_claude, server, project, home):
    hooks = '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch planted"}]}]}}'
    command = f"echo '{hooks}' > $CLAUDE_CONFIG_DIR/settings.json; cat $CLAUDE_CONFIG_DIR/settings.json"
    async with open_claude(sandbox="workspace", claude_settings="user") as retinue:
        first = await retinue.run("worker", f"Work. {claude_bash(command)}")
        assert "SessionStart" in last_tool_result(server)
        second = await retinue.run("worker", f"Work. {claude_bash('cat $CLAUDE_CONFIG_DIR/settings.json')}")
    assert (first.failure, second.failure) == (None, None)
    assert "SessionStart" not in last_tool_result(server)
    assert not (project / "planted").exists()
    assert "SessionStart" not in "".join(path.read_text() for path in home.rglob("settings.json"))


async def test_hook_that_claude_code_plants_in_the_project_is_set_aside(open_claude, server, project):
    (project / "build.sh").write_text(PLANT_IN_THE_PROJECT)  # in a command Claude Code would refuse it itself
    async with open_claude(sandbox="workspace") as retinue:
        result = await retinue.run("worker", f"Work. {claude_bash('sh build.sh')}")
    assert "settings.json" in last_tool_result(server)
    assert sorted(path.name for path in project.glob(".[cp]*")) == [
        f".claude.from-run-{result.run[:8]}",
        f".pi.from-run-{result.run[:8]}",
    ]


# -- agents that nobody accepted ------------------------------------------------------------------


@pytest.fixture
def stranger(project) -> str:
    """Return the name of an agent of the project that nobody accepted, and that has read tools only."""
    (project / ".git").mkdir()
    (project / ".retinue/agents").mkdir(parents=True)
    (project / ".retinue/agents/stranger.md").write_text(
        "---\nname: stranger\ndescription: Reads.\ntools: read\n---\nYou read.\n"
    )
    return "stranger"


@NEWEST
async def test_agent_that_nobody_accepted_reads_the_repository_only(open_pi, server, stranger, project, home):
    (home / "shared").mkdir()
    (home / "shared/table").write_text("PRIVATE TABLE")
    paths = ("a.txt", f"{home}/.ssh/id_ed25519", f"{home}/shared/table")
    script = script64([*({"tool": "read", "args": {"path": str(path)}} for path in paths), {"text": "Done."}])
    async with open_pi(sandbox_read=[f"{home}/shared"]) as retinue:
        result = await retinue.run(stranger, f"Read. {script}")
    assert (result.failure, result.text) == (None, "Done.")
    assert result.actual.sandbox.mode == "strict"
    texts = " ".join(str(message.text) for message in server.requests[-1].messages)
    assert "XYZZY" in texts
    assert "PRIVATE" not in texts


@NEWEST
async def test_agent_that_nobody_accepted_does_not_run_without_bubblewrap(open_pi, stranger):
    async with open_pi(without_bubblewrap=True) as retinue:
        result = await retinue.run(stranger, "Read.")
    assert result.failure
    assert result.failure.code == "agent_untrusted"
    assert "has not been approved" in result.failure.message
    assert "needs bubblewrap" in result.failure.message
