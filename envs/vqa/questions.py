"""What a question of a dataset is: its accepted answers, its choices, and its kind."""

import re
import string
from collections.abc import Sequence
from typing import Any

from ...rewards.fields import normalize_label, to_text
from ..data.fields import MAX_TEXT, MappedRow

KINDS = ("closed", "open", "choice")
CLOSED = ("yes", "no", "maybe")  # an answer that makes its question a closed one
MAX_CHOICES = 26
_SPELLINGS = {"close": "closed", "yes/no": "closed", "yesno": "closed", "freeform": "open", "mcq": "choice"}


def read_answers(row: MappedRow, name: str, value: Any) -> list[str | int | float]:
    """The accepted answers of a field that holds a text, a number, true or false, or a list of them.

    Raises `BadRow`.
    """
    answers = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, bool):
            item = "yes" if item else "no"
        text = to_text(item)
        if not text.strip() or len(text) > MAX_TEXT:
            raise row.refuse(name, value, "a text, a number, or a list of them")
        answers.append(item)
    if not answers:
        raise row.refuse(name, value, "a text, a number, or a list of them")
    return answers


def read_kind(row: MappedRow, name: str, value: str | None, answers: Sequence[Any], choices: Sequence[str]) -> str:
    """The kind of a question: as the dataset says, else from its choices and answers. Raises `BadRow`.

    `close-ended`, `Single-choice question` and the like are understood.
    """
    if value is None:
        if choices:
            return "choice"
        return "closed" if all(normalize_label(to_text(answer)) in CLOSED for answer in answers) else "open"
    words = value.casefold().replace("-", " ").replace("_", " ").split()
    for word in words:
        if (kind := _SPELLINGS.get(word, word)) in KINDS:
            return kind
    raise row.refuse(name, value, "closed, open or choice")


def read_choices(row: MappedRow, name: str, value: Sequence[Any]) -> list[str]:
    """The choices as texts, each once. Raises `BadRow`."""
    texts = _strip_letters([to_text(item).strip() for item in value])
    different = {normalize_label(text) for text in texts}
    if not 2 <= len(texts) <= MAX_CHOICES or "" in different or len(different) < len(texts):
        raise row.refuse(name, list(value), f"2 to {MAX_CHOICES} different texts")
    return texts


def _strip_letters(texts: list[str]) -> list[str]:
    """The choices without the letters that a dataset wrote before each of them.

    >>> _strip_letters(["A. left", "B) right"]), _strip_letters(["A. left", "right"])
    (['left', 'right'], ['A. left', 'right'])
    """
    marked = [re.fullmatch(r"\(?([A-Z])[.):]\s*(\S.*)", text, re.DOTALL) for text in texts]
    letters = [match[1] for match in marked if match]
    if letters != list(string.ascii_uppercase[: len(texts)]):
        return texts
    return [match[2].strip() for match in marked if match]


def get_letters(choices: Sequence[str]) -> Sequence[str]:
    """The letters before the choices; none if a choice is itself a letter, or a number."""
    if any(len(text) == 1 or text.isdigit() for text in choices):
        return ()
    return string.ascii_uppercase[: len(choices)]


def accept_choices(row: MappedRow, name: str, answers: Sequence[Any], choices: Sequence[str]) -> list[str]:
    """The spellings of the right choices: the text, its letter, and both. Raises `BadRow` if it is not among them."""
    letters, numbers = get_letters(choices), list[int]()
    labels = [normalize_label(text) for text in choices]
    for answer in answers:
        label = normalize_label(to_text(answer))
        if label in labels:
            number = labels.index(label)
        elif letters and label.upper() in letters and len(label) == 1:
            number = letters.index(label.upper())
        else:
            raise row.refuse(name, answer, f"one of the choices: {'; '.join(choices):.200}")
        numbers.append(number)
    return list_spellings(numbers, choices)


def list_spellings(numbers: Sequence[int], choices: Sequence[str]) -> list[str]:
    """How the choices of these numbers may be written: the text, its letter, and both.

    >>> list_spellings([1], ["left lung", "right lung"])
    ['right lung', 'B', 'B. right lung']
    """
    letters, spellings = get_letters(choices), list[str]()
    for number in numbers:
        spellings.append(choices[number])
        if letters:
            spellings += [letters[number], f"{letters[number]}. {choices[number]}"]
    return spellings


def write_choices(choices: Sequence[str]) -> str:
    """The choices as lines, with their letters."""
    letters = get_letters(choices)
    marks = [f"{letter}." for letter in letters] or ["-"] * len(choices)
    return "\n".join(f"{mark} {text}" for mark, text in zip(marks, choices, strict=True))
