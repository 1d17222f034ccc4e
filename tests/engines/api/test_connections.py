"""Proxies and certificates of a run's environment, on loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.engines.api.conftest import environment, open_provider
from tests.support.model_server import ScriptedTurn

from retinue.engines.api.connections import ConnectionRoute, find_route
from retinue.engines.base import EngineError
from retinue.model.events import MessageEnded, Text

HOST = "models.example"
"""A host that only the proxy knows."""
ANSWER = ScriptedTurn(text="Hello.")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the certificate of a host, its own authority, and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "host.pem"
    plain, pkcs8, pem = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, pkcs8, plain))
    return path


class InspectingProxy:
    """A proxy as companies run it: it ends TLS itself and sends what is in the tunnel to another server."""

    def __init__(self, target: str, certificate: Path) -> None:
        self._target = int(target.rpartition(":")[2])
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate)
        self.url = ""
        self.tunnels: list[str] = []

    async def serve_tunnel(self, client: SocketStream) -> None:
        async with client:
            head = await client.receive()
            self.tunnels.append(head.split(b" ")[1].decode())
            await client.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            try:
                tunnel = await TLSStream.wrap(client, server_side=True, ssl_context=self._context)
            except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
                return  # the client does not trust the certificate
            async with (
                await anyio.connect_tcp("127.0.0.1", self._target) as server,
                anyio.create_task_group() as group,
            ):
                group.start_soon(_copy, tunnel, server, group.cancel_scope)
                await _copy(server, tunnel, group.cancel_scope)


async def _copy(source: ByteStream, target: ByteStream, scope: anyio.CancelScope) -> None:
    try:
        while True:
            await target.send(await source.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
        scope.cancel()


@asynccontextmanager
async def open_proxy(target: str, certificate: Path) -> AsyncIterator[InspectingProxy]:
    proxy = InspectingProxy(target, certificate)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        proxy.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        group.start_soon(listener.serve, proxy.serve_tunnel)
        yield proxy
        group.cancel_scope.cancel()


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
async def test_proxy_and_certificates_come_from_the_environment_of_the_run(variable, certificate, tmp_path):
    async with open_provider([ANSWER], tmp_path) as provider, open_proxy(provider.server.url, certificate) as proxy:
        variables = {
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": f"https://{HOST}/v1",
            variable: proxy.url,
            "SSL_CERT_FILE": str(certificate),
        }
        events = await provider.run("openai/scripted-1", environment=variables)
    assert Text("Hello.") in events
    assert proxy.tunnels == [f"{HOST}:443"]


async def test_unknown_certificate_fails_at_once_and_names_the_setting(certificate, tmp_path):
    async with open_provider([ANSWER], tmp_path) as provider, open_proxy(provider.server.url, certificate) as proxy:
        variables = {
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": f"https://{HOST}/v1",
            "HTTPS_PROXY": proxy.url,
        }
        events = await provider.run("openai/scripted-1", environment=variables)
    (end,) = events
    assert isinstance(end, MessageEnded)
    assert "CERTIFICATE_VERIFY_FAILED" in (end.error or "")
    assert "SSL_CERT_FILE" in (end.error or "")


async def test_excluded_host_is_reached_without_the_proxy(tmp_path):
    async with open_provider([ANSWER], tmp_path) as provider:
        variables = {**environment(provider.server.url), "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        events = await provider.run("openai/scripted-1", environment=variables)
    assert Text("Hello.") in events


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"HTTPS_PROXY": "ftp://user:secret@h"}, "The proxy in HTTPS_PROXY cannot be used: expected a URL."),
        ({"ALL_PROXY": "socks5://h:1"}, "The proxy in ALL_PROXY cannot be used: SOCKS needs `pip install"),
        ({"SSL_CERT_FILE": "/no/such.pem"}, "The certificates in SSL_CERT_FILE='/no/such.pem' cannot be loaded: No"),
    ],
    ids=["scheme", "socks", "certificates"],
)
async def test_unusable_settings_fail_the_run_with_their_variable(changes, message, tmp_path):
    async with open_provider(None, tmp_path) as provider:
        with pytest.raises(EngineError) as failed:
            await provider.run("openai/x", environment={"OPENAI_API_KEY": "sk-test", **changes})
    assert failed.value.failure.message.startswith(message)
    assert "secret" not in failed.value.failure.message


PROXIES = {"HTTP_PROXY": "http://plain:1", "HTTPS_PROXY": "secure:2"}
SECURE = ConnectionRoute(uses_tls=True, proxy_variable="HTTPS_PROXY", proxy="http://secure:2")
DIRECT = ConnectionRoute(uses_tls=True)


@pytest.mark.parametrize(
    ("url", "environ", "route"),
    [
        ("https://a.example/v1", {}, DIRECT),
        ("http://a.example", {"SSL_CERT_FILE": "/ca"}, ConnectionRoute(uses_tls=False)),
        ("http://a.example", PROXIES, ConnectionRoute(False, "HTTP_PROXY", "http://plain:1")),
        ("https://a.example/v1", PROXIES, SECURE),
        ("https://a.example", {**PROXIES, "NO_PROXY": "b.example, .other"}, SECURE),
        ("https://xa.example", {**PROXIES, "NO_PROXY": "a.example"}, SECURE),
        ("https://a.example", {**PROXIES, "NO_PROXY": "*"}, DIRECT),
        ("https://x.a.example", {**PROXIES, "no_proxy": "A.example"}, DIRECT),
        ("https://x.a.example", {**PROXIES, "no_proxy": "*.a.example"}, DIRECT),
        ("https://a.example:8443", {**PROXIES, "NO_PROXY": "a.example:8443"}, DIRECT),
        ("https://a.example:8443", {**PROXIES, "NO_PROXY": "a.example:443"}, SECURE),
        ("https://10.1.2.3", {**PROXIES, "NO_PROXY": "10.0.0.0/8"}, DIRECT),
        ("https://[::1]:5", {**PROXIES, "NO_PROXY": "::1"}, DIRECT),
        (
            "https://a.example",
            {"REQUESTS_CA_BUNDLE": "/ca", "SSL_CERT_DIR": "/certs"},
            ConnectionRoute(True, ca_variable="REQUESTS_CA_BUNDLE", ca_file="/ca", ca_folder="/certs"),
        ),
    ],
)
def test_route_follows_the_usual_variables(url, environ, route):
    assert find_route(url, environ) == route
