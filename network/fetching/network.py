"""Resolves a name once, judges every address it has, and connects to these and to nothing else.

A name server may give a public address when it is asked first and an inside one a moment later. So the judged addresses
are handed to the connection, which never asks again; the server's name in TLS and in the header `Host` stays the URL's.

The networks that are not public are those of IANA's registries of special-purpose addresses
(https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry)
and of multicast and reserved space (RFC 5771, RFC 1112, RFC 4291). They are listed here, because what the standard
library calls global changed between versions of Python.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore
import httpx

from ...utils.secrets import mask_text
from .errors import FetchError
from .targets import PORT

MAX_TRIED = 4  # addresses of a name that are connected to, one after the other
CONNECT_TIMEOUT = 10.0  # seconds for each
MAX_LISTED = 64  # addresses of a name that are read

Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve_name(host: str) -> Sequence[str]:
    """The addresses of a name, as this machine knows them; raises `OSError` if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, PORT, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class Network:
    """What is beyond this process. Only tests have another than the default; no setting reaches it.

    Args:
        resolve: the addresses of a name.
        stand_ins: ports of servers on 127.0.0.1 that tests put in the place of public addresses. Names, addresses and
            certificates are judged as always; only the last step, the connection, goes elsewhere.
        certificates: which servers are believed; None: those of the usual authorities.
    """

    resolve: Resolve = resolve_name
    stand_ins: Mapping[str, int] = field(default_factory=dict)
    certificates: ssl.SSLContext | None = None

    async def find_addresses(self, host: str) -> Sequence[str]:
        """The addresses of a name.

        Raises:
            FetchError: it has none, or one of them is not public.
        """
        start = f"{host} is not fetched from: its name"
        try:
            addresses = await self.resolve(host)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise FetchError(f"{start} has no address ({reason})", temporary=True) from None
        if not addresses:
            raise FetchError(f"{start} has no address", temporary=True)
        if len(addresses) > MAX_LISTED:
            raise FetchError(f"{start} has {len(addresses)} addresses; allowed: {MAX_LISTED}")
        for address in addresses:
            problem = find_problem(address)
            if problem is not None:
                raise FetchError(
                    f"{start} leads to {address[:60]!r}, which is {problem}; allowed: names with public addresses only"
                )
        return addresses

    def connect(self, host: str, addresses: Sequence[str]) -> httpcore.AsyncConnectionPool:
        """What sends one request to `host`, at one of these addresses and at no other."""
        return httpcore.AsyncConnectionPool(
            ssl_context=self.certificates or load_certificates(),
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=PinnedBackend(host, addresses, self.stand_ins),
        )


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were judged before; to any other host not at all."""

    def __init__(self, host: str, addresses: Sequence[str], stand_ins: Mapping[str, int]) -> None:
        self.host, self.addresses, self.stand_ins = host, addresses[:MAX_TRIED], stand_ins
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the addresses that answers."""
        if (host, port) != (self.host, PORT):
            raise httpcore.ConnectError(f"{host}:{port} is not {self.host}:{PORT}")
        failure: Exception = httpcore.ConnectError("no address")
        for address in self.addresses:
            place = ("127.0.0.1", self.stand_ins[address]) if address in self.stand_ins else (address, PORT)
            try:
                return await self._inner.connect_tcp(*place, timeout=timeout)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """As every backend has it."""
        await asyncio.sleep(seconds)


def _mask_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = mask_text(record.getMessage()), None
    return True


# At level DEBUG httpcore writes the headers of responses, and a redirect repeats a query with its key.
for _name in ("httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_mask_record)


@lru_cache(maxsize=1)
def load_certificates() -> ssl.SSLContext:
    """The usual authorities; no variable of the environment adds another. Loaded once, because that takes 40 ms."""
    return httpx.create_ssl_context(trust_env=False)


_V4 = {
    "0.0.0.0/8": "unspecified",  # RFC 791: this host on this network; Linux connects 0.0.0.0 to itself
    "10.0.0.0/8": "private",  # RFC 1918
    "100.64.0.0/10": "shared by a provider's customers (CGNAT)",  # RFC 6598; also metadata of Alibaba Cloud
    "127.0.0.0/8": "loopback",  # RFC 1122
    "168.63.129.16/32": "internal to a cloud (Azure)",  # a public address that only Azure's own machines reach
    "169.254.0.0/16": "link-local",  # RFC 3927; also metadata of most clouds
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved for protocols",  # RFC 6890; also metadata of Oracle Cloud
    "192.0.2.0/24": "reserved for documentation",  # RFC 5737
    "192.88.99.0/24": "a relay of IPv4 in IPv6 (6to4)",  # RFC 7526
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "reserved for benchmarks",  # RFC 2544
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "224.0.0.0/4": "multicast",  # RFC 5771
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",  # RFC 1112
}
_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "IPv4 in IPv6 (mapped)",  # RFC 4291
    "::ffff:0:0:0/96": "IPv4 in IPv6 (translated)",  # RFC 2765
    "::/96": "IPv4 in IPv6 (compatible)",
    "64:ff9b::/96": "IPv4 in IPv6 (NAT64)",  # RFC 6052
    "64:ff9b:1::/48": "IPv4 in IPv6 (NAT64)",  # RFC 8215
    "100::/64": "discarded",  # RFC 6666
    "2001::/32": "IPv4 in IPv6 (Teredo)",  # RFC 4380
    "2001::/23": "reserved for protocols",  # RFC 2928
    "2001:db8::/32": "reserved for documentation",  # RFC 3849
    "2002::/16": "IPv4 in IPv6 (6to4)",  # RFC 3056
    "3ffe::/16": "reserved (6bone)",  # RFC 3701
    "3fff::/20": "reserved for documentation",  # RFC 9637
    "5f00::/16": "reserved for segment routing",  # RFC 9602
    "fc00::/7": "private",  # RFC 4193
    "fe80::/10": "link-local",
    "fec0::/10": "private (site-local)",  # RFC 3879
    "ff00::/8": "multicast",
}
_NETWORKS_4 = [(IPv4Network(network), reason) for network, reason in _V4.items()]
_NETWORKS_6 = [(IPv6Network(network), reason) for network, reason in _V6.items()]
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # all that IANA has given out
_ISATAP = (0x00005EFE, 0x02005EFE)  # RFC 5214: the third quarter of an address with an IPv4 address after it


def find_problem(address: str) -> str | None:
    """Why an address is not a public one; None if it is.

    Args:
        address: as a name server returns it; of an IPv6 address with a zone nothing is allowed.

    >>> find_problem("130.14.29.110"), find_problem("2607:f220:41e:4290::110")
    (None, None)
    >>> find_problem("10.1.2.3"), find_problem("::ffff:8.8.8.8"), find_problem("fe80::1%eth0")
    ('private', 'IPv4 in IPv6 (mapped)', 'of one link only (it has a zone)')
    """
    if "%" in address:
        return "of one link only (it has a zone)"
    try:
        read = ip_address(address)
    except ValueError:
        return "no IP address"
    if isinstance(read, IPv4Address):
        return next((reason for network, reason in _NETWORKS_4 if read in network), None)
    return _find_problem_6(read)


def _find_problem_6(address: IPv6Address) -> str | None:
    for network, reason in _NETWORKS_6:
        if address in network:
            return reason
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "IPv4 in IPv6 (ISATAP)"
    return None
