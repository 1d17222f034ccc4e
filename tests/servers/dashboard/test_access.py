"""Accessibility: keyboard, screen readers, light and dark theme, small screens."""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_letters

import pytest
from playwright.sync_api import Page, expect
from tests.real.install import skip
from tests.servers.dashboard import axe
from tests.servers.dashboard.conftest import start_run, state_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

LOOKS = (Path(__file__).parent / "looks.js").read_text().partition("\n\n")[2]
TOOLS = Path(__file__).parents[3] / ".tools"
JUDGES = (
    """async () => (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`)"""
)
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
MARKDOWN = """\
# Found
It is in `x.py`, **line 2**: https://example.com/x

##### Deep
- [x] done
- a list with [a link](https://example.com/y)

> quoted

| a wide table | with columns |
|:--|--:|
| `x` | 2 |

```python
x = 1
```
"""
ANSWER = {"say": "Done."}
IN_SIGHT = """() => {
  const { x, y, width, height } = document.activeElement.getBoundingClientRect();
  return document.activeElement.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}"""
SCREENS = [
    pytest.param({"color_scheme": "light"}, id="light"),
    pytest.param({"color_scheme": "dark"}, id="dark"),
    pytest.param({**PHONE, "color_scheme": "light"}, id="phone"),
]


@pytest.fixture(scope="module")
def served(serve):
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"
    served = serve(
        explorer=[
            {"event": {"type": "thinking", "text": "Where could it be?"}},
            {"call": "bash", "args": {"command": "git diff"}, "returns": diff},
            {"call": "read", "args": {"path": "x.py"}, "returns": "# why\nx = 'text' + 1\n" * 30},
            {"call": "grep", "args": {"pattern": "a" * 300}, "returns": '{"found": [1, true]}', "isError": True},
            {"event": {"type": "notice", "code": "x", "message": "Something to know."}},
            {"say": MARKDOWN + "unbroken" * 60},
        ],
        reviewer=[{"raise": "It broke."}],
        tester=[{"hear": True}, {"say": "Heard."}],
        implementer=[ANSWER],
    )
    (served.project / ".pi" / "agents").mkdir(parents=True)
    for name in ("bad", "an-agent-" + "whose-name-" * 5):
        (served.project / ".pi" / "agents" / f"{name}.md").write_text(
            f"---\nname: {name}\ntools: bash\ndescription: Bad\n---\nBe bad.\n"
        )
    return served


def find_violations(page: Page) -> list[str]:
    """Return the accessibility violations of the page, by `looks.js` and, if installed, axe-core."""
    found: list[str] = page.evaluate(LOOKS)
    if script := axe.program(TOOLS):
        page.evaluate(script)
        found += page.evaluate(JUDGES)
    return found


def test_axe_core_is_installed_where_the_dashboard_tests_run():
    if not axe.AXE.is_in(TOOLS):
        skip("There is no axe-core. `make test` installs it where a package registry can be reached.")
    assert "axe" in axe.program(TOOLS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("screen", SCREENS)
def test_every_view_passes_the_accessibility_checks(served, visit, screen):
    page = visit(served, **screen)
    start_run(page, "explorer", "Find it, wherever it may be, and say so. " * 20)
    expect(state_of(page)).to_have_text("Completed")
    for summary in page.locator(".transcript summary").all():
        summary.click()
    faults = {"transcript": find_violations(page)}
    for tab in ("Timeline", "Details"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
        faults[tab] = find_violations(page)
    start_run(page, "reviewer", "Break")
    expect(state_of(page)).to_have_text("Failed")
    faults["failed"] = find_violations(page)
    start_run(page, "tester", "Wait")
    expect(state_of(page)).to_have_text("Running")
    faults["running"] = find_violations(page)
    page.get_by_role("link", name="Retinue, activity").click()
    expect(page.locator(".row.running").first).to_be_visible()
    faults["activity"] = find_violations(page)
    page.get_by_role("button", name="New run", exact=True).first.click()
    form = page.get_by_role("dialog", name="New run")
    form.get_by_text("Parallel").click()
    form.get_by_text("Options").click()
    form.get_by_label("Agent").first.select_option("explorer")
    faults["form"] = find_violations(page)
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    page.get_by_role("link", name="Agents").click()
    page.locator(".agent summary").first.click()
    expect(page.locator(".agent pre").first).to_be_visible()
    faults["agents"] = find_violations(page)
    page.get_by_role("link", name="System").click()
    expect(page.get_by_role("heading", name="Server")).to_be_visible()
    page.get_by_text("Defaults (").click()
    faults["system"] = find_violations(page)
    page.get_by_role("link", name="Usage").click()
    expect(page.get_by_role("heading", name="By agent")).to_be_visible()
    faults["usage"] = find_violations(page)
    page.get_by_role("link", name="Activity", exact=True).click()
    page.locator(".row.completed .what").first.click()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("dialog", name="Compare with")).to_be_visible()
    faults["choose"] = find_violations(page)
    page.keyboard.press("Escape")
    run = page.url.partition("/runs/")[2].partition("?")[0]
    page.goto(f"{served.base}/#/compare/{run}/{run}")
    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    faults["compare"] = find_violations(page)
    assert {view: found for view, found in faults.items() if found} == {}


def test_every_action_works_by_keyboard_alone(served, visit):
    page = visit(served)
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.keyboard.press("n")
    form = page.get_by_role("dialog", name="New run")
    expect(form.get_by_role("option", name="implementer")).to_be_attached()
    form.get_by_label("Agent").focus()
    page.keyboard.type("impl")
    page.keyboard.press("Tab")
    page.keyboard.type("Do this by hand")
    page.keyboard.press("Control+Enter")
    expect(page.locator("main.run h1")).to_have_text("implementer")
    expect(state_of(page)).to_have_text("Completed")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("by hand")
    expect(page.locator(".row")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=re.compile("Do this by hand"))).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main.run")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_palette_finds_commands_agents_and_runs_on_every_page(served, visit):
    page = visit(served)
    start_run(page, "implementer", "Sharpen the pencils")
    expect(state_of(page)).to_have_text("Completed")
    palette = page.get_by_role("dialog", name="Commands")
    field = palette.get_by_role("combobox")
    for path in ("/#/", "/#/agents", "/#/system"):
        page.goto(served.base + path)
        expect(page.locator("main")).to_be_visible()
        page.keyboard.press("Control+k")
        expect(field).to_be_focused()
        page.keyboard.press("Escape")
        expect(palette).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(palette.get_by_role("option").first).to_be_visible()
    assert find_violations(page) == []
    field.fill("sharpen pen")
    field.fill("sharpen")
    expect(palette.get_by_role("option", name=re.compile("Sharpen the pencils"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("main.run")).to_contain_text("Sharpen the pencils")
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Timeline")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("r")
    expect(page.get_by_role("textbox", name=re.compile("Resume implementer"))).to_be_focused()
    page.keyboard.press("Control+k")
    field.fill("new run with tester")
    expect(palette.get_by_role("option", name="New run with tester")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="New run").get_by_label("Agent")).to_have_value("tester")


def test_focused_element_is_never_covered(serve, visit):
    # Paths and contents that differ in more than a number: other calls would count as a loop.
    reads = [{"call": "read", "args": {"path": f"{name}.py"}, "returns": name} for name in ascii_letters[:40]]
    page = visit(serve(explorer=[*reads, ANSWER]))
    start_run(page, "explorer", "Read a lot")
    expect(state_of(page)).to_have_text("Completed")
    expect(page.locator("details.calls summary")).to_contain_text("read ×40")
    page.locator("details.calls summary").click()
    for key in [*"j" * 40, *"k" * 39]:
        page.keyboard.press(key)
        assert page.evaluate(IN_SIGHT), page.evaluate("document.activeElement.textContent")


def test_single_key_shortcuts_can_be_disabled(served, visit):
    page = visit(served)
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.keyboard.press("?")
    page.get_by_label("Enable single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.get_by_role("button", name="Keyboard help").click()
    expect(page.get_by_role("dialog")).to_have_count(1)
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()


def test_state_change_is_announced_politely(served, visit):
    page = visit(served)
    start_run(page, "tester", "Wait for a word")
    page.get_by_role("textbox", name=re.compile("Message to tester")).fill("now")
    page.keyboard.press("Enter")
    expect(page.locator("[aria-live=polite][role=status].unseen")).to_have_text("tester: Completed")


def test_theme_follows_the_system_until_the_user_chooses(served, visit):
    page = visit(served, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(paper)
    assert dark != light
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(paper) == dark
    page.reload()
    assert page.evaluate(paper) == dark


def test_transcript_keeps_its_position_after_scrolling_up(serve, visit):
    lines = {"event": {"type": "text", "text": "\n".join(f"line {number}" for number in range(80))}}
    page = visit(serve(explorer=[lines, {"hear": True}, lines, {"hear": True}, lines, {"hang": True}]))
    start_run(page, "explorer", "Talk")
    expect(page.locator(".item.text")).to_have_count(1)
    below = "document.documentElement.scrollHeight - innerHeight - scrollY"
    tell = page.get_by_role("textbox", name=re.compile("Message to explorer"))
    tell.fill("more")
    tell.press("Enter")
    expect(page.locator(".item.text")).to_have_count(2)
    assert page.evaluate(below) < 100
    page.mouse.wheel(0, -1500)
    expect(page.get_by_role("button", name="Latest")).to_be_visible()
    before = page.evaluate("scrollY")
    tell.fill("more")
    tell.press("Enter")
    expect(page.locator(".item.text")).to_have_count(3)
    assert abs(page.evaluate("scrollY") - before) < 5
