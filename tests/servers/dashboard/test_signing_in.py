"""Who gets to see the dashboard: whoever has the link, once, or the token; and nobody else."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def served(serve):
    return serve()


def test_the_link_signs_in_and_leaves_no_code_behind(serve, visit):
    served = serve()
    page = visit(served, signed_in=False)
    page.goto(served.link)
    expect(page.get_by_role("heading", name="Activity")).to_be_attached()
    assert page.url == f"{served.base}/"
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    other = visit(served, signed_in=False)
    other.watch.allow("401")
    other.goto(served.link)
    expect(other.get_by_role("status")).to_contain_text("link")
    assert "#" not in other.url


def test_without_a_sign_in_there_is_nothing_to_see(served, visit):
    page = visit(served, signed_in=False)
    page.watch.allow("401")
    page.goto(f"{served.base}/")
    expect(page.get_by_role("heading", name="Retinue")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("fetch('/api/v1/activity').then((answer) => answer.status)") == 401
    assert page.evaluate("fetch('/app.js').then((answer) => answer.status)") == 401


def test_the_token_signs_in_where_a_wrong_one_does_not(served, visit):
    page = visit(served, signed_in=False)
    page.watch.allow("401")
    page.goto(f"{served.base}/login")
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("[data-refused]")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill(served.token_file.read_text().strip())
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()


def test_a_page_whose_sign_in_ended_says_so(served, visit):
    page = visit(served)
    page.watch.allow("401")
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()
    page.context.clear_cookies()
    page.get_by_role("link", name="System").click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
