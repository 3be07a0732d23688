"""Marks the denied words of a text, because "no tumour" must not match "tumour".

This follows NegEx (Chapman et al. 2001): every word in the scope of a negation is marked, and a marked word matches
only a marked word. After "no", "without", "free of" …, the scope is what follows. "Absent", "has resolved", a negation
at the end of its clause ("tumour: no") and a negated verb of seeing ("tumour has not been clearly seen") also deny the
words before them. A scope ends at a full stop, semicolon, line end or contrast ("but"), and where a clause with its own
verb begins ("no effusion, and the heart is large"). It does not end at a comma, because reports often say "no
consolidation, effusion or pneumothorax". Two negations in a row cancel ("cannot be excluded"), and some deny no finding
("no change in"). English only. `negation_cues.py` says what each negation denies, `negation_words.py` holds the words.
The time is linear in the length of the text.

Signs and abbreviations are written in words before folding loses them: "❌ nodule", "nodule (-)", "w/o", "no. 2".
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from . import negation_words as table
from .fields import fold_text
from .negation_cues import Cue, find_cues, find_known, is_adverb, is_filler

MARK = "¬"  # no token holds it, so a model cannot write it; alone it stands for a negation that denies something
TOKEN = r"[^\W\d_][^\W_]*(?:'[^\W_]+)*|(?:(?<!\w)-)?(?:\d+(?:\.\d+)*|(?<!\w)\.\d+)"  # words first: most are
_PIECE = re.compile(rf"(?<=\w)[-\u2010-\u2015](?:free|less)\b|{TOKEN}|[.;!?(),]")

_COMMAS = (",", MARK + ",")
_ENDS = table.CONTRAST | {"than"}
_BREAKS = _ENDS | {",", "and"}
# Cyrillic and Greek letters that look Latin: "nо" with a Cyrillic о still denies.
_LOOK_ALIKE = str.maketrans("асеһіјорѕтухԁԛԝοιανεκρτυ", "acehijopstyxdqwoiavekptu")


def split_words(text: str) -> tuple[list[str], bool]:
    """The words of `text` in order, with `MARK` before denied words; and whether it may hold a negation.

    A negation that denies something is `MARK` alone.

    >>> split_words("No tumour; left lung clear")
    (['¬', '¬tumour', 'left', 'lung', 'clear'], True)
    >>> split_words("Tumour, left lung")
    (['tumour', 'left', 'lung'], False)
    """
    words: list[str] = []
    denies = False
    start = 0  # of the clause before, in `words`
    for sentence in _split_sentences(text):
        if table.CUES.isdisjoint(sentence):  # most sentences
            start = len(words) if sentence else start
            words += sentence
            continue
        denies = True
        for clause in [sentence] if _BREAKS.isdisjoint(sentence) else _split_clauses(sentence):
            cues = find_cues(clause)
            if start < len(words) and _is_bare(clause, cues):  # "Tumour. Not seen."
                words[start:] = map(_mark_word, words[start:])
                clause = [MARK if word in table.CUES else word for word in clause]
            elif cues:
                clause = _mark_clause(clause, cues)
            start = len(words) if clause else start
            words += clause
    return ([word for word in words if word not in _COMMAS] if "," in text else words), denies


def _split_sentences(text: str) -> list[list[str]]:
    """The words and commas of each sentence. Simple text is split, which gives the same and is five times as fast."""
    plain = lower_plain(text)
    if plain is not None:
        simple = plain.replace(";", ".").replace("?", ".").replace(",", " , ")
        return [sentence.split() for sentence in simple.split(".")]
    text = spell_out_signs(text)
    found: list[str] = _PIECE.findall(fold_text(text))
    pieces = _open_parentheses([piece if piece.isascii() and piece.isalnum() else _normalize(piece) for piece in found])
    ends = [-1, *(i for i, piece in enumerate(pieces) if piece in table.CLOSING), len(pieces)]
    return [pieces[start + 1 : end] for start, end in pairwise(ends)]


def _normalize(piece: str) -> str:
    """A negation in other letters, or with an apostrophe, as the table has it."""
    if piece.endswith("n't"):
        return piece.replace("'", "") if piece.replace("'", "") in table.CUES else "not"
    if piece.endswith(("free", "less")) and not piece[0].isalpha():
        return "-" + piece[1:]
    if piece.isascii():
        return piece
    latin = piece.translate(_LOOK_ALIKE)
    return latin if latin in table.CUES else piece


def _split_clauses(sentence: list[str]) -> Iterator[list[str]]:
    """The parts of a sentence between words of contrast and beginnings of a clause with its own verb, with commas."""
    words = _move_asides(sentence) if "," in sentence else sentence
    ends = [i for i, word in enumerate(words) if word in _ENDS and _is_end(words, i)]
    for start, end in pairwise((0, *ends, len(words))):
        clause = words[start:end]
        if ("," in clause or "and" in clause) and not table.VERBS.isdisjoint(clause):
            yield from _split_at_verbs(clause)
        else:
            yield clause


def _is_end(words: list[str], i: int) -> bool:
    before = words[i - 1] if i else ""
    match words[i]:
        case "yet":
            return before not in table.CUES  # "not yet"
        case "but":
            return before != "anything"
        case "than":
            return "other" in words[max(0, i - 3) : i]  # "no other abnormality than"
    return True


def _open_parentheses(pieces: list[str]) -> list[str]:
    """The pieces without parentheses around words that deny nothing, and around a first word that does."""
    if "(" not in pieces:
        return pieces
    start, dropped = -1, set()
    for i, piece in enumerate(pieces):
        if piece == "(":
            start = i
        elif piece == ")" and start >= 0:
            if table.CUES.isdisjoint(pieces[start:i]) or (start == 0 and i == 2):
                dropped |= {start, i}
            start = -1
    return [piece for i, piece in enumerate(pieces) if i not in dropped]


def _move_asides(words: list[str]) -> list[str]:
    """ "It is not, in fact, a tumour" as "it is in fact not a tumour"."""
    moved: list[str] = []
    i = 0
    while i < len(words):
        end = 0
        if words[i] in table.BEFORE_ASIDES and words[i + 1 : i + 2] == [","]:
            end = next((j for j in range(i + 2, min(i + 7, len(words))) if words[j] == ","), 0)
        moved += [*words[i + 2 : end], words[i]] if end else [words[i]]
        i = end + 1 if end else i + 1
    return moved


def _split_at_verbs(clause: list[str]) -> Iterator[list[str]]:
    """The parts of a clause, split at a comma or "and" that a clause of its own follows."""
    breaks = [i for i, word in enumerate(clause) if word in (",", "and")]
    start, cue, verb = 0, False, False
    for begin, end in zip((0, *breaks), (*breaks, len(clause)), strict=True):
        part = clause[begin:end]
        if begin and _begins_clause([word for word in part if word not in (",", "and")], cue, verb):
            yield clause[start:begin]
            start, cue, verb = begin, False, False
        cue = cue or not table.CUES.isdisjoint(part)
        verb = verb or not table.VERBS.isdisjoint(part)
    yield clause[start:]


def _begins_clause(part: list[str], cue: bool, verb: bool) -> bool:
    """Whether `part` has a verb of its own, behind words with or without a negation and a verb."""
    if table.VERBS.isdisjoint(part):
        return False
    if part[0] == "there" or verb or not cue:
        return part[0] == "there" or verb
    return part[0] in table.ARTICLES or table.SEEN.isdisjoint(part)  # not "no mass, cyst or nodule is seen"


def _is_bare(clause: list[str], cues: list[Cue]) -> bool:
    for word in reversed(clause):  # in a loop, because most end here at once
        if word not in table.BARE and not is_adverb(word):
            return False
    return any(cue.denies for cue in cues)


def _mark_clause(clause: list[str], cues: list[Cue]) -> list[str]:
    """The words of a clause, with those that its negations deny marked."""
    out = clause[:]
    lead = clause[0] == "and"  # joins the clause to the one before
    names_known = not (table.LESIONS.isdisjoint(clause) or table.KNOWN.isdisjoint(clause))  # "… in the nodule"
    marked_to = near_to = int(lead)  # what stands before is marked: all of it, and that since the last comma
    for i, cue in enumerate(cues):
        if not cue.denies:
            continue
        begin = cue.start
        if cue.back:
            first = max(cue.since, marked_to, near_to) if cue.local else marked_to
            begin = _find_beginning(clause, cue, first) if first < cue.start else first
            near_to = cue.start
            marked_to = marked_to if cue.local else cue.start
        end = min(cue.until, cues[i + 1].start if i + 1 < len(cues) else len(clause))
        end = find_known(clause, cue.end, end) if names_known else end
        if begin < cue.start or cue.end < end or near_to > lead:
            out[cue.start : cue.end] = [MARK] * (cue.end - cue.start)
        if begin < cue.start:
            out[begin : cue.start] = map(_mark_word, out[begin : cue.start])
        if cue.end < end:
            out[cue.end : end] = [MARK + word for word in clause[cue.end : end]]
            marked_to = end if marked_to == cue.start else marked_to
    return out


def _find_beginning(clause: list[str], cue: Cue, first: int) -> int:
    """Where the reach back of a negation begins, at `first` or behind a comma.

    It goes on to the whole of a list ("cyst, mass and nodule are absent"), but not from "nodule, effusion absent".
    """
    named = joined = False
    for i in range(cue.start - 1, first - 1, -1):
        word = clause[i]
        if word == "," and i + 1 < cue.start and (cue.local or (named and not joined)):
            return i + 1
        joined = joined or word in ("and", "or")
        named = named or not (word == "," or is_filler(word) or word in table.SEEN)
    return first


def _mark_word(word: str) -> str:
    return word if word[0] == MARK else MARK + word


# Text that holds none of them: letters and spaces, and numbers between spaces, but not "no. 2" and "x 0".
_PLAIN = re.compile(r"(?:[A-Za-z .;,?]++|(?<![^ ])(?<![Nn][Oo] )(?<![OoSs]\. )(?<![xX] )[0-9]++(?![^ ]))*+")
_NO_SIGNS = re.compile(r"[A-Za-z0-9' .,;?]*+")
_ANSWERS = "no|none|absent|negative|neg|nil|yes|present|positive"
_NUMBERED = "accession|case|exam|figure|frame|image|lead|patient|scan|segment|series|slice|study|tooth"
_AFTER_NUMBERED = "|".join(rf"(?<=\b{word})" for word in _NUMBERED.split("|"))
_SPELLINGS = re.compile(
    r"(?P<number>№|(?<=[^\W\d_])[ \t]+nos?\.[ \t]?(?=\d)"  # "nodule no. 2"
    rf"|(?:{_AFTER_NUMBERED})[ \t]+nos?[ \t]+(?=\d))"  # "series no 3"
    r"|(?P<no>\bno{2,}\b|(?<!\w)[øØ](?!\w|\s*\d))"
    r"|(?P<value>(?<=\w)\s+[x×]\s?0(?![\w.])|(?<=s)\s?[(\[]\s?0\s?[)\]])"  # "nodule x0", "nodules (0)"
    r"|(?P<free>(?<=[^\W\d_]{3})free\b)"
    r"|(?P<negative>\A\s*neg\.(?=\s+(?-i:[a-z]))|\bneg\.(?=\s+for\b))"
    r"|(?P<diameter>[∅øØ⌀](?=\s*\d))"
    rf"|(?P<cell>(?<=\w)\s*\|\s*(?:{_ANSWERS})\s*\|)",  # of a table: it ends there
    re.IGNORECASE,
)
_SIGNS = re.compile(
    r"(?P<struck>~~[^~]+~~|~[^~]+~|<(?:s|del|strike)>[^<]*</(?:s|del|strike)>)|(?P<without>\bw/o(?:ut)?\b)"
    r"|(?P<rule>\br/o\b)"
    r"|(?P<no>\[ \]|(?<![^\n;.])\s?[(\[]\s?[-–−]\s?[)\]]|\bn/a\b|[-–−]ve\b)"
    r"|(?P<value>[(\[]\s?[-–−]\s?[)\]]|(?<=[:=])\s?[-–−0]\s?(?=$|[;,\n]|\.(?!\d))|(?<=\w)\s-\s?(?=$|[;,.\n]))"
    r"|(?P<end>[\n\r\u2028\u2029✅✔✓☑]|\s[-–—]{1,3}\s|—)|(?P<sign>[¬≠]|(?<![\w!])!(?=\w))",
    re.IGNORECASE,
)
_MEANINGS = {
    "diameter": " ",
    "end": " ; ",
    "free": "-free",
    "negative": " negative ",
    "no": " no ",
    "number": " number ",
    "rule": " rule out ",
    "sign": " not ",
    "struck": " ",
    "value": " (no) ",
    "without": " without ",
}
_CROSSES = re.compile(  # names of signs for no
    r"CROSS MARK|CROSS PRODUCT|CROSSING LANES|SQUARED CROSS|SALTIRE|(BALLOT|SCRIPT|CANCELLATION|MULTIPLICATION) X"
    r"|BALLOT BOX$|EMPTY SET|NO ENTRY|^NO |NO GOOD|PROHIBIT|THUMBS DOWN|DOES NOT|SQUARED NG|OCTAGONAL SIGN|HEAVY MINUS"
    r"|CIRCLED (TIMES|MINUS|DASH|DIVISION)"
)


class _Crosses(dict[int, str | int]):
    """A table for `str.translate` that writes crosses, stop signs and the like as "no", filled on demand."""

    def __missing__(self, code: int) -> str | int:
        self[code] = " no " if _CROSSES.search(unicodedata.name(chr(code), "")) else code
        return self[code]


_CROSSES_AS_NO = _Crosses()


def lower_plain(text: str) -> str | None:
    """The text in lower case, if it holds nothing but letters, numbers, spaces and `.;,?`, and no rare spelling."""
    if not _PLAIN.fullmatch(text):
        return None
    lower = text.lower()
    return None if "noo" in lower or "free" in lower or "neg." in lower else lower


def spell_out_signs(text: str) -> str:
    """The text with words for the signs and abbreviations that deny or number something.

    >>> [spell_out_signs(text) for text in ("mass x0", "nodule no. 2", "noooo", "nodulefree")]
    ['mass (no) ', 'nodule number 2', ' no ', 'nodule-free']
    """
    text = _SPELLINGS.sub(_spell_out, text)
    if _NO_SIGNS.fullmatch(text):
        return text
    return _SIGNS.sub(_spell_out, text if text.isascii() else text.translate(_CROSSES_AS_NO))


def _spell_out(sign: re.Match[str]) -> str:
    if sign.lastgroup == "cell":
        return f" {sign[0].replace('|', ' ')} ; "
    return _MEANINGS[sign.lastgroup or "struck"]
