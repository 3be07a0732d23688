"""Where an episode looked: verdicts of scripted policies, the map against painted pixels, and attacks on `seen`."""

import json
import random

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

import viewbox
from viewbox.core.messages import write_call
from viewbox.envs.digits import Digits
from viewbox.envs.phantom import Phantom
from viewbox.records import Task
from viewbox.rewards import SeenReward
from viewbox.rewards.looks import read_looks

DIGITS, PHANTOM = Digits(split="test", max_turns=6), Phantom(split="test", question="kind", difficulty=0.0)
BACK = "\n".join([write_call("zoom", {"factor": 0.5})] * 2)


def zoom(factor, x, y):
    return write_call("zoom", {"factor": factor, "center": [round(1000 * x), round(1000 * y)]})


def play(env, task, *replies):
    left = iter(replies)
    return env.play(task, lambda messages: next(left, replies[-1]))


def get_middle(box):
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def write_wrong(env, task, **fields):
    return json.dumps({**json.loads(env.write_answer(task)), **fields})


@pytest.mark.parametrize("number", range(20))
def test_a_wrong_answer_about_a_digit_has_the_reason_that_its_script_had(number):
    task = DIGITS.tasks[number]
    x, y = get_middle(task.reference["bbox"])
    far = (x + 0.35) % 0.7 + 0.15, (y + 0.35) % 0.7 + 0.15
    right = DIGITS.write_answer(task)
    label = "one" if task.reference["label"] != "one" else "two"
    wrong = write_wrong(DIGITS, task, label=label)
    moved = write_wrong(
        DIGITS, task, label=label, bbox=[round(1000 * side) for side in (*far, far[0] + 0.04, far[1] + 0.04)]
    )
    scripts = {
        "search": [(wrong,), (zoom(4, *far), wrong), (zoom(1, 0.5, 0.5), wrong)],
        "sampling": [(zoom(2, x, y), wrong)],
        "decision": [(zoom(4, x, y), wrong)],
        "recognition": [(zoom(4, x, y), f"{BACK}\n{zoom(4, *far)}", moved)],
        "blind": [(right,), (zoom(4, *far), right)],
        "seen": [(zoom(4, x, y), right)],
    }
    found = [
        (verdict, read_looks(play(DIGITS, task, *one)).verdict) for verdict, some in scripts.items() for one in some
    ]
    assert [verdict for verdict, _ in found] == [verdict for _, verdict in found]


def test_a_lesion_in_too_wide_a_window_is_not_seen():
    task = PHANTOM.tasks[0]
    near, window = (
        zoom(4, *get_middle(task.metadata["evidence"])),
        PHANTOM.oracle(task)[0].partition("\n<tool_call>")[0],
    )
    wrong = write_wrong(PHANTOM, task, lesion="no" if task.reference["lesion"] == "yes" else "yes")
    wide = write_call("window_level", {"center": 40, "width": 1500})
    scripts = [(near,), (window,), (f"{wide}\n{near}",), (f"{window}\n{near}",)]
    verdicts = [read_looks(play(PHANTOM, task, *one, wrong)).verdict for one in scripts]
    assert verdicts == ["sampling", "sampling", "sampling", "decision"]


class Answer(BaseModel):
    x: int


class Painted(viewbox.BaseMultiTurnEnv):
    name = "painted"
    answer = Answer
    max_turns = 3
    tools = ("zoom", "crop", "rotate", "flip_horizontal", "flip_vertical", "undo")
    max_pixels = 96 * 96
    reward = viewbox.ExactMatchReward(field="x")

    def images(self, task):
        (width, height), (x1, y1, x2, y2) = task.metadata["size"], task.metadata["pixels"]
        pixels = np.zeros((height, width), np.uint8)
        pixels[y1:y2, x1:x2] = 255
        return [Image.fromarray(pixels)]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_held_of_a_target_is_what_its_painted_pixels_say(seed):
    draw = random.Random(seed)
    width, height = draw.randint(120, 400), draw.randint(120, 400)
    x1, y1 = draw.randint(0, width - 40), draw.randint(0, height - 40)
    box = (x1, y1, x1 + draw.randint(12, 40), y1 + draw.randint(12, 40))
    fractions = [side / (width, height)[place % 2] for place, side in enumerate(box)]
    task = Task("a", metadata={"size": [width, height], "pixels": box}, reference={"x": 1, "bbox": fractions})
    center = [round(side, 3) for side in get_middle(fractions)]
    choices = [
        write_call("zoom", {"factor": round(draw.uniform(0.7, 4), 2), "center": center}),
        write_call("crop", {"box": [0.1, 0.2, round(draw.uniform(0.5, 1), 3), 0.9]}),
        *(write_call(name, {}) for name in Painted.tools[2:]),
    ]
    episode = play(Painted(), task, "\n".join(draw.choices(choices, k=5)), '{"x": 1}')
    found = read_looks(episode)
    pictures = [result.image for turn in episode.turns for result in turn.tool_results if result.image]
    for ref, look in zip([episode.turns[0].images[0], *pictures], found.looks, strict=True):
        shown = (look.solid[3] - look.solid[0]) * width * (look.solid[4] - look.solid[1]) * height
        expected = (
            look.hold(found.targets[0].solid) * (box[2] - box[0]) * (box[3] - box[1]) * ref.width * ref.height / shown
        )
        assert np.asarray(ref.open()).sum() / 255 == pytest.approx(expected, rel=0.1, abs=3)


@pytest.mark.parametrize("number", range(5))
def test_seen_is_for_those_who_know_where_to_look(number):
    task, reward = DIGITS.tasks[number], SeenReward()
    x, y = get_middle(task.reference["bbox"])
    answer, look = DIGITS.write_answer(task), zoom(4, x, y)
    tiles = "\n".join(zoom(4, (n % 4 + 0.5) / 4, (n // 4 + 0.5) / 4) + "\n" + BACK for n in range(16))
    attacks = [
        (answer,),
        (zoom(1, 0.5, 0.5), answer),
        (zoom(2, x, y), answer),
        (tiles, answer),
        (look, look, look, look),
    ]
    assert reward.of_episode(play(DIGITS, task, look, answer)) > 0.9
    assert [reward.of_episode(play(DIGITS, task, *one)) for one in attacks] == [0.0] * 5
    assert reward.of_episode(play(DIGITS, task, "\n".join([look] + [zoom(1, 0.5, 0.5)] * 9), answer)) < 0.1


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """Grounding over NIfTI volumes: boxes of the volume, in the axes of the file."""
    nibabel = pytest.importorskip("nibabel")
    folder, rows = tmp_path_factory.mktemp("volumes"), []
    for number in range(4):
        draw = np.random.default_rng(number)
        voxels = draw.normal(100, 8, (96, 96, 24)).astype(np.int16)
        i, j, k = int(draw.integers(15, 75)), int(draw.integers(15, 75)), int(draw.choice([3, 5, 16, 18]))
        voxels[i : i + 8, j : j + 8, k : k + 3] += 60
        nibabel.save(nibabel.Nifti1Image(voxels, np.diag([1, 1, 4, 1.0])), folder / f"{number}.nii.gz")
        rows.append(
            {"id": str(number), "scan": f"{number}.nii.gz", "finding": "nodule", "box": [i, j, k, i + 8, j + 8, k + 3]}
        )
    (folder / "boxes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {
        "source": str(folder / "boxes.jsonl"),
        "images": str(folder),
        "columns": {"id": "id", "image": "scan", "label": "finding", "boxes": "box"},
        "boxes": {"format": "xyzxyz", "frame": "voxel"},
    }
    tools = ["select_slice", "zoom"]
    return viewbox.make("grounding", data=data, tools=tools, max_pixels=48 * 48, max_turns=6, coordinates="per_mille")


def test_a_slice_is_a_thin_box_of_its_volume(volumes):
    for task in volumes.tasks:
        box = task.reference["boxes"][0]
        x, y, z = ((box[axis] + box[axis + 3]) / 2 for axis in range(3))
        here, elsewhere = (
            write_call("select_slice", {"index": index}) for index in (int(z * 24), (int(z * 24) + 10) % 24)
        )
        front = write_call("select_slice", {"index": int(y * 96), "plane": "coronal"})
        right, empty = volumes.write_answer(task), write_wrong(volumes, task, boxes=[])
        scripts = {
            "search": [(empty,), (elsewhere, empty), (f"{elsewhere}\n{zoom(2, x, y)}", empty)],
            "sampling": [(here, empty), (f"{front}\n{zoom(1.5, x, 1 - z)}", empty)],
            "decision": [(f"{here}\n{zoom(2, x, y)}", empty)],
            "recognition": [(f"{here}\n{zoom(2, x, y)}", elsewhere, empty)],
            "blind": [(right,), (f"{front}\n{zoom(4, x, z)}", right)],  # the head is up
            "seen": [(f"{here}\n{zoom(2, x, y)}", right), (f"{front}\n{zoom(2, x, 1 - z)}", right)],
        }
        found = [
            (name, read_looks(play(volumes, task, *one)).verdict) for name, some in scripts.items() for one in some
        ]
        assert [name for name, _ in found] == [verdict for _, verdict in found]
