"""Hostile text of agents is shown as text: it cannot run, link elsewhere, hide or change the direction of a line."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.servers.dashboard.conftest import start_run, state_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

RUNS = "window.executed = true"
MARKUP = (
    f"<script>{RUNS}</script><img src=x onerror='{RUNS}'><svg onload='{RUNS}'></svg>"
    f"<iframe srcdoc='<script>parent.executed = true</script>'></iframe><a href='javascript:{RUNS}'>here</a>"
    "<style>body { display: none }</style></pre></main></body>{{constructor.constructor('executed = true')()}}"
)
LINKS = (
    f"javascript:{RUNS} data:text/html,<script>1</script> https://good.example@evil.example/ https://example.com/ok"
)
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x1b]8;;https://evil.example\x07link\x00\x9b"
TURNED = "invoice\u202egnp.exe \u2066isolated\u2069 zero\u200bwidth \u05e9\u05dc\u05d5\u05dd"
HUGE = "A" * 5_000_000 + "the very end"
HOSTILE = f"{MARKUP}\n{LINKS}\n{ESCAPES}\n{TURNED}"
ASKED = HOSTILE.replace("\x00", "")
"""Tasks and definitions with a NUL byte are refused by the server."""

MARKDOWN = f"""\
# Title with {MARKUP}

[run](javascript:{RUNS}) [data](data:text/html,<script>{RUNS}</script>) [tab](java&#x09;script:{RUNS}) [file](file:///etc/passwd)
[user](https://good.example@evil.example/) [relative](/api/v1/runs) [mail](mailto:a@b.example?body=x)
![picture](https://example.com/picture.png) ![bad](javascript:{RUNS}) [https://good.example/](https://evil.example/ok)

| a | b |
|---|---|
| <img src=x onerror='{RUNS}'> | [x](javascript:{RUNS}) |

<div onclick="{RUNS}">block</div>

[named]: javascript:{RUNS}
[named] and &#x202e;turned
"""
NESTED = "\n\n".join(["[" * 250_000, "![a](" * 50_000, "- " * 125_000, "> - 1. " * 36_000])

COUNTS = """() => ({
  executed: window.executed ?? false,
  scripts: document.querySelectorAll("#app script, #app iframe, #app style, #app object, #app embed").length,
  pictures: [...document.querySelectorAll("#app img")].filter((one) => one.getAttribute("src") !== "/favicon.svg").length,
  links: [...document.querySelectorAll("#app a")].map((one) => one.getAttribute("href")).filter((href) => !/^(#|\\/api\\/v1\\/)/.test(href)),
})"""
HARMLESS = {"executed": False, "scripts": 0, "pictures": 0, "links": []}
UNSEEN = r"""() => [...document.querySelector("main").textContent]
  .filter((one) => /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(one)).length"""


@pytest.fixture(scope="module")
def served(serve):
    failing = {"call": "bash", "args": {"command": MARKUP, MARKUP: [HOSTILE]}, "returns": HOSTILE, "isError": True}
    edit = {
        "call": "edit",
        "args": {"path": MARKUP, "oldText": HOSTILE, "newText": MARKUP},
        "returns": '{"a": "<b>"}',
    }
    return serve(
        explorer=[
            {"event": {"type": "thinking", "text": HOSTILE}},
            failing,
            edit,
            {"event": {"type": "notice", "code": MARKUP, "message": HOSTILE}},
            {"say": HOSTILE, "deltas": 7},
        ],
        tester=[{"call": "read", "args": {"path": "huge.txt"}, "returns": HUGE}, {"say": "It was long."}],
        reviewer=[{"raise": HOSTILE}],
        implementer=[{"say": MARKDOWN}],
        researcher=[{"event": {"type": "text", "text": NESTED[:140_000]}}, {"say": NESTED}],
    )


@pytest.fixture
def page(served, visit):
    return visit(served)


def opened(page):
    """Expand all collapsed elements."""
    for summary in page.locator(".transcript summary").all():
        summary.click()
    expect(page.locator(".inside")).to_have_count(page.locator("details.tool").count())


def test_hostile_run_is_shown_as_text_in_every_view(page):
    start_run(page, "explorer", ASKED)
    expect(state_of(page)).to_have_text("Completed")
    opened(page)
    shown = page.locator(".item.text").first
    expect(shown).to_contain_text(MARKUP)
    expect(shown).to_contain_text("⟨ESC⟩[31mred")
    expect(shown).to_contain_text("invoice⟨RLO⟩gnp.exe")
    found = page.evaluate(COUNTS)
    assert set(found.pop("links")) == {"https://example.com/ok", "https://evil.example"}  # as they are written
    assert found == {key: value for key, value in HARMLESS.items() if key != "links"}
    assert page.evaluate(UNSEEN) == 0
    link = page.get_by_role("link", name="https://example.com/ok").first
    assert (link.get_attribute("rel"), link.get_attribute("target")) == ("noopener noreferrer", "_blank")
    for tab in ("Timeline", "Details"):
        page.get_by_role("tab", name=tab).click()
        assert {**page.evaluate(COUNTS), "links": []} == HARMLESS
        assert page.evaluate(UNSEEN) == 0
    page.keyboard.press("g")
    expect(page.locator(".row")).not_to_have_count(0)
    assert page.evaluate(COUNTS) == HARMLESS
    assert page.evaluate(UNSEEN) == 0


def test_hostile_markdown_is_rendered_without_html_and_with_safe_links_only(page):
    start_run(page, "implementer", "Write Markdown")
    expect(page.locator(".markdown table")).to_be_visible()
    shown = page.locator(".item.text .markdown")
    expect(shown).to_contain_text("<script>")
    expect(shown).to_contain_text(f"[run](javascript:{RUNS})")
    expect(shown).to_contain_text("image: picture")
    expect(shown).to_contain_text("https://good.example/ (evil.example)")
    expect(shown).to_contain_text("⟨RLO⟩turned")
    found = page.evaluate(COUNTS)
    assert set(found.pop("links")) == {"https://example.com/picture.png", "https://evil.example/ok"}
    assert found == {key: value for key, value in HARMLESS.items() if key != "links"}
    assert page.evaluate(UNSEEN) == 0
    link = page.get_by_role("link", name="image: picture")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"


def test_markdown_of_a_megabyte_of_brackets_and_lists_leaves_the_page_usable(page):
    start_run(page, "researcher", "Nest")
    expect(state_of(page)).to_have_text("Completed")
    expect(page.locator(".item.text")).to_have_count(2)
    expect(page.locator(".item.text").last).to_contain_text("not shown")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("heading", name="Location")).to_be_visible()


def test_hostile_failure_is_shown_as_text(page):
    start_run(page, "reviewer", "Fail")
    expect(state_of(page)).to_have_text("Failed")
    expect(page.locator(".failure")).to_contain_text("<script>")
    assert page.evaluate(COUNTS) == HARMLESS
    assert page.evaluate(UNSEEN) == 0


def test_line_of_five_megabytes_shows_start_and_end_until_expanded(page):
    start_run(page, "tester", "Read it")
    expect(state_of(page)).to_have_text("Completed")
    call = page.locator("details.tool")
    call.locator("summary").click()
    expect(call).to_contain_text("the very end")
    assert len(call.text_content()) < 40_000
    call.get_by_role("button", name="Show all 4.8 MB").click()
    expect(call.locator(".part")).not_to_have_count(0)
    assert len(call.text_content()) > 5_000_000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("heading", name="Location")).to_be_visible()


def test_hostile_agent_definition_is_shown_as_text(served, visit):
    folder = served.project / ".retinue" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    head = f'name: evil\ndescription: "<img src=x onerror={RUNS!r}>"\ntools: bash'
    (folder / "evil.md").write_text(f"---\n{head}\n---\n{ASKED}\n")
    page = visit(served, "/#/agents/evil")
    agent = page.locator(".agent").filter(has_text="evil")
    expect(agent).to_contain_text("<img src=x")
    expect(agent.locator("pre")).to_contain_text("<script>")
    found = page.evaluate(COUNTS)
    assert {**found, "links": []} == HARMLESS
    assert page.evaluate(UNSEEN) == 0
