"""The settings of a search: keys of `retrieval` in YAML.

retrieval: {embedding: sentence-transformers/all-MiniLM-L6-v2, reranker: {model: my/cross-encoder, device: cuda}}
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

LSA, FACTS, NONE = "lsa", "facts", "none"


class RetrievalSettings(BaseModel):
    """How a catalogue is searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedding: Annotated[
        str | Mapping[str, Any],
        Field(
            description="vectors beside BM25. lsa: fitted on the catalogue; none: BM25 alone; or a "
            "sentence-transformers model by name, or a mapping with `model` and the keys of every model"
        ),
    ] = LSA
    dimensions: Annotated[int, Field(ge=2, le=1024, description="of the vectors of lsa")] = 64
    reranker: Annotated[
        str | Mapping[str, Any],
        Field(
            description="orders the best of both. facts: by the facts that the query names; none: their fused ranks; or"
            " a cross-encoder by name, or a mapping with `model` and the keys of every model"
        ),
    ] = FACTS
    candidates: Annotated[
        int, Field(ge=1, le=1000, description="of BM25 and of the vectors each, which are reranked")
    ] = 100
