"""Requests to public services of the internet, whose answers name further addresses there: PubMed and Open-i.

Only https, the usual port and the one host that the caller names are reached, at public addresses. Certificates say
that it is this host. `Connection` sends the requests through a `PublicTransport`, and bounds their size and time; a
`Limiter` keeps them to the rate that a service asks for.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import httpx

from .errors import RequestError
from .hosts import UrlError, show_url, split_url

PORT = 443
MAX_TRIED = 4  # addresses of a name that are connected to, one after the other
CONNECT_TIMEOUT = 8.0  # seconds for each


def check_public_url(url: str, host: str) -> str:
    """Return the URL, if it leads to this host over https; a stranger may have written it. Raise `RequestError`.

    >>> check_public_url("https://Example.org:443/a?b=c", "example.org")
    'https://example.org/a?b=c'
    """
    try:
        parts = split_url(url)
        problem = None if parts.scheme == "https" else f"its scheme is {parts.scheme[:20]}"
        if parts.port not in (None, PORT):
            problem = f"its port is {parts.port}"
        if parts.host != host:
            problem = "its host is not an allowed one"
    except UrlError as error:
        problem = str(error)
    if problem is not None:
        raise RequestError(f"{show_url(url)} is not fetched: {problem}; allowed: https://{host}")
    return f"https://{host}{parts.path or '/'}{parts.query}"


class PublicTransport(httpx.AsyncHTTPTransport):
    """Sends to one host over https. Its name is looked up once, and only addresses that were judged are connected to.
    Proxies and certificates of the environment are not used, and no connection is kept."""

    def __init__(self, host: str, verify: ssl.SSLContext | bool = True) -> None:
        self.host = host
        super().__init__(verify=verify, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the first of the name's addresses that answers; raise `RequestError` for another host."""
        name = request.url.host
        check_public_url(f"{request.url.scheme}://{request.url.netloc.decode('ascii')}/", self.host)
        failure: httpx.TransportError = httpx.ConnectError(f"{name} has no address")
        for address in await self._find_addresses(name):
            try:
                return await super().handle_async_request(self._direct(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure

    async def resolve(self, name: str) -> Sequence[str]:
        """Return the addresses of a name, as this machine knows them; raise `OSError` if it has none."""
        entries = await asyncio.get_running_loop().getaddrinfo(name, PORT, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in entries]

    def locate(self, address: str) -> tuple[str, int]:
        """Return where an address and its port are."""
        return address, PORT

    async def _find_addresses(self, name: str) -> Sequence[str]:
        """Return the first addresses of a name; raise `RequestError` if any of them is not public."""
        try:
            addresses = list(dict.fromkeys(await self.resolve(name)))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise httpx.ConnectError(f"{name} has no address ({reason})") from None
        for address in addresses:
            if not is_public(address):
                raise RequestError(f"{name} leads to {address[:60]!r}; allowed: names with public addresses only")
        return addresses[:MAX_TRIED]

    def _direct(self, request: httpx.Request, address: str) -> httpx.Request:
        """Return the request as it goes to an address; TLS and the header `Host` have the name."""
        host, port = self.locate(address)
        timeout = {**request.extensions.get("timeout", {}), "connect": CONNECT_TIMEOUT}
        return httpx.Request(
            request.method,
            request.url.copy_with(host=host, port=port),
            headers={**request.headers, "user-agent": "viewbox"},  # in lower case, as httpx has its own
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host, "timeout": timeout},
        )


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the internet, and of one machine there.

    >>> [is_public(one) for one in ("130.14.29.110", "10.1.2.3", "::1", "224.0.0.1", "fe80::1%eth0", "localhost")]
    [True, False, False, False, False, False]
    """
    try:
        read = ip_address(address)
    except ValueError:
        return False
    return read.is_global and not read.is_multicast


MAX_PAUSE = 300.0  # seconds for which a server can stop all requests
MARGIN = 1.05  # of a second: clocks are rounded


class Limiter:
    """The turns of the requests to one server, on one event loop. Requests leave a little more than their share of a
    second apart, and hold a place until a second after their answer, so never more than `rate` arrive within a
    second."""

    def __init__(self, rate: int) -> None:
        self.interval = MARGIN / rate
        self._free = 0.0  # when the next request may leave, by `time.monotonic`
        self._places = asyncio.Semaphore(rate)

    @asynccontextmanager
    async def turn(self, patience: float) -> AsyncIterator[None]:
        """Wait until a request may leave; inside the block it is sent and answered. Raise `RequestError` if the server
        asked for a pause longer than `patience` seconds."""
        await self._places.acquire()
        try:
            while (wait := self._free - time.monotonic()) > 0:
                if wait > patience:
                    raise RequestError(f"it asked for a pause, which lasts for another {wait:.0f} s")
                await asyncio.sleep(wait)
            self._free = time.monotonic() + self.interval
            yield
        finally:
            asyncio.get_running_loop().call_later(MARGIN, self._places.release)

    def pause(self, seconds: float) -> None:
        """Let nothing leave for some time: the server asked for it."""
        self._free = max(self._free, time.monotonic() + min(seconds, MAX_PAUSE))
