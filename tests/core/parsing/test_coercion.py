"""The same value is taken or refused, and read alike, whether the answer is a pydantic model or a JSON Schema."""

from enum import Enum
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel

from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward

REFUSED = object()


class Side(Enum):
    LEFT = "left"


class Rank(Enum):
    FIRST = 1
    SECOND = 2


FORMS = {
    "number": (float, {"type": "number"}),
    "integer": (int, {"type": "integer"}),
    "boolean": (bool, {"type": "boolean"}),
    "text": (str, {"type": "string"}),
    "number or null": (float | None, {"type": ["number", "null"]}),
    "number or text": (float | str, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
    "word or null": (Literal["a", "b"] | None, {"enum": ["a", "b", None]}),
    "grade": (Literal[1, 2], {"enum": [1, 2]}),
    "grade or null": (Literal[1, 2] | None, {"enum": [1, 2, None]}),
    "grades": (list[Literal[0, 1]], {"items": {"enum": [0, 1]}}),
    "always": (Literal[True], {"const": True}),
    "rank": (Rank, {"$ref": "#/$defs/Rank", "$defs": {"Rank": {"enum": [1, 2]}}}),
    "side": (Side, {"$ref": "#/$defs/Side", "$defs": {"Side": {"enum": ["left"]}}}),
    "list": (list[int], {"type": "array", "items": {"type": "integer"}}),
    "pair": (tuple[int, str], {"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
    "object": (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    "null": (None, {"type": "null"}),
}


@pytest.mark.parametrize("is_model", [True, False], ids=["pydantic", "JSON Schema"])
@pytest.mark.parametrize(
    ("form", "said", "read"),
    [
        ("number", "3.5", 3.5), ("number", "95", 95), ("number", "-0.25", -0.25), ("number", 3, 3),
        ("number", "3.50", REFUSED), ("number", "95%", REFUSED),
        ("number", "1e400", REFUSED), ("number", "nan", REFUSED),
        ("number", "07", REFUSED), ("number", "\u0663", REFUSED),
        ("integer", "3", 3), ("integer", 3.0, 3), ("integer", "3.0", 3), ("integer", 3.5, REFUSED),

        ("boolean", "true", True), ("boolean", "false", False), ("boolean", "Yes", REFUSED),
        ("boolean", "True", REFUSED),
        ("boolean", 1, REFUSED), ("boolean", 0, REFUSED),
        ("text", "3", "3"), ("text", 3, REFUSED), ("text", "true", "true"), ("text", None, REFUSED),
        ("number or null", "2.5", 2.5), ("number or null", None, None), ("number or null", "null", None),
        ("number or null", "None", REFUSED), ("number or text", "3", "3"), ("number or text", 3, 3),
        ("word or null", "a", "a"), ("word or null", None, None), ("word or null", "null", None),
        ("word or null", "c", REFUSED), ("grade", 2, 2), ("grade", 2.0, 2), ("grade", "2", 2), ("grade", "3", REFUSED),
        ("grade", True, REFUSED), ("grade", "true", REFUSED), ("grade", "1", 1),
        ("grade or null", True, REFUSED), ("grade or null", "null", None), ("grades", [False, 1], REFUSED),
        ("grades", ["0", 1.0], [0, 1]), ("always", "true", True), ("always", 1, REFUSED), ("always", 1.0, REFUSED),
        ("rank", True, REFUSED), ("rank", "2", 2), ("side", "left", "left"), ("side", "LEFT", "left"),
        ("side", "lef", REFUSED), ("word or null", "A", "a"),
        ("list", ["1", 2.0, 3], [1, 2, 3]), ("list", ["a"], REFUSED), ("list", "[1]", REFUSED),
        ("pair", ["1", "2"], [1, "2"]), ("pair", [1, 2], REFUSED),
        ("object", {"a": "0.5"}, {"a": 0.5}), ("object", {"a": "x"}, REFUSED), ("null", "null", None),
    ],
)  # fmt: skip
def test_both_forms_read_a_value_alike(is_model, form, said, read):
    hint, schema = FORMS[form]
    model = type("Model", (BaseModel,), {"__annotations__": {"v": hint}})
    definitions = schema.get("$defs", {})
    schema = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": definitions}

    class Own(BaseMultiTurnEnv):
        name = "own"
        answer: ClassVar = model if is_model else schema
        reward = ExactMatchReward("v")

    answer, problem = check_answer(Own(), {"v": said}, Task("t"))
    if read is REFUSED:
        assert problem is not None
    else:
        assert problem is None
        assert (answer["v"], type(answer["v"]) is bool) == (read, type(read) is bool)
