"""The answer of `chest_xray` as a JSON Schema: a field for each thing that any of its tasks asks for."""

from collections.abc import Collection, Mapping
from typing import Any

from viewbox.envs.data.answer_schema import BOX
from viewbox.frozen import FrozenDict

MAX_FINDINGS, MAX_LENGTH = 100, 200  # of an answer; characters of a finding


def build_answer(asked: Collection[str], *, asks: bool) -> Mapping[str, Any]:
    """An object whose fields are all optional, because a task asks for some of them.

    Args:
        asked: what the tasks ask for: "text", "findings", "box".
        asks: whether the model may ask a question back.

    >>> list(build_answer({"text", "box"}, asks=True)["properties"])
    ['answer', 'bbox', 'ask']
    """
    fields: dict[str, Any] = {}
    if "text" in asked:
        fields["answer"] = {"type": ["string", "number", "null"]}
    if "findings" in asked:
        items = {"type": "string", "maxLength": MAX_LENGTH}
        fields["findings"] = {"type": ["array", "null"], "items": items, "maxItems": MAX_FINDINGS}
    if "box" in asked:
        fields["bbox"] = {"anyOf": [BOX, {"type": "null"}]}
    if asks:
        said = "a question to the referring doctor, instead of an answer"
        fields["ask"] = {"type": ["string", "null"], "description": said}
    return FrozenDict(type="object", properties=fields)
