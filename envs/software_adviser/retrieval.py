"""The search of a catalogue: the facts that a query asks for, and BM25 of its words.

A tool gets the share of the wishes that it meets, each kind of fact with its weight. Words weigh less: they decide
among tools that meet the same wishes, and find what is in no vocabulary.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np

from ...tools.search.snapshot.schema import TOKENIZER
from ...tools.search.snapshot.words import quote, read_query
from .catalogue import SoftwareTool
from .wishes import get_synonyms, has_fact, read_table, read_wishes

DIGITS: Final = 5  # of a score that count: the last ones differ between machines
# How much a column of the index counts, and how much a kind of fact if a query has a wish of it. SPEC: task 40, format
# 30, features (what is left) 30.
COLUMNS: Final = {"name": 3.0, "tasks": 2.0, "modalities": 2.0, "dimensions": 1.0, "formats": 1.0, "features": 1.0}
WEIGHTS: Final = {"tasks": 4.0, "formats": 3.0, "modalities": 3.0, "dimensions": 1.0, "interfaces": 0.5, "gpu": 0.5,
                  "demo": 0.5, "license": 0.5}  # fmt: skip
WORDS: Final = 0.25  # weight of BM25, as a share of the highest, beside the share of met wishes
_FIND: Final = f"SELECT rowid, -bm25(tools, {', '.join(map(str, COLUMNS.values()))}) FROM tools WHERE tools MATCH ?"


class Retriever:
    """Searches a catalogue. The same query has the same hits, in every thread and process. The index is made by
    `prepare` or the first search; a forked or unpickled copy makes its own."""

    def __init__(self, tools: Sequence[SoftwareTool]) -> None:
        self.tools = tuple(tools)
        self.by_name = {tool.name: tool for tool in self.tools}
        self._places = {tool.name.casefold(): place for place, tool in enumerate(self.tools)}
        self._index: sqlite3.Connection | None = None
        self._lock, self._process = Lock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Retriever, (self.tools,)

    def prepare(self) -> None:
        with self._hold_index():
            _ = self._has

    def search(
        self, words: str, *, top_k: int, exclude: Collection[str] = (), formats: Sequence[str] = ()
    ) -> list[str]:
        """Return the names of the best tools, the best first; those to exclude may be in any case."""
        left_out = [self._places[name] for name in map(str.casefold, exclude) if name in self._places]
        scores = self._score_words(words)
        scores[left_out] = 0
        if not scores.any():
            return []
        scores = scores * (WORDS / scores.max()) + self._score_wishes(words, formats)
        scores[left_out] = 0
        scores = np.round(scores, DIGITS)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [self.tools[place].name for place in best if scores[place] > 0]

    def _score_words(self, words: str) -> np.ndarray:
        """Return BM25 of all tools, (N,) float64; 0 for tools without any of the words."""
        scores = np.zeros(len(self.tools))
        phrases = [quote(phrase) for group in read_query(words, get_synonyms()) for phrase in group.phrases]
        if phrases:
            with self._hold_index() as index:
                found = index.execute(_FIND, (" OR ".join(phrases),)).fetchall()
            for place, score in found:
                scores[place] = score
        return scores

    def _score_wishes(self, words: str, formats: Sequence[str]) -> np.ndarray:
        """Return the weighted share of the wishes that each tool meets, (N,)."""
        wishes = read_wishes(words, formats)
        total, met = 0.0, np.zeros(len(self.tools))
        for kind in dict.fromkeys(kind for kind, _ in wishes):
            same = [self._meet(kind, facts) for other, facts in wishes if other == kind]
            met += WEIGHTS[kind] * np.mean(same, axis=0)
            total += WEIGHTS[kind]
        return met / (total or 1.0)

    def _meet(self, kind: str, words: Sequence[str]) -> np.ndarray:
        known = [self._has[kind, word] for word in words if (kind, word) in self._has]
        return np.any(known, axis=0) if known else np.zeros(len(self.tools), bool)

    @cached_property
    def _has(self) -> dict[tuple[str, str], np.ndarray]:
        """For each fact that can be asked for, which tools have it."""
        return {fact: np.array([has_fact(tool, *fact) for tool in self.tools], bool) for fact, _ in read_table()}

    @contextmanager
    def _hold_index(self) -> Iterator[sqlite3.Connection]:
        """Lend the index to one thread at a time."""
        if self._process != os.getpid():  # a child must not wait for a lock that a thread of its parent held
            self._index, self._lock, self._process = None, Lock(), os.getpid()
        with self._lock:
            if self._index is None:
                self._index = _build_index(self.tools)
            yield self._index


def _build_index(tools: Sequence[SoftwareTool]) -> sqlite3.Connection:
    """Return an FTS5 index in memory, a row a tool and a column for each of `COLUMNS`."""
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute(f"CREATE VIRTUAL TABLE tools USING fts5({', '.join(COLUMNS)}, content='', tokenize='{TOKENIZER}')")
    marks = ", ".join("?" * (1 + len(COLUMNS)))
    rows = ((place, *_write_columns(tool)) for place, tool in enumerate(tools))
    index.executemany(f"INSERT INTO tools(rowid, {', '.join(COLUMNS)}) VALUES ({marks})", rows)
    return index


def _write_columns(tool: SoftwareTool) -> tuple[str, ...]:
    lists = (tool.tasks, tool.modalities, tool.dimensions, tool.formats)
    return tool.name, *map(", ".join, lists), f"{tool.features} {', '.join(tool.interfaces)}"
