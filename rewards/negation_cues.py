"""What a negation denies: what follows, what stands before, one word, or nothing."""

import sys
from typing import NamedTuple

from . import negation_words as table

_PADDING = [""] * 5


class Cue(NamedTuple):
    """A negation: the words `start` to `end`. It denies what follows, before `until`."""

    start: int
    end: int
    until: int = sys.maxsize
    back: bool = False  # it denies what stands before as well
    local: bool = False  # … since the last comma only
    since: int = 0  # … no word before this one
    denies: bool = True  # false for one that only looks like a denial


def find_cues(clause: list[str]) -> list[Cue]:
    """The negations in order; an even number of adjacent ones denies nothing ("cannot be excluded")."""
    found: list[Cue] = []
    padded = clause + _PADDING  # so that a word too far in either direction is ""
    for i in [i for i, word in enumerate(clause) if word in table.CUES]:
        if found and i < found[-1].end:
            continue
        cue = _read_forward(padded, i) if clause[i] in table.FORWARD else _read_other(padded, i)
        if cue is None:
            continue
        if i and not found and _is_behind_place(padded, i):  # "the left lung has no nodule"
            cue = cue._replace(back=True, local=False)
        if not found or not _is_adjacent(clause, found[-1], cue):
            found.append(cue)
        elif clause[found[-1].start] in (clause[cue.start], "aint"):  # "no no" and "ain't no" do not cancel
            found[-1] = cue._replace(start=found[-1].start)
        else:
            found[-1] = cue._replace(start=found[-1].start, denies=cue.denies != found[-1].denies)
    return found


def _is_behind_place(words: list[str], i: int) -> bool:
    """Whether the negation at `i` says what a place has not, and only the place stands before it."""
    having = words[i] in table.OF_NOUNS or words[i + 1] in table.HAVING
    return having and table.AROUND_PLACES.issuperset(words[:i])


def _is_adjacent(clause: list[str], cue: Cue, following: Cue) -> bool:
    between = clause[cue.end : following.start]
    if clause[following.start] in table.FREE and clause[cue.start] in table.FORWARD:  # "not nodule-free"
        return len(between) <= 3 and "," not in between
    if "there" in between and all(is_filler(word) or word in table.SAYING for word in between):
        return True  # "cannot say there is no mass"
    return all(map(is_filler, between)) and clause[cue.start] != "non"


def _read_other(words: list[str], i: int) -> Cue | None:
    """What a word of `CUES` that is not in `FORWARD` denies; None if it is no negation here."""
    word, following, before = words[i], words[i + 1], words[i - 1]
    if following in table.PAIRS.get(word, ()):
        place = word in table.EMPTY and table.LESIONS.isdisjoint(
            words[max(0, i - 5) : i]
        )  # not "the nodule is free of"
        return Cue(i, i + 2, back=place, local=True)
    if word in table.BOTH_WAYS or word in table.ENDED:
        return _read_both_ways(words, i)
    if word in table.REMOVAL:
        return _read_removal(words, i)
    if word == "out":
        return _read_ruled_out(words, i)
    if word in table.BEHIND:
        return Cue(i, i + 1) if before in table.BEHIND[word] else None
    if word == "non":
        seen = following in table.SEEN
        return Cue(i, i + 1, sys.maxsize if seen else i + 2, back=seen)
    if word == "0":  # nodules
        return Cue(i, i + 1) if following.isalpha() and following not in table.UNITS else None
    if word[0] == "-":  # "the lung is nodule-free", "a motion-free scan"
        ends = following in ("", ",", "and") or following in table.PLACED or following in table.FILLER
        return Cue(i, i + 1, 0, back=True, local=True, since=0 if ends else i - 1)
    ends = following in ("", ",") and word in table.ENDING  # "stone free", "tumour: false"
    return Cue(i, i + 1, 0, back=True, local=True) if ends else None


def _read_forward(words: list[str], i: int) -> Cue:
    word, following = words[i], words[i + 1]
    before = words[i - 1]
    if before == "to" and _is_impossible(words, i):
        return Cue(i, i + 1, denies=False)
    usual = following not in table.SPECIAL and before != "there" and before != "or" and words[i - 2] != "there"
    if usual and not is_adverb(following):
        return Cue(i, i + 1)
    if (following in table.PSEUDO_STARTS or before == "or") and _is_pseudo(words, i):
        return Cue(i, i + 1, denies=False)
    if following == "," and word in table.SHORT:  # "No, it is a tumour", "tumour: no, nodule: yes"
        return Cue(i, i + 1, 0, back=True, local=True, denies=words[i - 1] not in ("", ","))
    verb = i + 1
    while is_filler(words[verb]):
        verb += 1
    target, after = words[verb], words[verb + 1]
    if target in ("", ",") and (verb > i + 1 or not target):
        return Cue(i, verb, 0, back=True, local=bool(target))
    if before == "there" or (words[i - 2] == "there" and before in table.VERBS):  # "in the left lung there is no …"
        return Cue(i, i + 1, back=True, local=True)
    if word in table.OF_NOUNS and following != "longer":  # "no visible tumour"
        return Cue(i, i + 1)
    if target in table.LIKELY:
        return Cue(i, i + 1, back=after in table.PLACED or after in ("", ","))
    if not table.EARLIER.isdisjoint(words[i + 1 : verb + 5]):
        return Cue(i, i + 1, denies=target not in table.SEEN)
    seen = target in table.SEEN and after != "to" and after not in table.ARTICLES
    return Cue(i, i + 1, back=seen or (target in table.PLACED and words[verb - 1] == "appear"))


def _is_impossible(words: list[str], i: int) -> bool:
    """Whether "to" before `i` follows "impossible", "no way" and the like: "it is difficult to exclude a nodule"."""
    before = words[max(0, i - 5) : i]
    if not table.IMPOSSIBLE.isdisjoint(before):
        return True
    return not table.POSSIBLE.isdisjoint(before) and not table.FORWARD.isdisjoint(before)


def _is_pseudo(words: list[str], i: int) -> bool:
    """Whether the negation at `i` denies no finding."""
    following, second = words[i + 1], words[i + 2]
    if following in table.NOT_DENIED or (following in table.UNCERTAIN and second in ("if", "whether")):
        return True
    if following in table.COMPARED and "than" in words[i + 2 : i + 4]:
        return True
    if words[i - 1] == "or" and words[i - 2] in ("with", "whether"):
        return True
    if following in table.ARTICLES and second in ("doubt", "question"):
        return True
    noun = i + 1
    while words[noun] in table.QUALIFIERS:
        noun += 1
    return words[noun] in table.CHANGE


def _read_both_ways(words: list[str], i: int) -> Cue:
    following, before = words[i + 1], words[i - 1]
    if before in table.OTHER_SENSE or (words[i] in table.ENDED and _is_unfinished(words, i)):
        return Cue(i, i + 1, denies=False)
    if before in table.EARLIER and words[i] in table.NEVER_SEEN:
        return Cue(i, i + 1, denies=False)
    if following in ("for", "of"):
        return Cue(i, i + 2, denies=words[i] in table.BOTH_WAYS)  # not "cleared for surgery"
    if words[i] in ("negative", "neg") and following in table.NEGATIVE_THINGS:
        return Cue(i, i + 1, i + 2)
    if before in table.TESTS and words[i] in ("negative", "neg"):
        return Cue(i, i + 1, 0, back=True, since=i - 1, local=True)
    after = i + 1
    while is_filler(words[after]):
        after += 1
    adjective = following == "to" and words[after] not in table.SEEN  # "unlikely to be malignant"
    return Cue(i, i + 1, back=not adjective)


def _is_unfinished(words: list[str], i: int) -> bool:
    """Whether "resolved", "excluded" or "ruled out" at `i` is only partly so, or a wish."""
    before = words[max(0, i - 4) : i]
    if not table.MODAL.isdisjoint(before) or (before and before[-1] in table.PARTLY):
        return True
    return before[-2:] == ["to", "be"] and table.SEEMING.isdisjoint(before)


def _read_ruled_out(words: list[str], i: int) -> Cue | None:
    start = next((j for j in range(i - 1, max(-1, i - 4), -1) if words[j] in table.BEHIND["out"]), None)
    if start is None:
        return None
    passive = words[start] == "ruled" and (start + 1 == i) and words[start - 1] in table.FILLER
    denies = not _is_unfinished(words, start) and not (words[start - 1] == "to" and _is_impossible(words, start))
    return Cue(start, i + 1, back=passive or not words[i + 1], denies=denies)


def _read_removal(words: list[str], i: int) -> Cue | None:
    """ "Resolution of", "after removal of", "status post nodule removal"; not "resection of … is recommended"."""
    near, far = words[max(0, i - 3) : i], words[max(0, i - 9) : i]
    if words[i + 1] == "of":
        return Cue(i, i + 2) if words[i] in table.ALWAYS_OF or not table.AFTERWARDS.isdisjoint(near) else None
    ended = not table.AFTERWARDS.isdisjoint(far) and far[-1] not in table.AFTER
    return Cue(i, i + 1, 0, back=True) if ended else None


def find_known(clause: list[str], start: int, end: int) -> int:
    """Where words begin that name a known lesion: "no calcification | in the nodule"; `end` if there are none.

    The words from `start` to `end` are those that a negation denies.
    """
    for i in range(start + 1, end - 2):
        within = clause[i] in table.WITHIN or (clause[i] == "of" and clause[i - 1] in table.ATTRIBUTES)
        if within and clause[i + 1] in table.KNOWN and not table.LESIONS.isdisjoint(clause[i + 2 : min(end, i + 6)]):
            return i
    return end


def is_adverb(word: str) -> bool:
    """Whether a word ends as an adverb does; cardiomegaly and anomaly are findings.

    >>> [is_adverb(word) for word in ("clearly", "cardiomegaly", "anomaly", "nodule")]
    [True, False, False, False]
    """
    return word.endswith("ly") and not word.endswith(("megaly", "omaly"))


def is_filler(word: str) -> bool:
    return word in table.FILLER or (is_adverb(word) and word not in table.CUES)
