"""Answers of the offline engine about small projects: evidence, honesty, and the headings of the built-in agents."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.engines.offline import CAPABILITIES
from retinue.engines.offline.engine import OfflineEngine
from retinue.engines.offline.search import FileSearch
from retinue.model.agents import AgentProfile
from retinue.model.events import Finalized, Text, ToolCalled, ToolReturned
from retinue.model.runs import Message, ToolGrant
from retinue.testing.engines import make_run_spec, record_run

HONEST = "Rule-based search, not a language model"

GUARDED = {
    "src/agency/guards/loop.py": '''"""Loop detection: stops a run that repeats the same tool calls."""

from agency.guards.base import Guard

LOOP = "Loop detected: the agent is repeating the same tool calls"


class LoopGuard(Guard):
    """Finds identical calls in a row."""

    def observe(self, event):
        return LOOP if self._again(event) else None
''',
    "src/agency/guards/base.py": '"""What a guard is."""\n\n\nclass Guard:\n    deadline = None\n',
    "src/agency/guards/timeout.py": '"""Stops a run that takes too long."""\n\n\nclass TimeoutGuard:\n    pass\n',
    "src/agency/engines/loop.py": '"""The agent loop: a model replies, its tools are called."""\n\n\nasync def converse(model):\n    while True:\n        await model.reply()\n',
    "src/agency/supervise.py": '"""One run under its guards."""\n\nfrom agency.guards.loop import LoopGuard\n\n\ndef supervise(run):\n    return [LoopGuard()]\n',
    "tests/guards/test_loop.py": "from agency.guards.loop import LoopGuard\n\n\ndef test_loop_detection_stops_a_run():\n    assert LoopGuard().observe(None)\n",
    "docs/limits.md": "# Limits\n\n## Loop detection\n\nFive identical calls in a row end a run: loop detection.\n",
    "CHANGELOG.md": "# Changes\n\n- loop detection, loop detection and loop detection again\n",
}

SHOP = {
    "package.json": '{"name": "shop", "scripts": {"test": "jest"}}\n',
    "src/server/auth.ts": """// Authentication middleware: who is asking, and may they.
import { verify } from "./tokens";

export function authenticate(request, response, next) {
  try {
    request.user = verify(request.headers.authorization);
  } catch (e) {}
  // TODO: refuse expired tokens
  next();
}

export function requireAdmin(request, response, next) {
  next();
}
""",
    "src/server/tokens.ts": "export function verify(header) {\n  return header;\n}\n",
    "src/server/routes.ts": 'import { authenticate } from "./auth";\n\nexport function register(app) {\n  app.use(authenticate);\n}\n',
    "src/server/prices.ts": "export function total(items) {\n  return items.length;\n}\n",
    "test/auth.spec.ts": 'import { authenticate } from "../src/server/auth";\n\ntest("strangers are refused", () => authenticate({}));\n',
    "README.md": "# Shop\n\n## Authentication\n\nEvery request carries a token.\n\n## Prices\n\nIn cents.\n",
}

HEADINGS = {
    "explorer": ["Findings", "How it fits together", "Not found or uncertain"],
    "reviewer": ["Verdict", "Findings", "Checked", "Not checked"],
    "tester": ["Findings", "Tests to write", "How to test here", "Not judged"],
    "implementer": ["Result", "Findings", "Changes", "Tests", "Risks and open questions"],
    "researcher": ["Answer", "Findings", "Sources", "Open questions"],
}


@pytest.fixture
def write_files(tmp_path):
    def write_files(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return write_files


async def run_agent(folder, agent, task, tools=("read", "grep", "find", "ls"), **changes):
    spec = make_run_spec(folder, task=task, agent=AgentProfile(name=agent), grant=ToolGrant(tools=tools))
    return await record_run(OfflineEngine(), replace(spec, **changes))


async def answer(*args, **more):
    (text,) = [event.text for event in await run_agent(*args, **more) if isinstance(event, Text)]
    return text


def first_finding(text):
    return next(iter(re.findall(r"^## Findings\n- `([^`]+)`", text, re.MULTILINE)), text)


async def test_explorer_names_the_definition_with_path_and_line(write_files):
    text = await answer(write_files(GUARDED), "explorer", "Where is loop detection implemented?")
    assert text.startswith(f"{HONEST}; best match: `LoopGuard` in `src/agency/guards/loop.py:8`.\n\n## Findings\n")
    assert first_finding(text) == "src/agency/guards/loop.py:8"
    assert "`class LoopGuard(Guard):` — Finds identical calls in a row." in text
    assert "- `tests/guards/test_loop.py`" in text
    assert text.endswith("## Not found or uncertain\n- Searched for: `loop`, `detection`")


async def test_quoted_lines_are_at_the_path_and_line_given(write_files):
    folder = write_files({**GUARDED, **SHOP})
    texts = [await answer(folder, agent, "Where is loop detection and authentication?") for agent in HEADINGS]
    quotes = re.findall(r"`([\w./]+):(\d+)` `([^`]+)`", "\n".join(texts))
    assert quotes
    for path, line, quoted in quotes:
        assert (folder / path).read_text().split("\n")[int(line) - 1].strip() == quoted


@pytest.mark.parametrize("agent", HEADINGS)
async def test_answer_has_the_headings_of_the_built_in_agent(write_files, agent):
    text = await answer(write_files(SHOP), agent, "How does authentication work?")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == HEADINGS[agent]


async def test_tests_and_documents_come_first_where_the_task_asks_for_them(write_files):
    folder = write_files(GUARDED)
    assert first_finding(await answer(folder, "explorer", "Which tests cover loop detection?")).startswith("tests/")
    assert first_finding(await answer(folder, "explorer", "Where do the docs describe loop detection?")).startswith(
        "docs/limits.md"
    )


async def test_terms_with_other_endings_are_found(write_files):
    text = await answer(write_files(SHOP), "explorer", "Find where the authenticating middleware is registered")
    assert first_finding(text).startswith("src/server/auth.ts:")


async def test_reviewer_lists_marks_as_facts(write_files):
    text = await answer(write_files(SHOP), "reviewer", "Review the authentication middleware for risks")
    assert "files about authentication middleware: 2 lines to check." in text
    assert "- `src/server/auth.ts:8` `// TODO: refuse expired tokens` — open task" in text
    assert "- `src/server/auth.ts:7` `} catch (e) {}` — catches all exceptions" in text
    assert "- `src/server/auth.ts`: 14 lines" in text
    assert "was not judged" in text


async def test_tester_lists_the_tests_that_mention_the_subject(write_files):
    text = await answer(write_files(SHOP), "tester", "How is authentication tested?")
    assert first_finding(text).startswith("test/auth.spec.ts:")
    assert "## Tests to write\n- `src/server/auth.ts`" in text


async def test_implementer_lists_changes_tests_and_documents(write_files):
    text = await answer(write_files(GUARDED), "implementer", "Plan how to add a cost limit beside loop detection")
    assert (
        "## Result\nNothing was changed: rules write no code. Task: Plan how to add a cost limit beside loop "
        "detection" in text
    )
    assert "1. Change `src/agency/guards/loop.py`." in text
    assert "Extend the tests in `tests/guards/test_loop.py`." in text
    assert "Update `docs/limits.md`." in text
    assert "Not found: `cost`" in text


async def test_researcher_answers_from_documents(write_files):
    text = await answer(write_files(SHOP), "researcher", "What is established about authentication?")
    assert first_finding(text) == "README.md:3"
    assert "## Sources\n- `README.md`" in text
    assert "the web was not searched" in text


@pytest.mark.parametrize(
    ("task", "mark"),
    [
        ("Review authentication for risks", "## Verdict"),
        ("What tests does authentication need?", "## How to test here"),
        ("Plan how to add sessions to authentication", "## Changes"),
        ("Summarise the documentation on authentication", "## Sources"),
        ("Where is authentication?", "## How it fits together"),
    ],
)
async def test_agent_of_another_name_gets_its_role_from_the_task(write_files, task, mark):
    assert mark in await answer(write_files(SHOP), "helper", task)


async def test_answer_without_findings_lists_the_searched_terms(write_files):
    text = await answer(write_files(SHOP), "explorer", "Where is the flux capacitor?")
    assert text == (
        f"{HONEST}; nothing found about flux capacitor.\n\n## Findings\nNothing found about flux capacitor.\n\n"
        "## Not found or uncertain\n- Searched for: `flux`, `capacitor`\n- Not found: `flux`, `capacitor`"
    )


async def test_files_without_most_terms_are_called_no_good_match(write_files):
    text = await answer(write_files(SHOP), "explorer", "Where is the flux capacitor of authentication calibrated?")
    assert text.startswith(f"{HONEST}; no good match; nearest: ")


@pytest.mark.parametrize(
    ("tools", "found", "gap"),
    [
        (("grep",), "src/agency/guards/loop.py:8", "File names were not searched (no `find`)"),
        (("read", "grep"), "src/agency/guards/loop.py:8", "File names were not searched (no `find`)"),
        (("find", "read"), "src/agency/engines/loop.py:4", "Lines were not searched (no `grep`)"),
        (("find",), "src/agency/engines/loop.py", "No file was read whole (no `read`)"),
    ],
)
async def test_answer_uses_only_granted_tools_and_names_the_gaps(write_files, tools, found, gap):
    events = await run_agent(write_files(GUARDED), "explorer", "Where is loop detection implemented?", tools)
    text = next(event.text for event in events if isinstance(event, Text))
    assert first_finding(text) == found
    assert f"- {gap}" in text
    assert {event.name for event in events if isinstance(event, ToolCalled)} <= {*tools}
    assert not [event for event in events if isinstance(event, ToolReturned) and event.is_error]


async def test_with_read_alone_the_files_named_in_the_task_are_read(write_files):
    text = await answer(write_files(GUARDED), "explorer", "Explain LoopGuard in src/agency/guards/loop.py", ("read",))
    assert first_finding(text) == "src/agency/guards/loop.py:8"


async def test_folder_named_in_the_task_is_searched(write_files):
    text = await answer(write_files(SHOP), "explorer", "What is in src/server/ about prices?")
    assert first_finding(text) == "src/server/prices.ts:1"
    text = await answer(write_files(GUARDED), "explorer", "What is in src/agency/guards?")
    assert first_finding(text) == "src/agency/guards/base.py:4"
    assert "- `src/agency/guards/loop.py:8` `class LoopGuard(Guard):`" in text
    text = await answer(write_files(GUARDED), "explorer", "What is in src/agency/nothing?")
    assert text.endswith("- Searched for: `src/agency/nothing`\n- Not found: `src/agency/nothing`")


async def test_file_named_in_the_task_comes_before_files_with_more_terms(write_files):
    locks = {f"src/locks{number}.ts": "// stale locks\nexport function staleLocks() {}\n" for number in range(3)}
    text = await answer(write_files({**SHOP, **locks}), "reviewer", "Review tokens.ts for stale locks")
    assert "best match: `verify` in `src/server/tokens.ts:1`" in text
    assert re.findall(r"^- `(\S+)`: \d+ lines$", text, re.MULTILINE) == ["src/server/tokens.ts"]


async def test_without_tools_the_answer_is_an_error(write_files):
    folder = write_files(GUARDED)
    expected = f"{HONEST}: none of `read`, `grep`, `find` and `ls` was granted, so no file could be read."
    assert await answer(folder, "explorer", "Where is loop detection?", ()) == expected
    events = await run_agent(folder, "explorer", "Where is loop detection?", (), finalize=True)
    assert events[-1].finalization.error == expected


async def test_finalization_contains_the_answer(write_files):
    folder = write_files(GUARDED)
    plain = await answer(folder, "explorer", "Where is loop detection implemented?")
    events = await run_agent(folder, "explorer", "Where is loop detection implemented?", finalize=True)
    assert not [event for event in events if isinstance(event, Text)]
    finalized = events[-1]
    assert isinstance(finalized, Finalized)
    assert finalized.finalization.status == "SUCCESS"
    assert finalized.finalization.result == plain


async def test_follow_up_task_uses_the_terms_of_the_earlier_task(write_files):
    history = (Message(role="user", text="Where is loop detection implemented?"), Message(role="assistant", text="x"))
    text = await answer(
        write_files(GUARDED), "explorer", "Go on, and look at the tests", history=history, resumes=True
    )
    assert first_finding(text).startswith("tests/guards/test_loop.py")


async def test_equal_tasks_have_equal_answers(write_files):
    folder = write_files({**GUARDED, **SHOP})
    assert await run_agent(folder, "explorer", "Where is authentication?") == await run_agent(
        folder, "explorer", "Where is authentication?"
    )


async def test_usage_reports_no_tokens_and_no_cost(write_files):
    events = await run_agent(write_files(SHOP), "explorer", "Where is authentication?")
    usages = [event.usage for event in events if hasattr(event, "usage")]
    assert {(usage.tokens, usage.cost, usage.turns) for usage in usages} == {(0, 0.0, 1)}
    assert {event.model for event in events if hasattr(event, "model")} == {"offline-rules"}
    assert "model" not in CAPABILITIES.preferences


@pytest.mark.parametrize(
    "task", ["", "?", "-" * 200_000, "`" * 1000, "Where\0is\x1b[2J it?", "the of and", "é" * 50_000]
)
async def test_odd_tasks_have_an_answer(write_files, task):
    assert HONEST in await answer(write_files(SHOP), "explorer", task)


async def test_files_made_to_slow_down_expressions_are_examined_in_time(write_files):
    folder = write_files(
        {
            "spaces.py": "# loop" + " " * 40_000 + "x\n",
            "hashes.md": "# loop " + "#" * 40_000 + " x\n",
            "braces.ts": "catch " + "{" * 40_000 + " loop\n",
            "quotes.py": '"""' * 15_000 + "loop\n",
        }
    )
    started = time.process_time()
    for agent in HEADINGS:
        await answer(folder, agent, "Where is the loop?")
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize("unit", ["-", "é", "a", "a.", "a/", "'x ", "`"])
def test_task_made_to_slow_down_expressions_is_examined_in_time(unit):
    started = time.process_time()
    FileSearch(unit * 200_000)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("task", "terms"),
    [
        ("Where is loop detection implemented?", ["loop", "detection"]),
        ('Find "no final message" in the code', ["no final message"]),
        ("Review src/app/main.py and README.md, e.g. the parser", ["src/app/main.py", "README.md", "parser"]),
        ("Explain `LoopGuard` and read/write locks", ["LoopGuard", "read", "locks"]),
        ("", []),
    ],
)
def test_task_is_divided_into_terms(task, terms):
    assert FileSearch(task).terms == terms


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_question_of_any_text_has_few_terms(text):
    assert len(FileSearch(text).terms) <= 5
