"""`kind: classification`: the probability of each label for a picture.

    specialists:
      classify: {kind: classification, model: some/name-or-folder, top_k: 5}

Labels exclude each other (softmax), unless the config of the model says `problem_type: multi_label_classification`
(sigmoid). A model with several heads lists the labels of each in `heads`, here or in its config.json; softmax is then
taken in each head.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ....errors import ConfigError, ToolFault, describe_unknown
from ...arguments import Picture
from ...calling import ToolOutput
from ...tool import Tool
from ..serving import ModelRequest, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, Known, ModelSpecialist, SpecialistRunner, Unfamiliar

DIGITS = 4  # of a probability


class ClassificationRunner(SpecialistRunner):
    """Returns the probabilities of a picture by head and label; a model without heads has one, named ""."""

    auto_classes = ("AutoModelForImageClassification",)

    def __init__(self, spec: ModelSpecialist, heads: Hashable = ()) -> None:
        super().__init__(spec)
        self.labels = [self.config.id2label[number] for number in range(len(self.config.id2label))]
        self.sigmoid = self.config.problem_type == "multi_label_classification"
        named = heads or tuple((getattr(self.config, "heads", None) or {}).items())
        self.heads = _find_labels(named, self.labels) if named else {"": list(range(len(self.labels)))}

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        import torch

        inputs = self.processor(images=self.open_pictures(requests), return_tensors="pt")
        logits = self.model(**self.to_device(inputs)).logits.float().cpu()
        if tuple(logits.shape) != (len(requests), len(self.labels)):
            raise ToolFault(f"gave scores of shape {tuple(logits.shape)} for {len(requests)} pictures")
        results: list[Any] = []
        for row in logits:
            by_head: dict[str, dict[str, float]] = {}
            for head, numbers in self.heads.items():
                scores = row[numbers]
                shares = torch.sigmoid(scores) if self.sigmoid else torch.softmax(scores, 0)
                by_head[head] = {self.labels[number]: float(p) for number, p in zip(numbers, shares, strict=True)}
            finite = all(math.isfinite(p) for shares in by_head.values() for p in shares.values())
            results.append(by_head if finite else ToolFault(NOT_FINITE))
        return results

    def abstain(self, known: Known) -> Unfamiliar:
        heads = self.heads.items()
        return Unfamiliar({head: {self.labels[at]: known.rates[at] for at in places} for head, places in heads})


def _find_labels(heads: Any, labels: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the labels of each head. Raise `ConfigError` for a label that the model does not have."""
    groups: dict[str, list[int]] = {}
    for head, names in heads:
        for name in names:
            if name not in labels:
                raise ConfigError(f"heads.{head}: {describe_unknown('label', name, labels)}", key="heads")
        groups[str(head)] = [labels.index(name) for name in names]
    return groups


@dataclass(frozen=True)
class Classify(ServedTool):
    top_k: int | None = None

    async def __call__(self, image: Picture) -> ToolOutput:
        """Return the probability of each label for a picture, from a classifier."""
        heads: Mapping[str, Mapping[str, float]] = await self.ask(image)
        text = "probabilities"
        if isinstance(heads, Unfamiliar):
            text, heads = f"{heads.words}; how often each is found among those", heads.shares
        shown = {head: _sort(shares)[: self.top_k] for head, shares in heads.items()}
        facts = {head: {label: round(p, DIGITS) for label, p in best} for head, best in shown.items()}
        left_out = sum(len(shares) for shares in heads.values()) - sum(map(len, shown.values()))
        text += f" (the highest; {left_out} labels left out)" if left_out else ""
        return ToolOutput(text, facts[""] if list(facts) == [""] else facts)


def _sort(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: (-round(item[1], DIGITS), item[0]))


@register_specialist("classification")
class ClassificationSpecialist(ModelSpecialist):
    """Labels of a picture with their probabilities: any model of `AutoModelForImageClassification`."""

    top_k: int | None = Field(default=20, ge=1, description="labels shown of each head, the most probable; null: all")
    heads: Annotated[
        Mapping[str, tuple[str, ...]],
        Field(
            description="labels by head: each is a choice of its own; default: `heads` of the model's config, or one"
        ),
    ] = {}

    runner = ClassificationRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        server = self.get_server(heads=tuple((head, tuple(labels)) for head, labels in self.heads.items()))
        return [Tool.from_function(Classify(name, server, self.top_k), name, self.description, self.max_calls)]
