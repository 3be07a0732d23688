"""Rewards of `chest_xray`: the findings that an answer names, tools that bear on the question, repeated calls.

All are functions of the record, so that a stored run can be scored again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records import Episode, ToolResult
from ...rewards.fields import get_field
from ...rewards.laterality import SIDES
from ...rewards.negation import MARK, split_words
from ...rewards.token_f1 import ShortAnswerReward
from ...utils.values import to_finite_float, to_text
from .findings import SHIPPED, FindingNames

MAX_TEXT = 2000  # characters of an answer that names findings
MAX_ITEMS = 40
BEFORE_SIDE = frozenset(("on", "in", "of", "at", "the", "lung", "base", "side", "to"))  # "an effusion on the left"
NORMAL = frozenset(("none", "nothing", "normal", "clear", "unremarkable"))
_HEDGING = """possible possibly probable probably likely unlikely perhaps maybe may might could can suspected suspicious
    suspicion questionable question equivocal versus vs or either consider rule ruled exclude excludes excluded
    excluding if unsure uncertain"""
HEDGES = frozenset(_HEDGING.split())
_SENTENCE = re.compile(r"(?:[;!?\n]|\.(?!\d))+")  # 0.91 is one number
_SIZE = re.compile(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*(?:mm|millimeters?|millimetres?)?\.?\s*", re.IGNORECASE | re.ASCII)
_PICTURE = re.compile(r"(image|view)_\d+")


@dataclass
class _Named:
    """What a text names: findings that it affirms, denies, and only hedges; and whether it says that there are none."""

    affirmed: set[str]
    denied: set[str]
    hedged: set[str]
    says_none: bool


class FindingsReward:
    """F1 of the findings that an answer affirms and the right ones: F1 = 2 |A ∩ G| / (|A| + |G|).
    The field holds a list of texts, or one text that may be a sentence. A finding counts with its side ("left nodule",
    "an effusion on the right", "bilateral effusion"); cardiomegaly has none. A denied finding ("no effusion") is not
    affirmed. A finding that is hedged ("possible nodule", "effusion or consolidation"), or both affirmed and denied, or
    has no side counts as a wrong one, and so does an item of a list that names nothing. If there is no right finding, a
    list must be empty, or the text must say so; anything that is affirmed scores 0.

    Range: [0, 1].

    >>> reward = FindingsReward("text", "findings")
    >>> gold = {"findings": ["left nodule", "cardiomegaly"]}
    >>> reward({"text": "Left nodule. Cardiomegaly. No effusion."}, gold), reward({"text": "nodule on the left"}, gold)
    (1.0, 0.6666666666666666)
    >>> reward({"text": "possible left nodule"}, gold), reward({"text": "No nodule."}, {"findings": []})
    (0.0, 1.0)
    """

    name = "findings"

    def __init__(
        self, field: str = "findings", reference_field: str | None = None, names: FindingNames = SHIPPED
    ) -> None:
        self.field, self.reference_field, self.names = field, reference_field or field, names

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        gold = get_field(reference, self.reference_field)
        named = _read_answer(get_field(answer, self.field), self.names)
        if named is None or not isinstance(gold, list | tuple):
            return 0.0
        # read as an answer would be; one that no file of names has, as it is
        right = set[str]().union(*(_read_text(one, self.names).affirmed or {one} for one in map(to_text, gold)))
        said = named.affirmed | named.hedged
        if not right:
            return 1.0 if not said and named.says_none else 0.0
        doubted = named.hedged | named.denied  # a denial without a side is of both sides
        affirmed = named.affirmed & right
        shared = {label for label in affirmed if doubted.isdisjoint({label, re.sub("^(left|right)", "?", label)})}
        return 2 * len(shared) / (len(said) + len(right))

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        named = _read_answer(get_field(answer, self.field), self.names)
        gold = get_field(reference, self.reference_field)
        right = ", ".join(map(to_text, gold)) if isinstance(gold, list | tuple) and gold else "none"
        if named is None:
            return f"{self.field}: names no finding; right: {right}"
        parts = [f"affirmed: {', '.join(sorted(named.affirmed)) or 'none'}", f"right: {right}"]
        parts += [f"hedged: {', '.join(sorted(named.hedged))}"] if named.hedged else []
        return f"{self.field}: {'; '.join(parts)}"


def _read_answer(value: Any, names: FindingNames) -> _Named | None:
    if isinstance(value, str):
        return _read_text(value, names) if value.strip() and len(value) <= MAX_TEXT else None
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        return None
    whole = _Named(set(), set(), set(), not value)
    for item in value:
        text = to_text(item)
        named = _read_text(text, names) if 0 < len(text) <= MAX_TEXT else None
        if named is None or not (named.affirmed or named.denied or named.hedged or named.says_none):
            whole.affirmed.add(f"? {text[:80]}")
            continue
        whole.affirmed |= named.affirmed
        whole.denied |= named.denied
        whole.hedged |= named.hedged
        whole.says_none |= named.says_none
    return whole


def _read_text(text: str, names: FindingNames) -> _Named:
    named = _Named(set(), set(), set(), False)
    for sentence in _SENTENCE.split(names.rename(text)):
        words, _ = split_words(sentence)
        hedged = not HEDGES.isdisjoint(word for word in words if not word.startswith(MARK))
        bare = [word.removeprefix(MARK).rstrip("+") for word in words]
        for place, label in _find_labels(bare, names):
            if words[place].startswith(MARK):
                named.denied.add(label)
                named.says_none = True
            elif hedged:
                named.hedged.add(label)
            else:
                named.affirmed.add(label)
        denies_all = any(word == f"{MARK}{noun}" for word in words for noun in ("finding", "findings", "abnormality"))
        named.says_none |= denies_all or not NORMAL.isdisjoint(words)
    return named


def _find_labels(words: Sequence[str], names: FindingNames) -> Iterator[tuple[int, str]]:
    """Yield the findings among the words of a sentence with their sides, and the place of each; "? nodule" lacks a
    side."""
    pending: list[str] = []
    skip = -1
    for place, word in enumerate(words):
        if place <= skip:
            continue
        pending += [side for side in sorted(SIDES.get(word, ())) if side not in pending]
        stem = names.tokens.get(word)
        if word == "enlarged" and "heart" in words[max(0, place - 3) : place + 3]:
            stem = "cardiomegaly"
        if stem is None:
            continue
        if stem not in names.sided:
            yield place, stem
            pending = []
            continue
        sides = list(pending)
        if not sides:
            sides, skip = _look_ahead(words, place)
        for side in sides:
            yield place, f"{side} {stem}"
        if not sides:
            yield place, f"? {stem}"
        pending = []


def _look_ahead(words: Sequence[str], place: int) -> tuple[list[str], int]:
    """Return the side that stands behind a finding ("on the left"), and the place of its last word."""
    sides: list[str] = []
    end, behind = place, False
    for ahead in range(place + 1, min(place + 7, len(words))):
        word = words[ahead]
        if word in SIDES and behind:
            sides += sorted(SIDES[word])
            end = ahead
        elif word in BEFORE_SIDE or (sides and word == "and" and words[ahead + 1 : ahead + 2] == ["on"]):
            behind = True
        elif not (sides and word in ("lung", "side", "base")):
            break
    return sides, end


@dataclass(frozen=True)
class NamedReward:
    """A reward of a text in which, as in the gold, every spelling of a finding is one word."""

    reward: ShortAnswerReward
    names: FindingNames = SHIPPED

    @property
    def name(self) -> str:
        return self.reward.name

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.reward(*self._rename(answer, reference))

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        return self.reward.explain(*self._rename(answer, reference))

    def _rename(self, *values: Any) -> list[Any]:
        keys = self.reward.field, self.reward.reference_field or self.reward.field
        return [
            {**value, key: self.names.rename(value[key])} if isinstance(value, Mapping) and key in value else value
            for value, key in zip(values, keys, strict=True)
        ]


class SizeReward:
    """1 - the error as a share of `tolerance` times the right size in mm, at least 0; "24 mm" and 24 are numbers.

    >>> reward = SizeReward("answer")
    >>> [reward({"answer": said}, {"size_mm": 20.0}) for said in (20, "22.5 mm", 30, "20 or 30", "20 30")]
    [1.0, 0.5, 0.0, 0.0, 0.0]
    """

    name = "size"

    def __init__(self, field: str = "answer", tolerance: float = 0.25, reference_field: str = "size_mm") -> None:
        self.field, self.tolerance, self.reference_field = field, tolerance, reference_field

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        answered = get_field(answer, self.field)
        number, match = to_finite_float(answered), _SIZE.fullmatch(to_text(answered)[:41])
        number = float(match[1]) if number is None and match else number
        right = float(reference[self.reference_field])
        return 0.0 if number is None else max(0.0, 1.0 - abs(number - right) / (self.tolerance * right))


@dataclass(frozen=True)
class ConsultedReward:
    """1 if a tool that bears on the question was asked, successfully; 0 otherwise, and without an answer. `bearing` are
    tools by kind of question (those under "all": of every kind). With more than `at_most` calls of all tools, the score
    falls to at_most / calls."""

    bearing: Mapping[Any, Sequence[str]]
    at_most: int = 6
    name: str = "consulted"

    def of_episode(self, episode: Episode) -> float:
        results = list(_list_results(episode))
        if episode.answer is None or not any(self._bears(episode, result) for result in results):
            return 0.0
        return min(1.0, self.at_most / len(results))

    def explain_episode(self, episode: Episode) -> str:
        results = list(_list_results(episode))
        asked = sorted({result.tool_name for result in results if self._bears(episode, result)})
        return f"asked of the tools that bear on it: {', '.join(asked) or 'none'}; calls: {len(results)}"

    def _bears(self, episode: Episode, result: ToolResult) -> bool:
        task = episode.task
        kind = str(task.metadata.get("question") or task.reference.get("kind") or "")
        names = (*self.bearing.get("all", ()), *self.bearing.get(kind, ()))
        return result.success and result.tool_name in names


class RepeatsReward:
    """1 / (1 + n), where n is the number of calls that repeat an earlier one; 0 without an answer. A call repeats
    another of the same tool and arguments if these name a picture, or the result is the same: the same zoom twice is
    two looks."""

    name = "repeats"

    def of_episode(self, episode: Episode) -> float:
        return 0.0 if episode.answer is None else 1.0 / (1 + count_repeats(episode))

    def explain_episode(self, episode: Episode) -> str:
        return f"repeated calls: {count_repeats(episode)}"


def count_repeats(episode: Episode) -> int:
    keys = [_describe_call(result) for result in _list_results(episode)]
    return len(keys) - len(set(keys))


def _list_results(episode: Episode) -> Iterator[ToolResult]:
    for turn in episode.turns:
        yield from turn.tool_results


def _describe_call(result: ToolResult) -> str:
    named = {key: _name_picture(value) for key, value in (result.arguments or {}).items()}
    called = (result.tool_name, sorted((key, repr(value)) for key, value in named.items()))
    if any(isinstance(value, str) and _PICTURE.fullmatch(value) for value in named.values()):
        return repr(called)
    facts = {key: value for key, value in result.facts.items() if key != "view"}
    image = None if result.image is None else result.image.hash
    return repr((called, result.error, sorted(facts.items()), image))


def _name_picture(value: Any) -> Any:
    """Return the name of a picture in one writing; view_0 shows the first image. Any other value as it is."""
    name = value.strip().lower() if isinstance(value, str) else ""
    return ("image_1" if name == "view_0" else name) if _PICTURE.fullmatch(name) else value
