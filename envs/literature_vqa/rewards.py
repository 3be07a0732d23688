"""Rewards of `literature_vqa`: the answer, and the articles that it cites. Both are functions of the record."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from viewbox.records import Episode, ToolResult
from viewbox.rewards.exact_match import ExactMatchReward
from viewbox.rewards.fields import get_accepted_values, get_field, normalize_label, to_finite_float, to_text

MAX_NUMBER = 40  # characters of a number with its unit
UNITS: Mapping[str, tuple[str, ...]] = {
    "mg": ("mg", "mg a day", "mg/day", "mg per day", "mg daily"),
    "%": ("%", "percent"),
    "minutes": ("minutes", "min", "minute"),
}
_NUMBER = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*([a-z%][a-z/ ]*)?", re.ASCII)
_PMID = re.compile(r"\s*(?:pmid\s*:?\s*)?([1-9][0-9]{0,9})\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class LiteratureAnswerReward:
    """1 if the answer is right, else 0.

    A number may have its unit ("35", "35 mg", "35 mg a day") and no other; every other kind is an exact match.

    >>> reward = LiteratureAnswerReward()
    >>> gold = {"answer": 35, "kind": "number", "unit": "mg"}
    >>> [reward({"answer": said}, gold) for said in (35, "35 mg/day", "35 minutes", "35 or 70", "30-40 mg")]
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """

    field: str = "answer"
    name: str = "answer"

    @cached_property
    def _exact(self) -> ExactMatchReward:
        return ExactMatchReward(self.field)

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        if self._exact(answer, reference) == 1.0:
            return 1.0
        if reference.get("kind") != "number":
            return 0.0
        said = self._read_number(to_text(get_field(answer, self.field)), str(reference.get("unit", "")))
        golds = map(to_finite_float, get_accepted_values(reference["answer"]))
        return 1.0 if said is not None and any(gold is not None and abs(gold - said) < 1e-9 for gold in golds) else 0.0

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        """Why the answer got its score, in a sentence."""
        return self._exact.explain(answer, reference)

    def _read_number(self, text: str, unit: str) -> float | None:
        """The number of a text that is one number, alone or with the unit."""
        match = _NUMBER.fullmatch(normalize_label(text)) if len(text) <= MAX_NUMBER else None
        if match is None or (match[2] and " ".join(match[2].split()) not in UNITS.get(unit, (unit,))):
            return None
        return float(match[1])


@dataclass(frozen=True)
class EvidenceReward:
    """F1 of the cited PMIDs and those that support the answer: F1 = 2 |C ∩ G ∩ R| / (|C| + |G|).

    C are the cited, G the gold ones, R those that a tool of this episode returned: an id that no tool returned, or that
    cannot be read, counts as a wrong one. One that a tool marked as retracted makes the score 0. If nothing supports an
    answer, the score is 1 for no citation after a search for the topic (the reference's `about` in its query), else 0.

    Range: [0, 1].
    """

    field: str = "evidence"
    name: str = "evidence"

    def of_episode(self, episode: Episode) -> float:
        if episode.answer is None:
            return 0.0
        gold = set(get_accepted_values(get_field(episode.task.reference, self.field)))
        cited = read_citations(episode.answer.get(self.field))
        if not gold:
            about = str(episode.task.reference.get("about", ""))
            return 1.0 if not cited and about and _was_sought(episode, about) else 0.0
        if cited & set(_list_ids(episode, "retracted")):
            return 0.0
        hits = cited & gold & set(_list_ids(episode, "pmids"))
        return 2 * len(hits) / (len(cited) + len(gold))

    def explain_episode(self, episode: Episode) -> str:
        """Why the episode got its score, in a sentence."""
        cited = read_citations((episode.answer or {}).get(self.field))
        returned = set(_list_ids(episode, "pmids"))
        gold = get_accepted_values(get_field(episode.task.reference, self.field))
        parts = [f"cited: {len(cited)}, of which tools returned {len(cited & returned)}", f"right: {len(gold)}"]
        retracted = cited & set(_list_ids(episode, "retracted"))
        return "; ".join(parts + [f"retracted: {len(retracted)}"] * bool(retracted))


def read_citations(value: Any) -> set[str]:
    """The PMIDs of an answer's list; what cannot be read is kept as a wrong one.

    >>> sorted(read_citations([990000001, "PMID: 990000002", "990000002", "see 990000003"]))
    ['990000001', '990000002', '? see 990000003']
    """
    items: Sequence[Any] = value if isinstance(value, list | tuple) else () if value in (None, "") else [value]
    cited = set()
    for item in items:
        text = to_text(item)[:200]
        match = _PMID.fullmatch(text)
        cited.add(match[1] if match else f"? {text}")
    return cited


def _list_results(episode: Episode) -> Iterator[ToolResult]:
    for turn in episode.turns:
        for result in turn.tool_results:
            if result.success:
                yield result


def _list_ids(episode: Episode, fact: str) -> Iterator[str]:
    """The ids that tools returned in this episode."""
    for result in _list_results(episode):
        ids = result.facts.get(fact)
        yield from (one for one in (ids if isinstance(ids, list | tuple) else ()) if isinstance(one, str))


def _was_sought(episode: Episode, about: str) -> bool:
    """Whether a search named the topic."""
    asked = (
        str((result.arguments or {}).get("query", "")) for result in _list_results(episode) if "pmids" in result.facts
    )
    return any(about.casefold() in query.casefold() for query in asked)
