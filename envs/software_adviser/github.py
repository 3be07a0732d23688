"""What GitHub says of repositories now: `live: true`.

Its REST API is asked for `/repos/OWNER/NAME` (https://docs.github.com/rest/repos/repos#get-a-repository), and then for
`/repos/OWNER/NAME/releases/latest`, which is 404 without a release. An old name is redirected to the number of the
repository. A limit that is used up is a 403 or 429, and nothing is to be sent until it is reset
(https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
"""

import os
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, TypeVar

import httpx
import msgspec

from ...errors import ToolError, ToolFault, ViewboxError
from ...network.http import LONG_PAUSE, check_api_key, parse_retry_after
from ...tools.search.eutils import Service, read_object
from ...tools.search.live import LiveAnswers
from ...tools.search.wording import make_line
from .repositories import API_HOST, MAX_SHOWN, RepositoryFacts

TOKEN: Final = "GITHUB_TOKEN"  # environment variable
RATE: Final = 10  # requests a second
MAX_MOVES: Final = 3  # redirects, one after the other
GONE: Final = "GitHub shows no public repository of this name"
NO_LICENSE_ID: Final = "NOASSERTION"  # SPDX: there is a license, which is none of the known ones

T = TypeVar("T")


class _License(msgspec.Struct):
    spdx_id: str | None = None


class _About(msgspec.Struct):
    """An answer about a repository: the fields that are read."""

    full_name: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}\Z")]
    private: bool = False
    archived: bool = False
    description: str | None = None
    license: _License | None = None
    language: str | None = None
    stargazers_count: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None
    topics: tuple[str, ...] = ()
    pushed_at: datetime | None = None


class _Release(msgspec.Struct):
    tag_name: str
    published_at: datetime

    def write(self) -> str:
        return f"{make_line(self.tag_name, 60)} of {self.published_at:%Y-%m-%d}"


class _GoneError(ToolError):
    """There is nothing at an address."""


class _MovedError(ViewboxError):
    """It is at another address, which is the message."""


class GitHub(Service):
    """Asks about public repositories, with the user's token if there is one: it allows more requests."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__(API_HOST, "GitHub", RATE, f"is the token in {TOKEN} valid?" if token else "", api_key=token)
        self._more = "" if token else f"; a token in {TOKEN} allows more"
        self._resets = datetime.now(UTC)  # until then nothing is sent

    def read_refusal(self, response: httpx.Response) -> None:
        """Raise what GitHub means: nothing there, moved, or a limit that is used up. Its own words name the user."""
        status, headers = response.status_code, response.headers
        if response.has_redirect_location:
            raise _MovedError(headers["location"])
        if status in (404, 410, 451):
            raise _GoneError(GONE)
        is_limit = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
        if status == 429 or (status == 403 and is_limit):
            seconds = parse_retry_after(headers.get("retry-after", headers.get("x-ratelimit-reset")))
            self._resets = datetime.now(UTC) + timedelta(seconds=1.0 + min(seconds or 60.0, LONG_PAUSE))
            self._check_limit()

    def _check_limit(self) -> None:
        if datetime.now(UTC) < self._resets:
            until = f"{self._resets:%Y-%m-%d %H:%M:%S} UTC"
            raise ToolFault(f"GitHub's limit of requests is used up until {until}{self._more}")

    async def look_up(self, name: str) -> RepositoryFacts:
        """Return what GitHub says of "owner/name". Raise `ToolError` if there is none that everybody may see,
        `ToolFault` if GitHub cannot say it."""
        about = await self._get(f"/repos/{name}", _About)
        if about.private:  # the token shows it
            raise _GoneError(GONE)
        try:
            release = (await self._get(f"/repos/{about.full_name}/releases/latest", _Release)).write()
        except _GoneError:
            release = "none"
        except ToolFault:
            release = ""
        license = (about.license and about.license.spdx_id) or ""
        return RepositoryFacts(
            name,
            datetime.now(UTC).date(),
            moved_to="" if about.full_name.lower() == name else about.full_name,
            archived=about.archived,
            license="other, see the repository" if license == NO_LICENSE_ID else make_line(license, 60),
            stars=about.stargazers_count,
            topics=tuple(make_line(topic, 50) for topic in about.topics[:MAX_SHOWN]),
            languages=(make_line(about.language, 40),) if about.language else (),
            last_push=about.pushed_at and about.pushed_at.date(),
            last_release=release,
            description=make_line(about.description or "", 200),
        )

    async def _get(self, path: str, kind: type[T]) -> T:
        url = f"https://{API_HOST}{path}"
        for _ in range(1 + MAX_MOVES):
            self._check_limit()
            try:
                return await self.load(url, lambda content: _read(content, kind))
            except _MovedError as moved:
                url = str(moved)  # `load` goes to this host only
        raise ToolFault("GitHub gave no answer: its redirects do not end")


def _read(content: bytes, kind: type[T]) -> T:
    value = read_object(content, "GitHub")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ToolFault(f"GitHub gave an answer of another form ({error})") from None


class GitHubAnswers(LiveAnswers[GitHub]):
    """What GitHub says of repositories, each asked about once. `GITHUB_TOKEN` may hold a token, which goes to GitHub's
    API alone and is masked in everything written. Raise `ConfigError` if it does not hold what it should."""

    def __init__(self) -> None:
        super().__init__()
        self._token = check_api_key(os.environ.get(TOKEN), TOKEN)

    def connect(self) -> GitHub:
        return GitHub(self._token)

    async def look_up(self, name: str) -> RepositoryFacts:
        return await self.answer(API_HOST, name, lambda github: github.look_up(name), RepositoryFacts)


@lru_cache(maxsize=1)
def open_github() -> GitHubAnswers:
    """Return the answers that all environments of a process share."""
    return GitHubAnswers()
