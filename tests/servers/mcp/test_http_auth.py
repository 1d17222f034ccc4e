"""Authentication of MCP clients over HTTP."""

from __future__ import annotations

from itertools import product
from typing import Any

import anyio
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.servers.asgi.request_checks import BODY_TIMEOUT, FREE_ATTEMPTS, MAX_BODY_BYTES, WRONG_TOKEN_DELAY
from retinue.servers.asgi.tokens import digest_token, load_client_token
from retinue.servers.lifecycle import ServerStartError
from retinue.servers.mcp.serving import TokenGate

PORT = 8765
HOST = ("host", f"127.0.0.1:{PORT}")
TOKEN = ("authorization", "Bearer right")
JSON = ("content-type", "application/json")
GOOD = (HOST, TOKEN, JSON)


class Visit:
    """One request at a gate with two clients: what it was answered, and by whose application."""

    def __init__(
        self, *headers: tuple[str, str], method: str = "POST", path: str = "/mcp", body: bytes = b"{}"
    ) -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        }
        self.chunks = [body]
        self.sent: list[Any] = []
        self.reached: list[tuple[str, bytes]] = []

    async def receive(self) -> Any:
        if not self.chunks:
            await anyio.sleep_forever()
        body = self.chunks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self.chunks)}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    def app(self, name: str) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            self.reached.append((name, (await receive())["body"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

        return answer

    def gate(self) -> TokenGate:
        return TokenGate({digest_token("right"): self.app("right"), digest_token("other"): self.app("other")}, PORT)

    async def status(self, gate: TokenGate | None = None) -> int:
        await (gate or self.gate())(self.scope, self.receive, self.send)
        return int(self.sent[0]["status"])

    def header(self, name: str) -> str | None:
        return dict(self.sent[0]["headers"]).get(name.encode(), b"").decode() or None


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
@pytest.mark.parametrize("origin", [(), (("origin", f"http://127.0.0.1:{PORT}"),)])
async def test_token_selects_the_application_of_its_client(host, origin):
    visit = Visit(("host", host), TOKEN, JSON, *origin, body=b'{"a": 1}')
    assert await visit.status() == 200
    assert visit.reached == [("right", b'{"a": 1}')]
    assert (visit.header("cache-control"), visit.header("x-content-type-options")) == ("no-store", "nosniff")
    visit = Visit(HOST, ("authorization", "bearer other"), JSON)
    assert await visit.status() == 200
    assert visit.reached == [("other", b"{}")]


@pytest.mark.parametrize(
    "hosts",
    [
        (),
        ("evil.example",),
        ("127.0.0.1",),
        (f"127.0.0.1:{PORT + 1}",),
        (f"127.0.0.1.evil.example:{PORT}",),
        (f"127.0.0.1:{PORT}@evil.example",),
        (f"0.0.0.0:{PORT}",),
        (f"127.0.0.1:{PORT}", "evil.example"),
        (f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT}"),
    ],
)
async def test_foreign_host_names_are_misdirected(hosts):
    visit = Visit(*(("host", host) for host in hosts), TOKEN, JSON)
    assert await visit.status() == 421
    assert visit.reached == []


@pytest.mark.parametrize(
    "origins",
    [
        ("https://evil.example",),
        ("null",),
        ("",),
        (f"http://localhost.evil.example:{PORT}",),
        ("http://localhost:1",),
        (f"https://localhost:{PORT}",),
        (f"http://localhost:{PORT}", "https://evil.example"),
    ],
)
async def test_foreign_origins_are_rejected_even_with_the_token(origins):
    visit = Visit(*GOOD, *(("origin", origin) for origin in origins))
    assert await visit.status() == 403
    assert visit.reached == []


@pytest.mark.parametrize(
    "token",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Basic right"),),
        (("authorization", "right"),),
        (("authorization", "Bearer"),),
        (("authorization", "Bearer right"), ("authorization", "Bearer right")),
        (("cookie", "token=right"),),
    ],
)
async def test_every_path_and_method_requires_the_token(token):
    methods = ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "TRACE")
    for method, path in product(methods, ("/mcp", "/", "/health", "/mcp/", "/../mcp")):
        visit = Visit(HOST, JSON, *token, method=method, path=path)
        assert await visit.status() == 401
        assert visit.header("www-authenticate") == "Bearer"
        assert visit.reached == []


@pytest.mark.parametrize(
    ("headers", "how", "status"),
    [
        (GOOD, {"path": "/"}, 404),
        (GOOD, {"path": "/mcp/../token"}, 404),
        (GOOD, {"method": "OPTIONS"}, 405),
        ((HOST, TOKEN), {}, 415),
        ((HOST, TOKEN, ("content-type", "text/plain")), {}, 415),
        ((HOST, TOKEN, ("content-type", "application/x-www-form-urlencoded")), {}, 415),
        ((HOST, TOKEN, ("content-type", "application/jsonp")), {}, 415),
        ((HOST, TOKEN, ("content-type", "Application/JSON; charset=utf-8")), {}, 200),
        (GOOD, {"body": b"x" * MAX_BODY_BYTES}, 200),
        (GOOD, {"body": b"x" * (MAX_BODY_BYTES + 1)}, 413),
    ],
)
async def test_requests_outside_the_protocol_are_rejected(headers, how, status):
    assert await Visit(*headers, **how).status() == status


@VIRTUAL_TIME
async def test_unfinished_request_times_out():
    visit = Visit(*GOOD)
    visit.chunks = [b"{", b""]

    async def stuck() -> Any:
        if visit.chunks:
            return {"type": "http.request", "body": visit.chunks.pop(), "more_body": True}
        await anyio.sleep_forever()
        raise AssertionError

    visit.receive = stuck  # type: ignore[method-assign]
    start = anyio.current_time()
    assert await visit.status() == 408
    assert anyio.current_time() - start == pytest.approx(BODY_TIMEOUT)


@VIRTUAL_TIME
async def test_wrong_tokens_are_throttled():
    gate = Visit().gate()
    start = anyio.current_time()
    for number in range(FREE_ATTEMPTS + 5):
        assert await Visit(HOST, ("authorization", f"Bearer {number}")).status(gate) == 401
    assert anyio.current_time() - start == pytest.approx(5 * WRONG_TOKEN_DELAY)


# -- tokens ----------------------------------------------------------------------------------------


def test_token_is_created_once_and_readable_by_its_user_only(tmp_path):
    state = tmp_path / "state"
    first, again, other = load_client_token(state), load_client_token(state), load_client_token(state, "editor")
    assert first == again
    assert first.file == state / "token"
    assert other.file == state / "tokens" / "editor"
    assert first.client != other.client
    assert [path.stat().st_mode & 0o777 for path in (first.file, other.file)] == [0o600, 0o600]
    assert first.digest == digest_token(first.file.read_text().strip())
    assert first.file.read_text().strip() not in repr(first)


def spoiled(file, how):
    if how == "others can read it":
        file.chmod(0o644)
    elif how == "a link":
        target = file.with_name("elsewhere")
        file.rename(target)
        file.symlink_to(target)
    elif how == "empty":
        file.write_text("")
    elif how == "long":
        file.write_text("x" * 5000)
    else:
        file.write_bytes(b"\xff" * 40)


@pytest.mark.parametrize("how", ["others can read it", "a link", "empty", "long", "no text"])
def test_untrusted_token_file_stops_the_start(tmp_path, how):
    spoiled(load_client_token(tmp_path).file, how)
    with pytest.raises(ServerStartError, match="token"):
        load_client_token(tmp_path)
