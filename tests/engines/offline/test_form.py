"""Answers take the form an agent's prompt asks for."""

import pytest

from retinue.engines.offline.form import Heading, Section, code, rendered, template

FENCED = """You explore.

## Method
Look.

## Output

```markdown
## Findings
- what

### Files in [place]
```

## Rules
Be brief.
"""


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (FENCED, (Heading(2, "Findings"), Heading(3, "Files in [place]"))),
        (
            "# Output format\n## Findings\nx\n## Risks\n# Rules\n## Other",
            (Heading(2, "Findings"), Heading(2, "Risks")),
        ),
        ("# Response requirements\nBe brief.\n# Output\n## Answer", (Heading(2, "Answer"),)),
        ("## Output\nJust say it.", ()),
        ("```\n## Findings", ()),
        ("", ()),
    ],
)
def test_the_headings_of_the_output_section_are_the_form(prompt, expected):
    assert template(prompt) == expected


SECTIONS = (
    Section("findings", "Findings", ["- one", "- two", "- one"]),
    Section("limits", "Limits", ["- three"]),
    Section("tests", "Tests", []),
)


def test_without_a_form_each_section_has_its_own_heading():
    assert rendered(SECTIONS, (), "it") == "## Findings\n- one\n- two\n\n## Limits\n- three"


def test_sections_go_under_the_headings_that_speak_of_them():
    form = (Heading(2, "Review of [subject]"), Heading(3, "Not checked"), Heading(3, "Issues"), Heading(3, "Tests"))
    assert rendered(SECTIONS, form, "it") == (
        "## Review of it\n\n### Not checked\n- three\n\n### Issues\n- one\n- two"
    )


def test_a_section_without_a_heading_comes_last():
    assert rendered(SECTIONS, (Heading(2, "Answer"), Heading(2, "Findings")), "it") == (
        "## Findings\n- one\n- two\n\n## Limits\n- three"
    )


def test_quoted_code_stays_one_piece_whatever_is_in_it():
    assert code("a `b` c") == "`` a `b` c ``"
    assert code(" x ") == "`x`"
    assert len(code("y" * 500)) == 162
