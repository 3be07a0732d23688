"""The one grammar of a path to a value: of a dataset's column, and of a reward's field."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any


def list_heads(path: str) -> list[str]:
    """Return the keys with which a path may begin, the longest first: a key may hold dots.

    >>> list_heads("a.b.c")
    ['a.b.c', 'a.b', 'a']
    """
    return [*accumulate(path.split("."), "{}.{}".format)][::-1]


def follow_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path, whose keys may hold dots; a number is a place in a list, and `*` stands for
    all places. None if there is none.

    >>> row = {"objects": [{"label": "nodule"}, {"label": "mass"}], "a.b": 3}
    >>> [follow_path(row, path) for path in ("objects.1.label", "objects.*.label", "a.b", "objects.9", "x")]
    ['mass', ['nodule', 'mass'], 3, None, None]
    """
    if not path:
        return value
    if isinstance(value, Mapping):
        head = next((head for head in list_heads(path) if head in value), None)
        return None if head is None else follow_path(value[head], path[len(head) + 1 :])
    head, _, rest = path.partition(".")
    if not isinstance(value, list | tuple):
        return None
    if head == "*":
        return [follow_path(item, rest) for item in value]
    return follow_path(value[int(head)], rest) if head.isdecimal() and int(head) < len(value) else None
