"""How fetching fails."""

from ..errors import RequestError


class FetchError(RequestError):
    """Nothing was fetched. The message says from where (without the query, which may hold a key) and why.

    Args:
        message: the sentence a person reads.
        status: of the response, if it was another than 200.
        retry_after: seconds the server asks to wait.
        temporary: whether the same request may be answered later: no connection, too slow, status 429 or 5xx. What is
            refused by a rule never is.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, temporary: bool = False
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after, self.temporary = retry_after, temporary
