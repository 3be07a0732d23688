"""Cross-encoders that rerank the results of a search: any sequence classifier with one output.

retrieval: {reranker: {model: cross-encoder/ms-marco-MiniLM-L-6-v2}}
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ConfigError, ToolFault
from ....tools.specialists.calls import TextRequest
from ....tools.specialists.models.model import NOT_FINITE, ModelRunner, ModelSettings
from ....tools.specialists.serving import ModelServer
from .text_batches import ask_texts, encode_texts
from .text_models import register_text_model


class CrossEncoderRunner(ModelRunner):
    """Returns how well a text fits a query, a float for each pair."""

    auto_classes = ("AutoModelForSequenceClassification",)
    processor_class = "AutoTokenizer"

    def __init__(self, spec: "CrossEncoderModel") -> None:
        super().__init__(spec)
        if self.config.num_labels != 1:
            raise ConfigError(
                f"model = {spec.model!r}: it has {self.config.num_labels} outputs; allowed: 1", key="model"
            )

    def infer(self, requests: Sequence[TextRequest]) -> Sequence[Any]:  # type: ignore[override]
        results: list[Any] = [None] * len(requests)
        for places, inputs in encode_texts(self, [request.texts for request in requests]):
            for place, score in zip(places, self.model(**inputs).logits[:, 0].float().tolist(), strict=True):
                results[place] = score if math.isfinite(score) else ToolFault(NOT_FINITE)
        return results


@register_text_model("cross_encoder")
class CrossEncoderModel(ModelSettings):
    """A cross-encoder by name."""

    runner = CrossEncoderRunner

    def build(self) -> "ModelPairScorer":
        """Load the model. Raises `ConfigError`."""
        server = self.get_server()
        server.prepare()
        return ModelPairScorer(server)


class ModelPairScorer:
    """Asks a served model."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server

    def score(self, words: str, texts: Sequence[str]) -> np.ndarray:
        return np.array(ask_texts(self.server, [(words, text) for text in texts]), np.float64)

    def rest(self) -> None:
        self.server.rest()
