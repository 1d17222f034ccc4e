"""The files of the dashboard: paths, compression, caching, login."""

from __future__ import annotations

import gzip

import pytest

from retinue.engines.scripted import reply
from retinue.servers.http.app import CONTENT_TYPES, DASHBOARD_FOLDER, PUBLIC_FILES, AssetFolder


@pytest.mark.parametrize(
    "path",
    [
        "/../http/app.py",
        "/..%2fhttp%2fapp.py",
        "/%2e%2e/http/app.py",
        "//etc/passwd",
        "/vendor/../index.html",
        "/./index.html",
        "/index.html/",
        "/vendor",
        "/INDEX.HTML",
        "/__init__.py",
        "/index.html\x00.js",
        "/login.html\\..\\x.js",
    ],
)
async def test_no_path_reaches_files_outside_the_dashboard(serve, path):
    async with serve(reply("done")) as client:
        answer = await client.get(path)
        page = await client.get("/")
    # What has no ending is a place within the dashboard, and shows its page.
    assert answer.status == 404 or answer.body == page.body


async def test_dashboard_files_have_content_types_and_gzip_copies(serve):
    async with serve(reply("done")) as client:
        for name in AssetFolder().list_names():
            answer = await client.get(f"/{name}", accept_encoding="br, gzip")
            plain = await client.get(f"/{name}")
            assert (answer.status, plain.status) == (200, 200)
            assert answer.headers["content-type"] in CONTENT_TYPES.values()
            body = gzip.decompress(answer.body) if "content-encoding" in answer.headers else answer.body
            assert body == plain.body == (DASHBOARD_FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip", True),
        ("br;q=1, GZIP; q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, br", False),
        ("x-gzip", False),
    ],
)
async def test_gzip_is_sent_only_to_clients_that_accept_it(serve, accepted, is_packed):
    async with serve(reply("done")) as client:
        answer = await client.get("/app.js", accept_encoding=accepted)
    assert ("content-encoding" in answer.headers) is is_packed


async def test_matching_etag_is_answered_with_not_modified(serve):
    async with serve(reply("done")) as client:
        first = await client.get("/app.js")
        again = await client.get("/app.js", if_none_match=first.headers["etag"])
        other = await client.get("/app.js", if_none_match='"x"')
        head = await client.ask("HEAD", "/app.js")
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status, again.body) == (304, b"")
    assert (other.status, head.status, head.body) == (200, 200, b"")


async def test_pages_without_login_show_the_login_page(serve):
    async with serve(reply("done")) as client:
        nobody = {"authorization": None}
        login = await client.get("/login", **nobody)
        for path in ("/", "/runs/12345678", "/agents"):
            answer = await client.get(path, **nobody)
            assert (answer.status, answer.body) == (401, login.body)
            assert answer.headers["cache-control"] == "no-store"
        assert (await client.get("/app.js", **nobody)).status == 401
        assert (await client.get("/nothing.js", **nobody)).status == 401
        for name in PUBLIC_FILES:
            assert (await client.get(f"/{name}", **nobody)).status == 200
        assert (await client.post("/", {}, **nobody)).status == 405


async def test_changed_asset_is_read_again(tmp_path):
    (tmp_path / "app.js").write_text("one")
    assets = AssetFolder(tmp_path)
    first = assets.find("app.js")
    assert first is assets.find("app.js")
    (tmp_path / "app.js").write_text("another")
    second = assets.find("app.js")
    assert first and second
    assert second.body == b"another"
    assert second.etag != first.etag
    assert assets.find("app.css") is None


def test_asset_folder_is_listed_again_only_for_unknown_names(tmp_path):
    class Counting(AssetFolder):
        listings = 0

        def list_names(self) -> frozenset[str]:
            self.listings += 1
            return super().list_names()

    (tmp_path / "app.js").write_text("one")
    assets = Counting(tmp_path)
    for _ in range(5):
        assert assets.find("app.js")
    assert assets.listings == 1
    (tmp_path / "new.js").write_text("new")
    assert assets.find("new.js")
    assert assets.listings == 2
    (tmp_path / "app.js").unlink()
    assert assets.find("app.js") is None
    assert assets.find("../app.js") is None


def test_dashboard_refers_to_no_other_host():
    """No file of the dashboard names another host, but for the names of licences and namespaces."""
    for name in AssetFolder().list_names():
        if name.endswith((".js", ".css", ".html")) and not name.startswith("vendor/"):
            text = (DASHBOARD_FOLDER / name).read_text()
            assert "//fonts." not in text
            assert "cdn" not in text.lower().split()
