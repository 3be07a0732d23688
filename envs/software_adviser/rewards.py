"""Rewards of the adviser. All are functions of the record, so that a stored run can be scored again.

A task's reference has either `suitable` (gains of the software that may be recommended, by name) or `reason` (why
nothing can be). Everything a recommendation earns needs a first hit and names that a search of this episode returned;
everything an answer without choices earns needs the right reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from ...records import Episode, Turn
from ...rewards import CombinedReward, Component, FormatReward
from ...rewards.fields import get_field
from ...rewards.lists import RankingReward
from ...utils.values import normalize_label, to_finite_float, to_text
from .answer import COMPLETE

SAYS: Final = "The user says: "  # begins what the user answers to a question
SEARCHES: Final = ("search_tools", "search_alternative")
TOLERANCE: Final = 50.0  # points by which an accuracy may be wrong before it earns nothing
LEAST: Final = 0.05  # score of the first hit that everything else needs: one suitable software on any place
RECOMMEND: Final = {
    "first": 0.1, "grounded": 0.05, "ranking": 0.4, "accuracy": 0.15, "question": 0.15, "status": 0.05, "demo": 0.05,
    "format": 0.05,
}  # fmt: skip
ABSTAIN: Final = {"reason": 0.5, "looked": 0.2, "question": 0.15, "status": 0.05, "format": 0.1}


@dataclass(frozen=True)
class SuitableReward:
    """The quality of the ranked choices: MRR or nDCG of the suitable software, with gains computed from facts.

    It is 0 if an excluded software is among them, or if the answer is not complete. None if nothing is suitable.

    >>> gold = {"suitable": {"A": 1.0, "B": 0.5}, "excluded": ["C"], "places": 2}
    >>> def recommend(*names):
    ...     return {"conversation": {"status": "complete"}, "choices": [{"name": name} for name in names]}
    >>> [round(SuitableReward("ndcg")(recommend(*names), gold), 2) for names in ("AB", "BA", "A", "AC", "")]
    [1.0, 0.86, 0.76, 0.0, 0.0]
    """

    metric: Literal["mrr", "ndcg"]
    field: ClassVar[str] = "choices"

    @property
    def name(self) -> str:
        return self.metric

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        gains = reference.get("suitable")
        if not gains:
            return None
        if _get_status(answer) != COMPLETE or _names_any(answer, reference.get("excluded", ())):
            return 0.0
        k = int(reference.get("places", 1))
        return RankingReward("choices", "suitable", metric=self.metric, k=k, item_key="name")(answer, reference)

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        if _names_any(answer, reference.get("excluded", ())):
            return "choices: the user excluded one of them"
        reward = RankingReward("choices", "suitable", metric=self.metric, item_key="name")
        return reward.explain(answer, reference)


def rate_accuracies(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return how close each choice's `accuracy` is to its grade: the mean of 1 - (error / 50)², at least 0.

    As the Brier score, it is best met by the true figure. Software without a grade in the reference has 0.

    >>> gold = {"suitable": {"A": 1.0}, "grades": {"A": 100, "B": 70}}
    >>> answer = {"choices": [{"name": "A", "accuracy": 100}, {"name": "B", "accuracy": 100}]}
    >>> round(rate_accuracies(answer, gold), 2)
    0.82
    """
    if not reference.get("suitable"):
        return None
    grades = {normalize_label(name): points for name, points in reference.get("grades", {}).items()}
    choices = _list_choices(answer)
    stated = [(to_finite_float(choice.get("accuracy")), grades.get(_read_name(choice), 0)) for choice in choices]
    scores = [0.0 if given is None else 1.0 - ((given - points) / TOLERANCE) ** 2 for given, points in stated]
    return sum(max(0.0, score) for score in scores) / len(scores) if scores else 0.0


def rate_demos(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return the share of choices whose `demo_link` is the catalogue's, or null if it has none."""
    if not reference.get("suitable"):
        return None
    demos = {normalize_label(name): link for name, link in reference.get("demos", {}).items()}
    choices = _list_choices(answer)
    right = [to_text(choice.get("demo_link")) == demos.get(_read_name(choice), "") for choice in choices]
    return sum(right) / len(right) if right else 0.0


def rate_status(answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> float:
    """Return 1 if the answer is complete and has choices exactly if something is suitable."""
    return float(_get_status(answer) == COMPLETE and bool(_list_choices(answer)) == bool(reference.get("suitable")))


@dataclass(frozen=True)
class ReasonReward:
    """1 if the answer says why nothing can be recommended, and recommends nothing; None if something is suitable."""

    name: str = "reason"

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        if reference.get("suitable"):
            return None
        complete = _get_status(answer) == COMPLETE and not _list_choices(answer)
        return float(complete and get_field(answer, "reason") == reference.get("reason"))

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        return f"reason: {to_text(get_field(answer, 'reason')) or 'none'}; right: {reference.get('reason')}"


# ---------------------------------------------------------------------- what happened in the episode
@dataclass(frozen=True)
class GroundedReward:
    """1 if every choice was returned by a search of this episode; without choices, if there was a search at all (a file
    that is no image needs none)."""

    name: str = "grounded"

    def of_episode(self, episode: Episode) -> float:
        choices = _list_choices(episode.answer)
        if episode.answer is None:
            return 0.0
        if not choices:
            broken = episode.task.reference.get("reason") == "invalid_files"
            return float(broken or any(True for _ in list_found(episode.turns)))
        found = {normalize_label(name) for names in list_found(episode.turns) for name in names}
        return float(all(_read_name(choice) in found for choice in choices))

    def explain_episode(self, episode: Episode) -> str:
        found = {normalize_label(name) for names in list_found(episode.turns) for name in names}
        strange = [_read_name(choice) for choice in _list_choices(episode.answer) if _read_name(choice) not in found]
        return f"searches returned {len(found)} names; not among them: {', '.join(strange) or 'none'}"


@dataclass(frozen=True)
class QuestionReward:
    """1 if the user was asked exactly what was needed: of an ambiguous request one question, which brings the hidden
    fact to light; of any other none."""

    name: str = "question"

    def of_episode(self, episode: Episode) -> float:
        asked = count_questions(episode)
        hidden = episode.task.reference.get("hidden", ())
        if episode.answer is None or not hidden:
            return float(episode.answer is not None and asked == 0)
        told = [turn.content for turn in episode.turns[1:] if turn.role == "user" and turn.content.startswith(SAYS)]
        return float(asked == 1 and all(any(fact in said for said in told) for fact in hidden))

    def explain_episode(self, episode: Episode) -> str:
        return f"questions: {count_questions(episode)}; facts hidden: {len(episode.task.reference.get('hidden', ()))}"


@dataclass(frozen=True)
class AskedReward:
    """For the record: 1 if the user was asked anything. It applies to ambiguous requests, or to all others."""

    ambiguous: bool
    name: str = "asked"

    def of_episode(self, episode: Episode) -> float | None:
        if bool(episode.task.reference.get("hidden")) != self.ambiguous:
            return None
        return float(count_questions(episode) > 0)


def count_questions(episode: Episode) -> int:
    """Return the number of questions to the user: those answered, and one that ended the episode."""
    answered = sum(turn.role == "user" and turn.content.startswith(SAYS) for turn in episode.turns[1:])
    return answered + (episode.answer is not None and _get_status(episode.answer) != COMPLETE)


def build_reward() -> CombinedReward:
    """Return the reward of the adviser: of a recommendation or of a reason, whichever the task has."""
    gate = {"first": LEAST, "grounded": 1.0}
    recommend: dict[str, tuple[Any, Mapping[str, float]]] = {
        "first": (SuitableReward("mrr"), {}),
        "grounded": (GroundedReward(), {"first": LEAST}),
        "ranking": (SuitableReward("ndcg"), gate),
        "accuracy": (rate_accuracies, gate),
        "question": (QuestionReward(), gate),
        "status": (rate_status, gate),
        "demo": (rate_demos, gate),
        "format": (FormatReward(), gate),
    }
    abstain: dict[str, tuple[Any, Mapping[str, float]]] = {
        "reason": (ReasonReward(), {}),
        "looked": (GroundedReward(), {"reason": 1.0}),
        "question": (QuestionReward(), {"reason": 1.0}),
        "status": (rate_status, {"reason": 1.0}),
        "format": (FormatReward(), {"reason": 1.0}),
    }
    parts = {
        name: CombinedReward({key: Component(part, weights[key], needs=needs) for key, (part, needs) in table.items()})
        for name, table, weights in (("recommend", recommend, RECOMMEND), ("abstain", abstain, ABSTAIN))
    }
    asked = {"asked_if_ambiguous": (AskedReward(True), 0.0), "asked_if_clear": (AskedReward(False), 0.0)}
    return CombinedReward({"recommend": (parts["recommend"], 0.5), "abstain": (parts["abstain"], 0.5), **asked})


def _get_status(answer: Mapping[str, Any] | None) -> str:
    said = get_field(answer, "conversation.status")
    return said if isinstance(said, str) else ""


def _list_choices(answer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    choices = get_field(answer, "choices")
    return [one for one in choices if isinstance(one, Mapping)] if isinstance(choices, list | tuple) else []


def _read_name(choice: Mapping[str, Any]) -> str:
    return normalize_label(to_text(choice.get("name")))


def _names_any(answer: Mapping[str, Any] | None, names: Sequence[str]) -> bool:
    named = {_read_name(choice) for choice in _list_choices(answer)}
    return any(normalize_label(name) in named for name in names)


def list_found(turns: Iterable[Turn]) -> Iterator[Sequence[str]]:
    for turn in turns:
        for result in turn.tool_results:
            names = result.facts.get("names")
            if result.success and result.tool_name in SEARCHES and isinstance(names, list | tuple):
                yield [name for name in names if isinstance(name, str)]
