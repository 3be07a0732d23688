"""Every sentence the environment itself says to the model, in one place.

They are short on purpose: on token paths each of them is context the policy pays for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

ANSWER = "When you are sure, answer with one JSON object: {skeleton}"
VIEWS = 'Pictures have view numbers. A box is in the view whose number you give as "{field}" (0: the first picture).'
TOTAL_CALLS = "At most {calls} of tools in all."
IMAGES = "There are {count} images, numbered from 0; this is image 0."
FIRST_IMAGE = " Boxes in the answer are of image 0."
VIEW = "view: {number}"
COORDINATES = "Coordinates are {unit}, x right, y down."
LAST_TURN = "Last turn: no more tool calls. Answer now with {keys}."
MALFORMED = "Not usable: {reason}. Reply with a tool call or with {skeleton}"
FINALISE = "Stop and answer now with {skeleton}"
NOTES = "Turn {turn} of {max_turns}. Go on: call a tool or give the final answer."
REFUSED = "no tool call is possible on the last turn"


def skeleton(schema: Mapping[str, Any] | None, boxes: Sequence[str] = ()) -> str:
    """An answer's shape, from its JSON Schema: examples where the schema has them, placeholders elsewhere.

    >>> skeleton({"properties": {"label": {"type": "string"}, "where": {"type": "array"}}}, ["where"])
    '{"label": "…", "where": [x1, y1, x2, y2], "continue": false}'
    """
    if schema is None:
        return "plain text"
    filled = {name: _placeholder(spec) for name, spec in schema.get("properties", {}).items()}
    filled |= dict.fromkeys(boxes, "<box>")
    return json.dumps(filled | {"continue": False}, ensure_ascii=False).replace('"<box>"', "[x1, y1, x2, y2]")


def _placeholder(spec: Mapping[str, Any]) -> Any:
    if spec.get("examples"):
        return spec["examples"][0]
    if "enum" in spec:
        return "|".join(map(str, spec["enum"]))
    kind = spec.get("type", "string")
    kind = kind[0] if isinstance(kind, list | tuple) and kind else kind  # ["string", "null"]
    return {"string": "…", "number": 0.0, "integer": 0, "boolean": False, "array": [], "object": {}}.get(kind, "…")
