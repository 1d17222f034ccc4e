"""Stand-ins for all public agent files: found, callable, and planned on every engine."""

from __future__ import annotations

import anyio
import pytest
from tests.support.agent_forms import list_public_forms, list_restrictions
from tests.support.form_counts import (
    BEGIN,
    END,
    KEYS,
    PAGE,
    FormCount,
    PlannedForms,
    count_forms,
    describe_outcome,
    plan_forms,
    render_counts,
    render_restrictions,
)

RUNNING_SHARE = 0.95
"""Share of the public agents that each engine has to run."""


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> list[FormCount]:
    forms = list_public_forms()
    return count_forms(forms, anyio.run(plan_forms, forms, tmp_path_factory.mktemp("public")))


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> PlannedForms:
    forms = [each.form for each in list_restrictions()]
    return anyio.run(plan_forms, forms, tmp_path_factory.mktemp("restricted"))


def test_files_of_public_agents_are_found_but_those_that_are_no_agents(public):
    assert {count.tool: (count.files, count.found, count.callable_names, count.not_found) for count in public} == {
        "Claude Code": (1279, 1272, 1152, {"no header": 6, "broken": 1, "shadowed": 120}),
        "Gemini CLI": (2000, 2000, 2000, {}),
        "Codex": (172, 172, 172, {}),
        "GitHub Copilot": (224, 224, 224, {}),
        "opencode": (2, 2, 2, {}),
    }


@pytest.mark.parametrize("engine", KEYS)
def test_engine_runs_nearly_all_public_agents(public, engine):
    total = sum(count.callable_names for count in public)
    assert sum(count.runs[engine] for count in public) >= RUNNING_SHARE * total
    for count in public:
        assert count.runs[engine] >= RUNNING_SHARE * count.callable_names


def test_public_agents_are_refused_for_restrictions_only(public):
    reasons = {reason.partition(": ")[2] for count in public for reason in count.refused}
    assert reasons <= {"restriction", "tool_pattern"}


@pytest.mark.parametrize("engine", KEYS)
@pytest.mark.parametrize("restriction", list_restrictions(), ids=lambda each: f"{each.form.tool}: {each.written}")
def test_restriction_limits_the_run_or_refuses_it_by_name(restricted, engine, restriction):
    run = restricted.runs[engine][restriction.form.path]
    assert describe_outcome(run)
    if run.failure:
        assert restriction.named in run.failure.message
        assert restriction.agent in run.failure.message


def test_page_has_the_counted_tables(public, restricted):
    section = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert section.strip().split("\n") == [*render_counts(public), "", *render_restrictions(restricted)]
