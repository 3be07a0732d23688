"""The setting `evidence` of a family: the answer cites articles that a search of its episode returned."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from ...errors import ConfigError
from ...records import Task
from ...rewards import Component, EvidenceReward
from ...utils.frozen import FrozenDict
from .env import DataEnv
from .fields import TaskField, build_object

SHARE = 0.3  # of the reward
EVIDENCE = TaskField("reference", "answers", required=False, description="PMIDs that support it, with evidence: true")
_CITED = FrozenDict(
    type="array", items={"type": ["string", "integer"]}, maxItems=20, description="PMIDs of articles that support it"
)


class CitingEnv(DataEnv):
    """A family of tasks whose answers may cite articles: it adds the field, the request and the score of `evidence`."""

    evidence: Annotated[
        bool, Field(description="the answer cites articles that a search found, and is scored on them (literature.md)")
    ] = False

    def _check_fields(self) -> None:
        key = "data.columns.evidence"
        if not self.evidence and "evidence" in self.data.columns:
            raise ConfigError(
                f"{key}: {self.name} cites nothing; allowed: with evidence: true in vqa and report", key=key
            )
        super()._check_fields()

    def _build_answer(self, properties: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the schema of an answer of these properties, and the citations."""
        if self.evidence and not any(one.kind == "literature" for one in self.specialists.values()):
            problem = "evidence: no tool finds articles; allowed: with a specialist of kind: literature"
            raise ConfigError(f"{self.name}: {problem}", key="evidence")
        return build_object({**properties, **({"evidence": _CITED} if self.evidence else {})})

    def _ask_for_evidence(self) -> str:
        asked = (
            'Search the literature, and cite in "evidence" the PMIDs of articles that support your answer, as found.'
        )
        return f" {asked}" if self.evidence else ""

    def _score_evidence(self, *about: str, **needs: float) -> Iterator[tuple[str, Component]]:
        if self.evidence:
            yield "evidence", Component(EvidenceReward(about=about), SHARE, needs=needs)

    def _cite(self, task: Task) -> dict[str, object]:
        return {"evidence": list(task.reference.get("evidence", ()))} if self.evidence else {}
