"""The one normal form of a value: replies, golds, cells of a dataset and conditions are compared in it.

`normalize` is for meaning: spellings of one answer have one form. `identify` is for names, such as ids and patients:
what a file tells apart stays apart, and only ways to store the same name are one. A sign, a unit or a power that makes
another value is kept, however it is written. Look-alike letters of other scripts stay different: only what Unicode
itself calls compatible (full-width digits, ligatures) is made equal, and invisible characters are removed.
"""

import json
import math
import re
import sys
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple

from .frozen import to_plain

_LONGEST_NUMBER = 64  # characters
_GROWN = 4096  # characters that are kept of a text that NFKC makes more than four times as long

# Hyphens, dashes and minus signs are one sign, or a "–7" would be read as 7; so are other signs of one meaning.
_DASHES = "\u02d7\u058a\u05be\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2796\u2e3a\u2e3b\ufe58"
_SPELLED = {"-": _DASHES, "'": "‘’", "/": "⁄∕", "<=": "≤≦⩽", ">=": "≥≧⩾", "~": "≈∼≃", "↑": "⬆⇑⇧", "↓": "⬇⇓⇩"}
_SPELLED |= {"%": "٪", "i": "ı"}  # Turkish case: I is a small ı, İ a small i
_ASCII_SIGNS = str.maketrans({sign: ascii_ for ascii_, signs in _SPELLED.items() for sign in signs})
_KEPT_APART = (  # what NFKC would join to a number: 4² is not 42, 10⁻³ not 10-3, 2½ not 21/2, 8₂ not 82, 5º not 5o
    (re.compile("(?<=\\d)(?=[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹])"), "^"),
    (re.compile("(?<=\\d)(?=[¼½¾⅐-⅞])"), " "),
    (re.compile("(?<=\\d)(?=[₀-₉])"), " sub "),
    (re.compile("(?<=\\d)\\s*[º˚]"), "°"),
)
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_LONG_RUN = re.compile(r"([^\w\s\x00-\x7f]{30})[^\w\s\x00-\x7f]+")  # such as marks; sorting more is quadratic
_DIGIT = re.compile(r"\d")
_SIGNED_NUMBER = re.compile(r"\+?\.?\d")
_SPACED_MINUS = re.compile(r"([^\w-]*)-\s+(?=\+?\.?\d)")
_SPACED_SIGN = re.compile(  # "< 5", "28 %", "37 ° C"; "ER +, PR +"
    r"(<=|>=|[<>~±↑↓])\s+(?=\S)|(?<=\d)\s+(?=[%‰°](?!\w))|(?<=°)\s+(?=[cf]\b)|(?<=[^\W_])\s+(?=[+-](?:[.,;:)\]]|$))"
)
_BRACKETED_SIGN = re.compile(r"(?<=\w) ?[([{] ?([+-]+) ?[)\]}]")  # "ER (+), PR (-)"
_ARROWS = tuple(re.compile(rf"(?<![^\W_])([^\W_]+){gap}([↑↓]+)(?!\w)") for gap in ("", " ?"))  # "CRP↑" is "↑CRP"
_LETTERED = re.compile(r"([^\W\d_])(?: ?[.):\]、]{1,2} ?| - )(?=\S)")  # "B) right", "B: right" and "B - right" are one
_UNDERSCORE = re.compile(r"(?<=[^\W\d_])_+(?=[^\W_])|(?<=\d)_+(?=[^\W\d_])")  # not 1_000
_GROUPS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,]|\.\d*[.,]\d)")  # 12,000: English, as prompts are
# "L4 - L5", "3 + 4 = 7"; "5x3"
_BETWEEN = re.compile(r"(?<=\d) - (?=[^\W\d_]{0,2}\d)|(?<=\d) ?[+=] ?(?=\d)|(?<=\d) ?[x×] ?(?=\d)|(?<=\d)(?=±)")
_WITH_UNIT = re.compile(r"(?<![\w.^])(\d+(?:\.\d+)?)(?=[^\W\d_])(?!e[+-]?\d)")  # "5mm" and "5 mm"
_MEASURE = re.compile(
    r"(<=|>=|[<>~±↑↓])?"
    r"([+-]?(?:(?!0\d)\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3}(?!\w)| ?[x*·] ?10\^[+-]?\d{1,3})?|10\^[+-]?\d{1,3})"
    r" ?([%‰]|(?!x ?\d)(?:°|[^\W\d_])[^\s,;]{0,15})?"
)
_MEGA = re.compile(  # not of "200 MA" or "5 MM", which are milli in capital letters
    r"(?:(?<=\d)|(?<=\d[ -]))M(?=(?:Bq|Sv|Gy|Hz|eV|Pa|Ci|mol|bit|[msglVWJ])(?![^\W\d_]))"
    r"|(?<![^\W_])M(?=(?:Bq|Sv|Gy|Hz|eV|Pa|Ci)(?![^\W\d_]))"
)
_MOLAR, _SIEMENS = (  # "3 mM" is not 3 mm, nor "3 mS" 3 ms
    re.compile(rf"((?:(?<=\d)|(?<=\d[ -]))[mnpuµμ]){letter}(?![^\W\d_])") for letter in "MS"
)
_SIGNS = re.compile(r"[-%‰]+")
_UNITS = {"percent": "%", "permille": "‰"}
_CANONICAL = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:e[-+]\d\d)?", re.ASCII)
_BOOLEANS = {"true": "yes", "false": "no"}


class Value(NamedTuple):
    """A value in its normal form: two values are equal if their texts are.

    Args:
        text: what is compared. A number is written in one way: "2.0" is "2", "5.0mm" is "5 mm", "0.50" is "0.5".
        number: of a text that is one number, perhaps with a sign and a unit; None: it is none, as "007" is a label.
        sign: before the number: < > <= >= ~ ± ↑ ↓.
        unit: after the number, such as "mm" or "%".
    """

    text: str
    number: int | float | None = None
    sign: str = ""
    unit: str = ""


def normalize(value: object) -> Value:
    """Return the normal form of a text, a number or a bool; of anything else, the empty one.
    A sign that makes another value of a label or number stays with it, however it is written. Underscores between words
    are spaces, commas between thousands are left out, and true is yes.

    >>> normalize("≥ 5.0mm"), normalize("28 %").text, normalize("10⁻³").text, normalize(True).text
    (Value(text='>=5 mm', number=5.0, sign='>=', unit='mm'), '28%', '0.001', 'yes')
    >>> normalize("12,000").number, normalize("1,5").number, normalize("007").number, normalize(float("nan"))
    (12000, None, None, Value(text='', number=None, sign='', unit=''))
    """
    return _normalize(value if isinstance(value, str) else to_text(value))


@lru_cache(maxsize=8192)
def _normalize(text: str) -> Value:
    label = _tidy(text)
    match = _MEASURE.fullmatch(label) if len(label) <= _LONGEST_NUMBER else None
    number = None if match is None else _parse_number(match[2])
    if match is None or number is None:
        return Value(_BOOLEANS.get(label, label))
    sign, unit = match[1] or "", _UNITS.get(match[3], match[3] or "")
    rounded = number if isinstance(number, int) else float(f"{number:.15g}") + 0.0  # 0.1 + 0.2 is 0.3, -0.0 is 0
    gap = " " if unit and unit not in "%‰" else ""
    return Value(f"{sign}{to_text(rounded) or to_text(number)}{gap}{unit}", number, sign, unit)


def _parse_number(text: str) -> int | float | None:
    """Parse a number as `_MEASURE` finds it. Integers stay exact."""
    first, power, exponent = text.replace(" ", "").partition("10^")
    if not power and text.lstrip("+-").isdecimal():
        return int(text)
    return to_finite_float(float(f"{first.rstrip('x*·') or '1'}e{exponent}" if power else text))


def read_number(value: object) -> int | float | None:
    """Return a finite number, or the one that a text is; None for bools, signs, units and everything else.

    >>> [read_number(value) for value in (7, "7.50", "1e3", "5 mm", "<5", True, "007", None)]
    [7, 7.5, 1000.0, None, None, None, None, None]
    """
    if isinstance(value, str):
        parsed = normalize(value)
        return None if parsed.sign or parsed.unit else parsed.number
    plain: int | float = to_number(value)
    return None if to_finite_float(plain) is None else plain


def is_null(value: object) -> bool:
    """Return whether a value says that there is none: None, NaN, or a text of nothing but spaces."""
    if isinstance(value, str):
        return not value or value.isspace()
    value = to_plain(value)
    return value is None or (isinstance(value, float) and math.isnan(value))


def identify(value: object) -> str:
    """Return the text that stands for a name, such as an id or a patient; empty for null.
    7, 7.0 and "7" are one name, and so are texts that differ in outer or repeated spaces, or in how Unicode composes
    their letters. 007 and 7, or 1.10 and 1.1, are two.

    >>> [identify(value) for value in (7, 7.0, " 7 ", "007", "1.10", 1.1, True, None, float("nan"))]
    ['7', '7', '7', '007', '1.10', '1.1', 'true', '', '']
    """
    if is_null(value):
        return ""
    if isinstance(value, str):
        text = " ".join(unicodedata.normalize("NFC", _LONG_RUN.sub(r"\1", value)).split())
        return identify(json.loads(text)) if is_canonical(text) else text
    plain = to_plain(value)
    if isinstance(plain, dict | list | tuple):
        return json.dumps(plain, sort_keys=True, default=str)
    return to_text(plain) or str(plain)


def is_canonical(text: str) -> bool:
    """Return whether a number would be written again as this text: 12 and 1.5, but not 007, 1.10, 12e4 or +3.

    >>> [is_canonical(text) for text in ("12", "-1.5", "007", "1.10", "12e4", "-0", "12 mm")]
    [True, True, False, False, False, False, False]
    """
    return bool(_CANONICAL.fullmatch(text)) and json.dumps(json.loads(text)) == text


def reaches(value: float, least: float) -> bool:
    """Return whether a value is at least a bound, but for the rounding of floats: 0.1 + 0.2 does not exceed 0.3.

    >>> reaches(0.49999999999999994, 0.5), reaches(0.3, 0.1 + 0.2), reaches(0.4999, 0.5)
    (True, True, False)
    """
    return value >= least or math.isclose(value, least, rel_tol=1e-9, abs_tol=1e-12)


def to_finite_float(value: object) -> float | None:
    """`value` as a finite float; `None` for bools, strings, NaN, infinities and anything else that is not a number.

    >>> [to_finite_float(value) for value in (3, "3", True, float("nan"), 10**400)]
    [3.0, None, None, None, None]
    """
    if value is None:
        return None
    if type(value) is not float and type(value) is not int:  # the common cases
        value = to_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)


def to_number(value: object) -> Any:
    """Return a number or bool of another library as Python's own, also if it is alone in an array; anything else as it
    is."""
    plain = to_plain(value)
    while plain is not value and isinstance(plain, list) and len(plain) == 1:
        plain = plain[0]
    return plain if isinstance(plain, int | float) else value


class _Visible(dict[int, int | None]):
    """A table for `str.translate` that drops invisible characters, filled on demand."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        hidden = unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
        self[code] = None if hidden or _INVISIBLE.match(character) else code
        return self[code]


_VISIBLE = _Visible()


def to_text(value: Any) -> str:
    """Return the text of a string, number or bool; empty for anything else (lists, mappings, NaN, None).

    >>> to_text("Seven"), to_text(7.0), to_text(0.25), to_text(True), to_text(["seven"])
    ('Seven', '7', '0.25', 'true', '')
    """
    if isinstance(value, str):
        return value
    value = to_number(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    number = to_finite_float(value)
    return "" if number is None else str(int(value)) if number.is_integer() else repr(number)


def fold_text(text: str) -> str:
    """`text` case-folded, in NFKC, without invisible characters, and with single spaces.

    >>> fold_text("  Ｓｅｖｅｎ\\u200b \\n NODULES ")
    'seven nodules'
    """
    if text.isascii() and text.isprintable():  # the fast path for most texts
        return " ".join(mark_case(text).lower().split())
    visible = _LONG_RUN.sub(r"\1", text.translate(_VISIBLE))
    for place, mark in _KEPT_APART:
        visible = place.sub(mark, visible)
    spelled = unicodedata.normalize("NFKC", visible)
    spelled = spelled[: max(4 * len(text), _GROWN)]  # one character may become 18
    folded = unicodedata.normalize("NFKC", mark_case(spelled).casefold()).replace("i\u0307", "i")  # Turkish İ
    return " ".join(folded.translate(_ASCII_SIGNS).split())


def mark_case(text: str) -> str:
    """Spell out the letters of units whose case makes another unit, before case is ignored.

    >>> mark_case("5 MBq, 5 mBq, 6 MV, 3 mM, 12 MM")
    '5 megaBq, 5 mBq, 6 megaV, 3 mmolar, 12 MM'
    """
    if "M" not in text and "S" not in text:
        return text
    return _MOLAR.sub(r"\1molar", _SIEMENS.sub(r"\1siemens", _MEGA.sub("mega", text)))


def strip_outer_punctuation(text: str) -> str:
    """`text` without outer punctuation; punctuation with a meaning stays: the sign of a number, 50%, HER2-, T2*.
    A minus or an exclamation mark before a word stays too: it may mean "not". Text that is only punctuation is left
    unchanged, but for what is around one sign.

    >>> [strip_outer_punctuation(t) for t in ('"seven."', "**seven!**", "(-7)", ".5", "50%", "T2*", "!seven", "?")]
    ['seven', 'seven', '-7', '.5', '50%', 'T2*', '!seven', '?']
    >>> [strip_outer_punctuation(t) for t in ("(-)", "5′′.", "-/-")]
    ['-', '5′′', '-/-']
    """
    start, end = 0, len(text)
    kept_signs = "-%‰‱′" if text.startswith("*") else "-%‰‱′*"  # a star at both ends is emphasis
    while start < end and _is_outer(text[start]) and not _SIGNED_NUMBER.match(text, start):
        if text[start] in "!-" and text[start + 1 : start + 2].isalnum():
            break
        if text[start] == "-" and _SIGNED_NUMBER.match(text, start + 1):
            break
        start += 1
    while end > start and _is_outer(text[end - 1]):
        if text[end - 1] in kept_signs and text[: end - 1].rstrip("′")[-1:].isalnum():
            break
        end -= 1
    return text[start:end] or (signs[0] if len(signs := _SIGNS.findall(text)) == 1 else text)


def _is_outer(character: str) -> bool:
    return character.isspace() or character == "`" or unicodedata.category(character).startswith("P")


def _tidy(text: str) -> str:
    """Return a text folded and without its outer punctuation; signs, letters and numbers are written in one way."""
    text = fold_text(text)
    if text.isalpha():
        return text
    text = strip_outer_punctuation(attach_signs(_attach_last_sign(text)))
    text = _UNDERSCORE.sub(" ", text) if "_" in text else text
    if lettered := _LETTERED.match(text):
        text = f"{lettered[1]}. {strip_outer_punctuation(text[lettered.end() :])}"
    return join_numbers(text)


def join_numbers(text: str) -> str:
    """Write the numbers in a folded text in one way: 12,000 as 12000, 5mm as 5 mm, 5 - 10 as 5-10."""
    if not _DIGIT.search(text):
        return text
    text = _GROUPS.sub(lambda found: found[0].replace(",", ""), text) if "," in text else text
    text = _BETWEEN.sub(lambda found: {"-": "-", "+": "+", "=": "=", "": " "}.get(found[0].strip(), " x "), text)
    return _WITH_UNIT.sub(r"\1 ", text)


def attach_signs(text: str) -> str:
    """Write the signs in a folded text beside what they belong to: "< 5" as "<5", "28 %" as "28%", "CRP ↑" as "↑CRP".

    >>> attach_signs("< 5 mm, 28 % of er +, crp ↑")
    '<5 mm, 28% of er+, ↑crp'
    """
    text = text.replace("+/-", "±") if "+/-" in text else text
    if "↑" in text or "↓" in text:  # of arrows between words, the last one says whether they stand behind
        text = _ARROWS[text.rstrip(" .,;:!?)%_-").endswith(("↑", "↓"))].sub(r"\2\1", text)
    return _SPACED_SIGN.sub(lambda found: found[1] or "", text)


def _attach_last_sign(text: str) -> str:
    """Folded text with the minus of a number, and the plus or minus that ends a label, beside what they belong to."""
    if "+" in text or "-" in text:
        text = _BRACKETED_SIGN.sub(r"\1", text)
    if "-" in text:
        text = _SPACED_MINUS.sub(r"\1-", text, count=1) if _SPACED_MINUS.match(text) else text
    elif "+" not in text:
        return text
    body = text.rstrip(" .,;:!?'\"`*_()[]{}<>")
    word = body.rstrip("+-")
    signs, word = body[len(word) :], word.rstrip(" ([{<")
    return word + signs if signs and word and word[-1].isalnum() else text
