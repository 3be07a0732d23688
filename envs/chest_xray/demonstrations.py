"""The looks after which a drawn case can be answered: what its demonstrations do before they answer.

`guess_findings` is a specialist for runs that measure whether a policy learns which of its tools to trust:

    specialists:
      classify_b: {kind: function, function: "viewbox.envs.chest_xray.demonstrations:guess_findings"}

Its results have the form of the classifier's with `top_k: 1`. They depend on the pixels, so that asking twice brings
nothing new, and on nothing that the film shows.
"""

import hashlib
import json
from typing import Any

import numpy as np

from ...core.base import get_offered_tools
from ...core.messages import write_call
from ...records import Task
from ...tools import Picture, Tool, ToolOutput
from . import cases
from .radiographs import LABELS

ASKED = "On which side is the pain?"
PHRASE = "nodule"  # what a tool is asked for if the film shows nothing


def write_looks(env: Any, task: Task) -> tuple[str, ...]:
    """Return a question back if the answer needs one; then one reply that asks every tool in `bearing`, on every film.
    If none of them can be asked, it zooms to the finding. The task of the `ChestXray` is a drawn one."""
    kind, seed = task.metadata["question"], task.metadata["seed"]
    case = cases.plan_case(seed, kind)
    replies = []
    if kind == "complaint" and env.max_questions:
        replies.append(ASKED if env.answer is None else json.dumps({"ask": ASKED, "continue": False}))
    offered = get_offered_tools(env, task)
    images = ["image_1"] if case.earlier is None else ["image_1", "image_2"]
    phrase = PHRASE if case.spot is None else cases.name_finding(case.findings[case.spot])
    named = dict.fromkeys((*env.bearing.get(kind, ()), *env.bearing.get("all", ())))
    calls = [
        write_call(name, arguments)
        for name in named
        if name in offered
        for image in images
        if (arguments := _fill_arguments(env.toolbox[name], image, phrase)) is not None
    ]
    if not calls and "zoom" in offered and case.spot is not None:
        box = cases.draw_case(seed, kind, env.difficulty)[0].findings[case.spot].box
        x1, y1, x2, y2 = env.write_box(box, task)
        calls.append(write_call("zoom", {"factor": 2, "center": [(x1 + x2) / 2, (y1 + y2) / 2]}))
    return (*replies, *(["\n".join(calls)] if calls else []))


def write_stray_look(env: Any, task: Task, rng: np.random.Generator) -> tuple[str, ...]:
    """Return one call of a tool that does not bear on the question, such as a decoy; empty if there is none."""
    bears = {*env.bearing.get(task.metadata["question"], ()), *env.bearing.get("all", ())}
    calls = [
        write_call(name, arguments)
        for name in get_offered_tools(env, task)
        if name not in bears and (arguments := _fill_arguments(env.toolbox[name], "image_1", PHRASE)) is not None
    ]
    return (calls[int(rng.integers(len(calls)))],) if calls else ()


def _fill_arguments(tool: Tool, image: str, phrase: str) -> dict[str, Any] | None:
    """Arguments for a call about a picture: texts become the phrase. None if the tool needs others."""
    arguments: dict[str, Any] = {}
    for name in tool.required:
        spec = tool.parameters[name]
        if spec.get("x-kind") == "picture":
            arguments[name] = image
        elif spec.get("type") == "string" and "enum" not in spec:
            arguments[name] = phrase
        else:
            return None
    return arguments if tool.takes_pictures else None


def guess_findings(image: Picture) -> ToolOutput:
    """Return the most probable finding on a picture, from a classifier."""
    digest = hashlib.blake2b(np.ascontiguousarray(image.to_gray()).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    number = int(rng.integers(len(LABELS) + 1))
    shown = number < len(LABELS)
    label = LABELS[number] if shown else LABELS[int(rng.integers(len(LABELS)))]
    share = rng.uniform(0.9, 1.0) if shown else rng.uniform(0.0, 0.3)
    text = f"probabilities (the highest; {len(LABELS) - 1} labels left out)"
    return ToolOutput(text, {label: round(float(share), 4)})
