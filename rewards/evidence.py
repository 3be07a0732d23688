"""Citations: whether the articles that an answer cites were found in this episode, and bear on the answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ..records import Episode, ToolResult
from ..utils.values import fold_text, to_text
from .declare import AnswerField, Names, RewardName, register_reward
from .fields import get_accepted_values, get_field, to_items

Verdict = Literal["bears on the answer", "does not bear on the answer", "retracted", "not returned"]
ENOUGH = 3  # words of a text that an article must share with it; of a shorter text, all
STEM = 5  # letters of a word that must agree
_WORD = re.compile(r"[^\W_]{3,64}|\d+")
_STOPPED = """about all and any are been but can did does for from had has have how into its may more most not only
    other show shows such than that the their there this was were what when which who why will with you"""
_STOP_WORDS = frozenset(_STOPPED.split())
_PMID = re.compile(r"\s*(?:pmid\s*:?\s*)?([1-9][0-9]{0,9})\s*", re.IGNORECASE | re.ASCII)
_ITEM = re.compile(r"^\[\d+\] PMID (\d+)", re.MULTILINE)


@register_reward("evidence")
class EvidenceReward:
    """F1 of the cited PMIDs and those that support the answer: F1 = 2 |C ∩ G ∩ R| / (|C| + |G|).

    C are the cited, G the gold ones, R those that a tool of this episode returned: an id that no tool returned, or that
    cannot be read, counts as a wrong one. One that a tool marked as retracted makes the score 0. If G is empty, nothing
    supports an answer: the score is 1 for no citation after a search (for the topic, with the reference's `about` in
    its query), else 0; with an empty `about` nothing is to be searched for, and it is 1 for no citation and no search.

    Without gold ids (the reference has no `evidence`) it is the share of C that was returned and bears on the answer,
    and 0 without a citation. An article bears on it if what was shown of it holds three words of the right answer (of
    `about`, fields of the reference), or all of a shorter one; of the question, if the answer is yes, no, maybe or too
    short.

    Range: [0, 1].
    """

    field: AnswerField = "evidence"
    about: Annotated[Names, Field(description="of the reference, what an article must bear on")] = ("answer",)
    name: RewardName = "evidence"

    def of_episode(self, episode: Episode) -> float:
        if episode.answer is None:
            return 0.0
        cited, reference = read_citations(get_field(episode.answer, self.field)), episode.task.reference
        if cited & _list_ids(episode, "retracted"):
            return 0.0
        if get_field(reference, self.field) is None:
            verdicts = check_citations(episode, reference, self.about, self.field)
            return sum(item == "bears on the answer" for item in verdicts.values()) / max(1, len(verdicts))
        gold = read_citations(get_accepted_values(get_field(reference, self.field)))
        if not gold:
            about = reference.get("about")
            searches = [result.arguments or {} for result in _list_results(episode) if "pmids" in result.facts]
            is_sought = any(str(about or "").casefold() in str(item.get("query", "")).casefold() for item in searches)
            return float(not cited and (not searches if about == "" else is_sought))
        return 2 * len(cited & gold & _list_ids(episode, "pmids")) / (len(cited) + len(gold))

    def explain_episode(self, episode: Episode) -> str:
        verdicts = list(check_citations(episode, episode.task.reference, self.about, self.field).values())
        known = get_field(episode.task.reference, self.field)
        counts = {"cited": len(verdicts), "of which tools returned": len(verdicts) - verdicts.count("not returned")}
        bear = {"bear on the answer": verdicts.count("bears on the answer")}
        counts |= bear if known is None else {"right": len(get_accepted_values(known))}
        return "; ".join(f"{name}: {count}" for name, count in counts.items())


def check_citations(
    episode: Episode, said: Mapping[str, Any], about: Sequence[str] = ("answer",), field: str = "evidence"
) -> dict[str, Verdict]:
    """Return each cited id of an episode's answer with what was found of it.
    `said` holds the answer that an article must bear on, in its fields `about`: a reference, or the answer itself where
    there is none."""
    returned, retracted = _list_ids(episode, "pmids"), _list_ids(episode, "retracted")
    shown = _read_items(episode)
    texts = [to_text(value) for name in about for value in to_items(get_field(said, name)) or ()]
    is_closed = any(text.strip().casefold() in ("yes", "no", "maybe") for text in texts)
    wanted = [words for text in texts if not is_closed and (words := _read_words(text))]
    wanted = wanted or [_read_words(to_text(episode.task.prompt.get("question", "")))]

    def judge(pmid: str) -> Verdict:
        if pmid not in returned:
            return "not returned"
        if pmid in retracted:
            return "retracted"
        words = _read_words(shown.get(pmid, ""))
        bears = any(sought and len(sought & words) >= min(ENOUGH, len(sought)) for sought in wanted)
        return "bears on the answer" if bears else "does not bear on the answer"

    return {pmid: judge(pmid) for pmid in sorted(read_citations(get_field(episode.answer, field)))}


def read_citations(value: object) -> set[str]:
    """Return the PMIDs of an answer's list; what cannot be read is kept as a wrong one.

    >>> sorted(read_citations([990000001, "PMID: 990000002", "990000002", "see 990000003"]))
    ['990000001', '990000002', '? see 990000003']
    """
    items: Sequence[Any] = value if isinstance(value, list | tuple) else () if value in (None, "") else [value]
    texts = [to_text(item)[:200] for item in items]
    return {match[1] if (match := _PMID.fullmatch(text)) else f"? {text}" for text in texts}


def _read_items(episode: Episode) -> dict[str, str]:
    """Return what the results of searches showed of each article: all that stands behind its number."""
    shown: dict[str, str] = {}
    for result in _list_results(episode):
        if "pmids" in result.facts:
            _, *parts = _ITEM.split(result.text)  # a PMID, and what stands behind it, in turn
            for pmid, text in zip(parts[::2], parts[1::2], strict=True):
                shown[pmid] = f"{shown.get(pmid, '')} {text}"
    return shown


def _read_words(text: str) -> set[str]:
    return {word[:STEM] for word in _WORD.findall(fold_text(text[:20_000])) if word not in _STOP_WORDS}


def _list_results(episode: Episode) -> list[ToolResult]:
    return [result for turn in episode.turns for result in turn.tool_results if result.success]


def _list_ids(episode: Episode, fact: str) -> set[str]:
    lists = (result.facts.get(fact) for result in _list_results(episode))
    return {id_ for ids in lists if isinstance(ids, list | tuple) for id_ in ids if isinstance(id_, str)}
