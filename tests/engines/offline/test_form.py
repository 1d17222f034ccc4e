"""Answers take the form an agent's prompt asks for."""

import pytest

from retinue.engines.offline.form import ReportHeading, ReportSection, format_code, parse_template, render_report

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
        (FENCED, (ReportHeading(2, "Findings"), ReportHeading(3, "Files in [place]"))),
        (
            "# Output format\n## Findings\nx\n## Risks\n# Rules\n## Other",
            (ReportHeading(2, "Findings"), ReportHeading(2, "Risks")),
        ),
        ("# Response requirements\nBe brief.\n# Output\n## Answer", (ReportHeading(2, "Answer"),)),
        ("## Output\nJust say it.", ()),
        ("```\n## Findings", ()),
        ("", ()),
    ],
)
def test_the_headings_of_the_output_section_are_the_form(prompt, expected):
    assert parse_template(prompt) == expected


SECTIONS = (
    ReportSection("findings", "Findings", ["- one", "- two", "- one"]),
    ReportSection("limits", "Limits", ["- three"]),
    ReportSection("tests", "Tests", []),
)


def test_without_a_form_each_section_has_its_own_heading():
    assert render_report(SECTIONS, (), "it") == "## Findings\n- one\n- two\n\n## Limits\n- three"


def test_sections_go_under_the_headings_that_speak_of_them():
    form = (
        ReportHeading(2, "Review of [subject]"),
        ReportHeading(3, "Not checked"),
        ReportHeading(3, "Issues"),
        ReportHeading(3, "Tests"),
    )
    assert render_report(SECTIONS, form, "it") == (
        "## Review of it\n\n### Not checked\n- three\n\n### Issues\n- one\n- two"
    )


def test_a_section_without_a_heading_comes_last():
    assert render_report(SECTIONS, (ReportHeading(2, "Answer"), ReportHeading(2, "Findings")), "it") == (
        "## Findings\n- one\n- two\n\n## Limits\n- three"
    )


def test_quoted_code_stays_one_piece_whatever_is_in_it():
    assert format_code("a `b` c") == "`` a `b` c ``"
    assert format_code(" x ") == "`x`"
    assert len(format_code("y" * 500)) == 162
