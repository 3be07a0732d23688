"""Search in a catalogue of software: BM25 and vectors, fused and reranked.

BM25 and LSA score every entry, a fusion takes the best of both, and they are ordered by the facts that a
query names. Embedding models and cross-encoders take the place of the second and the last if a config names one.
`retriever.py` is the whole.
"""

from .retriever import Hit, RetrievalSettings, Retriever

__all__ = ["Hit", "RetrievalSettings", "Retriever"]
