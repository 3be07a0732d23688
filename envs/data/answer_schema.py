"""Parts of the answer schemas that families build from what is mapped."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...utils.frozen import FrozenDict

MAX_BOXES = 300  # of an answer, and of a row
TEXT: Mapping[str, Any] = FrozenDict(type="string")
BOX: Mapping[str, Any] = FrozenDict(type="array", items={"type": "number"}, minItems=4, maxItems=4)
BOX_3D: Mapping[str, Any] = FrozenDict(type="array", items={"type": "number"}, minItems=6, maxItems=6)
INDEX: Mapping[str, Any] = FrozenDict(type=["integer", "null"])


def build_boxes(*, labeled: bool = False, classes: Sequence[str] = (), box: Mapping[str, Any] = BOX) -> dict[str, Any]:
    """A list of boxes, or of objects with `label` and `box`; `classes` are the allowed labels, empty: any."""
    if not labeled:
        return {"type": "array", "items": box, "maxItems": MAX_BOXES}
    label = {"type": "string", "enum": list(classes)} if classes else TEXT
    item = {"type": "object", "properties": {"label": label, "box": box}, "required": ["label", "box"]}
    return {"type": "array", "items": item, "maxItems": MAX_BOXES}


def build_object(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object that has all of these fields."""
    return FrozenDict(type="object", properties=dict(properties), required=list(properties))
