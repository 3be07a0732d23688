"""The looks after which a case can be answered: a search, and a closer view of what the article speaks of."""

import json
from collections.abc import Mapping
from typing import Any

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.literature_vqa import cases
from viewbox.envs.literature_vqa.sentences import write_query
from viewbox.envs.phantom.anatomy import ORGAN_VALUES
from viewbox.envs.phantom.env import WINDOW_WIDTH
from viewbox.records import Task

NEEDS_PICTURE = ("shows", "dose", "cause", "class")  # questions whose answer also depends on the picture
SLICE_ZOOM, FILM_ZOOM = 4.0, 2.0


def write_looks(env: BaseMultiTurnEnv, task: Task, case: cases.Case) -> tuple[str, ...]:
    """A search in the literature, if a tool can; then a look at the finding, if the answer depends on it."""
    offered = env.get_offered_tools(task)
    replies = []
    web = next((f"{name}_web" for name, one in env.specialists.items() if one.kind == "literature"), None)
    if web in offered:
        replies.append(_write_call(str(web), {"query": write_query(case.fact)}))
    if task.metadata["question"] in NEEDS_PICTURE:
        calls = [_write_call(name, arguments) for name, arguments in _look(env, task, case).items() if name in offered]
        replies += ["\n".join(calls)] if calls else []
    return tuple(replies)


def _look(env: BaseMultiTurnEnv, task: Task, case: cases.Case) -> dict[str, dict[str, Any]]:
    """The calls that show the finding of a case, by tool."""
    seed, difficulty = task.metadata["seed"], getattr(env, "difficulty", 0.0)
    if task.metadata["question"] == "class":
        lesion = cases.draw_case_slice(seed, difficulty).lesion
        assert lesion is not None
        window = {"center": ORGAN_VALUES[lesion.organ], "width": WINDOW_WIDTH}
        return {"window_level": window, "zoom": {"factor": SLICE_ZOOM, "center": _find_center(env, task, lesion.box)}}
    [shown] = cases.draw_case_film(case, seed, difficulty).findings
    return {"zoom": {"factor": FILM_ZOOM, "center": _find_center(env, task, shown.box)}}


def _find_center(env: BaseMultiTurnEnv, task: Task, box: tuple[float, float, float, float]) -> list[float]:
    """The center of a box as the model writes points of the overview."""
    x1, y1, x2, y2 = env.write_box(box, task)
    return [(x1 + x2) / 2, (y1 + y2) / 2]


def _write_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
