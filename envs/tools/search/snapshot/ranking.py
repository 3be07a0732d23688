"""Ranks the records of an index for the groups of a query: BM25, exact unless very many records match.

FTS5's `bm25` takes about a microsecond for each record that matches, and 0.03 for each that holds one of its words.
Therefore at most `MAX_RANKED` matches are ranked. If a query has more, records with one of its rare words come first,
ranked by all its words; then those with all its frequent words, of which the newest are ranked; then those with all but
the most frequent. A snapshot with fewer than `MAX_RANKED` records is always ranked exactly.

Records with equal scores are ordered by id, the newest first.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from viewbox.envs.tools.search.snapshot.schema import TERM_RECORDS
from viewbox.envs.tools.search.snapshot.words import Group, quote, stem_all

MAX_RANKED: Final = 8_000  # records of a query that are ranked
FREQUENT: Final = 100_000  # records: a more frequent group does not count beside rarer ones
DIGITS: Final = 6  # of a score that count; the last ones differ between machines


@dataclass(frozen=True)
class Index:
    """An FTS5 index, the table of its frequent words, the weights of its columns, and how many records it has."""

    name: str
    terms: str
    weights: Mapping[str, float]
    records: int

    def rank(self, connection: sqlite3.Connection, groups: Sequence[Group], condition: str, limit: int) -> list[int]:
        """The ids of the best records, the best first.

        Args:
            connection: to the snapshot.
            groups: of the query; without any, every record that meets the condition matches.
            condition: an FTS5 expression that records must match; may be empty.
            limit: ids at most.
        """
        if not groups:
            return self._find_newest(connection, condition, limit) if condition else []
        if self.records <= MAX_RANKED:
            return [number for number, _ in self._find_best(connection, join_any(groups), condition, limit)]
        counted = [(self._count(connection, group), group) for group in groups]
        if sum(count for count, _ in counted) <= MAX_RANKED:
            return [number for number, _ in self._find_best(connection, join_any(groups), condition, limit)]
        counted = [pair for pair in counted if pair[0] <= FREQUENT] or [min(counted, key=lambda pair: pair[0])]
        counted.sort(key=lambda pair: pair[0])  # stable: equal counts stay in the order of the query
        return self._search_levels(connection, counted, condition, limit)

    def _search_levels(
        self, connection: sqlite3.Connection, counted: Sequence[tuple[int, Group]], condition: str, limit: int
    ) -> list[int]:
        """Search as this module's description says; `counted` holds (records, group), the rarest first."""
        rare, total = 0, 0
        while rare < len(counted) and total + counted[rare][0] <= MAX_RANKED:
            total += counted[rare][0]
            rare += 1
        groups = [group for _, group in counted]
        frequent = groups[rare:]
        best: dict[int, float] = {}
        if rare:
            some, others = join_any(groups[:rare]), join_any(frequent)
            for expression in (some, f"({some}) AND ({others})") if others else (some,):
                best |= dict(self._find_best(connection, expression, condition, limit + len(best)))
        found = sorted(best, key=lambda number: (best[number], -number))
        required = [group for group in frequent if group.required] or frequent
        for last in range(len(required), 0, -1):
            if len(found) >= limit:
                break
            expression = " AND ".join(f"({join_any([group])})" for group in required[:last])
            newest = self._find_cut(connection, combine(expression, condition))
            more = self._find_best(connection, expression, condition, limit, newest)
            found += [number for number, _ in more if number not in found]
        return found[:limit]

    def _find_best(
        self, connection: sqlite3.Connection, expression: str, condition: str, limit: int, first: int = 0
    ) -> list[tuple[int, float]]:
        """(id, score) of the best records that match, of those whose id is at least `first`; a low score is good."""
        weights = ", ".join(map(str, self.weights.values()))
        rows = connection.execute(
            f"SELECT rowid, round(bm25({self.name}, {weights}), {DIGITS}) AS score FROM {self.name}"
            f" WHERE {self.name} MATCH ? AND rowid >= ? ORDER BY score, rowid DESC LIMIT ?",
            (combine(expression, condition), first, limit),
        )
        return [(number, score if isinstance(score, float) else 0.0) for number, score in rows]  # damage: no score

    def _find_cut(self, connection: sqlite3.Connection, match: str) -> int:
        """The id from which on at most `MAX_RANKED` records match."""
        statement = f"SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        row = connection.execute(statement, (match, MAX_RANKED - 1)).fetchone()
        return row[0] if row else 0

    def _find_newest(self, connection: sqlite3.Connection, condition: str, limit: int) -> list[int]:
        statement = f"SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? ORDER BY rowid DESC LIMIT ?"
        return [number for (number,) in connection.execute(statement, (condition, limit))]

    def _count(self, connection: sqlite3.Connection, group: Group) -> int:
        """About how many records hold a phrase of the group."""
        return sum(
            min((self._count_stem(connection, stem) for stem in stem_all(phrase)), default=0)
            for phrase in group.phrases
        )

    def _count_stem(self, connection: sqlite3.Connection, stem: str) -> int:
        row = connection.execute(f"SELECT records FROM {self.terms} WHERE word = ?", (stem,)).fetchone()
        return row[0] if row and isinstance(row[0], int) and row[0] >= 0 else TERM_RECORDS


def join_any(groups: Iterable[Group]) -> str:
    """An FTS5 expression that any of the groups matches.

    >>> join_any([Group((("ct",), ("computed", "tomography"))), Group((("lung",),))])
    '"ct" OR "computed tomography" OR "lung"'
    """
    return " OR ".join(quote(phrase) for group in groups for phrase in group.phrases)


def combine(expression: str, condition: str) -> str:
    """Both FTS5 expressions at once."""
    return f"({expression}) AND {condition}" if condition else expression
