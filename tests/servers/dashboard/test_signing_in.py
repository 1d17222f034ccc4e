"""Sign-in to the dashboard: by one-time link or token only."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def served(serve):
    return serve()


def test_link_signs_in_and_leaves_no_code_in_the_history(serve, visit):
    served = serve()
    page = visit(served, signed_in=False)
    page.goto(served.link)
    expect(page.get_by_role("heading", name="Activity")).to_be_attached()
    assert page.url == f"{served.base}/"
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    other = visit(served, signed_in=False)
    other.monitor.allow("401")
    other.goto(served.link)
    expect(other.get_by_role("status")).to_contain_text("link")
    assert "#" not in other.url


def test_link_with_a_view_opens_that_view(serve, visit):
    served = serve()
    page = visit(served, signed_in=False)
    page.goto(f"{served.link}/agents/explorer")
    expect(page.get_by_role("heading", name="Prompt")).to_be_visible()
    assert page.url == f"{served.base}/#/agents/explorer"


def test_dashboard_shows_nothing_without_a_sign_in(served, visit):
    page = visit(served, signed_in=False)
    page.monitor.allow("401")
    page.goto(f"{served.base}/")
    expect(page.get_by_role("heading", name="Retinue")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("fetch('/api/v1/activity').then((answer) => answer.status)") == 401
    assert page.evaluate("fetch('/app.js').then((answer) => answer.status)") == 401


def test_only_the_right_token_signs_in(served, visit):
    page = visit(served, signed_in=False)
    page.monitor.allow("401")
    page.goto(f"{served.base}/login")
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("[data-refused]")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill(served.token_file.read_text().strip())
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()


def test_page_with_an_ended_sign_in_shows_a_banner(served, visit):
    page = visit(served)
    page.monitor.allow("401")
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    page.context.clear_cookies()
    page.get_by_role("link", name="System").click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
