"""Marks the denied words of a text, because "no tumour" must not match "tumour".

This follows NegEx (Chapman et al. 2001): three lists of phrases and a scope. "No", "without", "free of" … deny what
follows. "Absent", "is not seen", "has resolved", "❌" … deny what stands before, and what follows if nothing does. "No
change in", "cannot be excluded", "not previously seen" … deny nothing. A scope ends with its sentence, at a contrast
("but"), at a parenthesis, and where a clause begins ("no effusion, and the heart is large"); not at a comma, because
reports say "no consolidation, effusion or pneumothorax". A sentence of nothing but a denial ("Tumour? Not seen.")
denies the sentence before it. English only. The time is linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect_left
from functools import lru_cache

from ..utils.values import attach_signs, fold_text, join_numbers, mark_case

MARK = "¬"  # no token holds it, so a model cannot write it; alone it stands for a negation that denies something
_MARKS = "".join(chr(code) for code in range(0x300, 0x1E00) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
_REST = rf"[^\W_]*(?:[{_MARKS}]+[^\W_]*)*"  # of a word: with the vowels of Hindi and Thai, which are marks
TOKEN = rf"[^\W\d_]{_REST}(?:'[^\W_]+)*|(?:(?<!\w)-)?(?:\d+(?:\.\d+)*|(?<!\w)\.\d+)"  # words first: most are
_TOKEN = re.compile(TOKEN)
# with the sign that makes another value of it: "<5", "28%", "rh+", "↑crp"
_SIGNED = (
    rf"[↑↓]*[^\W\d_]{_REST}(?:'[^\W_]+)*(?:(?:\++|-)(?!\w))?"
    r"|(?:<=|>=|[<>~±↑↓])?(?:(?<!\w)-)?(?:\d+(?:\.\d+)*|(?<!\w)\.\d+)(?:(?:[%‰‱]|′+|\++|-)(?!\w))?"
)
_SIGNED_TOKEN = re.compile(_SIGNED)
_PIECE = re.compile(f"{_SIGNED}|,")
_LOOSE_HYPHEN = re.compile(r"(?<![^\W_])([^\W_]+)-(?!\w)(?P<before>(?= ?\w))?")
_HANGING = re.compile(r",? (?:and|or|to)\b[^.;]{0,40}?[^\W_]-[^\W_]")  # "pre- and post-contrast"


def _to_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PREFIXES = _to_set("bi co de ex in mid non per pre re sub tri un uni")
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
_BARE = FILLER | SEEN
_PLACES = _to_set(
    """
    left right both bilateral upper lower middle mid anterior posterior medial lateral superior inferior apical
    basal base bases apex apices lobe lobes zone zones field fields segment region side lung lungs chest thorax
    pleura pleural space mediastinum hilum hila heart abdomen pelvis liver spleen pancreas kidney kidneys
    gallbladder bladder bowel colon aorta brain spine bone bones neck thyroid breast breasts prostate in at of and
    with show shows contain contains reveal reveals demonstrate demonstrates does do
    """
)

# ---------------------------------------------------------------------- the three lists
_NOT = (
    r"(?:no|not|nor|none|neither|never|nothing|nobody|nowhere|without|cannot|nil|zero|nope|nah|sans|\w+n't"
    r"|(?:is|was|are|were|do|does|did|has|have|had|could|would|wo|ca|ai)nt)"
)
_FILL = r"(?: (?:\w+ly|yet|been|be|being|to|ever|any|longer|or|so|far)|,[\w ]{1,20},)"  # "not, in fact, clearly" seen
_STOP = r"(?= ?(?:[,;!?)|\]]|\.(?!\d)|$))"
_GONE = (
    r"(?:absent|negative|neg|lacking(?= ?(?:\.|$))|unlikely|improbable|doubtful|gone(?: away)?|missing|disappear(?:ed)?"
    r"|vanished|resolved?|cleared|excluded|refuted|dispro[vn]e[dn]?|removed|resected|excised|invisible|imperceptible"
    r"|inapparent|un(?:seen|detected|detectable|identified|observed|confirmed)|false|untrue|wrong|removal"
    r"|s/p resection"
    r"|non[- ]?(?:existent|existant|visuali[sz]ed|visible))"
)
_PSEUDO = (  # deny nothing
    rf"{_NOT}(?: (?:significant|interval|suspicious|evidence|of|a|any|in|the|\w+ly)){{0,4}} (?:change[sd]?|increase"
    r"|decrease|growth|progression|enlargement|differen(?:ce|t)|improvement|grown|doubt|question|difficulty)"
    r"(?: in| of)?",
    rf"(?:{_NOT}|unable|fail(?:s|ed)?|difficult|hard|impossible|insufficient)(?: (?:evidence|way|enough))?"
    rf"{_FILL}{{0,4}} (?:{_GONE}|missed|ignored|exclude|ruled?(?: \w+)? out|without|den(?:y|ied|ying)|(?:free|clear) of"
    r"|impossible|\w+-(?:free|less))",
    rf"{_NOT} (?:only|just|merely|simply|necessarily|further|(?:certain|sure|clear) (?:if|whether)"
    r"|(?:say|true) (?:that )?there is not?|(?:more|less|longer|larger|smaller|greater|bigger|wider) than)",
    rf"{_NOT} (?:previously \w+|\w+ (?:before|previously|earlier|on (?:the )?prior))",
    r"(?:should|must|may|might|would|needs?|partially|partly|nearly|almost|mostly|to be)(?: \w+ly)?(?: be)? "
    r"(?:excluded|resolved|removed|ruled out)",
    r"with or without|(?:gram|culture|pet) negative(?! for)|negative (?:margins?|pressure|predictive|contrast)",
    r"false (?!that)\w+|cleared for|nothing (?:but|other)",
)
_AFTER = (  # deny what stands before
    rf"\b{_NOT}{_FILL}{{0,5}} (?:the case|{'|'.join(sorted(SEEN, reverse=True))})\b"
    r"(?! (?:an?|any(?! ?more)|the|to)\b)",
    rf"\b{_GONE}\b(?! (?:for|of|from|that|to)\b)",
    rf"\b(?:is|was|are|were|been|be)(?: \w+ly)? ruled out\b|\bruled out{_STOP}",
    rf"\b(?:no|none|nil|never|nope|nah|n|zero|0){_STOP}|\b(?:not|\w+n't){_STOP}(?! ?,)",
    rf"(?<=\w)-(?:free|less)\b|(?<=\w )free{_STOP}",
)
_BEFORE = (  # deny what follows
    _NOT,
    r"lack(?:s|ing| of)?|absence(?: of)?|den(?:y|ie[sd])|exclud(?:es?|ing)|rul(?:es?|ed|ing)(?: \w+)? out",
    r"(?:free|clear|devoid|void|bare|spared) (?:of|from)|(?:negative|neg|unremarkable) for|unable to",
    r"fail(?:s|ed|ure)? to|rather than|instead of|opposed to|hardly any|anything but",
    r"(?:untrue|false|wrong|unlikely|doubtful) (?:that|to)|(?:argues?|speaks?|evidence) against|(?:i|we) doubt",
    r"insufficient evidence|(?:inconsistent|incompatible) with|(?:resolution|disappearance|clearance) of",
    r"(?:post|p|interval|after) (?:removal|resection|excision) of|s/p(?= \w+ resection)",
    r"non|0(?= [a-z]+s?\b(?<!mm)(?<!cm))",
)
_CUE = re.compile(
    rf"(?P<pseudo>\b(?:{'|'.join(_PSEUDO)})\b)|(?P<after>{'|'.join(_AFTER)})|(?P<before>\b(?:{'|'.join(_BEFORE)})\b)"
)
_HINTS = NEGATIONS | {"n", "0", "sans"}  # one of these words, or one of these beginnings, is in every phrase
_STEMS = (
    "noo", "nonv", "nonex", "lack", "abs", "den", "excl", "rul", "free", "clear", "dev", "void", "bare", "spared", "un",
    "fail", "rather", "instead", "opposed", "hardly", "anything", "false", "wrong", "imp", "inv", "ina", "inc", "ins",
    "doubt", "miss", "disa", "disp", "van", "res", "ref", "rem", "exc", "argu", "speak", "evidence",
)  # fmt: skip
_ENDINGS = ("nt", "n't", "less", "free")
_PLAIN = re.compile(r"[A-Za-z1-9 .,;?]*")
_ODD = re.compile(r"\bno{2,}\b|\bneg\.|\bno(?:\.|\s+)\s?\d|[a-z]{3}free\b")  # of a plain text, what `_SIGNS` may change
_LESION = r"(?:\w+ )?(?:nodule|mass|lesion|cyst|tumou?r|opacity|effusion|fracture)s?\b"
_VERB = r"\b(?:is|are|was|were|has|have|shows?)\b"
_END = re.compile(  # where a scope ends
    r"[;!?()\[\]|]|\.(?!\d)|\b(?:but(?<!anything but)(?<!nothing but)|however|although|though|except|whereas|while"
    r"|nevertheless|because|apart|aside|besides|other than)\b|, yet\b|, (?=(?:this|it|there)\b)"
    rf"|,? and (?=has\b)|, and (?=\w+ is\b)|(?:,|,? and) (?=there\b|(?:the|an?|its?) [\w ]{{1,40}}?{_VERB})"
    rf"|\b(?:(?:cavitation|enhancement|features?) of|in|within|around) (?=(?:the|this|its) {_LESION})"
)
_STRUCK = re.compile(r"~~[^~]+~~|~[^\s~](?:[^~]*[^\s~])?~|<(s|del|strike)>[^<]*</\1>", re.IGNORECASE)
_SIGNS = tuple(
    (re.compile(sign, re.IGNORECASE | re.MULTILINE), words)
    for sign, words in (
        (r"\bw/o(?:ut)?\b", " without "),
        (r"^[ \t]*(?:[(\[]\s?(?:[-–−]|no)\s?[)\]]|\[ \])|[¬≠]|(?<![\w!])!(?=\w)|\bno{2,}\b", " no "),
        (r"\bneg\.(?=\s+[a-z])", "negative"),
        (r"№|\bno\.\s?(?=\d)|(?<=\w)\s+no\s+(?=\d)", " number "),
        (r"[(\[]\s?[-–−0]\s?[)\]]|(?<=[:=])\s?[-–−0]\s?(?=$|[;,\n])|(?<=\w)\s?[x×]\s?0(?![\w.])|[-–−]ve\b|\bn/a\b",
         " (no) "),
        (r"[\n\r\u2028\u2029]|\s[-–—]{1,3}\s|—|[✅✔✓☑]", " ; "),
        (r"_", " "),
        (r"(?<=[^\W\d_]{3})free\b", "-free"),
        (r"(?<=\bno )\((\w+)\)", r"\1"),
    )
)  # fmt: skip
_FOREIGN = re.compile(r"\w*[^\W\x00-\x7f]\w*")
_LOOK_ALIKE = str.maketrans("асеһіјорѕтухԁԛԝοιανεκρτυ", "acehijopstyxdqwoiavekptu")  # Cyrillic and Greek letters
_CROSSES = re.compile(  # names of signs for no
    r"CROSS MARK|CROSS PRODUCT|CROSSING LANES|SQUARED CROSS|SALTIRE|(BALLOT|SCRIPT|CANCELLATION|MULTIPLICATION) X"
    r"|BALLOT BOX$|EMPTY SET|NO ENTRY|^NO |NO GOOD|PROHIBIT|THUMBS DOWN|DOES NOT|SQUARED NG|OCTAGONAL SIGN|HEAVY MINUS"
    r"|CIRCLED (TIMES|MINUS|DASH|DIVISION)"
)


def split_words(text: str) -> tuple[list[str], bool]:
    """Return the words of `text` in order, with `MARK` before denied words; and whether it may hold a negation.

    A negation that denies something is `MARK` alone.

    >>> split_words("No tumour; left lung clear")
    (['¬', '¬tumour', 'left', 'lung', 'clear'], True)
    >>> split_words("Tumour, left lung")
    (['tumour', 'left', 'lung'], False)
    """
    plain = join_numbers(mark_case(text).lower()) if _PLAIN.fullmatch(text) else ""  # most texts
    if plain and not _may_deny(words := _TOKEN.findall(plain)):
        return words, False
    if plain and not _ODD.search(plain):
        text = " ".join(plain.split())
    else:
        text = join_numbers(attach_signs(fold_text(_spell_out_signs(text))))
        text = _LOOSE_HYPHEN.sub(_keep_sign, text) if "-" in text else text
    words, denies = [], False
    start = at = 0  # of the clause before, in `words`; of this clause, in `text`
    for end in (*_END.finditer(text), None):
        clause = text[at : end.start() if end else len(text)]
        found = _SIGNED_TOKEN.findall(clause)
        cues = list(_CUE.finditer(clause)) if _may_deny(found) else []
        if cues:
            denies, found = True, _mark_clause(clause, cues)
            if start < len(words) and _is_bare(clause, cues[0]):
                words[start:] = [word if word.startswith(MARK) else MARK + word for word in words[start:]]
                found = [MARK if word in NEGATIONS else word for word in found]
        start = len(words) if found else start
        words += found + (_SIGNED_TOKEN.findall(end[0]) if end else [])
        at = end.end() if end else at
    return [_trim_zeros(word) if "." in word else word for word in words] if "." in text else words, denies


def _keep_sign(found: re.Match[str]) -> str:
    """Return a word with the minus behind it if this is its sign: "HER2- cancer", "Rh-.", not "pre- and post-op"."""
    word = found[1]
    is_short = len(word) <= 3 and word not in _PREFIXES  # "ER-"
    is_sign = found["before"] is None or is_short or any(map(str.isdigit, word))
    return found[0] if is_sign and not _HANGING.match(found.string, found.end()) else f"{word} "


def _trim_zeros(word: str) -> str:
    """Return a number without the zeros at its end: "2.50%" is "2.5%"."""
    number = word.rstrip("%‰+-")
    trimmed = number.rstrip("0").rstrip(".") if number.count(".") == 1 else number
    return trimmed + word[len(number) :] if trimmed[-1:].isdigit() else word


def _may_deny(words: list[str]) -> bool:
    return any(map(_is_hint, words))


@lru_cache(maxsize=8192)
def _is_hint(word: str) -> bool:
    return word in _HINTS or word.startswith(_STEMS) or word.endswith(_ENDINGS)


def _spell_out_signs(text: str) -> str:
    if not text.isascii():
        text = _FOREIGN.sub(_read_look_alike, text)
        text = "".join(" no " if _is_cross(sign) else sign for sign in text)
    text = _STRUCK.sub(" ", text)
    for sign, words in _SIGNS:
        text = sign.sub(words, text)
    return text


def _read_look_alike(word: re.Match[str]) -> str:
    """Return a negation with letters of another script that look Latin, in Latin letters; any other word as it is."""
    latin = word[0].lower().translate(_LOOK_ALIKE)
    return latin if latin in NEGATIONS else word[0]


def _is_cross(sign: str) -> bool:
    return not sign.isascii() and not sign.isalpha() and bool(_CROSSES.search(unicodedata.name(sign, "")))


def _is_bare(clause: str, cue: re.Match[str]) -> bool:
    """Return whether a clause denies, and has no word of its own: "Not seen." """
    rest = _SIGNED_TOKEN.findall(_CUE.sub(" ", clause))
    return cue["pseudo"] is None and all(word in _BARE or word.endswith("ly") for word in rest)


def _mark_clause(clause: str, found: list[re.Match[str]]) -> list[str]:
    """Return the words of a clause, with those that its negations deny marked."""
    pieces = list(_PIECE.finditer(clause))
    words, starts = [piece[0] for piece in pieces], [piece.start() for piece in pieces]
    marked = words[:]
    known = 0  # what stands before is settled
    cues = [(cue, bisect_left(starts, cue.start()), bisect_left(starts, cue.end())) for cue in found]
    for number, (cue, begin, end) in enumerate(cues):
        if cue["pseudo"] is not None:
            continue
        until = cues[number + 1][1] if number + 1 < len(cues) else len(words)
        first = _find_beginning(words, known, begin, cue[0]) if cue["after"] is not None else begin
        having = not cue[0].endswith(("not", "n't")) or words[end : end + 1] in (["contain"], ["show"])
        if cue["before"] is not None and having and not number and _is_place(words[:begin]):  # "the left lung has no …"
            first = 0
        if cue["before"] is not None or not _has_content(words[first:begin]):
            last = end if words[end : end + 1] == [","] and cue["before"] is None else until
            last = min(last, end + 1) if cue[0] == "non" else last
        else:
            last = end
        known = begin if cue["after"] is not None else known
        if not _has_content(words[first:begin]) and not _has_content(words[end:last]):
            continue
        for place in (*range(first, begin), *range(end, last)):
            marked[place] = MARK + words[place]
        marked[begin:end] = [MARK] * (end - begin)
    return [word for word in marked if not word.endswith(",")]


def _find_beginning(words: list[str], known: int, end: int, cue: str) -> int:
    """Return where the words begin that a negation behind them denies: at `known` or the last comma.

    It goes on to the whole of a list ("cyst, mass and nodule are absent"), but not from "nodule, effusion absent".
    """
    if cue.startswith("-") and not _is_place(words[known : end - 1]):  # "a nodule-free lung"
        return max(known, end - 1)
    named = joined = False
    for place in range(end - 1, known - 1, -1):
        if words[place] == "," and named and not joined:
            return place + 1
        joined = joined or words[place] in ("and", "or")
        named = named or _has_content(words[place : place + 1])
    return known


def _has_content(words: list[str]) -> bool:
    return any(word not in FILLER and word not in NEGATIONS and word != "," for word in words)


def _is_place(words: list[str]) -> bool:
    return not _PLACES.isdisjoint(words) and all(word in _PLACES or word in FILLER or word == "," for word in words)
