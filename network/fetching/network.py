"""Resolves a name once, judges every address it has, and connects to these and to nothing else.

A name server may give a public address when it is asked first and an inside one a moment later. So the judged addresses
are handed to the connection, which never asks again; the server's name in TLS and in the header `Host` stays the URL's.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import httpcore
import httpx

from viewbox.network.fetching.addresses import find_problem
from viewbox.network.fetching.errors import FetchError
from viewbox.network.fetching.targets import PORT
from viewbox.network.secrets import mask_text

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
