"""The `fetch_content` tool: a page or file from the web as text, from addresses that are checked first.

Names are resolved once. The connection goes to the address that was checked, so that a name server cannot answer
differently for the check and for the connection.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
from msgspec import Meta, Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import append_notices
from retinue.model.sandbox import is_allowed, parse_host_patterns
from retinue.output.truncate import format_size, truncate_to_limits
from retinue.output.untrusted_text import to_one_line, wrap_untrusted

if TYPE_CHECKING:
    import httpx2

FETCH_TIMEOUT = 30.0
"""Seconds of one call, redirects included."""
MAX_FETCH_BYTES = 5 * 2**20
MAX_REDIRECTS = 5
MAX_ADDRESSES = 3
"""Addresses of one name that are tried."""
MAX_URL_CHARS = 4096
USER_AGENT = "retinue-fetch"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
TEXT_TYPES = frozenset({
    "application/json", "application/ld+json", "application/xml", "application/javascript",
    "application/x-javascript", "application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson",
    "application/x-sh", "application/sql",
})  # fmt: skip
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
RESERVED_NETWORKS = (
    ipaddress.ip_network("192.0.0.0/24"),
    ipaddress.ip_network("192.88.99.0/24"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("3fff::/20"),
    ipaddress.ip_network("5f00::/16"),
    ipaddress.ip_network("::/96"),
)
"""Networks that are not public, though some releases of Python count them as such: some clouds answer there."""
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_REFUSED_CODECS = frozenset({"idna", "punycode"})
"""Codecs for names; on long texts they take minutes."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


async def resolve_name(host: str, port: int) -> list[str]:
    """Return the addresses of a name, the preferred one first.

    Raises:
        OSError, UnicodeError: it has none.
    """
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(each[4][0]) for each in found)]


class FetchContext(Struct, frozen=True, kw_only=True):
    """The network as the agents of one run may use it."""

    allow_private: bool = False
    """Whether addresses that are not public may be fetched."""
    hosts: tuple[str, ...] | None = None
    """Patterns of the hosts that may be fetched; None: all."""
    resolve: Callable[[str, int], Awaitable[list[str]]] = resolve_name
    transport: httpx2.AsyncBaseTransport | None = None
    """Sends requests; None: over the network, with the certificate authorities of the environment."""


class FetchedPage(Struct, frozen=True, kw_only=True):
    """A response that is no redirect."""

    url: str
    media_type: str
    charset: str | None
    data: bytes
    is_complete: bool


async def fetch_content(
    context: FetchContext,
    url: Annotated[str, Meta(description="Address of the page, http:// or https://")],
    offset: Annotated[int, Meta(description="Line of the text to start from (1-indexed)")] = 1,
) -> str:
    """Fetch a web page or text file and return its text. HTML is reduced to its text and links.

    At most 5 MB are read. Output is cut at 2000 lines or 50KB, whichever comes first: go on with offset.
    """
    with anyio.move_on_after(FETCH_TIMEOUT):
        page = await _follow_redirects(context, url)
        return await anyio.to_thread.run_sync(_render_page, page, max(offset, 1), abandon_on_cancel=True)
    raise ToolError(f"{_show(url)} was not fetched: it took more than {FETCH_TIMEOUT:g} seconds.")


async def _follow_redirects(context: FetchContext, url: str) -> FetchedPage:
    import httpx2

    current = _parse_url(url)
    # No proxy: it would resolve the name again. No connection is kept: its certificate belongs to one name.
    client = httpx2.AsyncClient(
        transport=context.transport,
        verify=httpx2.create_ssl_context() if current.scheme == "https" else True,
        trust_env=False,
        timeout=FETCH_TIMEOUT,
        limits=httpx2.Limits(max_keepalive_connections=0),
    )
    async with client:
        for _ in range(MAX_REDIRECTS + 1):
            found = await _request(client, current, await _resolve(context, current))
            if isinstance(found, FetchedPage):
                return found
            current = _parse_url(found)
    raise ToolError(f"{_show(url)} was not fetched: it redirects more than {MAX_REDIRECTS} times.")


def _parse_url(url: str) -> httpx2.URL:
    import httpx2

    try:
        parsed = httpx2.URL(url.strip()) if len(url) <= MAX_URL_CHARS else None
    except (httpx2.InvalidURL, ValueError):
        parsed = None
    if parsed and parsed.scheme not in ("", "http", "https"):
        raise ToolError(f"{_show(url)} was not fetched: only http:// and https:// can be fetched.")
    if parsed is None or not parsed.scheme or not parsed.host:
        raise ToolError(f"{_show(url)} is not a usable URL. Give an absolute one: https://example.org/page.")
    if parsed.userinfo:
        raise ToolError("URLs with a user name or password are not fetched.")
    return parsed


async def _resolve(context: FetchContext, url: httpx2.URL) -> list[str]:
    """Return the addresses of a URL's host, all of them checked.

    Raises:
        ToolError: the name is unknown, or one of its addresses must not be fetched.
    """
    host = url.raw_host.decode("ascii").strip("[]")
    port = url.port or (443 if url.scheme == "https" else 80)
    if context.hosts is not None and not is_allowed(host, port, parse_host_patterns(context.hosts)):
        raise ToolError(
            f"{_show(host)} was not fetched: the sandbox of this run does not allow it. Only the user can allow "
            "hosts, with the setting sandbox_hosts."
        )
    try:
        addresses = await context.resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"{_show(host)} was not found: {error}.") from error
    for address in addresses:
        if not context.allow_private and not is_public(address):
            raise ToolError(
                f"{_show(host)} was not fetched: its address {address} is not public. Only the user can allow such "
                "addresses, with the setting fetch_private_addresses."
            )
    return addresses[:MAX_ADDRESSES]


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public Internet, and so does the IPv4 address inside it."""
    try:
        parsed: IpAddress = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped or parsed.is_site_local:
            return False
        embedded = [parsed.sixtofour, *(parsed.teredo or ())]
        if parsed in NAT64:
            embedded.append(ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF))
        if not all(_is_public_range(each) for each in embedded if each):
            return False
    return _is_public_range(parsed)


def _is_public_range(address: IpAddress) -> bool:
    if any(address in network for network in RESERVED_NETWORKS):
        return False
    return address.is_global and not (address.is_multicast or (address.is_reserved and address not in NAT64))


async def _request(client: httpx2.AsyncClient, url: httpx2.URL, addresses: list[str]) -> FetchedPage | str:
    """Return the page at a URL, or the URL that it redirects to; the addresses are tried in turn."""
    import httpx2

    problem = "it has no address"
    for address in addresses:
        try:
            return await _request_address(client, url, address)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            problem = str(error) or type(error).__name__
        except httpx2.HTTPError as error:
            reason = str(error).rstrip(".") or type(error).__name__
            raise ToolError(f"{_show(url)} was not fetched: {reason}.") from error
    raise ToolError(f"{_show(url)} cannot be reached: {problem}.")


async def _request_address(client: httpx2.AsyncClient, url: httpx2.URL, address: str) -> FetchedPage | str:
    headers = {
        "host": url.netloc.decode("ascii"),
        "user-agent": USER_AGENT,
        "accept": "text/html, text/plain, application/json;q=0.9, text/*;q=0.8, */*;q=0.1",
        # A compressed response of any size fits into a few bytes.
        "accept-encoding": "identity",
    }
    pinned = url.copy_with(host=address)
    names = {"sni_hostname": url.raw_host.decode("ascii")}
    async with client.stream("GET", pinned, headers=headers, extensions=names) as response:
        location = response.headers.get("location")
        if response.status_code in REDIRECTS and location:
            return _join_url(url, location)
        if not response.is_success:
            raise ToolError(f"{_show(url)} was not fetched: HTTP {_describe_status(response.status_code)}.")
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise ToolError(
                f"{_show(url)} was not fetched: the server sent it compressed ({_show(encoding)}), which was not "
                "requested."
            )
        media_type, charset = _check_media_type(url, response.headers.get("content-type", ""))
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > MAX_FETCH_BYTES:
                break
    return FetchedPage(
        url=str(url),
        media_type=media_type,
        charset=charset,
        data=bytes(data[:MAX_FETCH_BYTES]),
        is_complete=len(data) <= MAX_FETCH_BYTES,
    )


def _join_url(url: httpx2.URL, location: str) -> str:
    import httpx2

    try:
        return str(url.join(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolError(f"{_show(url)} redirects to an invalid URL: {_show(location)}.") from error


def _describe_status(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}" if status in {*HTTPStatus} else str(status)


def _check_media_type(url: httpx2.URL, content_type: str) -> tuple[str, str | None]:
    """Return the media type and charset of a response that contains text.

    Raises:
        ToolError: it is of another kind.
    """
    name, *parameters = (part.strip() for part in content_type.lower().split(";"))
    name = name or "text/plain"
    charset = next(
        (part.removeprefix("charset=").strip("\"' ") for part in parameters if part[:8] == "charset="), None
    )
    if name.startswith("text/") or name in HTML_TYPES | TEXT_TYPES or name.endswith(("+json", "+xml")):
        return name, charset
    raise ToolError(f"{_show(url)} was not fetched: its content type is {_show(name)}, which is not text.")


def _render_page(page: FetchedPage, offset: int) -> str:
    if b"\0" in page.data[:8192] and not (page.charset or "").startswith("utf-16"):
        raise ToolError(f"{_show(page.url)} is binary data, not text.")
    notices = [] if page.is_complete else [f"Only the first {format_size(MAX_FETCH_BYTES)} were read"]
    text, title = _decode(page), ""
    if page.media_type in HTML_TYPES:
        from retinue.engines.tools.html_text import extract_text

        extracted = extract_text(text, page.url)
        text, title = extracted.text, extracted.title
        if not extracted.is_complete:
            notices.append("The page is too large or too complex: the text of its end is missing")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if offset > len(lines):
        raise ToolError(f"Offset {offset} is beyond the end of the text ({len(lines)} lines).")
    part = truncate_to_limits("\n".join(lines[offset - 1 :]))
    last = offset - 1 + part.shown_lines
    if part.truncated_by:
        notices.append(f"Showing lines {offset}-{last} of {len(lines)}. Use offset={last + 1} to continue")
    head = f"{_show(page.url)}\n{to_one_line(title, 200)}".rstrip()
    return append_notices(f"{head}\n\n{wrap_untrusted(part.text, page.url)}", notices)


def _decode(page: FetchedPage) -> str:
    charset = page.charset
    if charset is None and page.media_type in HTML_TYPES and (found := _META_CHARSET.search(page.data[:2048])):
        charset = found[1].decode("ascii")
    try:
        name = codecs.lookup(charset or "utf-8").name
        return page.data.decode("utf-8" if name in _REFUSED_CODECS else name, "replace").removeprefix("\ufeff")
    except (LookupError, ValueError):
        return page.data.decode("utf-8", "replace")


def _show(text: object) -> str:
    return to_one_line(str(text), 200)
