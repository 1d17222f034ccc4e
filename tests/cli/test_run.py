"""Tests of `run`, `delegate` and `chain`: output, JSON and exit codes."""

from __future__ import annotations

import json
import os
import re

import pytest

SCRIPTED = ("--engine", "scripted")
DONE = [{"say": "done"}]


def test_run_prints_only_the_answer_on_stdout(cli):
    result = cli("run", "explorer", "look", *SCRIPTED, script=[{"call": "ls", "args": {}}, {"say": "Found {task}."}])
    assert result.exit_code == 0
    assert result.stdout == "Found look.\n"
    assert "→ ls ." in result.stderr
    assert "✓ completed" in result.stderr


def test_quiet_run_prints_only_the_answer(cli):
    result = cli("run", "explorer", "look", *SCRIPTED, "--quiet")
    assert (result.stdout, result.stderr) == ("A scripted answer of explorer to: look\n", "")


def test_run_names_the_engine_chosen_by_auto(cli):
    assert "engine: offline (rules, not a language model" in cli("run", "explorer", "Where is main?").stderr
    assert "engine:" not in cli("run", "explorer", "Where is main?", "--engine", "offline").stderr


def test_terminal_escapes_in_an_answer_are_removed(cli):
    result = cli("run", "explorer", "x", *SCRIPTED, "-q", script=[{"say": "\x1b[2Jplain\x07 \u202etext"}])
    assert result.stdout == "plain ⟨U+202E⟩text\n"


# -- tasks -----------------------------------------------------------------------------------------


def test_task_is_read_from_stdin_a_file_or_an_escaped_at_sign(cli, place):
    (place / "task.md").write_bytes("\ufeffin a file\r\nwith two lines\r\n".encode())

    def ask(task, stdin=None):
        return cli("run", "explorer", task, *SCRIPTED, "-q", stdin=stdin, script=[{"say": "{task}"}]).stdout

    assert ask("-", stdin="by a pipe\n") == "by a pipe\n"
    assert ask("@task.md") == "in a file\nwith two lines\n"
    assert ask("@@someone") == "@someone\n"


@pytest.mark.parametrize(
    ("task", "stdin", "sentence"),
    [
        ("-", b"a\0b", "NUL byte"),
        ("-", b"\xff\xfe", "not valid UTF-8"),
        ("-", b"x" * (2**20 + 1), "the limit is 1048576 bytes"),
        ("-", b"", "empty"),
        ("@", b"", "The name of the file is missing. Write @@… for a text"),
        ("@missing", b"", "missing cannot be read: No such file or directory"),
        ("@pipe", b"", "pipe is a pipe, not a file"),
        ("@folder", b"", "folder is a directory, not a file"),
        ("@/dev/zero", b"", "/dev/zero is a device, not a file"),
        ("@latin", b"", "latin is not valid UTF-8 (byte 1)"),
        ("  ", b"", "empty"),
    ],
)
def test_unreadable_task_is_refused_in_one_sentence(cli, place, task, stdin, sentence):
    os.mkfifo(place / "pipe")
    (place / "folder").mkdir()
    (place / "latin").write_bytes(b"h\xe9")
    result = cli("run", "explorer", task, *SCRIPTED, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_task_is_read_from_stdin_if_none_is_given(cli):
    done = cli("run", "explorer", *SCRIPTED, "-q", stdin="by a pipe\n", script=[{"say": "{task}"}])
    assert (done.exit_code, done.stdout) == (0, "by a pipe\n")


@pytest.mark.parametrize("stdin", ["", " \n"])
def test_run_without_a_task_names_the_ways_to_give_one(cli, stdin):
    done = cli("run", "explorer", *SCRIPTED, stdin=stdin)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "No task given, and stdin is empty. Pass the task as an argument, on stdin or as @FILE" in done.stderr
    assert json.loads(cli("sessions", "--json").stdout)["sessions"] == []


# -- usage -----------------------------------------------------------------------------------------

TURN = {
    "event": {"type": "message_ended", "stopReason": "stop", "model": "m-1", "usage": {"input": 1200, "output": 34}}
}
PRICED = {**TURN["event"], "usage": {"input": 1200, "output": 34, "cacheRead": 800, "cost": 0.0123}}
ANSWER = {"event": {"type": "text", "text": "Here."}}


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ([ANSWER, TURN], r"m-1 · 1,200 tokens in, 34 out · cost unknown · \d+\.\d s"),
        ([ANSWER, {"event": PRICED}], r"m-1 · 2,000 tokens in \(800 cached\), 34 out · \$0\.0123 · \d+\.\d s"),
    ],
)
def test_last_line_names_model_tokens_cost_and_time(cli, script, line):
    done = cli("run", "explorer", "x", *SCRIPTED, script=script)
    assert re.fullmatch(line, done.stderr.splitlines()[-1])
    assert cli("run", "explorer", "x", *SCRIPTED, "--quiet", script=script).stderr == ""


def test_last_line_of_several_runs_is_their_sum(cli):
    steps = ("--step", "explorer", "x", "--step", "tester", "y")
    last = cli("chain", *steps, *SCRIPTED, script=[ANSWER, TURN]).stderr.splitlines()[-1]
    assert last.startswith("m-1 · 2,400 tokens in, 68 out · cost unknown · ")


def test_last_line_reports_that_the_cost_of_some_runs_is_unknown(cli):
    unpriced = TURN["event"]
    script = {"runs": [[ANSWER, {"event": PRICED}], [ANSWER, {"event": unpriced}]]}
    last = cli("chain", "--step", "explorer", "x", "--step", "tester", "y", *SCRIPTED, script=script).stderr
    assert " · $0.0123 and an unknown part · " in last.splitlines()[-1]


def test_last_line_of_the_offline_engine_names_no_model(cli):
    last = cli("run", "explorer", "Where is main?", "--engine", "offline").stderr.splitlines()[-1]
    assert re.fullmatch(r"offline · no model · \d+\.\d s", last)


# -- exit codes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "script", "code"),
    [
        (("run", "explorer", "x"), [{"say": "done"}], 0),
        (("run", "explorer", "x"), [{"fail": "400 bad"}], 1),
        (("run", "explorer", "x"), [{"raise": "no engine today"}], 1),
        (("run", "explorer", "x"), [], 1),
        (("run", "explorer", "x", "--timeout", "1"), [{"hang": True}], 124),
        (("run", "nobody", "x"), [], 2),
        (("run", "explorer", "x", "--max-depth", "0"), [], 2),
        (("run", "explorer", "x", "--session", "deadbeef"), [], 2),
        (("run", "explorer", "x", "--timeout", "0"), [], 2),
        (("run", "explorer", "x", "--timeout", "soon"), [], 2),
        (("run", "explorer", "x", "--max-cost", "-1"), [], 2),
        (("run", "explorer", "x", "--cwd", "missing"), [], 2),
        (("run", "explorer", "x", "--engine", "none"), [], 2),
        (("chain", "--step", "explorer", "x", "--step", "tester", "y"), [{"say": "done"}], 0),
        (("chain", "--step", "explorer", "x", "--step", "nobody", "y"), [], 2),
        (("chain", "--step", "explorer", "x", "--step", "tester", "y"), [{"fail": "400"}], 1),
        (("chain",), [], 2),
        (("chain", "plan.json", "--step", "explorer", "x"), [], 2),
    ],
)
def test_exit_code_of_run_follows_its_result(cli, arguments, script, code):
    engine = () if "--engine" in arguments else SCRIPTED
    assert cli(*arguments, *engine, script=script).exit_code == code


AGENTS = {"explorer": [{"say": "one"}], "tester": [{"fail": "400"}], "reviewer": [{"hang": True}]}


@pytest.mark.parametrize(
    ("agents", "code"),
    [
        (["explorer", "explorer"], 0),
        (["explorer", "tester"], 1),
        (["explorer", "reviewer"], 124),
        (["tester", "reviewer"], 1),
        (["explorer", "nobody"], 1),
        ([], 2),
        (["explorer"] * 17, 2),
    ],
)
def test_exit_code_of_several_runs_follows_their_results(cli, agents, code):
    plan = {"tasks": [{"agent": agent, "prompt": "x"} for agent in agents]}
    environ = {"RETINUE_EXTEND_TIMEOUT_DEBOUNCE": "0"}
    result = cli(
        "delegate", "-", *SCRIPTED, "--timeout", "1", stdin=json.dumps(plan), script={"agents": AGENTS}, **environ
    )
    assert result.exit_code == code


# -- failures --------------------------------------------------------------------------------------


def test_failed_run_prints_its_partial_answer_and_the_reason(cli):
    script = [{"say": "half of it", "deltas": 2}, {"fail": "400 bad request"}]
    result = cli("run", "explorer", "x", *SCRIPTED, "-q", script=script)
    assert result.exit_code == 1
    assert result.stdout == "half of it\n"
    assert "400 bad request" in result.stderr


def test_run_that_cannot_be_stored_still_prints_its_answer(cli, place):
    (place / "file").touch()
    state = str(place / "file" / "state")
    result = cli("run", "explorer", "x", *SCRIPTED, RETINUE_STATE=state)
    assert result.exit_code == 0
    assert result.stdout == "A scripted answer of explorer to: x\n"
    assert "this run could not be stored completely" in result.stderr
    # It is a loss, so it is said whatever the flags: in full, with what to do.
    quiet = cli("run", "explorer", "x", *SCRIPTED, "-q", RETINUE_STATE=state)
    assert "this run could not be stored completely" in quiet.stderr
    assert "set RETINUE_STATE to another folder." in quiet.stderr
    assert "started" not in quiet.stderr
    called = cli("call", "subagent", '{"agent": "explorer", "task": "x"}', *SCRIPTED, "-q", RETINUE_STATE=state)
    assert "set RETINUE_STATE to another folder." in called.stderr


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"RETINUE_TIMEOUT": "soon"}, "RETINUE_TIMEOUT='soon' ignored: expected seconds, e.g. 300 or 5m"),
        ({"RETINUE_MAX_TASKS": "0"}, "RETINUE_MAX_TASKS='0' is out of range; 1 is used"),
        ({"RETINUE_TIMOUT": "5"}, "RETINUE_TIMOUT is not a setting and was ignored. Did you mean RETINUE_TIMEOUT?"),
    ],
)
def test_ignored_settings_are_named_with_their_value_before_a_run(cli, environ, sentence):
    for quiet in ((), ("-q",)):
        first = cli("run", "explorer", "x", *SCRIPTED, *quiet, **environ).stderr.splitlines()[0]
        assert first == f"warning: {sentence}"


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"RETINUE_ISOLATION": "yes"}, "RETINUE_ISOLATION='yes' cannot be read: expected one of none, worktree"),
        ({"RETINUE_ALLOW_WRITE": "never"}, "RETINUE_ALLOW_WRITE='never' cannot be read: expected true or false"),
        (
            {"RETINUE_PROJECT_AGENTS": "no"},
            "RETINUE_PROJECT_AGENTS='no' cannot be read: expected one of ask, allow, deny",
        ),
        ({"RETINUE_MAX_COST": "five"}, "RETINUE_MAX_COST='five' cannot be read: expected a number"),
    ],
)
def test_restriction_that_cannot_be_read_fails_the_run_by_name(cli, environ, sentence):
    result = cli("run", "explorer", "x", *SCRIPTED, **environ)
    assert (result.exit_code, result.stdout) == (2, "")
    expected = f"A restriction of runs cannot be applied: environment: {sentence}. Nothing was run."
    assert result.stderr.splitlines() == [f"error: {expected} Correct or remove it."]


def test_restriction_of_a_file_that_cannot_be_read_fails_the_run(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('isolation = "wortree"\n')
    result = cli("run", "explorer", "x", *SCRIPTED, "--json")
    failure = json.loads(result.stdout)["failure"]
    assert (failure["code"], failure["reason"]) == ("unsupported", "restriction")
    assert f"{folder / 'config.toml'}: isolation = 'wortree' cannot be read" in failure["message"]


def test_unreadable_sandbox_of_the_environment_is_the_strictest(cli):
    result = cli("run", "explorer", "x", *SCRIPTED, RETINUE_SANDBOX="on")
    assert result.stderr.splitlines()[0] == (
        "warning: RETINUE_SANDBOX='on': expected one of off, workspace, strict; strict is used"
    )


def test_ignored_settings_of_a_file_are_named_with_the_file(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("timout = 60\n")
    first = cli("run", "explorer", "x", *SCRIPTED).stderr.splitlines()[0]
    assert first.endswith(f"{folder / 'config.toml'}: unknown setting 'timout' ignored. Did you mean timeout?")


def test_ignored_setting_is_printed_once_and_stays_in_the_record(cli):
    result = cli("run", "explorer", "x", *SCRIPTED, "--json", RETINUE_TIMEOUT="soon")
    assert result.stderr.count("RETINUE_TIMEOUT='soon'") == 1
    (notice,) = json.loads(result.stdout)["actual"]["notices"]
    assert notice.startswith("environment: RETINUE_TIMEOUT='soon' ignored")


# -- several ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            {"tasks": [{"agent": "explorer", "promt": "a"}]},
            "Task 1 has no prompt: write what the agent is to do. Unknown fields: promt (did you mean prompt?).",
        ),
        (
            {"profil": "x", "tasks": [{"agent": "explorer", "prompt": "a", "outputSchemas": {}, "xyz": 1}]},
            "profil (did you mean profile?), tasks[0].outputSchemas (did you mean outputSchema?), tasks[0].xyz",
        ),
    ],
)
def test_unknown_fields_of_a_plan_get_a_suggestion(cli, plan, sentence):
    assert sentence in " ".join(cli("delegate", "-", *SCRIPTED, stdin=json.dumps(plan)).stderr.split())


def test_delegate_prints_each_answer_under_its_name(cli):
    plan = {
        "tasks": [
            {"agent": "explorer", "prompt": "a", "name": "first"},
            {"agent": "tester", "prompt": "b"},
            {"profile": "reviewer", "task": "c", "later": True},
        ],
        "also": 1,
    }
    scripts = {"explorer": [{"say": "one"}], "tester": [{"fail": "400 bad"}], "reviewer": [{"say": "three"}]}
    result = cli("delegate", "-", *SCRIPTED, stdin=json.dumps(plan), script={"agents": scripts})
    lines = [line.split(" (session")[0] for line in result.stdout.splitlines()]
    assert lines == ["=== 1 first: completed", "one", "", "=== 3 reviewer: completed", "three"]
    assert "stdin: ignored unknown fields: also, tasks[2].later" in result.stderr
    assert "2 tester: The model provider failed: 400 bad" in result.stderr


def test_chain_prints_its_last_answer_and_the_step_where_it_stopped(cli):
    steps = ("--step", "explorer", "find", "--step", "tester", "test {previous}")
    done = cli("chain", *steps, *SCRIPTED, "-q", script={"runs": [[{"say": "one"}], [{"say": "two"}]]})
    assert (done.exit_code, done.stdout) == (0, "two\n")
    failed = cli("chain", *steps, *SCRIPTED, "-q", script={"runs": [[{"say": "one"}], [{"fail": "400 bad"}]]})
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: Chain stopped at step 2 (tester): ")


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("{", "stdin: invalid JSON, unexpected end of file (line 1)"),
        ('{"tasks": [\n{"é": 1 "x"}]}', "stdin: invalid JSON, expected ',' or '}' (line 2, column 9)"),
        ("[" * 100_000, "invalid plan: "),
        ("[]", "stdin: invalid plan: Expected `object`, got `array`"),
        ('{"tasks": [{"prompt": 1}]}', "invalid plan: Expected `str | null`, got `int` - at `$.tasks[0].prompt`"),
        ('{"tasks": [{"agent": "a"}]}', "Task 1 has no prompt"),
        ('{"tasks": [{"prompt": "x"}, {"prompt": " "}]}', "Task 2 has no prompt"),
        *(
            (json.dumps({"tasks": [{"prompt": "x"}, {"prompt": "x", field: empty}]}), f"Task 2 has an empty {field}.")
            for field in ("agent", "profile", "cwd", "name", "resume")
            for empty in ("", " ")
        ),
        ('{"tasks": [{"prompt": "x"}], "profile": ""}', "stdin has an empty profile."),
        *(
            (json.dumps({"tasks": [{"prompt": "x", "files": [{"path": "f", part: 0}]}]}), "lines are counted from 1")
            for part in ("start", "end", "head", "tail")
        ),
        ('{"tasks": [{"agent": "a", "profile": "b", "prompt": "x"}]}', "Task 1 has both agent and profile"),
        ('{"tasks": [{"task": "x", "prompt": "x"}]}', "Task 1 has both prompt and task"),
    ],
)
def test_invalid_plan_is_refused_with_the_position(cli, plan, sentence):
    result = cli("delegate", "-", "--json", *SCRIPTED, stdin=plan)
    assert result.exit_code == 2
    assert sentence in result.stderr
    refusal = json.loads(result.stdout)
    assert (refusal["status"], refusal["failure"]["code"]) == ("refused", "invalid_input")
    assert sentence in refusal["failure"]["message"]


def test_files_of_a_plan_are_read_whole_or_in_part(cli, place):
    (place / "notes").write_text("one\ntwo\nthree\n")
    plan = {"tasks": [{"prompt": "read", "files": ["notes", {"path": "notes", "head": 1}]}]}
    assert cli("delegate", "-", *SCRIPTED, stdin=json.dumps(plan)).exit_code == 0


# -- output schemas --------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


@pytest.mark.parametrize("given", ["schema.json", json.dumps(SCHEMA)])
def test_output_schema_is_a_file_or_json_and_the_value_is_printed(cli, place, given):
    (place / "schema.json").write_text(json.dumps(SCHEMA))
    command = ("run", "explorer", "count", *SCRIPTED, "--output-schema", given)
    script = [{"finalize": {"total": 3}}]
    assert cli(*command, "-q", script=script).stdout == '{"total":3}\n'
    assert json.loads(cli(*command, "--json", script=script).stdout)["structured"] == {"total": 3}


def test_result_that_does_not_match_fails_the_run_with_the_violation(cli):
    command = ("run", "explorer", "count", *SCRIPTED, "--output-schema", json.dumps(SCHEMA))
    result = cli(*command, script=[{"finalize": {"total": "three"}}])
    assert result.exit_code == 1
    assert "$.total (type): 'three' is not of type 'integer'" in result.stderr


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("missing.json", "missing.json cannot be read: No such file or directory"),
        ('{"type": ', "--output-schema: is not a JSON object"),
        ('{"type": "no"}', "The output schema is invalid at $.type (anyOf)"),
        ('{"$ref": "https://example.org/s.json"}', "The output schema is invalid at $ ($ref)"),
    ],
)
def test_unusable_output_schema_is_refused(cli, schema, sentence):
    result = cli("run", "explorer", "count", *SCRIPTED, "--output-schema", schema)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_tasks_of_a_plan_have_output_schemas(cli):
    plan = {"tasks": [{"agent": "explorer", "prompt": "count", "outputSchema": SCHEMA}]}
    result = cli("delegate", "-", *SCRIPTED, "--json", stdin=json.dumps(plan), script=[{"finalize": {"total": 3}}])
    assert json.loads(result.stdout)["results"][0]["structured"] == {"total": 3}


# -- model and effort ------------------------------------------------------------------------------


def test_model_and_effort_of_the_command_are_used_or_reported(cli):
    result = cli(
        "run", "explorer", "look", *SCRIPTED, "--model", "any/model", "--effort", "high", "--json", script=DONE
    )
    found = json.loads(result.stdout)
    assert (found["actual"]["declaredModel"], found["actual"]["notApplied"]) == ("any/model", ["thinking"])


def test_unknown_effort_is_refused(cli):
    result = cli("run", "explorer", "look", "--effort", "extreme")
    assert result.exit_code == 2
    assert "'extreme' is not one of 'off', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'" in result.stderr


@pytest.mark.parametrize("command", ["delegate", "chain"])
def test_tasks_of_a_plan_choose_model_and_effort(cli, command):
    plan = {"tasks": [{"agent": "explorer", "prompt": "look", "model": "any/model", "effort": "high"}]}
    result = cli(command, "-", *SCRIPTED, "--json", stdin=json.dumps(plan), script=DONE)
    (found,) = json.loads(result.stdout)["results"]
    assert (found["actual"]["declaredModel"], found["actual"]["notApplied"]) == ("any/model", ["thinking"])


def test_model_that_the_user_does_not_list_is_refused(cli, monkeypatch):
    monkeypatch.setenv("RETINUE_MODELS", "anthropic/*")
    result = cli("run", "explorer", "look", *SCRIPTED, "--model", "openai/gpt-5", script=DONE)
    assert result.exit_code == 2
    assert (
        'The model "openai/gpt-5" is not among those that a call may choose: anthropic/* (setting models)'
        in result.stderr
    )
    short = cli("run", "explorer", "look", *SCRIPTED, "--model", "claude-opus", script=DONE).stderr
    assert "Choose one of these models, with its provider (PROVIDER/MODEL), or add yours to models" in short
    plan = json.dumps({"tasks": [{"agent": "explorer", "prompt": "look", "model": "openai/gpt-5"}]})
    assert cli("delegate", "-", *SCRIPTED, stdin=plan, script=DONE).exit_code == 2
    plan = json.dumps({"tasks": [{"agent": "explorer", "prompt": "look", "model": "anthropic/claude"}]})
    assert cli("delegate", "-", *SCRIPTED, stdin=plan, script=DONE).exit_code == 0


# -- JSON ------------------------------------------------------------------------------------------

RUN = [
    "status", "exitCode", "run", "session", "agent", "name", "task", "engine", "model", "text", "answer", "failure",
    "usage", "elapsed", "finalized", "structured", "sessionFile", "actual",
]  # fmt: skip
ACTUAL = [
    "engine", "model", "declaredModel", "toolsGranted", "toolsRemoved", "toolsMissing", "toolsUsed", "notApplied",
    "limits", "attempts", "nestedUsage", "masks", "droppedBytes", "process", "processUsage", "sandbox", "worktree", "notices",
    "saved",
]  # fmt: skip


def test_run_as_json_has_every_key_in_every_state(cli):
    done = json.loads(cli("run", "explorer", "x", *SCRIPTED, "--json").stdout)
    failed = json.loads(cli("run", "explorer", "x", *SCRIPTED, "--json", script=[{"fail": "400"}]).stdout)
    assert list(done) == list(failed) == RUN
    assert list(done["actual"]) == ACTUAL
    assert (done["status"], done["exitCode"], done["answer"], done["failure"]) == ("completed", 0, "final", None)
    assert (failed["status"], failed["exitCode"]) == ("failed", 1)
    assert list(failed["failure"]) == ["code", "message", "reason", "detail"]
    assert failed["failure"]["code"] == "provider"


def test_several_runs_as_json_are_one_object(cli):
    plan = json.dumps({"tasks": [{"agent": "explorer", "prompt": "a"}, {"agent": "nobody", "prompt": "b"}]})
    found = json.loads(cli("delegate", "-", *SCRIPTED, "--json", stdin=plan).stdout)
    assert [found["status"], found["exitCode"], found["failure"]] == ["failed", 1, None]
    assert [result["status"] for result in found["results"]] == ["completed", "refused"]
    assert [list(result) for result in found["results"]] == [RUN, RUN]
    assert (found["results"][1]["session"], found["results"][1]["exitCode"]) == (None, 2)


NOTHING_RAN = {"run": None, "session": None, "engine": None, "model": None, "sessionFile": None, "text": ""}


@pytest.mark.parametrize(
    ("command", "asked", "code"),
    [
        (("run", "nobody", "x"), ("nobody", "nobody", "x"), "unknown_agent"),
        (("run", "explorer", "x", "--name", "n", "--engine", "warp"), ("explorer", "n", "x"), "unknown_engine"),
        (("run", "explorer", ""), ("explorer", "explorer", ""), "invalid_input"),
        (
            ("run", "explorer", "x", "--session", "0123456789abcdef"),
            ("explorer", "explorer", "x"),
            "session_not_found",
        ),
        (("run", "explorer"), (None, None, None), "invalid_input"),
        (("run", "", "x"), (None, None, None), "invalid_input"),
        (("run", "explorer", "@nofile"), (None, None, None), "invalid_input"),
        (("run", "explorer", "x", "--timeout", "soon"), (None, None, None), "invalid_input"),
        (("sessions", "resume", "nope", "x"), (None, None, None), "session_not_found"),
    ],
)
def test_refused_run_as_json_has_every_key_and_leaves_no_session(cli, command, asked, code):
    result = cli(*command, "--json")
    found = json.loads(result.stdout)
    assert list(found) == RUN
    assert list(found["actual"]) == ACTUAL
    assert list(found["failure"]) == ["code", "message", "reason", "detail"]
    assert (found["status"], found["exitCode"], result.exit_code) == ("refused", 2, 2)
    assert {name: found[name] for name in NOTHING_RAN} == NOTHING_RAN
    assert (found["agent"], found["name"], found["task"]) == asked
    assert found["failure"]["code"] == code
    assert found["failure"]["message"] in result.stderr
    assert "(session " not in result.stderr
    assert json.loads(cli("sessions", "list", "--json").stdout) == {"sessions": []}


@pytest.mark.parametrize(("engine", "has_session"), [("pi", True), ("api", False)])
def test_engine_that_cannot_start_refuses_the_command(cli, engine, has_session):
    result = cli("run", "explorer", "x", "--engine", engine, "--json", PATH="/nowhere")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["exitCode"], found["failure"]["code"]) == (2, 2, "spawn_failed")
    assert ("(session " in result.stderr) is has_session


def test_tasks_that_cannot_start_leave_no_session_and_refuse_the_command_if_all_do(cli):
    plan = json.dumps({"tasks": [{"agent": "nobody", "prompt": "a"}, {"agent": "noone", "prompt": "b"}]})
    result = cli("delegate", "-", *SCRIPTED, "--json", stdin=plan)
    found = json.loads(result.stdout)
    assert (found["status"], found["exitCode"], result.exit_code) == ("refused", 2, 2)
    assert [one["failure"]["code"] for one in found["results"]] == ["unknown_agent"] * 2
    assert json.loads(cli("sessions", "list", "--json").stdout) == {"sessions": []}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("delegate", "nofile"), "invalid_input"),
        (("chain", "nofile"), "invalid_input"),
        (("chain", "--step", "nobody", "x"), "unknown_agent"),
        (("sessions", "show", "nope"), "session_not_found"),
        (("sessions", "output", "nope"), "session_not_found"),
        (("sessions", "prune", "--older-than", "soon"), "invalid_input"),
        (("agents", "show", "nobody"), "unknown_agent"),
        (("agents", "new", "../evil"), "invalid_input"),
        (("agents", "check", "nofile"), "invalid_input"),
        (("events", "nope"), "session_not_found"),
        (("events", ""), "invalid_input"),
        (("tools", "--toolset", "nope"), "invalid_input"),
        (("doctor", "--cwd", "nofolder"), "invalid_input"),
        (("demo", "--cwd", "nofolder"), "invalid_input"),
    ],
)
def test_every_refusal_is_printed_as_json_with_the_json_option(cli, command, code):
    result = cli(*command, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 2
    assert {**found, "failure": found["failure"]["code"]} == {
        "status": "refused",
        "exitCode": 2,
        "results": [],
        "failure": code,
    }
    assert found["failure"]["message"] in result.stderr


TOKEN = "sk-ant-api03-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"


@pytest.mark.parametrize(
    "command",
    [
        ("run", TOKEN, "x"),
        ("run", "explorer", f"@{TOKEN}"),
        ("run", "explorer", "x", "--session", TOKEN),
        ("run", "explorer", "x", "--engine", TOKEN),
        ("run", "explorer", "x", "--timeout", TOKEN),
        ("run", "explorer", "x", "--name", TOKEN, *SCRIPTED),
        ("chain", "--step", TOKEN, "x"),
        ("delegate", TOKEN),
        ("sessions", "show", TOKEN),
        ("agents", "show", TOKEN),
        ("agents", "new", f"{TOKEN}/x"),
        ("events", TOKEN),
        (TOKEN,),
    ],
)
def test_typed_secret_is_quoted_nowhere(cli, command):
    for given in (command, (*command, "--json")):
        assert TOKEN not in cli(*given).output


# -- where and who ---------------------------------------------------------------------------------


def test_run_works_in_the_directory_of_cwd(cli, place):
    (place / "elsewhere").mkdir()
    cli("run", "explorer", "x", *SCRIPTED, "--cwd", "elsewhere")
    (session,) = json.loads(cli("sessions", "--json").stdout)["sessions"]
    assert session["cwd"] == str(place / "elsewhere")


def test_untrusted_project_agent_does_not_run_without_a_terminal(cli, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "fixer.md").write_text("---\nname: fixer\ntools: bash\n---\nFix.\n")
    refused = cli("run", "fixer", "x", *SCRIPTED)
    assert refused.exit_code == 2
    assert "retinue agents trust fixer" in refused.stderr
    assert cli("run", "fixer", "x", *SCRIPTED, "--project-agents", "allow").exit_code == 0


def test_removed_tools_are_reported(cli, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "fixer.md").write_text("---\nname: fixer\ntools: read, bash, subagent\ncolor: red\n---\nFix.\n")
    result = cli("run", "fixer", "x", *SCRIPTED, "--project-agents", "allow")
    assert "fixer: without bash (by allow_write; see --allow-write)" in result.stderr
    assert "fixer: without subagent (by depth; see --max-depth)" in result.stderr
    assert "fixer: scripted does not apply color" in result.stderr
    flags = ("--project-agents", "allow", "--allow-write", "--max-depth", "2")
    assert "without" not in cli("run", "fixer", "x", *SCRIPTED, *flags).stderr


def test_names_that_are_not_valid_text_do_not_fail_a_run(cli):
    result = cli("run", "explorer", "x", "--name", "na\udcffme", *SCRIPTED, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["name"] == "na\ufffdme"
    assert json.loads(cli("call", "to\udcffol", "{}").stdout)["isError"] is True


def test_run_that_timed_out_names_the_command_that_continues_it(cli):
    done = cli("run", "explorer", "x", *SCRIPTED, "--timeout", "1", "--json", script=[{"hang": True}])
    session = json.loads(done.stdout)["session"][:8]
    assert f'tip: `retinue resume {session} "…"` continues it.\n' in done.stderr


def test_sandboxed_run_reports_its_sandbox_on_stderr(cli):
    done = cli("run", "explorer", "Where?", "--engine", "offline", "--sandbox", "workspace")
    assert "explorer: sandbox workspace (in-process)" in done.stderr.splitlines()
    assert "\nsandbox        workspace (in-process)\n" in cli("sessions", "show", "last").stdout


def test_unconfined_run_has_no_line_about_confinement(cli):
    done = cli("run", "explorer", "Where?", "--engine", "offline")
    assert "sandbox" not in done.stderr + cli("sessions", "show", "last").stdout


def test_unknown_session_is_refused_with_the_command_that_lists_sessions(cli):
    done = cli("run", "explorer", "x", "--session", "0123abcd", *SCRIPTED)
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        'error: Cannot resume: session "0123abcd" not found. The ID is incorrect, or the session was deleted.',
        "tip: `retinue sessions list` shows the existing sessions.",
    ]
