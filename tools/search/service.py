"""Requests to one public service: in its rate, again after a temporary failure, and never anywhere else."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

from ...errors import ToolFault
from ...network.connection import Connection
from ...network.errors import AddressError, RequestError
from ...network.public import Limiter, PublicTransport, check_public_url

MAX_ATTEMPTS = 6
FIRST_PAUSE = 0.5  # seconds before the second attempt
TIMEOUT = 30.0  # seconds of an attempt
RETRY_TIMEOUT = 50.0  # seconds after the first failure within which there is another attempt
MAX_BYTES = 10 * 2**20  # of an answer

T = TypeVar("T")


class Service:
    """One host. It belongs to one event loop."""

    def __init__(self, host: str, title: str, rate: int, advice: str = "") -> None:
        self.host, self.title, self.advice = host, title, advice
        self.limiter = Limiter(rate)
        self._connection = Connection(
            f"https://{host}",
            attempts=MAX_ATTEMPTS,
            first_pause=FIRST_PAUSE,
            max_body=MAX_BYTES,
            is_known=True,
            attempt_timeout=TIMEOUT,
            retry_timeout=RETRY_TIMEOUT,
            limiter=self.limiter,
            transport=PublicTransport(host),
        )

    async def ask(self, path: str, parameters: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of the answer to a query; its `UnusableReplyError` is a temporary failure."""
        return await self.load(f"https://{self.host}{path}?{urlencode(parameters)}", read)

    async def load(self, url: str, read: Callable[[bytes], T]) -> T:
        """Return the same for a URL of this service as a stranger may have written it."""
        try:
            return await self._connection.request("GET", check_public_url(url, self.host), read)
        except (RequestError, AddressError) as error:
            advice = f" ({self.advice})" if error.status in (400, 401, 403) and self.advice else ""
            raise ToolFault(f"{self.title} gave no answer: {error}{advice}") from None
