"""The right answer of a task, written as a model writes it: for demonstrations, and to check a reward."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import ConfigError
from ..images.task_images import name_image
from ..records import Task
from ..utils.box_paths import convert_at
from ..utils.frozen import thaw
from .places import Part
from .state import PlayableEnv


class WritingEnv(PlayableEnv, Protocol):
    """What is read of an environment."""

    def write_box(self, box: Sequence[float], task: Task, place: Mapping[Part, Any] | None = None) -> list[float]: ...
    def write_box_3d(
        self, box: Sequence[float], task: Task, place: Mapping[Part, Any] | None = None
    ) -> list[float]: ...


def write_gold_answer(env: WritingEnv, task: Task) -> str:
    """The right answer as JSON text, boxes in the coordinates that the model writes.

    It is `env.gold_answer(task)` if the environment has that method, which then writes its boxes itself (`write_box`).
    Otherwise it is made of those fields that the answer has of `env.perfect_answer(task)`, whose boxes are fractions,
    or without that method of `task.reference`.

    Raises:
        ConfigError: the reference lacks a field that the answer requires, or has none of its fields.
    """
    own = getattr(env, "gold_answer", None)
    return json.dumps(thaw(_build_from_reference(env, task) if own is None else own(task)))


def _build_from_reference(env: WritingEnv, task: Task) -> dict[str, Any]:
    schema = env.answer_schema or {}
    fields, required = schema.get("properties", {}), schema.get("required", [])
    perfect_answer = getattr(env, "perfect_answer", None)
    right = task.reference if perfect_answer is None else perfect_answer(task)
    answer = {name: right[name] for name in fields if name in right}
    place = {part: answer[field] for part, field in env.place.items() if answer.get(field) is not None}
    if isinstance(place.get("slice"), list | tuple):  # the first and the last slice that count
        answer[env.place["slice"]] = place["slice"] = sum(place["slice"]) // 2
    if "image" in place:
        answer[env.place["image"]] = name_image(place["image"])
    if env.view_field is not None and not place:
        answer[env.view_field] = 0  # boxes of a reference are those of the original image
    missing = [name for name in required if name not in answer]
    if missing or not answer:
        what = f"lacks {', '.join(missing)}" if missing else "has no field of the answer"
        raise ConfigError(
            f"{env.name}: the reference of task {task.id} {what}, so that the right answer cannot be written; "
            "allowed: a method gold_answer(task) of the environment"
        )
    where = (place,) if place else ()
    for path in (*env.boxes, *env.boxes_3d):
        write = env.write_box_3d if path in env.boxes_3d else env.write_box

        def convert(box: Any, name: str, write: Callable[..., Any] = write) -> Any:
            return write(box, task, *where)

        answer = convert_at(answer, path, convert)
    return answer | ({"continue": False} if env.max_turns > 1 else {})  # the form that the prompt states
