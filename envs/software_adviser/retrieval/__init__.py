"""Search in a catalogue of software: BM25 and vectors, fused and reranked.

`bm25.py` and `lsa.py` score every entry, `fusion.py` takes the best of both, and `fact_reranker.py` orders them by the
facts that a query names. Embedding models and cross-encoders (`viewbox.specialists`) take the place of the second and
the last if a config names one. `retriever.py` is the whole.
"""

from viewbox.envs.software_adviser.retrieval.retriever import Hit, Retriever
from viewbox.envs.software_adviser.retrieval.settings import RetrievalSettings

__all__ = ["Hit", "RetrievalSettings", "Retriever"]
