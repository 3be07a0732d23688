"""Embedding models for a search: any sentence-transformers checkpoint whose modules are a transformer and a pooling.

    retrieval: {embedding: {model: sentence-transformers/all-MiniLM-L6-v2, device: cpu}}

transformers alone loads them. Which vectors of the tokens are pooled, and how, stands in the checkpoint's
`modules.json` and `1_Pooling/config.json`; without these it is their mean.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ....errors import ConfigError, ToolFault
from ....tools.specialists.calls import TextRequest
from ....tools.specialists.models.model import NOT_FINITE, ModelRunner, ModelSettings, find_model
from ....tools.specialists.serving import ModelServer
from ....utils.files import read_regular
from .text_batches import ask_texts, encode_texts
from .text_models import register_text_model
from .vectors import normalize

Pooling = Literal["auto", "mean", "cls"]
MODULES = ("Transformer", "Pooling", "Normalize")  # of sentence-transformers, which are read
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class EmbeddingRunner(ModelRunner):
    """Returns a vector for each text, (D,) float32, not normalized."""

    auto_classes = ("AutoModel",)
    processor_class = "AutoTokenizer"
    unused = ("pooler.",)

    def __init__(self, spec: "EmbeddingModel", pooling: Pooling = "auto") -> None:
        super().__init__(spec)
        if self.config.is_encoder_decoder:
            raise ConfigError(
                f"model = {spec.model!r}: {self.config.model_type} has a decoder; allowed: an encoder", key="model"
            )
        self.pooling = read_pooling(spec) if pooling == "auto" else pooling

    def infer(self, requests: Sequence[TextRequest]) -> Sequence[Any]:  # type: ignore[override]
        results: list[Any] = [None] * len(requests)
        for places, inputs in encode_texts(self, [request.texts for request in requests]):
            hidden = self.model(**inputs).last_hidden_state.float()
            if self.pooling == "cls":
                vectors = hidden[:, 0]
            else:
                mask = inputs["attention_mask"][..., None].to(hidden.dtype)
                vectors = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
            for place, vector in zip(places, vectors.cpu().numpy(), strict=True):
                results[place] = vector if np.isfinite(vector).all() else ToolFault(NOT_FINITE)
        return results


def read_pooling(spec: ModelSettings) -> str:
    """How a sentence-transformers checkpoint pools the vectors of its tokens; "mean" if it does not say.

    Raises:
        ConfigError: it pools in another way, or has modules beside a transformer and a pooling.
    """
    modules = _read_json(spec, "modules.json")
    names = [str(one.get("type", "")).rpartition(".")[2] for one in modules or () if isinstance(one, dict)]
    for name in names:
        if name not in MODULES:
            raise ConfigError(
                f"model = {spec.model!r}: its modules.json has a module {name[:40]!r}; allowed: {', '.join(MODULES)}",
                key="model",
                given=spec.model,
            )
    pooling = _read_json(spec, "1_Pooling/config.json") or {}
    modes = [name for name, on in pooling.items() if name.startswith("pooling_mode") and on is True]
    if isinstance(pooling.get("pooling_mode"), str):  # newer checkpoints name it
        modes = [f"pooling_mode_{pooling['pooling_mode']}_token{'s' * (pooling['pooling_mode'] == 'mean')}"]
    if not modes:
        return "mean"
    if len(modes) > 1 or modes[0] not in _POOLINGS:
        raise ConfigError(
            f"model = {spec.model!r}: its pooling is {', '.join(modes)[:100]}; allowed: {', '.join(_POOLINGS)}",
            key="model",
            given=spec.model,
        )
    return _POOLINGS[modes[0]]


def _read_json(spec: ModelSettings, name: str) -> Any:
    """A JSON file of a checkpoint; None if it has none."""
    from transformers.utils import cached_file

    folder = Path(find_model(spec.model))
    try:
        if folder.is_dir():
            path = folder / name if (folder / name).exists() else None
        else:
            path = cached_file(
                str(folder),
                name,
                revision=spec.revision,
                local_files_only=spec.local_files_only,
                _raise_exceptions_for_missing_entries=False,
            )
        return None if path is None else json.loads(read_regular(path, limit=2**20))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"model = {spec.model!r}: {name} cannot be read: {error}", key="model") from error


@register_text_model("embedding")
class EmbeddingModel(ModelSettings):
    """An embedding model by name."""

    pooling: Annotated[Pooling, Field(description="of the tokens' vectors; auto: as the checkpoint says")] = "auto"
    query_prefix: Annotated[str, Field(description='before each query, as some models need ("query: ")')] = ""
    text_prefix: Annotated[str, Field(description='before each text of the catalogue ("passage: ")')] = ""

    runner = EmbeddingRunner

    def build(self) -> "ModelEncoder":
        """Load the model. Raises `ConfigError`."""
        server = self.get_server(pooling=self.pooling)
        server.prepare()
        return ModelEncoder(server, self.query_prefix, self.text_prefix)


class ModelEncoder:
    """Asks a served model; equal texts are computed once as long as their vectors are kept."""

    def __init__(self, server: ModelServer, query_prefix: str, text_prefix: str) -> None:
        self.server, self.query_prefix, self.text_prefix = server, query_prefix, text_prefix

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._ask([self.text_prefix + text for text in texts])

    def encode_query(self, words: str) -> np.ndarray:
        vector: np.ndarray = self._ask([self.query_prefix + words])[0]
        return vector

    def rest(self) -> None:
        self.server.rest()

    def _ask(self, texts: Sequence[str]) -> np.ndarray:
        return normalize(np.stack(ask_texts(self.server, [(text,) for text in texts])))
