"""Marks the denied words of a text, because "no tumour" must not match "tumour".

This follows NegEx (Chapman et al. 2001): three lists of phrases and a scope. "No", "without", "free of" … deny what
follows. "Absent", "is not seen", "has resolved", "❌" … deny what stands before, and what follows if nothing does. "No
change in", "cannot be excluded" … deny nothing. A scope ends with its sentence, at a contrast ("but"), at a
parenthesis, and where a clause begins ("no effusion, and the heart is large"); not at a comma, because reports say "no
consolidation, effusion or pneumothorax". A sentence of nothing but a denial ("Tumour? Not seen.") denies the sentence
before it. English only. The time is linear in the length of the text.
"""

import re
from bisect import bisect_left

from .fields import fold_text

MARK = "¬"  # no token holds it, so a model cannot write it; alone it stands for a negation that denies something
TOKEN = r"[^\W\d_][^\W_]*(?:'[^\W_]+)*|(?:(?<!\w)-)?(?:\d+(?:\.\d+)*|(?<!\w)\.\d+)"  # words first: most are
_TOKEN = re.compile(TOKEN)
_PIECE = re.compile(f"{TOKEN}|,")


def _to_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FILLER = _to_set(
    """
    a an the any be been being is are was were has have had to longer yet ever even also well now today anymore more
    here there at all currently again still it so far present time either whatsoever appear appears seem seems found
    which or on this that i we today's scan ct now
    """
)
SEEN = _to_set(
    """
    seen present identified visible visualized visualised evident detected demonstrated found noted observed
    apparent appreciated shown there demonstrable detectable identifiable recognized reported described diagnosed
    revealed confirmed established proven reproduced applicable existing existent appear exist exists occur likely
    probable suspected suggested case true said
    """
)
NEGATIONS = _to_set(
    """
    no not nor none neither never nothing nobody nowhere without cannot cant nil zero nope nah ain't aint isnt wasnt
    arent werent dont doesnt didnt hasnt havent couldnt wouldnt wont lack lacks lacking absence denies denied deny
    excludes exclude excluding absent negative neg unlikely improbable doubtful gone missing excluded resolved non
    free false untrue except
    """
)  # no stop words, and the words of a label that denies

# ---------------------------------------------------------------------- the three lists
_NOT = (
    r"(?:no|not|nor|none|neither|never|nothing|nobody|nowhere|without|cannot|nil|zero|nope|nah|\w+n't"
    r"|(?:is|was|are|were|do|does|did|has|have|could|would|wo|ca|ai)nt)"
)
_FILL = r"(?: (?:\w+ly|yet|been|be|being|to|ever|any|longer|or|so|far)|,[\w ]{1,20},)"  # "not, in fact, clearly" seen
_STOP = r"(?= ?(?:[,;!?)|\]]|\.(?!\d)|$))"
_GONE = (
    r"(?:absent|negative|neg|lacking|unlikely|improbable|doubtful|gone|missing|disappeared|vanished|resolved?|cleared"
    r"|excluded|refuted|removed|resected|un(?:seen|detected|identified)|false|untrue|non[- ]?(?:existent|visualized))"
)
_DENY_NOTHING = (
    rf"{_NOT}(?: (?:significant|interval|suspicious|evidence|of|a|any|in|the|\w+ly)){{0,4}} (?:change[sd]?|increase"
    r"|decrease|growth|progression|enlargement|differen(?:ce|t)|improvement|doubt|question)(?: in| of)?",
    rf"(?:{_NOT}|unable|fail(?:s|ed)?|difficult|hard|impossible){_FILL}{{0,4}} (?:{_GONE}|missed|exclude"
    r"|ruled?(?: \w+)? out|without|den(?:y|ied|ying)|(?:free|clear) of|\w+-(?:free|less))",
    rf"{_NOT} (?:only|just|merely|simply|necessarily|further|(?:more|less|longer|larger|smaller) than|previously \w+"
    r"|\w+ (?:before|previously|on (?:the )?prior))",
    r"(?:should|must|may|might|would|needs?|to be|partially|partly|nearly)(?: \w+ly)?(?: be)? (?:excluded|resolved"
    r"|removed|ruled out)",
    r"with or without|(?:gram|culture|pet) negative(?! for)|false (?!that)\w+|nothing (?:but|other)",
)
_DENY_BEFORE = (
    rf"\b{_NOT}{_FILL}{{0,5}} (?:the case|{'|'.join(sorted(SEEN, reverse=True))})\b"
    r"(?! (?:an?|any(?! ?more)|the|to)\b)",
    rf"\b{_GONE}\b(?! (?:for|of|from|that|to)\b)",
    rf"\b(?:is|was|are|were|been|be)(?: \w+ly)? ruled out\b|\bruled out{_STOP}",
    rf"\b(?:no|none|nil|never|nope|nah|n|zero|0){_STOP}|\b(?:not|\w+n't){_STOP}(?! ?,)",
    rf"(?<=\w)-(?:free|less)\b|(?<=\w )free{_STOP}",
)
_DENY_AFTER = (
    _NOT,
    r"lack(?:s|ing| of)?|absence(?: of)?|den(?:y|ie[sd])|exclud(?:es?|ing)|rul(?:es?|ed|ing)(?: \w+)? out",
    r"(?:free|clear|devoid) (?:of|from)|(?:negative|neg) for|unable to|fail(?:s|ed|ure)? to|rather than|instead of",
    r"(?:untrue|false|unlikely|doubtful) (?:that|to)|(?:argues?|speaks?|evidence) against|resolution of",
    r"non|0(?= [a-z]{3})",
)
_CUE = re.compile(
    rf"(?P<nothing>\b(?:{'|'.join(_DENY_NOTHING)})\b)|(?P<back>{'|'.join(_DENY_BEFORE)})"
    rf"|(?P<on>\b(?:{'|'.join(_DENY_AFTER)})\b)"
)
_END = re.compile(  # where a scope ends
    r"[;!?()\[\]|]|\.(?!\d)|\b(?:but(?<!nothing but)|however|although|though|except|whereas|while|nevertheless|because"
    r"|apart|aside|besides|other than)\b|, yet\b|, (?=(?:this|it|there)\b)|, and (?=\w+ is\b)"
    r"|(?:,|,? and) (?=there\b|(?:the|an?|its?) [\w ]{1,40}?\b(?:is|are|was|were|has|have|shows?)\b)"
    r"|\b(?:in|within|around) (?=(?:the|this|its) (?:\w+ )?(?:nodule|mass|lesion|cyst|tumou?r)\b)"
)
_PLAIN = re.compile(r"(?!.*(?:free|noo))[A-Za-z .,;?]*")  # holds none of these signs
_SIGNS = tuple(
    (re.compile(sign, re.IGNORECASE | re.MULTILINE), words)
    for sign, words in (
        (r"~~[^~]+~~|<(s|del|strike)>[^<]*</\1>", " "),  # struck out
        (r"\bw/o(?:ut)?\b", " without "),
        (r"^[ \t]*[(\[]\s?(?:[-–−]|no)?\s?[)\]]|[¬≠❌❎✖✕✗✘🚫⛔👎∅]|(?<![\w!])!(?=\w)|\bno{2,}\b", " no "),
        (r"№|\bno\.\s?(?=\d)|(?<=\w)\s+no\s+(?=\d)", " number "),
        (r"[(\[]\s?[-–−0]\s?[)\]]|(?<=[:=])\s?[-–−0]\s?(?=$|[;,\n])|[-–−]ve\b|\bn/a\b|\s?\b[x×]\s?0(?![\w.])",
         " (no) "),
        (r"(?<=[^\W\d_]{3})free\b", "-free"),
        (r"[\n\r\u2028\u2029]|\s[-–—]{1,3}\s|—|[✅✔✓☑]", " ; "),
        (r"_", " "),
    )
)  # fmt: skip


def split_words(text: str) -> tuple[list[str], bool]:
    """Return the words of `text` in order, with `MARK` before denied words; and whether it may hold a negation.

    A negation that denies something is `MARK` alone.

    >>> split_words("No tumour; left lung clear")
    (['¬', '¬tumour', 'left', 'lung', 'clear'], True)
    >>> split_words("Tumour, left lung")
    (['tumour', 'left', 'lung'], False)
    """
    if not _PLAIN.fullmatch(text):
        for sign, meaning in _SIGNS:
            text = sign.sub(meaning, text)
    text = fold_text(text)
    words: list[str] = []
    denies = False
    start = at = 0  # of the clause before, in `words`; of this clause, in `text`
    for end in (*_END.finditer(text), None):
        clause = text[at : end.start() if end else len(text)]
        found = _TOKEN.findall(clause)
        cues = list(_CUE.finditer(clause)) if found else []
        if cues:
            denies, found = True, _mark_clause(clause, cues)
            if start < len(words) and _is_bare(clause, cues[0]):
                words[start:] = [word if word.startswith(MARK) else MARK + word for word in words[start:]]
                found = [MARK if word in NEGATIONS else word for word in found]
        start = len(words) if found else start
        words += found + (_TOKEN.findall(end[0]) if end else [])
        at = end.end() if end else at
    return words, denies


def _is_bare(clause: str, cue: re.Match[str]) -> bool:
    """Return whether a clause denies, and has no word of its own: "Not seen." """
    rest = _TOKEN.findall(_CUE.sub(" ", clause))
    return cue["nothing"] is None and all(word in FILLER or word in SEEN or word.endswith("ly") for word in rest)


def _mark_clause(clause: str, cues: list[re.Match[str]]) -> list[str]:
    """Return the words of a clause, with those that its negations deny marked."""
    pieces = list(_PIECE.finditer(clause))
    words, starts = [piece[0] for piece in pieces], [piece.start() for piece in pieces]
    marked, known = words[:], 0  # what stands before `known` is settled
    for cue, after in zip(cues, (*cues[1:], None), strict=True):
        if cue["nothing"] is not None:
            continue
        begin, end = bisect_left(starts, cue.start()), bisect_left(starts, cue.end())
        until = bisect_left(starts, after.start()) if after else len(words)
        first, last = begin, until
        if cue["back"] is not None:
            first = max(known, begin - 1) if cue[0].startswith("-") else _find_beginning(words, known, begin)
            known = begin
            if _has_content(words[first:begin]) or words[end : end + 1] == [","]:
                last = end
        elif cue[0] == "non":
            last = min(until, end + 1)
        if _has_content(words[first:begin]) or _has_content(words[end:last]):
            marked[begin:end] = [MARK] * (end - begin)
            for place in (*range(first, begin), *range(end, last)):
                marked[place] = MARK + words[place]
    return [word for word in marked if not word.endswith(",")]


def _find_beginning(words: list[str], known: int, end: int) -> int:
    """Return where the words begin that a negation behind them denies: at `known` or the last comma.

    It goes on to the whole of a list ("cyst, mass and nodule are absent"), but not from "nodule, effusion absent".
    """
    commas = [place for place in range(known, end) if words[place] == "," and _has_content(words[place:end])]
    if not commas or not {"and", "or"}.isdisjoint(words[commas[-1] : end]):
        return known
    return commas[-1] + 1


def _has_content(words: list[str]) -> bool:
    return any(word not in FILLER and word not in NEGATIONS and word != "," for word in words)
