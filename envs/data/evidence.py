"""The setting `evidence` of a family: the answer cites articles that a search of its episode returned."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ...errors import ConfigError
from ...records import Task
from ...rewards import CombinedReward, Component, EvidenceReward
from ...utils.frozen import FrozenDict
from .env import DataEnv
from .fields import TaskField, build_object
from .selection import DataTasks

SHARE = 0.3  # of the reward
EVIDENCE = TaskField("reference", "answers", required=False, description="PMIDs that support it, with evidence: true")
CITED = FrozenDict(
    type="array", items={"type": ["string", "integer"]}, maxItems=20, description="PMIDs of articles that support it"
)


class CitingEnv(DataEnv):
    """A family of tasks whose answers may cite articles: it adds the field, the request and the score of `evidence`."""

    evidence: Annotated[
        bool, Field(description="the answer cites articles that a search found, and is scored on them (literature.md)")
    ] = False

    @cached_property
    def tasks(self) -> DataTasks:
        self._check_search()
        return super().tasks

    def prepare(self) -> None:
        self._check_search()
        super().prepare()

    def _check_search(self) -> None:
        """Raise `ConfigError` if nothing finds articles; scoring, which has no specialists, never asks."""
        if self.evidence and not any(specialist.kind == "literature" for specialist in self.specialists.values()):
            problem = "evidence: no tool finds articles; allowed: with a specialist of kind: literature"
            raise ConfigError(f"{self.name}: {problem}", key="evidence")

    def _check_fields(self) -> None:
        if not self.evidence and "evidence" in self.data.columns:
            key, allowed = "data.columns.evidence", "allowed: with evidence: true in vqa and report"
            raise ConfigError(f"{key}: {self.name} cites nothing; {allowed}", key=key)
        super()._check_fields()

    def _build_answer(self, properties: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the schema of an answer of these properties, and the citations."""
        return build_object({**properties, **({"evidence": CITED} if self.evidence else {})})

    def _ask_for_evidence(self) -> str:
        ask = 'Search the literature, and cite in "evidence" the PMIDs of articles that support your answer, as found.'
        return f" {ask}" if self.evidence else ""

    def _add_citations(self, parts: Mapping[str, tuple[Any, float]], *about: str, **needs: float) -> CombinedReward:
        """Return a reward of parts whose weights add up to 1, of which the citations take their share."""
        if not self.evidence:
            return CombinedReward(parts)
        cited = Component(EvidenceReward(about=about), SHARE, needs=needs)
        shared = {name: (reward, weight * (1 - SHARE)) for name, (reward, weight) in parts.items()}
        return CombinedReward({**shared, "evidence": cited})

    def _cite(self, task: Task) -> dict[str, object]:
        return {"evidence": list(task.reference.get("evidence", ()))} if self.evidence else {}
