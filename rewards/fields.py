"""How rewards read the fields of an answer: values, numbers, texts and boxes.

Answers come from a model and are not trusted: reading never raises. A field that is missing, or does not hold what is
read, is `None` (or an empty text). Texts are normalized, so that two spellings of the same label compare equal.
Look-alike letters of other scripts stay different: only what Unicode itself calls compatible (full-width digits,
ligatures) is made equal, and invisible characters (zero-width, variation selectors, fillers) are removed.
"""

import math
import re
import reprlib
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from ..utils.frozen import to_plain

Box = tuple[float, ...]  # x1, y1, x2, y2; of a volume x1, y1, z1, x2, y2, z2
Labeled = tuple[Box | None, str]  # None: it counts, but matches nothing
BoxFormat = Literal["xyxy", "xywh"]
AnyBoxFormat = Literal["xyxy", "xywh", "xyzxyz"]
Frame = Literal["unit", "per_mille", "pixel"]
_LISTS = (list, tuple)  # isinstance is slower with list | tuple
LONGEST_LABEL = 1000  # characters; longer text is not a label
MAX_TEXT = 16_384  # characters of a text that is compared; a longer one, in the answer or the gold, scores 0
_GROWN = 4096  # characters that are kept of a text that NFKC makes more than four times as long

# Hyphens, dashes and minus signs are one sign, or a "–7" would be read as 7; so are the curly apostrophes.
_DASHES = "\u02d7\u058a\u05be\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2796\u2e3a\u2e3b\ufe58"
_ASCII_SIGNS = str.maketrans(dict.fromkeys(_DASHES, "-") | {"‘": "'", "’": "'"})
_SPACED_MINUS = re.compile(r"([^\w-]*)-\s+(?=\+?\.?\d)")
_SIGNED_NUMBER = re.compile(r"\+?\.?\d")
_POWER = re.compile("(?<=\\d)(?=[⁰¹²³⁴⁵⁶⁷⁸⁹])")  # 4² is not 42
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_MAX_QUOTE = 60  # characters of a text that an explanation quotes


def get_field(mapping: object, field: str) -> Any:
    """Return the value at `field`, whose dots step into inner mappings; `None` if there is no value.

    >>> get_field({"finding": {"label": "nodule"}}, "finding.label")
    'nodule'
    >>> get_field({"finding": "nodule"}, "finding.label") is None
    True
    """
    if isinstance(mapping, dict) and "." not in field:  # the common case
        return mapping.get(field)
    value = mapping
    for part in field.split("."):
        if not isinstance(value, (dict, Mapping)) or part not in value:
            return None
        value = value[part]
    return value


def to_finite_float(value: object) -> float | None:
    """`value` as a finite float; `None` for bools, strings, NaN, infinities and anything else that is not a number.

    >>> [to_finite_float(value) for value in (3, "3", True, float("nan"), 10**400)]
    [3.0, None, None, None, None]
    """
    if type(value) is not float:  # the common case
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


def to_items(value: object, max_items: int | None = None) -> Sequence[Any] | None:
    """Return the first `max_items` items of a list; a scalar counts as a list of one item. `None` for anything else.

    >>> to_items(["a", "b"]), to_items("a"), to_items(None), to_items([]), to_items({"a": 1})
    (['a', 'b'], ['a'], None, [], None)
    """
    if isinstance(value, list | tuple):
        return value if max_items is None else value[:max_items]
    if isinstance(value, set | frozenset):
        return list(value)
    return [value] if isinstance(value, str | int | float) and value != "" else None


# ---------------------------------------------------------------------- texts
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
    if isinstance(value, bool):
        return "true" if value else "false"
    number = to_finite_float(value)
    if number is None:
        return ""
    return str(int(value)) if number.is_integer() else repr(number)


def get_accepted_values(value: Any) -> list[object]:
    """Return the accepted values of a gold field: one scalar, or a list of them.

    Values without text, or of more than `MAX_TEXT` characters, are left out.
    """
    if type(value) is str:
        return [value] if 0 < len(value) <= MAX_TEXT else []
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return [item for item in values if 0 < len(to_text(item)) <= MAX_TEXT]


def fold_text(text: str) -> str:
    """`text` case-folded, in NFKC, without invisible characters, and with single spaces.

    >>> fold_text("  Ｓｅｖｅｎ\\u200b \\n NODULES ")
    'seven nodules'
    """
    if text.isascii() and text.isprintable():  # the fast path for most texts
        return " ".join(text.lower().split())
    spelled = unicodedata.normalize("NFKC", _POWER.sub("^", text.translate(_VISIBLE)))
    spelled = spelled[: max(4 * len(text), _GROWN)]  # one character may become 18
    folded = unicodedata.normalize("NFKC", spelled.casefold())
    return " ".join(folded.translate(_ASCII_SIGNS).split())


def strip_outer_punctuation(text: str) -> str:
    """`text` without outer punctuation; punctuation with a meaning stays: the sign of a number, 50%, HER2-, T2*.

    A minus or an exclamation mark before a word stays too: it may mean "not". Text that is only punctuation is left
    unchanged.

    >>> [strip_outer_punctuation(t) for t in ('"seven."', "**seven!**", "(-7)", ".5", "50%", "T2*", "!seven", "?")]
    ['seven', 'seven', '-7', '.5', '50%', 'T2*', '!seven', '?']
    """
    start, end = 0, len(text)
    kept_signs = "-%" if text.startswith("*") else "-%*"  # a star at both ends is emphasis
    while start < end and _is_outer(text[start]) and not _SIGNED_NUMBER.match(text, start):
        if text[start] in "!-" and text[start + 1 : start + 2].isalnum():
            break
        if text[start] == "-" and _SIGNED_NUMBER.match(text, start + 1):
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

    A sign that makes another value of a label or number stays with it, however it is written.

    >>> normalize_label(" Seven. "), normalize_label("- 7"), normalize_label("HER2 (–)"), normalize_label("Rh (+).")
    ('seven', '-7', 'her2-', 'rh+')
    """
    return strip_outer_punctuation(_attach_signs(fold_text(text)))


def read_label(value: object) -> str:
    """Return the label of a scalar, normalized; empty if the value is not a label.

    >>> read_label(" Seven. "), read_label(7), read_label(["seven"]), read_label("x" * 2000)
    ('seven', '7', '', '')
    """
    text = to_text(value)
    return "" if len(text) > LONGEST_LABEL else normalize_label(text)


def _attach_signs(text: str) -> str:
    """Folded text with the minus of a number, and the plus or minus that ends a label, beside what they belong to."""
    if "-" in text:
        text = _SPACED_MINUS.sub(r"\1-", text, count=1) if _SPACED_MINUS.match(text) else text
    elif "+" not in text:
        return text
    body = text.rstrip(" .,;:!?'\"`*_)]}>")
    word = body.rstrip("+-")
    signs, word = body[len(word) :], word.rstrip(" ([{<")
    return word + signs if signs and word and word[-1].isalnum() else text


def has_content(value: object) -> bool:
    """Return whether a field says anything: text that can be seen, a number, or a list or mapping with such a value.

    Of a text, the first `MAX_TEXT` characters are read.

    >>> [has_content(value) for value in (None, " ", "\u200b", [""], {}, {"a": [None]}, 0, False, "x")]
    [False, False, False, False, False, False, True, True, True]
    """
    waiting = [value]
    while waiting:  # no recursion: an answer may be nested to any depth
        item = waiting.pop()
        if isinstance(item, str):
            if fold_text(item[:LONGEST_LABEL]) or fold_text(item[:MAX_TEXT]):
                return True
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += item
        elif item is not None:
            return True
    return False


def quote_value(value: object) -> str:
    """Return the value of a field, as an explanation quotes it.

    >>> quote_value("No tumour"), quote_value(None), quote_value([1, 2])
    ("'No tumour'", 'nothing', '[1, 2]')
    """
    if value is None or value == "":
        return "nothing"
    if isinstance(value, str):
        size = f" ({len(value):,} characters; at most {MAX_TEXT:,} are compared)" if len(value) > MAX_TEXT else ""
        return repr(value if len(value) <= _MAX_QUOTE else value[:_MAX_QUOTE] + "…") + size
    return reprlib.repr(value)


# ---------------------------------------------------------------------- boxes
def read_boxes(
    value: object,
    format: AnyBoxFormat,
    box_key: str | None = None,
    label_key: str | None = None,
    max_boxes: int | None = None,
) -> Sequence[Labeled] | None:
    """Read one box, a list of boxes, or a list of objects with a box; `None` if the value is none of these.

    Only the first `max_boxes` are read.

    >>> read_boxes([0, 0, 1, 1], "xyxy")
    [((0.0, 0.0, 1.0, 1.0), '')]
    >>> read_boxes([{"at": [0, 0, 1, 1], "is": "Cyst"}, "left"], "xyxy", "at", "is")
    [((0.0, 0.0, 1.0, 1.0), 'cyst'), (None, '')]
    >>> read_boxes("left", "xyxy") is None
    True
    """
    if box_key is None and (box := parse_box(value, format)) is not None:
        return [(box, "")]
    if isinstance(value, Mapping):
        return None if box_key is None else [_read_object(value, format, box_key, label_key)]
    if not isinstance(value, _LISTS):
        return None
    if box_key is not None:
        return [_read_object(item, format, box_key, label_key) for item in value[:max_boxes]]
    if value and not isinstance(value[0], _LISTS):
        return None  # a flat list that is not a box
    return [(parse_box(item, format), "") for item in value[:max_boxes]]


def parse_box(value: object, format: str) -> Box | None:
    """Return the box as xyxy (or xyzxyz) floats; `None` unless it is a box of positive, finite area (or volume)."""
    if format == "xyzxyz":
        return _parse_box_3d(value)
    if not isinstance(value, _LISTS) or len(value) != 4:
        return None
    x1, y1, x2, y2 = value
    if not type(x1) is type(y1) is type(x2) is type(y2) is float:
        x1, y1, x2, y2 = map(to_finite_float, value)
        if x1 is None or y1 is None or x2 is None or y2 is None:
            return None
    if format == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if not (x1 < x2 and y1 < y2 and 0 < (x2 - x1) * (y2 - y1) < 1e300):  # no NaN or infinity passes
        return None
    return x1, y1, x2, y2


def _parse_box_3d(value: Any) -> Box | None:
    if not isinstance(value, _LISTS) or len(value) != 6:
        return None
    numbers = [to_finite_float(item) for item in value]
    if any(number is None for number in numbers):
        return None
    box = tuple(number for number in numbers if number is not None)
    sides = [box[i + 3] - box[i] for i in range(3)]
    return box if min(sides) > 0 and 0 < math.prod(sides) < 1e300 else None


def convert_to_fractions(boxes: Sequence[Labeled], frame: Frame, size: Any) -> list[Labeled] | None:
    """Return the boxes as fractions of the image; `None` if they are pixels and `size` is not [width, height].

    >>> convert_to_fractions([((0, 0, 500, 250), "")], "per_mille", None)
    [((0.0, 0.0, 0.5, 0.25), '')]
    >>> convert_to_fractions([((0, 0, 320, 240), "")], "pixel", [640, 480])
    [((0.0, 0.0, 0.5, 0.5), '')]
    """
    if frame == "unit":
        return list(boxes)
    across: float | None = 1000.0
    down: float | None = 1000.0
    if frame == "pixel":
        two = isinstance(size, _LISTS) and len(size) == 2
        across, down = (to_finite_float(size[0]), to_finite_float(size[1])) if two else (None, None)
    if across is None or down is None or across < 1 or down < 1:
        return None
    converted: list[Labeled] = []
    for box, label in boxes:
        # a box whose area vanishes becomes None
        scaled = None if box is None else (box[0] / across, box[1] / down, box[2] / across, box[3] / down)
        converted.append((parse_box(scaled, "xyxy"), label))
    return converted


def compute_area(box: Box) -> float:
    """Width times height, in the square of the box's own unit; of a box in a volume also times depth."""
    if len(box) == 6:
        return (box[3] - box[0]) * (box[4] - box[1]) * (box[5] - box[2])
    return (box[2] - box[0]) * (box[3] - box[1])


def _read_object(value: Any, format: AnyBoxFormat, box_key: str, label_key: str | None) -> Labeled:
    return parse_box(get_field(value, box_key), format), read_label(get_field(value, label_key)) if label_key else ""
