"""A family of tasks read from data, and small datasets for it."""

import json
from typing import ClassVar

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import csv, parquet

import viewbox
from viewbox.envs.data import DataEnv, TaskField
from viewbox.errors import ConfigError

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
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.fromarray(np.full((size[1], size[0]), i * 10, np.uint8)).save(folder / f"{i}.png")


def write_jsonl(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def write_table(path, rows, group=2):
    """A file of the kind that its name ends with; a Parquet or Arrow file has groups of so many rows."""
    table = None if path.suffix in (".jsonl", ".json") else pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        write_jsonl(path, rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=group)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=group)
    return path


def make_env(source, columns=COLUMNS, **data):
    return Questions(data={"source": source if isinstance(source, dict) else str(source), "columns": columns, **data})


def refuse(said, source, columns=COLUMNS, **data):
    import pytest  # not for a process that only plays `Questions`

    with pytest.raises(ConfigError) as caught:
        len(make_env(source, columns, **data).tasks)
    assert said in str(caught.value)


def list_ids(env):
    return [task.id for task in env.tasks]
