"""`docs/data.md`: every block of YAML opens tasks, every key is on the page, and the family at its end works."""

import json
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tests.support.data_kit import write_images, write_jsonl, write_table
from viewbox.cli.app import app
from viewbox.configs.schema import parse
from viewbox.envs.data.settings import BoxForm, CellForm, DataSettings, Difficulty, HoldOut, Sample
from viewbox.envs.from_config import build_envs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
YAMLS = [code for language, code in BLOCKS if language == "yaml"]
[VOLUMES] = [code for code in YAMLS if "plane:" in code]
[VOXELS] = [code for code in YAMLS if "frame: voxel" in code]
[FAMILY] = [code for language, code in BLOCKS if language == "python"]
[LINE] = [code for language, code in BLOCKS if language == "json"]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The folder that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "study"
    write_images(folder / "images", 2, (60, 40))
    first = json.loads(LINE)
    more = {"meta": {"modality": "CT", "prior": "1.png"}, "findings": [{"label": "line", "box": [6, 4, 12, 8]}]}
    rows = [{**first, **more, "id": f"case-{i}", "patient": f"p{i // 2}", "level": i / 20} for i in range(20)]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "other.jsonl", rows[:4])
    write_jsonl(folder / "broken.jsonl", [*rows[:4], {**rows[5], "answer": None}])
    flat = [("id", "image", "question", "answer", "patient"), *(list(row.values())[:5] for row in rows)]
    (folder / "table.csv").write_text("\n".join(",".join(line) for line in flat))
    boxes = "c1,1.png,6,4,12,8,line\nc2,1.png,30,20,60,40,tube\n"
    (folder / "long.csv").write_text(f"id,image,x1,y1,x2,y2,finding\n{boxes}")
    content = {"bytes": (folder / "images" / "1.png").read_bytes(), "path": None}
    write_table(folder / "train.parquet", [{**row, "image": content} for row in rows])
    (folder / "ct").mkdir()
    image = nib.Nifti1Image(np.zeros((40, 50, 60), np.int16), np.diag([-1.0, -1.0, 1.0, 1.0]))
    nib.save(image, folder / "ct" / "a.nii.gz")
    boxed = {"id": "a", "scan": "a.nii.gz", "finding": "cyst", "box": [4, 6, 20, 30], "plane": "coronal", "slice": 7}
    write_jsonl(folder / "boxes.jsonl", [boxed])
    (tmp_path / "yes_no.py").write_text(FAMILY)


def build(text):
    return build_envs(parse({"model": {"name": "m"}, **yaml.safe_load(text)}), {})


COUNTS = [17, 20, 14, 1, 8, 20, 20, 20, 1, 1, 3, 4, 20]  # of the training tasks of each block


def test_every_block_opens_its_tasks(study):
    for text, count in zip(YAMLS, COUNTS, strict=True):
        env, held_out = build(text)
        assert len(env.tasks) == count, text
        answer = env.write_answer(env.tasks[0])
        assert env.play(env.tasks[0], lambda messages, answer=answer: answer).scores.total == 1.0, text
        if held_out.data.split == "test":
            assert len(held_out.tasks) == (4 if isinstance(env.data.source, dict) else 20 - count), text


def test_blocks_give_the_fractions_columns_and_bad_rows_that_the_page_says_and_the_family_at_the_end_opens_its_tasks(
    study,
):
    [text] = [text for text in YAMLS if "xywh" in text]
    assert build(text)[0].tasks[0].reference["boxes"][0] == pytest.approx((0.1, 0.1, 0.3, 0.3))
    right = {"boxes": ((0.1, 0.1, 0.5, 0.5),), "plane": "coronal", "slice": 7}
    assert build(VOLUMES)[0].tasks[0].reference == right
    right = {"boxes": ((0.1, 0.12, 0.5, 0.6),), "plane": "axial", "slice": 7}  # of 40 x 50; it lies as it is shown
    assert build(VOXELS)[0].tasks[0].reference == right
    [text] = [text for text in YAMLS if "meta.prior" in text]
    env, _ = build(text)
    task = env.tasks[0]
    assert task.prompt["question"] == "Is there a fracture? (modality: CT)"
    assert task.metadata == {"organ": "chest", "modality": "CT", "first": "line", "row": 0}
    assert len(env.images(task)) == 2
    raw = yaml.safe_load(text)
    raw["env"]["name"] = "yes_no.py:YesNo"
    env, _ = build(yaml.safe_dump(raw))
    assert env.play(env.tasks[0], lambda messages: "yes").scores.total == 1.0
    [text] = [text for text in YAMLS if "broken" in text]
    [error] = build(text)[0].tasks.skipped.values()
    [shown] = [code for language, code in BLOCKS if language == "text" and "column" in code]
    assert str(error).partition(": column")[2] == shown.strip().partition(": column")[2]


def test_every_block_is_checked_as_it_stands_and_some_are_shown(study):
    for text in YAMLS:
        Path("block.yaml").write_text(text)
        is_shown = text in (YAMLS[0], VOLUMES) or "broken.jsonl" in text
        for command in ("data check", "data show", "view") if is_shown else ("data check",):
            result = CliRunner().invoke(app, [*command.split(), "block.yaml"])
            assert result.exit_code == int("broken.jsonl" in text), (text, result.exception)  # bad rows, which are said
            if command != "view":  # which says that bad rows are left out
                assert "warning: " not in result.output, text


def test_every_key_is_on_the_page():
    for model in (DataSettings, HoldOut, BoxForm, CellForm, Sample, Difficulty):
        for name in model.model_fields:
            assert re.search(rf"`{name}\b|\b{name}:", PAGE), name
