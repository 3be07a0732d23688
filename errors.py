"""The one hierarchy of errors that viewbox raises.

Every message names the value that was given, the values that are allowed, and where the value came from (file, line,
key). Model output never raises: it becomes an observation or a named end of the episode (see `viewbox.core.base`).
"""

import json
from collections.abc import Callable, Iterable
from difflib import get_close_matches

MAX_LISTED = 40  # names in an error message; of more than these it lists the nearest


class ViewboxError(Exception):
    """Base class: catch it to catch everything viewbox raises on purpose.

    Args:
        message: the sentence a person reads.
        key: the setting, field or column it is about, dotted as in the YAML file ("env.tools"), for programs.

    >>> ConfigError("speed = 3; allowed: 1, 2", key="speed").key
    'speed'
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class ConfigError(ViewboxError, ValueError):
    """A configuration (YAML, override, constructor argument) that cannot be used."""


class ImageError(ViewboxError, ValueError):
    """An image that cannot be opened, or is not where the task says."""


class BadRow(ViewboxError, ValueError):
    """A row of a dataset that no task can be made of.

    Args:
        dataset: the name of the dataset.
        row: its place, such as "line 7".
        column: the column, or the field of the task that it was to fill.
        given: the value; a long one is cut, and bytes are only counted.
        expected: what would have been accepted.

    >>> print(BadRow("train.jsonl", "line 7", "answer", None, "one of: yes, no"))
    train.jsonl: line 7: column 'answer' is null; expected: one of: yes, no
    """

    ends_run = False  # set if a bad row is not to be skipped

    def __init__(self, dataset: str, row: str, column: str, given: object, expected: str) -> None:
        self.dataset, self.row, self.column, self.expected = dataset, row, column, expected
        what = f"the {column[5:-1]}" if column.startswith("(the ") else f"column {column!r}"
        super().__init__(f"{dataset}: {row}: {what} is {describe_value(given)}; expected: {expected}", key=column)
        self.given = given


MAX_VALUE = 80  # characters of a value that a message repeats


def describe_value(value: object) -> str:
    """Return a value as a message repeats it: cut if it is long, and in one line.

    >>> describe_value(None), describe_value(b"abc"), describe_value("a" * 1000)[-21:]
    ('null', '3 bytes', "…' (1,000 characters)")
    """
    if value is None:
        return "null"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        return (
            repr(value) if len(value) <= MAX_VALUE else f"{value[: MAX_VALUE - 20] + '…'!r} ({len(value):,} characters)"
        )
    if isinstance(value, list | tuple | dict) and len(value) > 20:
        return f"a {type(value).__name__} of {len(value):,} items"
    text = repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


class Unmeasurable(ViewboxError, ValueError):
    """A reference that no answer can meet, such as a box with reversed corners: it says nothing about an answer.
    A reward raises it. A component that does fails, so that the episode has no score; a metric leaves the pair out."""


class ToolError(ViewboxError, ValueError):
    """A tool call that cannot be carried out, because of what the model asked for: it reads the message."""


class ToolFault(ViewboxError):
    """A tool that cannot work, whatever the model asks for: its server is down, its model failed.
    It ends the episode as `error`, as any other exception of a tool does, but the call is not tried once more."""


class ArgumentError(ToolError):
    """A tool call that is refused for its arguments: the tool did not run, and none of its calls is spent."""


class StoreError(ViewboxError, ValueError):
    """A folder of saved episodes that cannot be read or written."""


class ModelError(ViewboxError, ValueError):
    """A model, processor or chat template that viewbox cannot drive."""


def show_json(value: object, limit: int = MAX_VALUE) -> str:
    """Return a value as a model writes it, in JSON; the middle of a long one is left out.

    >>> show_json({"sure": True}), show_json("left"), show_json(1.0000001)
    ('{"sure": true}', '"left"', '1.0000001')
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[: limit - limit // 4]} … {text[-(limit // 4) :]}"


def find_nearest(given: str, allowed: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the nearest allowed name; None if none is near. Case, spaces, `_` and `-` do not count.

    >>> find_nearest("Size mm", ["size_mm", "side"]), find_nearest("mri_t2", ["t1", "t2"])
    ('size_mm', 't2')
    """
    names = {"".join(filter(str.isalnum, name.casefold())) or name: name for name in sorted(allowed)}
    folded = "".join(filter(str.isalnum, given.casefold())) or given
    near = get_close_matches(folded, names, n=1, cutoff=cutoff)
    ending = (name for name in names.values() if cutoff < 1 and given.endswith(f"_{name}"))
    return next(ending, names[near[0]] if near else None)


def suggest_nearest(given: object, allowed: Iterable[str], quote: Callable[[str], str] = repr) -> str:
    """Return the end of a sentence that suggests the nearest allowed name; empty if none is near.

    >>> suggest_nearest("zom", ["zoom", "crop"])
    " (did you mean 'zoom'?)"
    """
    near = find_nearest(str(given), allowed)
    return "" if near is None else f" (did you mean {quote(near)}?)"


def describe_unknown(kind: str, given: str, allowed: Iterable[str], quote: Callable[[str], str] = repr) -> str:
    """Return the sentence for a name that does not exist, with the nearest name that does.
    What a model reads is quoted by `show_json`.

    >>> describe_unknown("tool", "zom", ["zoom", "crop"])
    "unknown tool 'zom'; allowed: crop, zoom (did you mean 'zoom'?)"
    """
    names = sorted(allowed)
    if len(names) > MAX_LISTED:
        near = get_close_matches(given, names, n=5)
        listed = f"one of {len(names)} names, such as {', '.join(near or names[:5])}"
    else:
        listed = ", ".join(names) or "none"
    return f"unknown {kind} {quote(given)}; allowed: {listed}{suggest_nearest(given, names, quote)}"
