"""The search of a catalogue: BM25 of a query's words, the facts that it asks for, and a tool's own name, in one sum.

The weights are those with which most right tools were found among the first 12 for requests in users' words. A query
that names no fact and no tool must share most of its words with one tool: else nothing in the catalogue is about it.
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
from ...tools.search.snapshot.words import is_telling, quote, read_query, split_words, stem_all
from .catalogue import SoftwareTool
from .wishes import get_synonyms, rate_fact, read_table, read_wishes

DIGITS: Final = 5  # of a score that count: the last ones differ between machines
COLUMNS: Final = {"name": 3.0, "tasks": 2.0, "modalities": 2.0, "dimensions": 1.0, "formats": 1.0, "structures": 2.0,
                  "features": 1.0}  # fmt: skip
WEIGHTS: Final = {"tasks": 2.0, "formats": 4.0, "modalities": 3.0, "structures": 4.0, "variants": 2.0,
                  "dimensions": 1.0, "interfaces": 0.5, "gpu": 0.5, "demo": 0.5, "license": 0.5}  # fmt: skip
WORDS: Final = 12.0  # weight of BM25, as a share of the highest
NAMED: Final = 10.0  # weight of the own name in the query
TOPICS: Final = ("tasks", "modalities", "structures", "variants", "formats")
COVERED: Final = 0.5  # share of the words of a query without a topic that a tool must hold
GENERAL: Final = frozenset(  # stems of words that every query may have
    ("image", "imag", "imaging", "pictur", "softwar", "tool", "program", "file", "data", "process")
)
_FIND: Final = f"SELECT rowid, -bm25(tools, {', '.join(map(str, COLUMNS.values()))}) FROM tools WHERE tools MATCH ?"


class Retriever:
    """Searches a catalogue. The same query has the same hits, in every thread and process. The index is made by
    `prepare` or the first search; a forked or unpickled copy makes its own."""

    def __init__(self, tools: Sequence[SoftwareTool]) -> None:
        self.tools = tuple(tools)
        self.by_name = {tool.name: tool for tool in self.tools}
        self._places = {tool.name.casefold(): place for place, tool in enumerate(self.tools)}
        self._rated: dict[tuple[str, str, str], np.ndarray] = {}  # by fact and task: how well each tool meets it
        self._index: sqlite3.Connection | None = None
        self._lock, self._process = Lock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Retriever, (self.tools,)

    def prepare(self) -> None:
        with self._hold_index():
            _ = self._stems, self._names

    def search(
        self, words: str, *, top_k: int, exclude: Collection[str] = (), formats: Sequence[str] = ()
    ) -> list[str]:
        """Return the names of the best tools, the best first; those to exclude may be in any case."""
        left_out = [self._places[name] for name in map(str.casefold, exclude) if name in self._places]
        scores = np.round(self._score(words, formats), DIGITS)
        scores[left_out] = 0
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [self.tools[place].name for place in best if scores[place] > 0]

    def _score(self, words: str, formats: Sequence[str]) -> np.ndarray:
        """Return the score of each tool, (N,) float64; all are 0 if nothing is about the words."""
        named = self._find_named(words)
        if not (named.any() or any(kind in TOPICS for kind, _ in read_wishes(words)) or self._is_covered(words)):
            return np.zeros(len(self.tools))
        searched = self._score_words(words)
        scores: np.ndarray = searched * (WORDS / (searched.max(initial=0) or 1.0)) + NAMED * named
        wishes = read_wishes(words, formats)
        tasks = [task for kind, names in wishes if kind == "tasks" for task in names] or [""]
        for kind in dict.fromkeys(kind for kind, _ in wishes):
            same = [self._meet(kind, facts, tasks) for other, facts in wishes if other == kind]
            scores += WEIGHTS[kind] * np.mean(same, axis=0)
        return scores

    def _score_words(self, words: str) -> np.ndarray:
        """Return BM25 of all tools, (N,) float64; 0 for tools without any of the words."""
        scores = np.zeros(len(self.tools))
        phrases = [quote(phrase) for group in read_query(words, get_synonyms()) for phrase in group.phrases]
        if phrases:
            with self._hold_index() as index:
                rows = index.execute(_FIND, (" OR ".join(phrases),)).fetchall()
            for place, score in rows:
                scores[place] = score
        return scores

    def _meet(self, kind: str, words: Sequence[str], tasks: Sequence[str]) -> np.ndarray:
        """Return how well each tool meets any of the words, for any of the tasks, (N,) float64."""
        asked = [(kind, word, task) for word in words for task in (tasks if kind == "structures" else [""])]
        for fact in asked:
            if fact not in self._rated:
                self._rated[fact] = np.array([rate_fact(tool, *fact) for tool in self.tools])
        best: np.ndarray = np.max([self._rated[fact] for fact in asked], axis=0)
        return best

    def list_named(self, words: str) -> list[str]:
        """Return the tools that words name."""
        return [self.tools[place].name for place in np.flatnonzero(self._find_named(words))]

    def _find_named(self, words: str) -> np.ndarray:
        """Return whether a query holds the name of each tool, (N,); a name that is a word needs its capitals."""
        text = f" {' '.join(split_words(words))} "
        return np.array([f" {name} " in (text if cased else text.casefold()) for name, cased in self._names], bool)

    def _is_covered(self, words: str) -> bool:
        """Return whether a tool holds so many of the words that the query is about it."""
        stems = list_telling(words) - GENERAL
        held = max((len(stems & record) for record in self._stems), default=0)
        return bool(stems) and held > COVERED * len(stems)

    @cached_property
    def _stems(self) -> list[frozenset[str]]:
        return [list_telling(" ".join(_write_columns(tool))) for tool in self.tools]

    @cached_property
    def _names(self) -> list[tuple[str, bool]]:
        """The name of each tool as it is looked for, and whether its capitals count."""
        texts = [tool.features for tool in self.tools]
        texts += [phrase for _, phrases in read_table() for phrase in phrases]
        spoken = {word for text in texts for word in split_words(text.casefold())}
        names = [" ".join(split_words(tool.name)) for tool in self.tools]
        return [(name, True) if name.casefold() in spoken else (name.casefold(), False) for name in names]

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
    lists = (tool.tasks, tool.modalities, tool.dimensions, tool.formats, (*tool.structures_for(""), *tool.variants))
    return tool.name, *map(", ".join, lists), f"{tool.features} {', '.join(tool.interfaces)}"


def list_telling(text: str) -> frozenset[str]:
    """Return the stems of the words of a text that tell something."""
    return frozenset(stem_all([word for word in split_words(text) if is_telling(word)]))
