"""Orders candidates by the facts that a query names: task, modality, dimension, format and wishes for its use."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from viewbox.envs.software_adviser.retrieval.wishes import Wish, get_wish_reader, has_fact, read_table
from viewbox.envs.software_adviser.software import SoftwareTool

# How much a kind counts if a query has a wish of it. SPEC: task 40, format 30, features (what is left) 30.
WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "tasks": 4.0,
        "formats": 3.0,
        "modalities": 3.0,
        "dimensions": 1.0,
        "interfaces": 0.5,
        "gpu": 0.5,
        "demo": 0.5,
        "license": 0.5,
    }
)
SEARCHED: Final = 0.5  # weight of the place in the fused ranking, between 0 and 1, beside the share of met wishes


class FactReranker:
    """Knows which tools have which facts.

    Args:
        tools: of the catalogue.
    """

    def __init__(self, tools: Sequence[SoftwareTool]) -> None:
        self._has = {fact: np.array([has_fact(tool, *fact) for tool in tools], bool) for fact, _ in read_table()}

    def score(self, words: str, formats: Sequence[str], places: np.ndarray, fused: np.ndarray) -> np.ndarray:
        """The scores of candidates, (C,), higher is better.

        Args:
            words: of the query.
            formats: of the user's files, words of the vocabulary.
            places: of the candidates in the catalogue, (C,).
            fused: their scores of the search, (C,).
        """
        searched = fused / max(float(fused.max(initial=0.0)), 1e-9)
        wishes = get_wish_reader().read(words, formats)
        if not wishes:
            return searched
        total, met = 0.0, np.zeros(len(places))
        for kind in dict.fromkeys(wish.kind for wish in wishes):
            same = [self._meets(wish, places) for wish in wishes if wish.kind == kind]
            met += WEIGHTS[kind] * np.mean(same, axis=0)
            total += WEIGHTS[kind]
        scores: np.ndarray = met / total + SEARCHED * searched
        return scores

    def _meets(self, wish: Wish, places: np.ndarray) -> np.ndarray:
        known = [self._has[wish.kind, word][places] for word in wish.words if (wish.kind, word) in self._has]
        return np.any(known, axis=0) if known else np.zeros(len(places), bool)
