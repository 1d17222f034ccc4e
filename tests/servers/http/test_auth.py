"""Authentication and validation of requests."""

from __future__ import annotations

from itertools import product

import anyio
import pytest
from tests.servers.http.conftest import HOST, PORT
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.engines.scripted import reply
from retinue.servers.asgi.request_checks import (
    BODY_TIMEOUT,
    FREE_ATTEMPTS,
    MAX_BODY_BYTES,
    WRONG_TOKEN_DELAY,
    HttpError,
)
from retinue.servers.asgi.tokens import load_client_token
from retinue.servers.http.auth import CODE_LIFETIME as CODE_SECONDS
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.inputs import LoginBody
from retinue.servers.lifecycle import ServerStartError

ROUTES = [
    ("GET", "health"),
    ("GET", "openapi.json"),
    ("GET", "activity"),
    ("GET", "runs"),
    ("GET", "runs/12345678"),
    ("GET", "runs/12345678/events"),
    ("GET", "runs/12345678/transcript"),
    ("GET", "events"),
    ("GET", "agents"),
    ("GET", "settings"),
    ("GET", "nothing"),
    ("POST", "runs"),
    ("POST", "plans"),
    ("POST", "links"),
    ("POST", "runs/12345678/cancel"),
    ("POST", "agents/explorer/trust"),
    ("DELETE", "runs"),
]
TASK = {"agent": "explorer", "task": "look"}
SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


@pytest.fixture
def access(tmp_path) -> Authenticator:
    return Authenticator(tmp_path, PORT)


async def test_every_route_requires_a_token(serve):
    async with serve(reply("done")) as client:
        for method, path in ROUTES:
            for given in (None, "Bearer x"):
                answer = await client.ask(method, path, b"{}", content_type="application/json", authorization=given)
                assert (answer.status, answer.error) == (401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": f"evil.example:{PORT}"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": None}, 421),
        ({"host": f"127.0.0.1.evil.example:{PORT}"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": f"https://{HOST}"}, 403),
    ],
)
async def test_every_route_rejects_foreign_hosts_and_origins(serve, headers, status):
    async with serve(reply("done")) as client:
        for method, path in ROUTES:
            answer = await client.ask(method, path, b"{}", **{"content_type": "application/json", **headers})
            assert answer.status == status


@pytest.mark.parametrize("path", ["/", "/login", "/app.js", "/favicon.svg"])
async def test_dashboard_files_reject_foreign_hosts_and_origins(serve, path):
    async with serve(reply("done")) as client:
        assert (await client.get(path, host="evil.example")).status == 421
        assert (await client.get(path, origin="https://evil.example")).status == 403


async def test_loopback_host_names_are_accepted(serve):
    async with serve(reply("done")) as client:
        for name in ("127.0.0.1", "localhost", "[::1]"):
            answer = await client.get("health", host=f"{name}:{PORT}", origin=f"http://{name}:{PORT}")
            assert answer.status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_post_without_json_content_type_is_rejected(serve, kind):
    async with serve(reply("done")) as client:
        for path in ("runs", "runs/12345678/cancel", "login", "links"):
            answer = await client.ask("POST", path, b"{}", content_type=kind)
            assert (answer.status, answer.error) == (415, "unsupported_media_type")
        assert (await client.get("runs")).json["runs"] == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_cookie_is_rejected_for_pages_of_another_port(serve, site):
    """Browsers send a strict cookie to every port of the same host."""
    async with serve(reply("done")) as client:
        cookie = (await client.post("login", {"token": client.token})).headers["set-cookie"].partition(";")[0]
        mine = {"authorization": None, "cookie": cookie}
        assert (await client.get("runs", **mine, sec_fetch_site="same-origin")).status == 200
        assert (await client.get("runs", **mine, sec_fetch_site=site)).status == 403
        assert (await client.post("runs", TASK, **mine, sec_fetch_site=site)).status == 403


async def test_get_on_a_command_route_is_not_allowed(serve):
    async with serve(reply("done")) as client:
        for path in (
            "runs/x/cancel",
            "runs/x/resume",
            "runs/x/extend",
            "runs/x/steer",
            "agents/explorer/trust",
            "links",
        ):
            answer = await client.get(path)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert (await client.get("login")).status == 404
        assert (await client.ask("PUT", "runs", b"{}")).status == 405
        assert (await client.get("nothing")).error == "not_found"


async def test_every_response_has_the_security_headers(serve):
    async with serve(reply("done")) as client:
        answers = [
            await client.get("health"),
            await client.get("health", authorization=None),
            await client.get("health", host="evil.example"),
            await client.get("nothing"),
            await client.get("/"),
            await client.get("/login"),
            await client.get("/missing.js"),
            await client.post("runs", {"wrong": 1}),
        ]
    for answer in answers:
        assert {name: answer.headers[name] for name in SAFE} == SAFE
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
    assert answers[0].headers["cache-control"] == "no-store"


# -- signing in ------------------------------------------------------------------------------------


async def test_login_link_works_once(serve):
    async with serve(reply("done")) as client:
        link = (await client.post("links")).json["link"]
        code = link.partition("#")[2]
        assert link == f"http://{HOST}/login#{code}"
        nobody = {"authorization": None}
        first = await client.post("login", {"code": code}, **nobody)
        second = await client.post("login", {"code": code}, **nobody)
        cookie, *rest = first.headers["set-cookie"].split("; ")
        seen = await client.get("runs", **nobody, cookie=f"other=1; {cookie}")
        page = await client.get("/", **nobody, cookie=cookie)
    assert (first.status, second.status, second.error) == (200, 401, "unauthorized")
    assert "already used" in second.json["error"]["message"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(rest)
    assert cookie.startswith(f"retinue_{PORT}=")
    assert (seen.status, page.status) == (200, 200)


async def test_login_link_expires_after_ten_minutes(tmp_path):
    now = [0.0]
    access = Authenticator(tmp_path, PORT, clock=lambda: now[0])
    early, late = access.create_code(), access.create_code()
    now[0] = CODE_SECONDS
    assert await access.log_in(LoginBody(code=early))
    now[0] = CODE_SECONDS + 1
    with pytest.raises(HttpError):
        await access.log_in(LoginBody(code=late))


async def test_expired_used_codes_are_dropped(tmp_path):
    now = [0.0]
    access = Authenticator(tmp_path, PORT, clock=lambda: now[0])
    for _ in range(50):
        assert await access.log_in(LoginBody(code=access.create_code()))
        now[0] += CODE_SECONDS / 10
    assert len(access._login_links._used) <= 12


async def test_login_code_is_valid_for_its_own_server_only(tmp_path):
    now = [0.0]

    def clock() -> float:
        return now[0]

    first, other = Authenticator(tmp_path / "a", PORT, clock), Authenticator(tmp_path / "b", PORT, clock)
    neighbour, code = Authenticator(tmp_path / "a", 9999, clock), first.create_code()
    plain, _, seal = code.rpartition(".")
    forged = [f"{plain}0.{seal}", f"{plain}.", "..", ".", "x.y.z", f"{code} ", "\ud800.1.x", code.upper()]
    now[0] = 1.0
    after_a_restart = Authenticator(tmp_path / "a", PORT, clock)
    for access, wrong in [*((first, each) for each in forged), (other, code), (neighbour, code)]:
        with pytest.raises(HttpError):
            await access.log_in(LoginBody(code=wrong))
    with pytest.raises(HttpError):
        await after_a_restart.log_in(LoginBody(code=code))
    assert await first.log_in(LoginBody(code=code))


@pytest.mark.parametrize("proof", [{}, {"code": "x"}, {"token": "x"}, {"code": None, "token": None}])
async def test_login_without_valid_proof_sets_no_cookie(serve, proof):
    async with serve(reply("done")) as client:
        answer = await client.post("login", proof, authorization=None)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


async def test_login_survives_a_restart_but_not_another_port_or_token(tmp_path):
    def cookie_headers(cookie: str) -> list[tuple[str, str]]:
        return [("cookie", cookie)]

    first = Authenticator(tmp_path, PORT)
    cookie = (await first.log_in(LoginBody(code=first.create_code()))).partition(";")[0]
    again = Authenticator(tmp_path, PORT)
    await again.authenticate(cookie_headers(cookie))
    other = Authenticator(tmp_path, 9999)
    for stolen in (cookie, cookie.replace(str(PORT), "9999")):
        with pytest.raises(HttpError):
            await other.authenticate(cookie_headers(stolen))
    again.token_file.unlink()
    with pytest.raises(HttpError):
        await again.authenticate(cookie_headers(cookie))
    fresh = Authenticator(tmp_path, PORT)
    for access in (fresh, again):  # the one that runs takes the new token, too
        with pytest.raises(HttpError):
            await access.authenticate(cookie_headers(cookie))
        await access.authenticate([("authorization", f"Bearer {fresh.token_file.read_text().strip()}")])


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer "), ("authorization", "Bearer TOKEN")],
        [("authorization", "Basic TOKEN")],
        [("authorization", "TOKEN")],
        [("authorization", "Bearer TOKEN x")],
        [("cookie", "retinue_8477=TOKEN")],
        [("cookie", "retinue_8477=")],
        [("cookie", 'retinue_8477="\x80"')],
        [("cookie", "retinue_8477=COOKIE"), ("cookie", "retinue_8477=COOKIE")],
        [("cookie", "retinue_1=COOKIE")],
    ],
)
async def test_misplaced_or_repeated_credentials_are_rejected(access, headers):
    token = access.token_file.read_text().strip()
    cookie = (await access.log_in(LoginBody(token=token))).partition("=")[2].partition(";")[0]
    given = [(name, value.replace("TOKEN", token).replace("COOKIE", cookie)) for name, value in headers]
    with pytest.raises(HttpError):
        await access.authenticate(given)


@VIRTUAL_TIME
async def test_wrong_tokens_are_throttled_and_the_right_one_is_not(access):
    token = access.token_file.read_text().strip()
    began = anyio.current_time()
    for _ in range(FREE_ATTEMPTS + 3):
        with pytest.raises(HttpError):
            await access.authenticate([("authorization", "Bearer wrong")])
    with pytest.raises(HttpError):
        await access.log_in(LoginBody(code="wrong"))
    assert anyio.current_time() - began == 4 * WRONG_TOKEN_DELAY
    await access.authenticate([("authorization", f"Bearer {token}")])
    assert anyio.current_time() - began == 4 * WRONG_TOKEN_DELAY


async def test_token_of_an_mcp_client_is_rejected(access, tmp_path):
    """A client has its own sessions only; who is signed in here acts as the user."""
    for name in (None, "editor"):
        token = load_client_token(tmp_path, name).file.read_text().strip()
        with pytest.raises(HttpError):
            await access.authenticate([("authorization", f"Bearer {token}")])
        with pytest.raises(HttpError):
            await access.log_in(LoginBody(token=token))


def test_token_file_readable_by_others_stops_the_start(tmp_path):
    file = Authenticator(tmp_path, PORT).token_file
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(ServerStartError, match="Other users can read"):
        Authenticator(tmp_path, PORT)


async def test_token_file_made_readable_by_others_locks_everyone_out(access):
    token = access.token_file.read_text().strip()
    access.token_file.chmod(0o644)
    with pytest.raises(HttpError):
        await access.authenticate([("authorization", f"Bearer {token}")])
    access.token_file.chmod(0o600)
    await access.authenticate([("authorization", f"Bearer {token}")])


# -- bodies and queries ----------------------------------------------------------------------------


async def test_oversized_body_is_rejected_and_the_connection_closed(serve):
    async with serve(reply("done")) as client:
        answer = await client.ask("POST", "runs", b" " * (MAX_BODY_BYTES + 1), content_type="application/json")
    assert (answer.status, answer.error, answer.headers["connection"]) == (413, "too_large", "close")


@VIRTUAL_TIME
async def test_missing_body_times_out(serve):
    sent = []

    async def send(message):
        sent.append(message)

    async with serve(reply("done")) as client:
        scope = client._scope("POST", "runs", {"content-type": "application/json"})
        began = anyio.current_time()
        await client.server.app(scope, anyio.sleep_forever, send)
    assert sent[0]["status"] == 408
    assert anyio.current_time() - began == BODY_TIMEOUT


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"task": 1}', b'{"task": ""}', b'{"task": "x", "taks": 1}', b"\xff", b"[" * 100_000],
)
async def test_invalid_body_is_rejected_and_starts_nothing(serve, body):
    async with serve(reply("done")) as client:
        answer = await client.ask("POST", "runs", body, content_type="application/json")
        assert (answer.status, answer.error) == (400, "invalid_input")
        assert "Nothing was changed." in answer.json["error"]["message"]
        assert (await client.get("runs")).json["runs"] == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=999999",
        "state=lost",
        "nope=1",
        "before=x",
        "q=%ff",
        "q=" + "x" * 9000,
    ],
)
async def test_invalid_query_is_rejected(serve, query):
    async with serve(reply("done")) as client:
        for path in ("runs", "activity", "sessions"):
            answer = await client.get(f"{path}?{query}")
            assert (answer.status, answer.error) == (400, "invalid_input")


async def test_unknown_field_is_reported_with_the_nearest_name(serve):
    async with serve(reply("done")) as client:
        answer = await client.post("runs", {"agent": "explorer", "task": "x", "timeuot": 3})
    assert "timeuot" in answer.json["error"]["message"]
    assert "Did you mean timeout?" in answer.json["error"]["message"]


async def test_odd_path_names_are_not_found(serve):
    odd = ["..", "%2e%2e", "x" * 300, "%00", "é", "%ff"]
    async with serve(reply("done")) as client:
        for prefix, name in product(["runs", "sessions", "agents", "plans"], odd):
            assert (await client.get(f"{prefix}/{name}")).status == 404


async def test_value_out_of_range_is_reported_by_name(serve):
    async with serve(reply("done")) as client:
        answer = await client.post("runs", {"agent": "explorer", "task": "look", "timeout": 1e9})
    sentence = "timeout is invalid: expected `float` <= 604800.0. Nothing was changed."
    assert answer.json == {"error": {"code": "invalid_input", "message": sentence}}
