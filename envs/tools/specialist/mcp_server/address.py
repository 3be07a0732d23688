"""The client of an MCP server at an address: bounded replies, no redirects, no compression, no cookies."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from viewbox.network.client_settings import build_client_settings
from viewbox.network.http import find_compression

if TYPE_CHECKING:  # comes with the package mcp
    import httpx2


def build_http_client(url: str, key: str | None, *, max_message: int, timeout: float) -> "httpx2.AsyncClient":
    """The client that `mcp` sends its messages with.

    Args:
        url: of the server.
        key: sent as a bearer token.
        max_message: limit of a reply, in bytes.
        timeout: seconds to connect, and without a byte.
    """
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self.inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            received = 0
            async for chunk in self.inner:
                received += len(chunk)
                if received > max_message:
                    raise httpx2.StreamError(f"the reply is larger than {max_message} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self.inner.aclose()

    async def bound(response: httpx2.Response) -> None:
        compression = find_compression(response.headers.get("content-encoding"))
        if compression:
            raise httpx2.RemoteProtocolError(f"the reply is compressed ({compression}); allowed: identity")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedStream(response.stream)

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout), event_hooks={"response": [bound]}, **build_client_settings(url, key)
    )
