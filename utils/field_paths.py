"""Paths to values: of a dataset's column, of a reward's field, and of an answer's boxes.

Boxes lie in a field (`bbox`), a list (`boxes[]`), or a list of objects (`items[].box`).
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from ..errors import ToolError
from .frozen import PlainRecord


def list_heads(path: str) -> list[str]:
    """Return the keys with which a path may begin, the longest first: a key may hold dots.

    >>> list_heads("a.b.c")
    ['a.b.c', 'a.b', 'a']
    """
    return [*accumulate(path.split("."), "{}.{}".format)][::-1]


def follow_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path, whose keys may hold dots; a record's fields are keys, a number is a place in
    a list, and `*` stands for all places. None if there is none.

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
    if isinstance(value, PlainRecord):
        return follow_path(getattr(value, head), rest) if head in value.list_fields() else None
    if not isinstance(value, list | tuple):
        return None
    if head == "*":
        return [follow_path(item, rest) for item in value]
    return follow_path(value[int(head)], rest) if head.isdecimal() and int(head) < len(value) else None


Convert = Callable[[Any, str], Any]  # (box, its name in messages) -> the converted box


class BoxPath(NamedTuple):
    """A path of `boxes`: the field, whether it holds a list, and the key of the box in each item ("": the item)."""

    field: str
    is_list: bool
    key: str

    @classmethod
    def parse(cls, path: str) -> "BoxPath":
        """
        >>> BoxPath.parse("bbox"), BoxPath.parse("items[].box")
        (BoxPath(field='bbox', is_list=False, key=''), BoxPath(field='items', is_list=True, key='box'))
        """
        field, brackets, key = path.partition("[]")
        return cls(field, bool(brackets), key.removeprefix("."))


def has_box(answer: Mapping[str, object], path: str) -> bool:
    """Return whether the answer has the field of a path."""
    return answer.get(BoxPath.parse(path).field) is not None


def convert_at(answer: Mapping[str, object], path: str, convert: Convert) -> dict[str, Any]:
    """Return the answer with the boxes at a path converted. Raise `ToolError` if the path does not fit.

    >>> convert_at({"boxes": [[0, 1], [2, 3]]}, "boxes[]", lambda box, name: sum(box))
    {'boxes': [1, 5]}
    >>> convert_at({"items": [{"box": [0, 1], "label": "a"}]}, "items[].box", lambda box, name: (name, sum(box)))
    {'items': [{'box': ('items[0].box', 1), 'label': 'a'}]}
    """
    field, is_list, key = BoxPath.parse(path)
    value = answer.get(field)
    if value is None:
        return dict(answer)
    if not is_list:
        return {**answer, field: convert(value, field)}
    if not isinstance(value, list | tuple):
        raise ToolError(f"{field}: must be a list of boxes")
    items = []
    for number, item in enumerate(value):
        if not key:
            items.append(convert(item, f"{field}[{number}]"))
        elif isinstance(item, Mapping):
            items.append({**item, key: convert(item.get(key), f"{field}[{number}].{key}")})
        else:
            raise ToolError(f"{field}[{number}]: must be an object with the key {key}")
    return {**answer, field: items}


def is_number_list(value: Any, count: int) -> bool:
    """Return whether a value is a list of so many numbers."""
    return isinstance(value, list) and len(value) == count and all(type(item) in (int, float) for item in value)
