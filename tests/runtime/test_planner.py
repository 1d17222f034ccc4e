"""Planning: calls that are refused, tasks that fail alone, and the specs of runs."""

import pytest
from msgspec import structs
from tests.support.retinue_factory import plan_of, scripted, stage

from retinue import Agent, Retinue
from retinue.config.directories import engine_session_file
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, reply
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import Notice
from retinue.model.runs import Secret
from retinue.model.tasks import AncestorTask, FileSlice, Lineage, Mode, Plan, Task


async def spec_of(home, task=None, agents=(), surface="fanout", **options):
    """Return the planned spec of a task and its failure."""
    call_changes = options.pop("call", {})
    settings = options.pop("call_settings", {})
    async with stage(home, reply("ok"), agents=agents, **options) as retinue:
        call = structs.replace(retinue.call(surface, **settings), **call_changes)
        plan = Plan(tasks=(task or Task(agent="explorer", prompt="x"),))
        (planned,) = await plan_of(retinue, plan, call)
    return planned.spec, planned.failure


async def failure_of(home, task=None, **options):
    _, failure = await spec_of(home, task, **options)
    assert failure is not None
    return failure


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "The task is empty: write what the agent is to do"),
        (" \n\t", "The task is empty: write what the agent is to do"),
        ("a\0b", "The task contains a NUL byte: remove the byte, or name the file that contains it"),
        ("x" * (2**20 + 1), "The task has 1048577 bytes; the limit is 1048576 (max_task_bytes)."),
        ("é" * 2**19 + "x", "The task has 1048577 bytes; the limit is 1048576 (max_task_bytes)."),
    ],
)
async def test_empty_or_too_long_task_is_refused(scratch_home, prompt, message):
    with pytest.raises(RefusedError) as refused:
        await spec_of(scratch_home, Task(agent="explorer", prompt=prompt))
    assert refused.value.failure.code is ErrorCode.INVALID_INPUT
    assert refused.value.failure.message.startswith(message)


async def test_a_task_of_exactly_the_limit_is_taken(scratch_home):
    spec, failure = await spec_of(scratch_home, Task(agent="explorer", prompt="x" * 2**20))
    assert (len(spec.prompt), failure) == (2**20, None)


@pytest.mark.parametrize("timeout", [0, 0.5, -1, float("nan"), float("inf")])
async def test_a_timeout_below_a_second_is_refused(scratch_home, timeout):
    with pytest.raises(RefusedError, match="it must be a number of seconds, at least 1"):
        await spec_of(scratch_home, Task(agent="explorer", prompt="x", timeout=timeout))


@pytest.mark.parametrize(
    ("depth", "deepest", "shown"), [(3, None, "3/3"), (1, 1, "1/1"), (0, 0, "0/0"), (7, 99, "7/3")]
)
async def test_too_deep_a_call_is_refused_first_of_all(scratch_home, depth, deepest, shown):
    lineage = Lineage(root="r", parent_call="c", depth=depth)
    task = Task(agent="nobody", prompt="")
    with pytest.raises(RefusedError) as refused:
        await spec_of(scratch_home, task, call={"lineage": lineage, "max_depth": deepest})
    assert refused.value.failure.code is ErrorCode.DEPTH_EXCEEDED
    assert refused.value.failure.message == f"Subagent depth exceeded ({shown}). Nested subagents are not allowed."


async def test_disabled_setting_refuses_every_call(scratch_home):
    with pytest.raises(RefusedError, match="Subagents are disabled in configuration") as refused:
        await spec_of(scratch_home, call_settings={"enabled": False})
    assert refused.value.failure.code is ErrorCode.DISABLED


# -- one task's failure ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "message"),
    [
        ("relative/path", "cwd must be an absolute path"),
        ("/tmp/../etc", "cwd must not contain '..' path segments"),
        ("/tmp\0x", "cwd must be an absolute path"),
        ("/nowhere/at/all", "cwd does not exist: /nowhere/at/all. Create the directory, or choose another."),
        ("/dev/null", "cwd is not a directory: /dev/null. Create the directory, or choose another."),
    ],
)
async def test_a_working_directory_that_cannot_be_used_fails_the_task(scratch_home, cwd, message):
    failure = await failure_of(scratch_home, Task(agent="explorer", prompt="x", cwd=cwd))
    assert (failure.code, failure.message) == (ErrorCode.INVALID_INPUT, message)


@pytest.mark.parametrize("name", ["nobody", "../explorer", "a/b", "/etc/passwd", "Explorer"])
async def test_unknown_agent_fails_the_task_and_lists_known_agents(scratch_home, name):
    failure = await failure_of(scratch_home, Task(agent=name, prompt="x"))
    assert failure.code is ErrorCode.UNKNOWN_AGENT
    assert failure.message == (
        f"Unknown agent: {name}. Available agents: explorer, researcher, reviewer, implementer, tester"
    )


async def test_delegating_the_own_task_unchanged_is_refused(scratch_home):
    above = (AncestorTask("explorer", "x", str(scratch_home)),)
    lineage = Lineage(root="r", parent_call="c", depth=1, ancestors=above)
    failure = await failure_of(scratch_home, call={"lineage": lineage})
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "self_delegation")
    _, other = await spec_of(scratch_home, Task(agent="explorer", prompt="x in parser.py"), call={"lineage": lineage})
    assert other is None


async def test_a_tool_the_engine_does_not_have_fails_by_name(scratch_home):
    narrow = {"scripted": kind(EngineCapabilities(tools=frozenset({"read"})))}
    agent = Agent(name="a", tools=("read", "teleport"))
    failure = await failure_of(scratch_home, Task(agent="a", prompt="x"), agents=[agent], engines=narrow)
    assert failure.code is ErrorCode.UNSUPPORTED and "teleport" in failure.message


async def test_budget_the_engine_cannot_count_is_unsupported(scratch_home):
    failure = await failure_of(scratch_home, call_settings={"max_cost": 1.0})
    assert failure.code is ErrorCode.UNSUPPORTED and "max_cost" in failure.message


# -- engines ---------------------------------------------------------------------------------------


def kind(capabilities=CAPABILITIES, *, name="scripted", missing=None, **more):
    return EngineInfo(
        name=name,
        capabilities=capabilities,
        make=lambda: ScriptedEngine(reply("ok")),
        not_installed_reason=lambda: missing,
        **more,
    )


async def test_unknown_engine_failure_lists_known_engines(scratch_home):
    failure = await failure_of(scratch_home, call_settings={"engine": "warp"})
    assert (failure.code, failure.message) == (
        ErrorCode.UNKNOWN_ENGINE,
        'Unknown engine "warp". Engines: auto, scripted.',
    )


async def test_missing_engine_fails_with_the_reason(scratch_home):
    failure = await failure_of(scratch_home, engines={"scripted": kind(missing="pi is not on the PATH.")})
    assert failure.message == "The scripted engine cannot be used: pi is not on the PATH."


async def test_the_call_chooses_the_engine_before_the_agent_before_the_setting(scratch_home):
    engines = {name: kind(name=name) for name in ("one", "two", "scripted")}
    agent = Agent(name="a", engine="two")
    task = Task(agent="a", prompt="x")
    by_call, _ = await spec_of(scratch_home, task, agents=[agent], engines=engines, call_settings={"engine": "one"})
    assert by_call.engine == "one"
    async with stage(scratch_home, engines=engines, agents=[agent]) as retinue:
        call = structs.replace(retinue.call("fanout"), settings={})
        (planned,) = await plan_of(retinue, Plan(tasks=(task,)), call)
    assert planned.spec.engine == "two"


async def test_auto_selects_the_first_available_engine(scratch_home):
    engines = {
        "pi": kind(name="pi", missing="not found"),
        "claude": kind(name="claude"),
        "offline": kind(name="offline"),
    }
    spec, _ = await spec_of(scratch_home, engines=engines, call_settings={"engine": "auto"})
    assert spec.engine == "claude"


async def test_auto_selects_the_offline_engine_only_if_the_caller_allows_it(scratch_home):
    engines = {"offline": kind(name="offline", uses_models=False)}
    options = {"engines": engines, "call_settings": {"engine": "auto"}}
    failure = await failure_of(scratch_home, **options)
    assert (failure.code, failure.reason) == (ErrorCode.SPAWN_FAILED, "no_engine")
    spec, failed = await spec_of(scratch_home, **options, call={"offline_may_answer": True})
    assert (spec.engine, failed) == ("offline", None)


@pytest.mark.parametrize(
    ("call_settings", "model"), [({"model": "openai/gpt-5"}, None), ({}, "openai/gpt-5")], ids=["call", "task"]
)
async def test_auto_never_answers_by_rules_if_the_call_names_a_model(scratch_home, call_settings, model):
    engines = {
        "pi": kind(name="pi", not_configured_reason=lambda: "no login"),
        "api": kind(name="api", not_configured_reason=lambda: "no key", list_providers=lambda _model: ()),
        "offline": kind(name="offline", uses_models=False),
    }
    options = {"call_settings": {"engine": "auto", **call_settings}, "call": {"offline_may_answer": True}}
    task = Task(prompt="x", model=model)
    spec, failure = await spec_of(scratch_home, task, engines=engines, **options)
    assert (spec.engine, failure) == ("api", None)
    without_api = {name: engines[name] for name in ("pi", "offline")}
    refusal = await failure_of(scratch_home, task, engines=without_api, **options)
    assert (refusal.code, refusal.reason) == (ErrorCode.SPAWN_FAILED, "no_engine")


@pytest.mark.parametrize(
    ("model", "agent", "engine"),
    [
        ("openai/gpt-5", {}, "api"),
        ("openai:gpt-5", {}, "api"),
        ("anthropic/claude-5", {}, "claude"),
        ("opus", {}, "claude"),
        ("groq/x", {}, "claude"),
        (None, {"provider": "openai", "model": "gpt-5"}, "api"),
        (None, {"model": "openai/gpt-5"}, "api"),
    ],
)
async def test_auto_selects_an_engine_that_has_the_models_provider(scratch_home, model, agent, engine):
    missing = Failure(ErrorCode.SPAWN_FAILED, "no key")
    engines = {
        "claude": kind(name="claude", only_provider="anthropic"),
        "api": kind(
            name="api",
            list_providers=lambda _model: (),
            find_model_problem=lambda model, _provider, _environ: missing if model == "groq/x" else None,
        ),
    }
    task = Task(agent="a", prompt="x", model=model)
    agents = [Agent(name="a", **agent)]
    spec, failure = await spec_of(
        scratch_home, task, agents=agents, engines=engines, call_settings={"engine": "auto"}
    )
    assert (spec.engine, failure) == (engine, None)


# -- what a run is given ---------------------------------------------------------------------------


async def test_a_task_without_an_agent_runs_the_engines_own_prompt(scratch_home):
    spec, failure = await spec_of(scratch_home, Task(prompt="x"))
    assert (failure, spec.system_prompt) == (None, "")


@pytest.mark.parametrize(
    ("task", "agent", "call_settings", "expected"),
    [
        (None, None, {}, 600),
        (None, 100, {}, 100),
        (None, 100, {"timeout": 50}, 50),
        (20, 100, {"timeout": 50}, 20),
    ],
)
async def test_the_nearest_timeout_counts(scratch_home, task, agent, call_settings, expected):
    spec, _ = await spec_of(
        scratch_home,
        Task(agent="a", prompt="x", timeout=task),
        agents=[Agent(name="a", timeout=agent)],
        call_settings=call_settings,
    )
    assert spec.limits.timeout == expected


async def test_a_projects_agent_may_only_lower_limits(scratch_home, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = tmp_path / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for name, timeout in (("short", 60), ("long", 9000)):
        (folder / f"{name}.md").write_text(
            f"---\nname: {name}\nreadonly: true\ntools: read\ntimeout: {timeout}\n---\nx"
        )
    async with stage(tmp_path, reply("ok")) as retinue:
        call = retinue.call("fanout")
        plan = Plan(tasks=(Task(agent="short", prompt="x"), Task(agent="long", prompt="x")))
        planned = await plan_of(retinue, plan, call)
    assert [p.spec.limits.timeout for p in planned] == [60, 600]


async def test_child_environment_has_the_depth_variables(scratch_home):
    spec, _ = await spec_of(scratch_home, surface="single")
    assert spec.environment == {
        "HOME": str(scratch_home),
        "PI_SUBAGENT_CHILD": "1",
        "PI_SUBAGENT_DEPTH": "1",
        "PI_SUBAGENT_MAX_DEPTH": "1",
    }
    assert (spec.lineage.depth, spec.lineage.ancestors) == (1, (AncestorTask("explorer", "x", str(scratch_home)),))


async def prompts_of(home, tasks, mode=Mode.PARALLEL, **changes):
    """Return the prompt the engine got for each task."""
    told = []

    def script(spec):
        told.append(spec.prompt)
        return [reply("the answer")]

    async with stage(home, script) as retinue:
        call = structs.replace(retinue.call("nested"), **changes)
        await retinue.run_plan(Plan(tasks=tuple(tasks), mode=mode), call)
    return told


async def test_files_are_read_before_the_prompt(scratch_home):
    (scratch_home / "a.txt").write_text("alpha\n")
    files = (FileSlice(path="a.txt"), FileSlice(path="b.txt"))
    told = await prompts_of(scratch_home, [Task(agent="explorer", prompt="go", files=files)])
    assert told == ["=== a.txt ===\nalpha\n\n[file not found: b.txt]\n\ngo"]


async def test_placeholders_in_a_file_are_its_content(scratch_home):
    (scratch_home / "a.py").write_text('f"{task} and {previous}"\n')
    files = (FileSlice(path="a.py"),)
    steps = [Task(agent="explorer", prompt=f"step {n}", files=files) for n in (1, 2)]
    first, second = await prompts_of(scratch_home, steps, Mode.CHAIN)
    assert first == '=== a.py ===\nf"{task} and {previous}"\n\nstep 1'
    assert second.startswith('=== a.py ===\nf"{task} and {previous}"\n\nstep 2\n\n')
    assert "the answer" in second


async def test_below_the_root_files_stay_within_the_callers_directory(scratch_home, tmp_path):
    outside = tmp_path / "secret"
    outside.write_text("x")
    lineage = Lineage(root="r", parent_call="c", depth=1)
    task = Task(agent="explorer", prompt="go", files=(FileSlice(path=str(outside)),))
    assert await prompts_of(scratch_home, [task], lineage=lineage) == [f"[access denied: {outside}]\n\ngo"]
    assert await prompts_of(scratch_home, [task]) == [f"=== {outside} ===\nx\n\ngo"]


@pytest.mark.parametrize("part", [{"head": 0}, {"tail": -1}, {"start": 0}, {"end": -5}])
async def test_impossible_file_slice_is_refused(scratch_home, part):
    task = Task(agent="explorer", prompt="go", files=(FileSlice(path="a", **part),))
    with pytest.raises(RefusedError, match="The task names an invalid range of a: lines are counted from 1"):
        await spec_of(scratch_home, task)


@pytest.mark.parametrize(
    "task",
    [
        Task(agent=5, prompt="x"),  # type: ignore[arg-type]
        Task(agent="explorer", prompt=b"x"),  # type: ignore[arg-type]
        Task(agent="explorer", prompt="x", timeout="5"),  # type: ignore[arg-type]
        Task(agent="explorer", prompt="x", session=5),  # type: ignore[arg-type]
        Task(agent="explorer", prompt="x", files=("a.py",)),  # type: ignore[arg-type]
    ],
)
async def test_a_field_of_a_wrong_type_is_refused_and_named(scratch_home, task):
    with pytest.raises(RefusedError, match="The task has a field of the wrong type: Expected") as refused:
        await spec_of(scratch_home, task)
    assert refused.value.failure.code is ErrorCode.INVALID_INPUT


async def test_authority_of_child_runs_is_the_grant_of_their_parent(scratch_home):
    agent = Agent(name="a", tools=("read", "bash"), grants=("read",))
    spec, _ = await spec_of(scratch_home, Task(agent="a", prompt="x"), agents=[agent])
    assert spec.authority == frozenset({"read"})
    environ = {"HOME": str(scratch_home), "RETINUE_AUTHORITY": "read,grep"}
    assert Retinue(environ=environ).call("nested").authority == frozenset({"read", "grep"})
    assert Retinue(environ={**environ, "RETINUE_AUTHORITY": ""}).call("nested").authority == frozenset()


async def test_authority_limits_the_tools_of_an_agent(scratch_home):
    agent = Agent(name="a", tools=("read", "bash", "write"))
    spec, _ = await spec_of(
        scratch_home, Task(agent="a", prompt="x"), agents=[agent], call={"authority": frozenset({"read", "grep"})}
    )
    assert spec.grant.tools == ("read",)
    assert [(removed.tool, removed.by) for removed in spec.grant.removed] == [
        ("bash", "authority"),
        ("write", "authority"),
    ]


async def test_skipped_project_agent_is_reported(scratch_home, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = tmp_path / ".retinue" / "agents"
    folder.mkdir(parents=True)
    shadow = folder / "explorer.md"
    shadow.write_text("---\nname: explorer\ntools: bash\n---\nRun everything.")
    async with stage(tmp_path, reply("ok")) as retinue, retinue.events() as events:
        result = await retinue.run("explorer", "look")
        shown = [s.event for s in events.drain() if isinstance(s.event, Notice)]
    said = (
        f"{shadow}: is not approved, so the builtin explorer is used; approve it with `retinue agents trust explorer`"
    )
    assert result.spec.agent.layer == "builtin"
    assert result.actual.notices == (said,)
    assert shown == [Notice("planning", said)]


# -- skills ----------------------------------------------------------------------------------------


async def test_loaded_skills_follow_the_appended_prompt(scratch_home):
    folder = scratch_home / ".agents" / "skills" / "sql"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: sql\ndescription: How to ask.\n---\nAsk well.")
    agent = Agent(name="a", body="Work.", append_system_prompt="Be brief.", load_skills=("sql",))
    spec, failure = await spec_of(scratch_home, Task(agent="a", prompt="x"), agents=[agent])
    block = f'<loaded_skill name="sql" folder="{folder}">\nAsk well.\n</loaded_skill>'
    assert (failure, spec.unsupported_preferences) == (None, ())
    assert spec.instructions == f"Work.\n\nBe brief.\n\n{block}"


async def test_an_unknown_skill_fails_only_the_task_that_uses_it(scratch_home):
    agents = [Agent(name="a", suggested_skills=("nope",)), Agent(name="b")]
    tasks = (Task(agent="a", prompt="x"), Task(agent="b", prompt="x"))
    async with stage(scratch_home, reply("ok"), agents=agents) as retinue:
        failed, done = await retinue.delegate(tasks)
    assert failed.failure and failed.failure.code is ErrorCode.UNKNOWN_SKILL
    assert failed.failure.message == 'Unknown skills: "nope". Available skills: (none)'
    assert done.failure is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"load_skills": ("nope",), "no_skills": True}, "load_skills"),
        ({"suggested_skills": ("nope",), "no_skills": True}, "suggested_skills"),
        ({"tools": ("read",), "denied_tools": ("bash",)}, "tools"),
        ({"readonly": True, "extra_args": ("--tools=bash",)}, "extra_args"),
    ],
)
async def test_an_agent_that_contradicts_itself_refuses_the_whole_call(scratch_home, fields, reason):
    tasks = (Task(agent="b", prompt="x"), Task(agent="a", prompt="x"))
    async with stage(scratch_home, reply("ok"), agents=[Agent(name="a", **fields), Agent(name="b")]) as retinue:
        results = await retinue.delegate(tasks)
        assert await retinue.sessions() == []
    for result in results:
        assert result.failure
        assert (result.failure.code, result.failure.reason) == (ErrorCode.CONFLICT, reason)


async def test_a_provider_without_a_model_is_reported_as_not_applied(scratch_home):
    knowing = structs.replace(CAPABILITIES, preferences=frozenset({"provider", "model"}))
    engines = scripted(ScriptedEngine(reply("ok")), knowing)
    agents = [Agent(name="a", provider="acme"), Agent(name="b", provider="acme", model="m")]
    async with stage(scratch_home, agents=agents, engines=engines) as retinue:
        results = await retinue.delegate([("a", "x"), ("b", "x")])
    assert [result.actual.not_applied for result in results] == [("provider",), ()]


# -- an engine's own sessions ----------------------------------------------------------------------


async def test_engine_ignores_its_own_session_if_another_engine_continued_since(scratch_home):
    native = structs.replace(CAPABILITIES, resumes_natively=True)
    kinds = {
        name: EngineInfo(
            name=name,
            capabilities=native,
            make=lambda: ScriptedEngine(reply("ok")),
            not_installed_reason=lambda: None,
        )
        for name in ("scripted", "other")
    }
    async with stage(scratch_home, engines=kinds) as retinue:
        session = (await retinue.run("explorer", "one")).session
        first = engine_session_file(retinue.state / "native" / "scripted", "explorer", session)
        first.parent.mkdir(parents=True)
        first.touch()
        plan = Plan(tasks=(Task(agent="explorer", prompt="x", session=session),))
        (own,) = await plan_of(retinue, plan, retinue.call("single"))
        await retinue.run("explorer", "two", session=session, engine="other")
        (behind,) = await plan_of(retinue, plan, retinue.call("single"))
    assert (own.spec.native_session, behind.spec.native_session) == (str(first), None)
    assert [message.text for message in behind.spec.history] == ["one", "ok", "two", "ok"]


@pytest.mark.parametrize(("cwd", "is_within"), [("", True), ("inside", True), ("..", False), ("link", False)])
async def test_runs_of_a_call_with_roots_work_only_below_them(tmp_path, cwd, is_within):
    place = tmp_path / "place"
    (place / "inside").mkdir(parents=True)
    (place / "link").symlink_to(tmp_path)
    async with stage(place, reply("done")) as retinue:
        call = structs.replace(retinue.call("fanout"), roots=(str(place),))
        task = Task(prompt="look", agent="explorer", cwd=str((place / cwd) if cwd != ".." else tmp_path))
        (planned,) = await plan_of(retinue, Plan(tasks=(task,)), call)
    assert (planned.failure is None) is is_within
    if planned.failure:
        assert planned.failure.message.startswith(f"cwd is outside of {place}: ")


async def test_key_of_an_agent_is_passed_under_the_variable_of_the_engine(scratch_home):
    kind = structs.replace(scripted(ScriptedEngine())["scripted"], api_key_variable="OWN_API_KEY")
    agent, task = Agent(name="a", api_key=Secret("an-agents-own-key-0815")), Task(agent="a", prompt="x")
    spec, failure = await spec_of(scratch_home, task, agents=[agent], engines={"scripted": kind})
    assert (failure, spec.secrets) == (None, {"OWN_API_KEY": Secret("an-agents-own-key-0815")})


@pytest.mark.parametrize(("choice", "sources"), [("none", ()), ("both", ("user", "project"))])
async def test_setting_sources_are_those_of_the_engine(scratch_home, choice, sources):
    kind = scripted(ScriptedEngine())["scripted"]
    known = structs.replace(kind, setting_sources={"none": (), "both": ("user", "project")})
    for engine, expected in ((kind, ()), (known, sources)):
        settings = {"claude_settings": choice}
        spec, _ = await spec_of(scratch_home, engines={"scripted": engine}, call_settings=settings)
        assert spec.setting_sources == expected
