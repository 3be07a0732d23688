"""`fetch_url`: one GET of one URL, with every step judged before it is taken."""

import asyncio
import ssl
from collections.abc import Collection
from dataclasses import dataclass

import httpcore

from ...utils.secrets import mask_message
from ...utils.terminal import make_line
from ..data_policy import check_sending
from ..hosts import show_url
from ..http import find_compression, parse_retry_after
from .content import PICTURES, ContentError, find_type
from .errors import FetchError
from .network import CONNECT_TIMEOUT, Network
from .targets import Target, check_allowed_hosts, judge_redirect, judge_url

MAX_BYTES = 10 * 2**20  # of a content
TIMEOUT = 30.0  # seconds for everything: name, connections, redirects and the last byte
MAX_REDIRECTS = 3
MAX_REASON = 200  # characters of the words of a failure
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = [
    (b"User-Agent", b"viewbox"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),  # nothing is decompressed, so nothing grows
    (b"Connection", b"close"),
]
_FAILURES = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, ssl.SSLError, OSError)


@dataclass(frozen=True)
class Fetched:
    """What was fetched.

    url: that had it, after redirects.
    content: its bytes, of `content_type`.
    content_type: by the bytes, not by what the server says: one of the types that were asked for.
    """

    url: str
    content: bytes
    content_type: str


async def fetch_url(
    url: str,
    *,
    allowed_hosts: Collection[str],
    types: Collection[str] = PICTURES,
    max_bytes: int = MAX_BYTES,
    timeout: float = TIMEOUT,
    max_redirects: int = MAX_REDIRECTS,
    _network: Network | None = None,
) -> Fetched:
    """Get what a URL names: over https, from an allowed host, at a public address.

    No cookies, no referrer and no key are sent, beyond what the URL's own query holds; proxies, certificates and
    passwords that the environment names are not used. Nothing is sent again after a failure.

    Args:
        url: as a stranger may have written it.
        allowed_hosts: full names. Nothing else is reached, by redirects neither.
        types: media types of `PICTURES` and `TEXTS` that are taken.
        max_bytes: of the content.
        timeout: seconds for everything.
        max_redirects: that are followed; each is one more request.
        _network: of tests.

    Raises:
        FetchError: it may not be fetched, or could not be, or is not of these types.
        ConfigError: `allowed_hosts` cannot be used, or data that must stay on this machine would be sent.

    >>> import asyncio
    >>> asyncio.run(fetch_url("https://169.254.169.254/latest/meta-data", allowed_hosts=["example.org"]))
    Traceback (most recent call last):
    viewbox.network.fetching.errors.FetchError: 'https://169.254.169.254/latest/meta-data' is not fetched: its host is \
an IP address (169.254.169.254) and not a name; allowed: https://example.org
    """
    hosts = check_allowed_hosts(allowed_hosts)
    target = judge_url(url, hosts)
    fetch = _Fetch(hosts, frozenset(types), max_bytes, max_redirects, _network or Network())
    try:
        async with asyncio.timeout(timeout):
            return await fetch.follow(target)
    except TimeoutError:
        raise FetchError(f"{show_url(url)}: nothing whole came within {timeout:g} s", temporary=True) from None


class _Fetch:
    """One fetch with its redirects."""

    def __init__(
        self, hosts: frozenset[str], types: frozenset[str], max_bytes: int, max_redirects: int, network: Network
    ) -> None:
        self.hosts, self.types, self.max_bytes, self.network = hosts, types, max_bytes, network
        self.max_redirects = max_redirects
        self.addresses: dict[str, Collection[str]] = {}  # of the names so far; each is resolved once

    async def follow(self, target: Target) -> Fetched:
        start = target
        for _ in range(self.max_redirects + 1):
            found = await self.send(target)
            if isinstance(found, bytes):
                return Fetched(target.url, found, await asyncio.to_thread(self.check_type, target, found))
            target = found
        allowed = "; allowed: no redirect" if not self.max_redirects else f" more than {self.max_redirects} times"
        raise FetchError(f"{show_url(start.url)} redirects{allowed}")

    async def send(self, target: Target) -> bytes | Target:
        """The content, or where a redirect leads."""
        check_sending(f"https://{target.host}/")
        if target.host not in self.addresses:
            self.addresses[target.host] = await self.network.find_addresses(target.host)
        request = httpcore.Request(
            "GET",
            httpcore.URL(scheme=b"https", host=target.host.encode(), port=None, target=target.resource.encode()),
            headers=[(b"Host", target.host.encode()), *_HEADERS],
            extensions={"timeout": {"connect": CONNECT_TIMEOUT}},
        )
        try:
            async with self.network.connect(target.host, list(self.addresses[target.host])) as pool:
                response = await pool.handle_async_request(request)
                try:
                    return await self.read(target, response)
                finally:
                    await response.aclose()
        except _FAILURES as error:
            reason = make_line(mask_message(str(error)[: 10 * MAX_REASON]), MAX_REASON) or type(error).__name__
            raise FetchError(f"{show_url(target.url)} cannot be fetched: {reason}", temporary=True) from None

    async def read(self, target: Target, response: httpcore.Response) -> bytes | Target:
        headers = [(name.lower(), value.strip()) for name, value in response.headers]
        if response.status in _REDIRECTS:
            return judge_redirect(target, [value for name, value in headers if name == b"location"], self.hosts)
        shown = show_url(target.url)
        if response.status != 200:
            after = [value.decode("latin-1") for name, value in headers if name == b"retry-after"]
            raise FetchError(
                f"{shown}: HTTP {response.status}",
                status=response.status,
                retry_after=parse_retry_after(after[0]) if after else None,
                temporary=response.status in (408, 429) or response.status >= 500,
            )
        for name, value in headers:
            compression = find_compression(value.decode("latin-1")) if name == b"content-encoding" else None
            if compression:
                raise FetchError(f"{shown}: the content is compressed ({compression}); allowed: identity")
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self.max_bytes:
                raise FetchError(f"{shown}: the content is larger than {self.max_bytes} bytes")
        content = bytearray()
        async for chunk in response.aiter_stream():
            content += chunk
            if len(content) > self.max_bytes:
                raise FetchError(f"{shown}: the content is larger than {self.max_bytes} bytes")
        return bytes(content)

    def check_type(self, target: Target, content: bytes) -> str:
        """The type of the content; raises `FetchError` if it was not asked for."""
        allowed = ", ".join(sorted(self.types))
        try:
            found = find_type(content)
        except ContentError as error:
            raise FetchError(f"{show_url(target.url)}: {error}; allowed: {allowed}") from None
        if found not in self.types:
            raise FetchError(f"{show_url(target.url)}: it is {found}; allowed: {allowed}")
        return found
