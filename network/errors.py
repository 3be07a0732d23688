"""How a request may fail: alone (`RequestError`), with every other (`AddressError`), or by a reply of no use."""

from ..errors import ViewboxError


class RequestError(ViewboxError):
    """There is no reply to this request; others may still be answered. `status` is the HTTP status that said so.
    `failed_since` is the time (`time.monotonic`) of the first of several failed attempts at a server that could be
    reached."""

    def __init__(self, message: str, *, status: int | None = None, failed_since: float | None = None) -> None:
        super().__init__(message)
        self.status, self.failed_since = status, failed_since


class AddressError(ViewboxError):
    """The address cannot be used at all. `status` is the HTTP status that said so, if one did."""

    status: int | None = None


class UnusableReplyError(ValueError):
    """A reply that does not say what was asked for; another attempt may help."""


class BrokenReplyError(UnusableReplyError):
    """A reply of which its server says that it failed: it says nothing of the request."""
