"""Marks the denied words of a text, because "no tumour" must not match "tumour".

This follows NegEx (Chapman et al. 2001): lists of phrases, which `negation.txt` holds, and a scope. "No", "without",
"free of" … deny what follows. "Absent", "is not seen", "has resolved", "❌" … deny what stands before, and what follows
if nothing does. "No change in", "cannot be excluded", "not previously seen" … deny nothing. A scope ends with its
sentence, at a contrast ("but"), at a parenthesis, and where a clause begins ("no effusion, and the heart is large");
not at a comma, because reports say "no consolidation, effusion or pneumothorax". A sentence of nothing but a denial
("Tumour? Not seen.") denies the sentence before it. English only. The time is linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect_left
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

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


def _read_groups() -> dict[str, str]:
    """Return the groups of `negation.txt` as regular expressions."""
    groups: dict[str, str] = {}
    for line in files(__package__).joinpath("negation.txt").read_text("utf-8").split("\n"):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
        elif line and not line.startswith("#"):
            phrase = re.sub(r"\{([a-z]+)\}", lambda group: f"(?:{groups[group[1]]})", line)
            groups[name] = f"{groups[name]}|{phrase}" if name in groups else phrase
    return groups


_GROUPS = _read_groups()
FILLER, SEEN, NEGATIONS, PLACES = (
    frozenset(_GROUPS[name].split("|")) for name in ("fillers", "seen", "negations", "places")
)  # the negations are no stop words, and the words of a label that denies
_CUE = re.compile(r"\b(?:(?P<pseudo>(?:{pseudo})\b)|(?P<after>{after})|(?P<before>(?:{before})\b))".format_map(_GROUPS))
_HINT, _END, _CROSSES = (re.compile(_GROUPS[name]) for name in ("hints", "ends", "crosses"))
_PLAIN = re.compile(r"[A-Za-z1-9 .,;?]*")
_ODD = re.compile(r"\bno{2,}\b|\bneg\.|\bno(?:\.|\s+)\s?\d|[a-z]{3}free\b")  # of a plain text, what `_SIGNS` may change
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


class _Clause(NamedTuple):
    """The words of a clause, and of what ends it ("but"); `bare` are its words if it is nothing but a denial."""

    words: list[str]
    end: list[str]
    bare: list[str] | None
    text: str = ""  # of a sentence without a negation, which was not split


def split_words(text: str) -> tuple[list[str], bool]:
    """Return the words of `text` in order, with `MARK` before denied words; and whether it may hold a negation.
    A negation that denies something is `MARK` alone.

    >>> split_words("No tumour; left lung clear")
    (['¬', '¬tumour', 'left', 'lung', 'clear'], True)
    >>> split_words("Tumour, left lung")
    (['tumour', 'left', 'lung'], False)
    """
    plain = _PLAIN.fullmatch(text) is not None  # most texts
    is_split = plain and "no. " not in (lower := text.lower()) and "neg. " not in lower  # "no. 2"
    sentences = text.split(". ") if is_split else [text]
    read = read_known_sentence if plain and len(text) < 1000 else _read_sentence
    words: list[str] = []
    denies = False
    start, whole = 0, ""  # of the clause before
    for clauses, denying in map(read, sentences):
        denies = denies or denying
        for clause in clauses:
            chosen = clause.words
            if clause.bare is not None and start < len(words):
                ends = (end.end() for end in _END.finditer(whole) if _TOKEN.search(whole, end.end()))
                start += len(_TOKEN.findall(whole[: max(ends, default=0)]))
                words[start:] = [word if word[0] == MARK else MARK + word for word in words[start:]]
                chosen = clause.bare
            if chosen:
                start, whole = len(words), clause.text
            words += chosen
            words += clause.end
    return words if plain else [_trim_zeros(word) if "." in word else word for word in words], denies


def _read_sentence(text: str) -> tuple[list[_Clause], bool]:
    """Return the clauses of a text, and whether it may hold a negation."""
    lower = join_numbers(mark_case(text).lower()) if _PLAIN.fullmatch(text) else ""
    if lower and not any(map(_is_hint, words := _TOKEN.findall(lower))):
        return [_Clause(words, [], None, lower)], False
    if lower and not _ODD.search(lower):
        text = " ".join(lower.split())
    else:
        text = join_numbers(attach_signs(fold_text(_spell_out_signs(text))))
        text = _LOOSE_HYPHEN.sub(_keep_sign, text) if "-" in text else text
    clauses, denies = [], False
    at = 0
    for end in (*_END.finditer(text), None):
        clause = text[at : end.start() if end else len(text)]
        words, bare = _SIGNED_TOKEN.findall(clause), None
        cues = list(_CUE.finditer(clause)) if any(map(_is_hint, words)) else []
        if cues:
            denies = True
            words, is_bare = _mark_clause(clause, cues)
            bare = [MARK if word in NEGATIONS else word for word in words] if is_bare else None
        clauses.append(_Clause(words, _SIGNED_TOKEN.findall(end[0]) if end else [], bare))
        at = end.end() if end else at
    return clauses, denies


read_known_sentence = lru_cache(maxsize=4096)(_read_sentence)  # of plain text; the replies to one task share many


def _keep_sign(found: re.Match[str]) -> str:
    """Return a word with the minus behind it if this is its sign: "HER2- cancer", "Rh-.", not "pre- and post-op"."""
    word = found[1]
    is_sign = found["before"] is None or len(word) <= 3 or any(map(str.isdigit, word))  # "ER-"
    return found[0] if is_sign and not _HANGING.match(found.string, found.end()) else f"{word} "


def _trim_zeros(word: str) -> str:
    """Return a number without the zeros at its end: "2.50%" is "2.5%"."""
    number = word.rstrip("%‰+-")
    trimmed = number.rstrip("0").rstrip(".") if number.count(".") == 1 else number
    return trimmed + word[len(number) :] if trimmed[-1:].isdigit() else word


@lru_cache(maxsize=8192)
def _is_hint(word: str) -> bool:
    return _HINT.fullmatch(word) is not None


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


def _mark_clause(clause: str, found: list[re.Match[str]]) -> tuple[list[str], bool]:
    """Return the words of a clause, with those that its negations deny marked; and whether it has no others."""
    pieces = list(_PIECE.finditer(clause))
    words, starts = [piece[0] for piece in pieces], [piece.start() for piece in pieces]
    marked, others = words[:], words[:]
    known = 0  # what stands before is settled
    cues = [(cue, bisect_left(starts, cue.start()), bisect_left(starts, cue.end())) for cue in found]
    for number, (cue, begin, end) in enumerate(cues):
        others[begin:end] = [""] * (end - begin)
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
    is_bare = found[0]["pseudo"] is None and all(
        word in FILLER or word in SEEN or word in ("", ",") or word.endswith("ly") for word in others
    )
    return [word for word in marked if not word.endswith(",")], is_bare


def _find_beginning(words: list[str], known: int, end: int, cue: str) -> int:
    """Return where the words begin that a negation behind them denies: at `known` or the last comma.
    It goes on to the whole of a list ("cyst, mass and nodule are absent"), but not from "nodule, effusion absent"."""
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
    return not PLACES.isdisjoint(words) and all(word in PLACES or word in FILLER or word == "," for word in words)
