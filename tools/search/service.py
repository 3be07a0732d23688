"""Requests to one public service: in its rate, again after a temporary failure, and never anywhere else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

import httpx

from ...errors import ToolFault
from ...network.connection import Connection
from ...network.errors import AddressError, RequestError
from ...network.limiter import Limiter
from ...network.public import PublicTransport, check_public_url

MAX_ATTEMPTS = 6
TIMEOUT = 30.0  # seconds of an attempt
MAX_BYTES = 10 * 2**20  # of an answer

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What tests change.

    Args:
        transport: what connects to a host.
        rate: requests a second; None: what the service allows.
        first_pause: seconds before the second attempt.
        retry_timeout: seconds after the first failure within which there is another attempt.
    """

    transport: Callable[[str], httpx.AsyncBaseTransport] = PublicTransport
    rate: int | None = None
    first_pause: float = 0.5
    retry_timeout: float = 50.0


UNCHANGED = Setup()


class Service:
    """One host. It belongs to one event loop.

    Args:
        host: its full name.
        title: its name for people and models.
        rate: requests a second.
        advice: why it may refuse a request, for messages about statuses 400 to 403.
        setup: of tests.
    """

    def __init__(self, host: str, title: str, rate: int, advice: str = "", setup: Setup = UNCHANGED) -> None:
        self.host, self.title, self.advice = host, title, advice
        self.limiter = Limiter(setup.rate or rate)
        self._connection = Connection(
            f"https://{host}",
            attempts=MAX_ATTEMPTS,
            first_pause=setup.first_pause,
            max_body=MAX_BYTES,
            is_known=True,
            attempt_timeout=TIMEOUT,
            retry_timeout=setup.retry_timeout,
            limiter=self.limiter,
            transport=setup.transport(host),
        )

    async def ask(self, path: str, parameters: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of the answer to a query.

        Args:
            path: of the URL.
            parameters: of its query.
            read: reads an answer; `UnusableReplyError` is a temporary failure.

        Raises:
            ToolFault: there is no answer.
            ConfigError: data that must stay on this machine would be sent.
        """
        return await self.load(f"https://{self.host}{path}?{urlencode(parameters)}", read)

    async def load(self, url: str, read: Callable[[bytes], T]) -> T:
        """Return the same for a URL of this service as a stranger may have written it."""
        try:
            return await self._connection.request("GET", check_public_url(url, self.host), read)
        except (RequestError, AddressError) as error:
            advice = f" ({self.advice})" if error.status in (400, 401, 403) and self.advice else ""
            raise ToolFault(f"{self.title} gave no answer: {error}{advice}") from None
