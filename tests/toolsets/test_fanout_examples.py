"""The documented example calls of `fanout`."""

from __future__ import annotations

import pytest

from retinue.agents.agent import Agent
from retinue.engines.scripted import HangStep, call, reply
from retinue.sessions.memory import MemoryStore

BASIC = {
    "tasks": [
        {"name": "review-pr", "prompt": "Review the latest pull request and provide constructive feedback."},
        {"name": "update-docs", "prompt": "Update the API documentation to reflect the new /v2 endpoints."},
    ]
}
PROFILES = {
    "profile": "researcher",
    "tasks": [
        {
            "name": "market-analysis",
            "prompt": "Research competitor pricing for SaaS analytics platforms.",
            "profile": "analyst",
        },
        {"name": "tech-survey", "prompt": "Survey the latest developments in RAG architectures."},
    ],
}
RESUME = {
    "tasks": [
        {
            "name": "refactor-core",
            "prompt": "Continue refactoring the core module. Focus on the event dispatcher.",
            "resume": "a3f7b9c2d1e8f4a1",
            "timeout": 900,
        }
    ]
}
FILES = {
    "tasks": [
        {
            "name": "review-api",
            "prompt": "Review the API routes for security issues.",
            "files": ["src/routes.ts", {"path": "src/middleware.ts", "head": 50}],
        },
        {
            "name": "review-tests",
            "prompt": "Check test coverage for the auth module.",
            "files": [{"path": "src/auth.ts", "tail": 30}, "tests/auth.test.ts"],
        },
    ]
}


@pytest.fixture
def use(fanout):
    """Return a caller of `delegate_to_subagents` that returns the specs by name and the lines of the result."""

    async def call_delegate(arguments, *script, before=None, **options):
        async with fanout(*script, **options) as host:
            if before:
                await host.delegate(before)
            result = await host.use(arguments, tool="delegate_to_subagents")
        return {spec.name: spec for spec in host.specs}, [
            line.partition(" (")[0] for line in result.text.splitlines()
        ]

    return call_delegate


async def test_example_of_two_tasks_without_profiles_runs(use):
    specs, lines = await use(BASIC, reply("done"))
    assert lines == ["✓ review-pr: completed", "✓ update-docs: completed"]
    assert {name: spec.prompt for name, spec in specs.items()} == {
        task["name"]: task["prompt"] for task in BASIC["tasks"]
    }


async def test_example_of_a_default_and_a_task_profile_runs(use):
    specs, lines = await use(PROFILES, reply("done"), agents=[Agent(name="researcher"), Agent(name="analyst")])
    assert lines == ["✓ market-analysis: completed", "✓ tech-survey: completed"]
    assert (specs["market-analysis"].agent.name, specs["tech-survey"].agent.name) == ("analyst", "researcher")


async def test_example_of_resuming_after_a_timeout_runs(use):
    ids = iter(["a3f7b9c2d1e8f4a1" + "0" * 16, "b" * 32])
    scripts = iter([[call("ls"), HangStep()], [reply("done")]])
    specs, lines = await use(
        RESUME,
        lambda _: next(scripts),
        before={"name": "first", "prompt": "Refactor the core module.", "timeout": 60},
        store=MemoryStore(ids.__next__),
    )
    assert lines == ["✓ refactor-core: completed"]
    spec = specs["refactor-core"]
    assert (spec.session[:16], spec.limits.timeout) == ("a3f7b9c2d1e8f4a1", 900)
    assert "[Error: Timed out after 60s. Consider resuming with a longer timeout. The run took 90s.]" in spec.prompt
    assert spec.prompt.endswith(f"Instructions:\n\n{RESUME['tasks'][0]['prompt']}")


async def test_example_of_files_as_context_runs(use, workplace):
    for name in ("src/routes.ts", "src/middleware.ts", "src/auth.ts"):
        (workplace / name).parent.mkdir(exist_ok=True)
        (workplace / name).write_text("".join(f"{number}\n" for number in range(100)))
    specs, lines = await use(FILES, reply("done"))
    assert lines == ["✓ review-api: completed", "✓ review-tests: completed"]
    whole, head, prompt = specs["review-api"].prompt.split("\n\n")
    assert (whole.splitlines()[0], len(whole.splitlines())) == ("=== src/routes.ts ===", 101)
    assert head.splitlines()[::50] == ["=== src/middleware.ts ===", "49"]
    assert prompt == FILES["tasks"][0]["prompt"]
    tail, missing, _ = specs["review-tests"].prompt.split("\n\n")
    assert (tail.splitlines()[1], tail.splitlines()[-1]) == ("70", "99")
    assert missing == "[file not found: tests/auth.test.ts]"
