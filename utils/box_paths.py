"""Where an answer holds its boxes: in a field (`bbox`), a list (`boxes[]`), or a list of objects (`items[].box`)."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..errors import ToolError

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


def list_boxes(answer: Mapping[str, object], paths: Iterable[str]) -> list[tuple[float, ...]]:
    """Return the boxes of a checked answer.

    >>> list_boxes({"boxes": [[0, 0, 1, 1]], "bbox": None}, ("bbox", "boxes[]"))
    [(0, 0, 1, 1)]
    """
    boxes: list[tuple[float, ...]] = []
    for path in paths:
        with suppress(ToolError):
            convert_at(answer, path, lambda box, name: boxes.append(tuple(box)) if box else None)
    return boxes
