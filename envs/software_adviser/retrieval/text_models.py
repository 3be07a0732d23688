"""Models that read text, by name: what `viewbox.tools.specialists.models` registers and what is asked of them.

No torch here. `plugins.py` names the module of each kind; it is imported when a config names a model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from .... import plugins
from ....configs.validation import describe_errors
from ....errors import ConfigError
from .vectors import Encoder

M = TypeVar("M", bound="type[BaseModel]")

TEXT_MODELS: dict[str, Any] = {}  # classes of settings by kind, each with a method `build`


class PairScorer(Protocol):
    """Says how well texts fit a query."""

    def score(self, words: str, texts: Sequence[str]) -> np.ndarray:
        """The score of each text, (len(texts),), higher is better. Raises `ToolError` if it cannot."""
        ...

    def rest(self) -> None:
        """Give back what the next query can take again."""
        ...


def register_text_model(kind: str) -> Callable[[M], M]:
    """A decorator: makes a pydantic model with a method `build` the settings of a kind of model."""

    def register(cls: M) -> M:
        TEXT_MODELS[kind] = cls
        return cls

    return register


def build_encoder(spec: str | Mapping[str, Any]) -> Encoder:
    """The embedding model of the setting `retrieval.embedding`, loaded. Raises `ConfigError`."""
    encoder: Encoder = _build("embedding", "embedding", spec)
    return encoder


def build_pair_scorer(spec: str | Mapping[str, Any]) -> PairScorer:
    """The cross-encoder of the setting `retrieval.reranker`, loaded. Raises `ConfigError`."""
    scorer: PairScorer = _build("cross_encoder", "reranker", spec)
    return scorer


def _build(kind: str, setting: str, spec: str | Mapping[str, Any]) -> Any:
    path = f"retrieval.{setting}"
    given = {"model": spec} if isinstance(spec, str) else dict(spec)
    if kind not in TEXT_MODELS:
        plugins.import_plugin("text_models", kind)
    cls = TEXT_MODELS[kind]
    try:
        settings = cls.model_validate(given)
    except ValidationError as error:
        problem = describe_errors(error, cls, given)[0]
        joint = "." if problem.key else " "
        raise ConfigError(f"{path}{joint}{problem}", key=f"{path}.{problem.key}".rstrip("."), given=spec) from error
    try:
        return settings.build()
    except ConfigError as error:
        key = f"{path}.{error.key}" if error.key else path
        raise ConfigError(f"{path}.{error}", key=key, given=error.given, allowed=error.allowed) from error
