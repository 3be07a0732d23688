"""A family of tasks read from data, and small datasets for it."""

import json
from typing import ClassVar

import numpy as np
from PIL import Image

import viewbox
from viewbox.envs.data import DataEnv, TaskField

COLUMNS = {"id": "id", "image": "image", "question": "question", "answer": "answer"}


class Questions(DataEnv):
    """Questions with a plain text answer."""

    name = "questions"
    max_turns = 2
    fields: ClassVar = {
        "question": TaskField("prompt", "text"),
        "answer": TaskField("reference", "text", allowed=("yes", "no")),
        "box": TaskField("reference", "box", required=False),
    }
    reward = viewbox.ExactMatchReward("text", reference_field="answer")


def make_rows(count=6):
    answers = ("no", "yes")
    return [
        {"id": f"t{i}", "image": f"{i}.png", "question": f"Is {i} odd?", "answer": answers[i % 2], "level": i / 10}
        for i in range(count)
    ]


def write_images(folder, count=6, size=(30, 20)):
    folder.mkdir(exist_ok=True)
    for i in range(count):
        Image.fromarray(np.full((size[1], size[0]), i * 10, np.uint8)).save(folder / f"{i}.png")


def write_jsonl(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def make_env(source, columns=COLUMNS, **data):
    return Questions(data={"source": str(source), "columns": columns, **data})


def list_ids(env):
    return [task.id for task in env.tasks]
