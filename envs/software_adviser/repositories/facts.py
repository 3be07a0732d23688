"""What is known of a repository, and a snapshot of it: a JSONL file, a repository a line.

    {"repository": "owner/name", "recorded": "2026-11-23", "license": "MIT", "languages": ["Python", "C++"],
     "last_commit": "2026-10-01", "needs": ["torch"], "python": ">=3.10"}

Only facts are kept, no sentences of others. A line that cannot be read costs itself: it is left out with a warning.
"""

import datetime
import logging
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ....errors import ConfigError
from ....tools.search.wording import make_line
from ....utils.files import read_regular
from .addresses import AddressError, read_repository

log = logging.getLogger("viewbox.envs")

SHIPPED: Final = "repositories.jsonl"
MAX_FILE: Final = 2**26  # bytes
MAX_SHOWN: Final = 8  # names of a list that a summary holds


def _read_name(value: object) -> object:
    try:
        return read_repository(f"https://github.com/{value}")
    except AddressError:
        raise ValueError("allowed: owner/name of a repository on GitHub") from None


Word = Annotated[str, Field(max_length=80)]
Words = Annotated[tuple[Word, ...], Field(max_length=64)]


class RepositoryFacts(BaseModel):
    """Facts of a repository on the day on which they were recorded; what is not known is empty.

    >>> facts = RepositoryFacts(repository="Owner/Name", recorded="2026-11-23", license="MIT", languages=["C++"])
    >>> facts.repository, facts.summarize()
    ('owner/name', 'license MIT; written in C++')
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: Annotated[str, BeforeValidator(_read_name)]
    recorded: datetime.date
    license: Word = ""
    languages: Words = ()
    last_commit: datetime.date | None = None
    python: Word = ""
    needs: Words = ()
    topics: Words = ()
    stars: Annotated[int, Field(ge=0, le=10**9)] | None = None
    archived: bool = False

    def summarize(self) -> str:
        """The facts in a line; empty if there are none."""
        parts = [
            "archived: no longer maintained" if self.archived else "",
            f"license {self.license}" if self.license else "",
            f"written in {_list(self.languages)}" if self.languages else "",
            f"last commit {self.last_commit:%Y-%m-%d}" if self.last_commit else "",
            f"Python {self.python}" if self.python else "",
            f"needs {_list(self.needs)}" if self.needs else "",
            f"topics {_list(self.topics)}" if self.topics else "",
            f"{self.stars:,} stars" if self.stars is not None else "",
        ]
        return make_line("; ".join(filter(None, parts)), 600)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_SHOWN])


def read_facts(path: str | Path | None = None) -> dict[str, RepositoryFacts]:
    """The facts of a snapshot by repository; of several lines about one, the last counts.

    Args:
        path: of the file; default: the one that is shipped.

    Raises:
        ConfigError: the file cannot be read.
    """
    name = str(path or SHIPPED)
    try:
        if path is None:
            content = (files("viewbox.envs.software_adviser") / SHIPPED).read_bytes()
        else:
            content = read_regular(path, limit=MAX_FILE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"repositories {name}: {reason}", key="repositories.snapshot", given=name) from None
    found: dict[str, RepositoryFacts] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            facts = RepositoryFacts.model_validate_json(line)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"])) or "it"
            log.warning("%s: line %d is left out: %s: %s", name, number, make_line(place, 80), problem["msg"])
            continue
        found[facts.repository] = facts
    return found
