"""Rewards of the adviser. All are functions of the record, so that a stored run can be scored again.

A task's reference has either `suitable` (gains of the software that may be recommended, by name) or `reason` (why
nothing can be). Everything a recommendation earns needs a first hit and names that a search of this episode returned;
everything an answer without choices earns needs the right reason. If the user goes on after an answer, that one and the
next count half each, and what is right then is made from what was named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from msgspec.structs import replace

from ...records import Episode, Task, ToolResult, Turn
from ...rewards import CombinedReward, Component, FormatReward
from ...rewards.declare import get_reward_name
from ...rewards.explain import explain_reward
from ...rewards.fields import get_field, to_items
from ...rewards.lists import RankingReward
from ...utils.values import normalize, to_finite_float, to_text
from .answer import COMPLETE
from .reasons import rate_explanation, rate_why
from .retrieval import GENERAL, list_telling
from .wishes import read_wishes

SAYS: Final = "The user says: "  # begins what the user answers to a question
GOES_ON: Final = "The user goes on: "  # begins what the user says after an answer
SEARCHES: Final = ("search_tools", "search_alternative")
TOLERANCE: Final = 50.0  # points by which an accuracy may be wrong before it earns nothing
LEAST: Final = 0.05  # score of the first hit that everything else needs: one suitable software on any place
RECOMMEND: Final = {
    "first": 0.1, "grounded": 0.05, "ranking": 0.3, "accuracy": 0.1, "why": 0.15, "question": 0.15, "status": 0.05,
    "demo": 0.05, "format": 0.05,
}  # fmt: skip
ABSTAIN: Final = {"reason": 0.4, "looked": 0.2, "explanation": 0.15, "question": 0.1, "status": 0.05, "format": 0.1}


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

    name: Literal["mrr", "ndcg"]
    field: ClassVar[str] = "choices"

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        gains = reference.get("suitable")
        if not gains:
            return None
        if _get_status(answer) != COMPLETE or _names_any(answer, reference.get("excluded", ())):
            return 0.0
        k = int(reference.get("places", 1))
        return RankingReward("choices", "suitable", metric=self.name, k=k, item_key="name")(answer, reference)

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        if _names_any(answer, reference.get("excluded", ())):
            return "choices: the user excluded one of them"
        return RankingReward("choices", "suitable", metric=self.name, item_key="name").explain(answer, reference)


def rate_accuracies(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return how close each choice's `accuracy` is to its grade: the mean of 1 - (error / 50)², at least 0.

    As the Brier score, it is best met by the true figure. Software without a grade in the reference has 0.

    >>> gold = {"suitable": {"A": 1.0}, "grades": {"A": 100, "B": 70}}
    >>> answer = {"choices": [{"name": "A", "accuracy": 100}, {"name": "B", "accuracy": 100}]}
    >>> round(rate_accuracies(answer, gold), 2)
    0.82
    """

    def rate(choice: Mapping[str, Any], points: float | None) -> float:
        number = to_finite_float(choice.get("accuracy"))
        return 0.0 if number is None else max(0.0, 1.0 - ((number - (points or 0)) / TOLERANCE) ** 2)

    return _rate_choices(answer, reference, "grades", rate)


def rate_reasons(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return how good the reasons of the choices are, in the mean; one of unsuitable software is worth nothing."""
    wanted = reference.get("wanted", {})
    return _rate_choices(
        answer, reference, "facts_of", lambda choice, tool: rate_why(choice.get("why"), tool, wanted) if tool else 0.0
    )


def rate_explanations(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return 1 if the explanation of an answer without choices names what is missing."""
    if reference.get("suitable"):
        return None
    return rate_explanation(get_field(answer, "explanation"), reference.get("missing", ()))


def rate_demos(answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    """Return the share of choices whose `demo_link` is the catalogue's, or null if it has none."""
    return _rate_choices(
        answer, reference, "demos", lambda choice, link: float(to_text(choice.get("demo_link")) == (link or ""))
    )


def _rate_choices(
    answer: Mapping[str, Any] | None, reference: Mapping[str, Any], key: str, rate: Callable[[Any, Any], float]
) -> float | None:
    """Return the mean of what the choices are worth, each by what the reference has of it under `key`; None if nothing
    is suitable."""
    if not reference.get("suitable"):
        return None
    known = {normalize(name).text: value for name, value in reference.get(key, {}).items()}
    scores = [rate(choice, known.get(_read_name(choice))) for choice in _list_choices(answer)]
    return sum(scores) / len(scores) if scores else 0.0


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
            return float(broken or any(is_on_topic(query, episode.task) for query in list_queries(episode.turns)))
        returned = {normalize(name).text for names in list_found(episode.turns) for name in names}
        return float(all(_read_name(choice) in returned for choice in choices))

    def explain_episode(self, episode: Episode) -> str:
        returned = {normalize(name).text for names in list_found(episode.turns) for name in names}
        strange = [_read_name(choice) for choice in _list_choices(episode.answer) if _read_name(choice) not in returned]
        return f"searches returned {len(returned)} names; not among them: {', '.join(strange) or 'none'}"


@dataclass(frozen=True)
class QuestionReward:
    """1 if the user was asked exactly what was needed: of an ambiguous request one question, which brings the hidden
    fact to light; of any other none."""

    name: str = "question"

    def of_episode(self, episode: Episode) -> float | None:
        asked, hidden = count_questions(episode), episode.task.reference.get("hidden", ())
        if hidden is None:  # after the user went on
            return None
        if episode.answer is None or not hidden:
            return float(episode.answer is not None and asked == 0)
        told = [turn.content for turn in episode.turns[1:] if turn.role == "user" and turn.content.startswith(SAYS)]
        return float(asked == 1 and all(any(fact in said for said in told) for fact in hidden))

    def explain_episode(self, episode: Episode) -> str:
        hidden = episode.task.reference.get("hidden") or ()
        return f"questions: {count_questions(episode)}; facts hidden: {len(hidden)}"


@dataclass(frozen=True)
class AskedReward:
    """For the record: 1 if the user was asked anything. It applies to ambiguous requests, or to all others."""

    ambiguous: bool
    name: str = "asked"

    def of_episode(self, episode: Episode) -> float | None:
        reference = episode.task.reference  # of a person's own request nothing is known
        applies = reference and bool(reference.get("hidden")) == self.ambiguous
        return float(count_questions(episode) > 0) if applies else None


def count_questions(episode: Episode) -> int:
    """Return the number of questions to the user: those answered, and one that ended the episode."""
    answered = sum(turn.role == "user" and turn.content.startswith(SAYS) for turn in episode.turns[1:])
    return answered + (episode.answer is not None and _get_status(episode.answer) != COMPLETE)


# ---------------------------------------------------------------------- when the user goes on
@dataclass(frozen=True)
class OneAnswer:
    """A reward of the first answer, or of the one after the user went on, whose `before` holds the first."""

    part: Any
    after: bool

    @property
    def name(self) -> str:
        return get_reward_name(self.part)

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        shown = select_answer(answer, reference, after=self.after)
        score: float | None = None if shown is None else self.part(*shown)
        return score

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        shown = select_answer(answer, reference, after=self.after)
        return "" if shown is None else explain_reward(self.part, *shown)


class OneExchange(OneAnswer):
    """The same of a reward that reads the episode: as far as the first answer, or all of it."""

    def of_episode(self, episode: Episode) -> float | None:
        shown = self._cut(episode)
        score: float | None = None if shown is None else self.part.of_episode(shown)
        return score

    def explain_episode(self, episode: Episode) -> str:
        shown = self._cut(episode)
        return "" if shown is None else explain_reward(self.part, shown.answer, shown.task.reference, shown)

    def _cut(self, episode: Episode) -> Episode | None:
        shown = select_answer(episode.answer, episode.task.reference, after=self.after)
        if shown is None or "follow_up" not in episode.task.reference:
            return shown and episode
        told = [turn.role == "user" and turn.content.startswith(GOES_ON) for turn in episode.turns]
        end = told.index(True) if True in told and not self.after else len(told)
        task = replace(episode.task, reference=shown[1])
        return replace(episode, task=task, answer=shown[0], turns=episode.turns[:end])


def select_answer(
    answer: Mapping[str, Any] | None, reference: Mapping[str, Any], *, after: bool
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]] | None:
    """Return the first answer and its reference, or those after the user went on; None if no user does, or nothing is
    known to be right, as of a person's own request."""
    if not reference:
        return None
    if "follow_up" not in reference:
        return None if after else (answer, reference)
    before = get_field(answer, "before") or ()
    if after:
        return (answer if before else None), describe_follow_up(reference, list_named(before))
    return (before[0] if before else answer), reference


def describe_follow_up(reference: Mapping[str, Any], named: Sequence[str]) -> dict[str, Any]:
    """Return the reference of the answer after the user went on: what was named before is excluded. If nothing else is
    suitable, the right answer says so."""
    after, gone = reference["follow_up"], {normalize(name).text for name in named}
    left = {name: gain for name, gain in after["suitable"].items() if normalize(name).text not in gone}
    changed = {**reference, **after, "hidden": None, "suitable": left, "excluded": [*reference["excluded"], *named]}
    return changed if left else {**changed, "reason": "no_suitable_tool"}


def list_named(answers: Iterable[Mapping[str, Any]]) -> list[str]:
    return [to_text(choice.get("name")) for answer in answers for choice in _list_choices(answer)]


PARTS: Final[Mapping[str, Any]] = {
    "first": SuitableReward("mrr"), "grounded": GroundedReward(), "ranking": SuitableReward("ndcg"),
    "accuracy": rate_accuracies, "why": rate_reasons, "question": QuestionReward(), "status": rate_status,
    "demo": rate_demos, "format": FormatReward(), "reason": ReasonReward(), "looked": GroundedReward(),
    "explanation": rate_explanations,
}  # fmt: skip


def build_reward() -> CombinedReward:
    """Return the reward of the adviser: of a recommendation or of a reason, whichever the task has; of two answers if
    the user goes on."""
    follow_up = CombinedReward({name: (reward, 0.5) for name, reward in _build_parts(after=True).items()})
    parts = {**_build_parts(after=False), "follow_up": follow_up}
    asked = {"asked_if_ambiguous": (AskedReward(True), 0.0), "asked_if_clear": (AskedReward(False), 0.0)}
    return CombinedReward({**{name: (reward, 1 / len(parts)) for name, reward in parts.items()}, **asked})


def _build_parts(*, after: bool) -> dict[str, CombinedReward]:
    tables: dict[str, tuple[Mapping[str, float], Mapping[str, float]]] = {  # shares, and what all that follow need
        "recommend": (RECOMMEND, {"first": LEAST, "grounded": 1.0}),
        "abstain": (ABSTAIN, {"reason": 1.0}),
    }
    rewards = {}
    for name, (shares, gates) in tables.items():
        components, needs = {}, dict[str, float]()
        for key, share in shares.items():
            kind = OneExchange if hasattr(PARTS[key], "of_episode") else OneAnswer
            components[key] = Component(kind(PARTS[key], after), share, needs=dict(needs))
            needs |= {key: gates[key]} if key in gates else {}
        rewards[name] = CombinedReward(components)
    return rewards


def _get_status(answer: Mapping[str, Any] | None) -> str:
    said = get_field(answer, "conversation.status")
    return said if isinstance(said, str) else ""


def _list_choices(answer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    choices = get_field(answer, "choices")
    return [choice for choice in choices if isinstance(choice, Mapping)] if isinstance(choices, list | tuple) else []


def _read_name(choice: Mapping[str, Any]) -> str:
    return normalize(choice.get("name")).text


def _names_any(answer: Mapping[str, Any] | None, names: Sequence[str]) -> bool:
    named = {_read_name(choice) for choice in _list_choices(answer)}
    return any(normalize(name).text in named for name in names)


def list_queries(turns: Iterable[Turn]) -> list[str]:
    """Return the queries of the searches that were made; a call that failed searched nothing."""
    return [to_text((result.arguments or {}).get("query")) for result in _list_searches(turns)]


def list_found(turns: Iterable[Turn]) -> list[list[str]]:
    """Return the names that each search returned."""
    return [list(map(to_text, to_items(result.facts.get("names")) or ())) for result in _list_searches(turns)]


def _list_searches(turns: Iterable[Turn]) -> Iterator[ToolResult]:
    results = (result for turn in turns for result in turn.tool_results)
    return (result for result in results if result.success and result.tool_name in SEARCHES)


def is_on_topic(query: str, task: Task) -> bool:
    """Return whether a query has a fact of the request, or a word of the user that is not a general one."""
    wanted = {value for key, value in task.reference.get("wanted", {}).items() if key != "said"} - {""}
    said = f"{task.prompt.get('words', '')} {' '.join(wanted)}"
    return any(wanted.intersection(words) for _, words in read_wishes(query)) or bool(
        (list_telling(query) & list_telling(said)) - GENERAL
    )
