"""Normalizes text, so that two spellings of the same label or sentence compare equal.

Look-alike letters of other scripts stay different: only what Unicode itself calls compatible (full-width digits,
ligatures) is made equal, and invisible characters (zero-width, variation selectors, fillers) are removed.
"""

import re
import reprlib
import unicodedata
from functools import lru_cache
from typing import Any

from viewbox.rewards.base import to_finite_float

_ASCII_SIGNS = str.maketrans({"−": "-", "‘": "'", "’": "'"})  # the minus sign and the curly apostrophes
_SIGNED_NUMBER = re.compile(r"-?\.?\d")
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_MAX_QUOTE = 60  # characters of a text that an explanation quotes


class _Visible(dict[int, int | None]):
    """A table for `str.translate` that drops invisible characters, filled on demand."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
        self[code] = None if hidden or _INVISIBLE.match(character) else code
        return self[code]


_VISIBLE = _Visible()


def to_text(value: Any) -> str:
    """The text of a string, number or bool; empty for anything else (lists, mappings, NaN, None).

    >>> to_text("Seven"), to_text(7.0), to_text(0.25), to_text(True), to_text(["seven"])
    ('Seven', '7', '0.25', 'true', '')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    number = to_finite_float(value)
    if number is None:
        return ""
    return str(int(value)) if number.is_integer() else repr(number)


def get_accepted_values(value: Any) -> list[Any]:
    """The accepted values of a gold field: one scalar, or a list of them; values without text are left out."""
    if type(value) is str:
        return [value] if value else []
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return [item for item in values if to_text(item)]


def fold_text(text: str) -> str:
    """`text` case-folded, in NFKC, without invisible characters, and with single spaces.

    >>> fold_text("  Ｓｅｖｅｎ\\u200b \\n NODULES ")
    'seven nodules'
    """
    if text.isascii() and text.isprintable():  # the fast path for most texts
        return " ".join(text.lower().split())
    visible = text.translate(_VISIBLE)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return " ".join(folded.translate(_ASCII_SIGNS).split())


def strip_outer_punctuation(text: str) -> str:
    """`text` without outer punctuation; punctuation with a meaning stays: the sign of a number, 50%, HER2-, T2*.

    An exclamation mark before a word stays too: programmers read it as "not". Text that is only punctuation
    is left unchanged.

    >>> [strip_outer_punctuation(t) for t in ('"seven."', "**seven!**", "(-7)", ".5", "50%", "T2*", "!seven", "?")]
    ['seven', 'seven', '-7', '.5', '50%', 'T2*', '!seven', '?']
    """
    start, end = 0, len(text)
    kept_signs = "-%" if text.startswith("*") else "-%*"  # a star at both ends is emphasis
    while start < end and _is_outer(text[start]) and not _SIGNED_NUMBER.match(text, start):
        if text[start] == "!" and text[start + 1 : start + 2].isalnum():
            break
        start += 1
    while end > start and _is_outer(text[end - 1]):
        if text[end - 1] in kept_signs and text[end - 2 : end - 1].isalnum():
            break
        end -= 1
    return text[start:end] or text


def _is_outer(character: str) -> bool:
    return character.isspace() or character == "`" or unicodedata.category(character).startswith("P")


@lru_cache(maxsize=4096)
def normalize_label(text: str) -> str:
    """`text` folded and without its outer punctuation: labels are equal if these are equal.

    >>> normalize_label(" Seven. ")
    'seven'
    """
    return strip_outer_punctuation(fold_text(text))


def quote_value(value: Any) -> str:
    """The value of a field, as an explanation quotes it.

    >>> quote_value("No tumour"), quote_value(None), quote_value([1, 2])
    ("'No tumour'", 'nothing', '[1, 2]')
    """
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_QUOTE else value[:_MAX_QUOTE] + "…")
    return reprlib.repr(value)
