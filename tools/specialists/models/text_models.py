"""Models of a search that read text, through sentence-transformers: embeddings and cross-encoders.

retrieval:
  embedding: {model: sentence-transformers/all-MiniLM-L6-v2, device: cpu}
  reranker: cross-encoder/ms-marco-MiniLM-L-6-v2

The checkpoint says how the vectors of its tokens are pooled. Texts of one length only are computed together: without
padding, a text has the same result whatever stands beside it.
"""

import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, ValidationError

from ....configs.validation import describe_errors
from ....errors import ConfigError, ToolError, ToolFault
from ..serving import ModelServer, Request
from .model import NOT_FINITE, ModelRunner, ModelSettings

MAX_TOKENS = 512  # of a text, or a query and a text; the end of a longer one is cut off
MAX_CHARS = 20_000  # of a text that are tokenized


class TextRunner(ModelRunner):
    """A model of sentence-transformers, with its tokenizer."""

    packages = ("torch", "transformers", "sentence_transformers")
    processor_class = "AutoTokenizer"
    library_class: ClassVar[str]

    def load(self, name: str, dtype: object, options: Mapping[str, object]) -> Sequence[str]:
        import sentence_transformers

        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
        build = getattr(sentence_transformers, self.library_class)
        kwargs = {"dtype": dtype, "use_safetensors": True}
        self.model = build(name, device="cpu", model_kwargs=kwargs, **options)
        limits = [MAX_TOKENS, self.model.max_seq_length, getattr(self.config, "max_position_embeddings", None)]
        if limits[-1] and "roberta" in self.config.model_type:
            limits[-1] -= 2  # its positions count from 2
        self.model.max_seq_length = min(limit for limit in limits if limit)
        return ()

    def get_group(self, request: Request) -> Hashable:
        texts = _cut(request)
        return len(self.processor(*texts, truncation=True, max_length=self.model.max_seq_length).input_ids)


def _cut(request: Request) -> tuple[str, ...]:
    assert isinstance(request.content, tuple)
    return tuple(text[:MAX_CHARS] for text in request.content)


class EmbeddingRunner(TextRunner):
    """Returns a vector of unit length for each text, (D,) float32."""

    library_class = "SentenceTransformer"

    def infer(self, requests: Sequence[Request]) -> Sequence[Any]:
        texts = [_cut(request)[0] for request in requests]
        vectors = self.model.encode(texts, batch_size=len(texts), show_progress_bar=False, normalize_embeddings=True)
        return [vector if np.isfinite(vector).all() else ToolFault(NOT_FINITE) for vector in vectors]


class CrossEncoderRunner(TextRunner):
    """Returns how well a text fits a query, a float for each pair."""

    library_class = "CrossEncoder"

    def load(self, name: str, dtype: object, options: Mapping[str, object]) -> Sequence[str]:
        names = self.config.architectures or ()
        if self.config.num_labels != 1 or not any("ForSequenceClassification" in one for one in names):
            given = f"it is {', '.join(names) or 'of an unknown class'} with {self.config.num_labels} outputs"
            allowed = "a classifier (ForSequenceClassification) with 1 output"
            raise ConfigError(f"model = {self.spec.model!r}: {given}; allowed: {allowed}", key="model")
        return super().load(name, dtype, options)

    def infer(self, requests: Sequence[Request]) -> Sequence[Any]:
        from torch.nn import Identity

        pairs = [_cut(request) for request in requests]
        scores = self.model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, activation_fn=Identity())
        return [float(score) if np.isfinite(score) else ToolFault(NOT_FINITE) for score in scores]


class EmbeddingModel(ModelSettings):
    """An embedding model by name."""

    query_prefix: Annotated[str, Field(description='before each query, as some models need ("query: ")')] = ""
    text_prefix: Annotated[str, Field(description='before each text of the catalogue ("passage: ")')] = ""

    runner = EmbeddingRunner


class CrossEncoderModel(ModelSettings):
    """A cross-encoder by name."""

    runner = CrossEncoderRunner


class ModelEncoder:
    """Asks a served embedding model; equal texts are computed once as long as their vectors are kept."""

    def __init__(self, spec: str | Mapping[str, Any]) -> None:
        settings, self.server = _load(EmbeddingModel, "embedding", spec)
        self.query_prefix, self.text_prefix = settings.query_prefix, settings.text_prefix

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, (len(texts), D) float32. Raise `ToolFault` if the model failed."""
        return np.stack(_ask(self.server, [(self.text_prefix + text,) for text in texts]))

    def encode_query(self, words: str) -> np.ndarray:
        """Return the vector of a query, (D,) float32. Raise `ToolFault` if the model failed."""
        vector: np.ndarray = _ask(self.server, [(self.query_prefix + words,)])[0]
        return vector


class ModelPairScorer:
    """Asks a served cross-encoder how well texts fit a query."""

    def __init__(self, spec: str | Mapping[str, Any]) -> None:
        _, self.server = _load(CrossEncoderModel, "reranker", spec)

    def score(self, words: str, texts: Sequence[str]) -> np.ndarray:
        """Return the score of each text, (len(texts),), higher is better. Raise `ToolFault` if the model failed."""
        return np.array(_ask(self.server, [(words, text) for text in texts]), np.float64)


def _load(cls: type[ModelSettings], setting: str, spec: str | Mapping[str, Any]) -> tuple[Any, ModelServer]:
    """Return the settings of a model, and its server with the model loaded. Raise `ConfigError`."""
    path = f"retrieval.{setting}"
    given = {"model": spec} if isinstance(spec, str) else dict(spec)
    try:
        settings = cls.model_validate(given)
    except ValidationError as error:
        problem = describe_errors(error, cls, given)[0]
        joint = "." if problem.key else " "
        raise ConfigError(f"{path}{joint}{problem}", key=f"{path}.{problem.key}".rstrip(".")) from error
    server = settings.get_server()
    try:
        server.prepare()
    except ConfigError as error:
        key = f"{path}.{error.key}" if error.key else path
        raise ConfigError(f"{path}.{error}", key=key) from error
    return settings, server


def _ask(server: ModelServer, texts: Sequence[tuple[str, ...]]) -> list[Any]:
    """Return one result for each; called in a thread. Raise `ToolFault` if the model failed on one of them."""
    futures = [server.submit(Request(one)) for one in texts]
    try:
        return [future.result() for future in futures]
    except (ToolError, ToolFault) as error:
        raise ToolFault(f"the search failed: its model {error}") from error
