"""The settings of `repo_info_batch`: keys of `repositories` in YAML.

repositories: {snapshot: my_repositories.jsonl}   # the module `record` beside this makes one
repositories: {live: true}
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..software import SoftwareTool
from .addresses import AddressError, read_repository
from .facts import read_facts
from .sources import (
    API_HOST,
    CatalogueSource,
    LiveSource,
    RecordedSource,
    SummarySource,
)


class RepositorySettings(BaseModel):
    """Where facts of repositories come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snapshot: Annotated[
        str | None, Field(min_length=1, description="a recorded snapshot (JSONL); default: the one that is shipped")
    ] = None
    live: Annotated[bool, Field(description="ask GitHub's public API first, which allows 60 requests an hour")] = False
    live_in_training: Annotated[
        bool, Field(description="a policy may be trained with live facts, which change from day to day")
    ] = False

    @property
    def address(self) -> str | None:
        """Where questions go; None if they stay on this machine."""
        return f"https://{API_HOST}" if self.live else None

    @property
    def why_not_in_training(self) -> str | None:
        """Why no policy may be trained with these settings, and what is allowed instead; None if it may."""
        if not self.live or self.live_in_training:
            return None
        return (
            "live facts of repositories change from day to day and ask a public service for every episode; allowed in "
            "training: repositories.live: false, or repositories.live_in_training: true"
        )

    def build_sources(self, tools: Iterable[SoftwareTool]) -> tuple[SummarySource, ...]:
        """The sources in the order in which they are asked: GitHub if `live`, the snapshot, the catalogue's sentences.

        Raises:
            ConfigError: the snapshot cannot be read.
        """
        sentences = {}
        for tool in tools:
            try:
                sentences[read_repository(tool.repository)] = tool.features
            except AddressError:
                continue
        known = (RecordedSource(read_facts(self.snapshot)), CatalogueSource(sentences))
        return (LiveSource(), *known) if self.live else known
