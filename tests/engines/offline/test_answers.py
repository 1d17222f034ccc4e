"""What the offline engine answers about small projects: where it looks, what it finds, and that it says what it is."""

import re
import time

import pytest
from msgspec.structs import replace

from retinue.engines.offline import CAPABILITIES, OfflineEngine
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

SETTINGS = {
    "app/settings.py": '''"""Settings of the program."""


class Settings:
    """Every setting with its default."""

    timeout: float = 600.0
    max_depth: int = 3
    allow_write: bool = False

    def limits(self):
        return self.timeout
''',
    "app/main.py": "from app.settings import Settings\n\n\ndef main():\n    return Settings()\n",
}

BODIES = {
    "explorer": "## Output\n\n```\n## Findings\n## How it fits together\n## Not found or uncertain\n```\n",
    "reviewer": "## Output\n\n```\n## Verdict\n## Findings\n## Checked\n## Not checked\n```\n",
    "tester": "## Output\n\n```\n## Findings\n## Tests to write\n## How to test here\n## Not judged\n```\n",
    "implementer": "## Output\n\n```\n## Goal\n## Findings\n## Plan\n## Tests\n## Risks and open questions\n```\n",
    "researcher": "## Output\n\n```\n## Answer\n## Findings\n## Sources\n## Open questions\n```\n",
}


@pytest.fixture
def plant(tmp_path):
    def plant(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return plant


async def ask(folder, agent, task, tools=("read", "grep", "find", "ls"), **changes):
    body = BODIES.get(agent, "")
    spec = make_run_spec(folder, task=task, agent=AgentProfile(name=agent, body=body), grant=ToolGrant(tools=tools))
    return await record_run(OfflineEngine(), replace(spec, **changes))


async def answer(*args, **more):
    (text,) = [event.text for event in await ask(*args, **more) if isinstance(event, Text)]
    return text


def first_finding(text):
    return next(iter(re.findall(r"^## Findings\n- `([^`]+)`", text, re.MULTILINE)), text)


async def test_where_loop_detection_is_implemented(plant):
    text = await answer(plant(GUARDED), "explorer", "Where is loop detection implemented?")
    assert text.startswith(f"{HONEST}; best match: `LoopGuard` in `src/agency/guards/loop.py:8`.\n\n## Findings\n")
    assert first_finding(text) == "src/agency/guards/loop.py:8"
    assert "`class LoopGuard(Guard):` — Finds identical calls in a row." in text
    assert "`LoopGuard` is used in:\n- `src/agency/supervise.py:3`" in text
    assert "- `tests/guards/test_loop.py`" in text
    assert text.endswith("## Not found or uncertain\n- Searched for: `loop`, `detection`")


async def test_every_quoted_line_stands_where_it_is_said_to_stand(plant):
    folder = plant({**GUARDED, **SHOP})
    for agent in BODIES:
        text = await answer(folder, agent, "Where is loop detection and authentication?")
        quotes = re.findall(r"`([\w./]+):(\d+)` `([^`]+)`", text)
        assert quotes
        for path, line, quoted in quotes:
            assert (folder / path).read_text().split("\n")[int(line) - 1].strip() == quoted


async def test_tests_and_documents_come_first_where_they_are_asked_for(plant):
    folder = plant(GUARDED)
    assert first_finding(await answer(folder, "explorer", "Which tests cover loop detection?")).startswith("tests/")
    assert first_finding(await answer(folder, "explorer", "Where do the docs describe loop detection?")).startswith(
        "docs/limits.md"
    )


async def test_other_endings_and_other_languages_are_found(plant):
    text = await answer(plant(SHOP), "explorer", "Find where the authenticating middleware is registered")
    assert first_finding(text) == "src/server/auth.ts:4"


async def test_a_question_for_many_things_lists_the_fields(plant):
    text = await answer(plant(SETTINGS), "explorer", "Which settings exist?")
    for field in ("`timeout: float = 600.0`", "`max_depth: int = 3`", "`allow_write: bool = False`"):
        assert field in text


async def test_a_reviewer_tells_marks_as_facts(plant):
    text = await answer(plant(SHOP), "reviewer", "Review the authentication middleware for risks")
    assert "## Verdict\nLooked at 1 file about authentication middleware: 2 marks to look at, " in text
    assert "- `src/server/auth.ts:8` `// TODO: refuse expired tokens` — left to do" in text
    assert "- `src/server/auth.ts:7` `} catch (e) {}` — catches everything" in text
    assert "`export function requireAdmin(request, response, next) {` — no test mentions it" in text
    assert "## Checked\n- `src/server/auth.ts`: 14 lines, 2 definitions" in text
    assert "was not judged" in text


async def test_a_tester_tells_what_tests_mention_and_what_they_do_not(plant):
    text = await answer(plant(SHOP), "tester", "How is authentication tested?")
    assert (
        "- `src/server/auth.ts:4` `export function authenticate(request, response, next) {` — "
        'mentioned in `test/auth.spec.ts:3` `test("strangers are refused", () => authenticate({}));`'
    ) in text
    assert "`export function requireAdmin(request, response, next) {` — not mentioned in any test found" in text
    assert "## Tests to write\n1. `requireAdmin` (`src/server/auth.ts:12`). Belongs in `test/auth.spec.ts`." in text


async def test_an_implementer_tells_what_to_touch_imitate_and_check(plant):
    text = await answer(plant(GUARDED), "implementer", "Plan how to add a cost limit beside loop detection")
    assert "## Goal\nAs asked: Plan how to add a cost limit beside loop detection" in text
    assert "1. Change `src/agency/guards/loop.py`: `LoopGuard` at line 8" in text
    assert "Imitate its neighbours: `src/agency/guards/base.py`, `src/agency/guards/timeout.py`" in text
    assert "Check who depends on it: `src/agency/supervise.py:3`." in text
    assert "- `tests/guards/test_loop.py`" in text
    assert "New here: nothing mentions `cost` yet" in text


async def test_a_researcher_answers_from_documents(plant):
    text = await answer(plant(SHOP), "researcher", "What is established about authentication?")
    assert first_finding(text) == "README.md:3"
    assert "`## Authentication` — Every request carries a token." in text
    assert "## Sources\n- `README.md` — Shop" in text
    assert "nothing was looked up on the web" in text


@pytest.mark.parametrize(
    ("task", "mark"),
    [
        ("Review authentication for risks", "## Verdict"),
        ("What tests does authentication need?", "## Tests to write"),
        ("Plan how to add sessions to authentication", "## Plan"),
        ("Summarise the documentation on authentication", "## Sources"),
        ("Where is authentication?", "## How it fits together"),
    ],
)
async def test_an_agent_of_another_name_answers_by_what_it_is_asked(plant, task, mark):
    assert mark in await answer(plant(SHOP), "helper", task)


async def test_nothing_found_is_an_answer_with_what_was_searched(plant):
    text = await answer(plant(SHOP), "explorer", "Where is the flux capacitor?")
    assert text == (
        f"{HONEST}; nothing found about flux capacitor.\n\n## Findings\nNothing found about flux capacitor.\n\n"
        "## Not found or uncertain\n- Searched for: `flux`, `capacitor`\n- Found nowhere: `flux`, `capacitor`"
    )


async def test_what_is_hardly_about_it_is_called_so(plant):
    text = await answer(plant(SHOP), "explorer", "Where is the flux capacitor of authentication calibrated?")
    assert text.startswith(f"{HONEST}; no good match, the nearest: ")


@pytest.mark.parametrize(
    ("tools", "found", "gap"),
    [
        (("grep",), "src/agency/guards/loop.py:8", "File names were not searched (no `find`)"),
        (("read", "grep"), "src/agency/guards/loop.py:8", "File names were not searched (no `find`)"),
        (("find", "read"), "src/agency/guards/loop.py:8", "Lines were not searched (no `grep`)"),
        (("find",), "src/agency/engines/loop.py", "No file was read whole (no `read`)"),
    ],
)
async def test_it_does_what_it_can_with_the_tools_it_has(plant, tools, found, gap):
    events = await ask(plant(GUARDED), "explorer", "Where is loop detection implemented?", tools)
    text = next(event.text for event in events if isinstance(event, Text))
    assert first_finding(text) == found
    assert f"- {gap}" in text
    assert {event.name for event in events if isinstance(event, ToolCalled)} <= {*tools}
    assert not [event for event in events if isinstance(event, ToolReturned) and event.is_error]


async def test_with_read_alone_it_reads_what_the_task_names(plant):
    text = await answer(plant(GUARDED), "explorer", "Explain LoopGuard in src/agency/guards/loop.py", ("read",))
    assert first_finding(text) == "src/agency/guards/loop.py:8"


async def test_a_folder_the_task_names_is_looked_into(plant):
    text = await answer(plant(SHOP), "explorer", "What is in src/server/ about prices?")
    assert first_finding(text) == "src/server/prices.ts:1"
    text = await answer(plant(GUARDED), "explorer", "What is in src/agency/guards?")
    assert (
        "## Findings\n- `src/agency/guards/base.py` — What a guard is.\n- `src/agency/guards/loop.py` — Loop" in text
    )
    text = await answer(plant(GUARDED), "explorer", "What is in src/agency/nothing?")
    assert text.endswith("## Not found or uncertain\n- Looked for: `src/agency/nothing`")


async def test_without_tools_it_says_that_it_could_not_look(plant):
    folder = plant(GUARDED)
    expected = f"{HONEST}: none of `read`, `grep`, `find` and `ls` was granted, so nothing could be looked at."
    assert await answer(folder, "explorer", "Where is loop detection?", ()) == expected
    events = await ask(folder, "explorer", "Where is loop detection?", (), finalize=True)
    assert events[-1].finalization.error == expected


async def test_an_asked_for_finalization_carries_the_answer(plant):
    folder = plant(GUARDED)
    plain = await answer(folder, "explorer", "Where is loop detection implemented?")
    events = await ask(folder, "explorer", "Where is loop detection implemented?", finalize=True)
    assert not [event for event in events if isinstance(event, Text)]
    finalized = events[-1]
    assert isinstance(finalized, Finalized)
    assert finalized.finalization.status == "SUCCESS"
    assert finalized.finalization.result == plain


async def test_a_follow_up_is_about_what_was_asked_before(plant):
    history = (Message(role="user", text="Where is loop detection implemented?"), Message(role="assistant", text="x"))
    text = await answer(plant(GUARDED), "explorer", "Go on, and look at the tests", history=history, resumes=True)
    assert first_finding(text).startswith("tests/guards/test_loop.py")


async def test_the_same_question_has_the_same_answer(plant):
    folder = plant({**GUARDED, **SHOP, **SETTINGS})
    assert await ask(folder, "explorer", "Where is authentication?") == await ask(
        folder, "explorer", "Where is authentication?"
    )


async def test_it_costs_nothing_and_says_so(plant):
    events = await ask(plant(SHOP), "explorer", "Where is authentication?")
    usages = [event.usage for event in events if hasattr(event, "usage")]
    assert {(usage.tokens, usage.cost, usage.turns) for usage in usages} == {(0, 0.0, 1)}
    assert {event.model for event in events if hasattr(event, "model")} == {"offline-rules"}
    assert "model" not in CAPABILITIES.preferences


@pytest.mark.parametrize(
    "task", ["", "?", "-" * 200_000, "`" * 1000, "Where\0is\x1b[2J it?", "the of and", "é" * 50_000]
)
async def test_any_task_has_an_answer(plant, task):
    assert HONEST in await answer(plant(SHOP), "explorer", task)


async def test_files_made_to_be_slow_to_look_at_are_looked_at_in_time(plant):
    folder = plant(
        {
            "spaces.py": "# loop" + " " * 40_000 + "x\n",
            "hashes.md": "# loop " + "#" * 40_000 + " x\n",
            "braces.ts": "catch " + "{" * 40_000 + " loop\n",
            "quotes.py": '"""' * 15_000 + "loop\n",
        }
    )
    started = time.process_time()
    for agent in BODIES:
        await answer(folder, agent, "Where is the loop?")
    assert time.process_time() - started < 5.0
