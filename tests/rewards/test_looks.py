"""Where an episode looked: verdicts of scripted policies, the map against counted pixels, and attacks on `seen`."""

import doctest
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from msgspec.structs import replace
from pydantic import BaseModel

import viewbox
from tests.support.tables import each
from viewbox.core.messages import write_call
from viewbox.envs.digits import Digits
from viewbox.envs.phantom import Phantom
from viewbox.images.ref import ImageRef
from viewbox.records import Task
from viewbox.rewards import CombinedReward, SeenReward, build
from viewbox.rewards.looks import VALUES, VERDICTS, read_looks

DIGITS = Digits(split="test", max_turns=6)
PHANTOM = Phantom(split="test", question="kind", difficulty=0.0)
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


def sort_scripts(env, task, scripts):
    """Return the verdicts that the scripts were written for, and those that were found."""
    found = [(name, read_looks(play(env, task, *one)).verdict) for name, some in scripts.items() for one in some]
    return [name for name, _ in found], [verdict for _, verdict in found]


@each("number", range(20))
def test_a_wrong_answer_about_a_digit_has_the_reason_that_its_script_had(number):
    task = DIGITS.tasks[number]
    x, y = get_middle(task.reference["bbox"])
    far = (x + 0.35) % 0.7 + 0.15, (y + 0.35) % 0.7 + 0.15
    right = DIGITS.write_answer(task)
    wrong = write_wrong(DIGITS, task, label="one" if task.reference["label"] != "one" else "two")
    scripts = {
        "search": [(wrong,), (zoom(4, *far), wrong), (zoom(1, 0.5, 0.5), wrong)],
        "recognition": [(zoom(2, x, y), wrong)],
        "decision": [(zoom(4, x, y), wrong), (zoom(4, x, y), f"{BACK}\n{zoom(4, *far)}", wrong)],
        "blind": [(right,), (zoom(4, *far), right)],
        "seen": [(zoom(4, x, y), right)],
    }
    expected, found = sort_scripts(DIGITS, task, scripts)
    assert expected == found


def test_a_lesion_that_no_window_shows_is_not_recognized():
    task = PHANTOM.tasks[0]
    near = zoom(4, *get_middle(task.metadata["evidence"]))
    window = PHANTOM.oracle(task)[0].partition("\n<tool_call>")[0]
    wide = write_call("window_level", {"center": 40, "width": 1500})
    wrong = write_wrong(PHANTOM, task, lesion="no" if task.reference["lesion"] == "yes" else "yes")
    scripts = {
        "recognition": [(near, wrong), (window, wrong), (f"{wide}\n{near}", wrong)],
        "decision": [(f"{window}\n{near}", wrong)],
    }
    expected, found = sort_scripts(PHANTOM, task, scripts)
    assert expected == found


# ---------------------------------------------------------------------- a table of cases
class Answer(BaseModel):
    x: int
    box: list[float] | None = None


class Scene(viewbox.BaseMultiTurnEnv):
    """Two pictures of 320 x 320, of which 80 x 80 are shown; whatever is asked."""

    name = "scene"
    answer = Answer
    boxes = ("box",)
    max_turns = 6
    tools = ("zoom", "crop", "rotate", "flip_horizontal", "flip_vertical", "undo", "open_image")
    max_pixels = 80 * 80
    coordinates = "per_mille"
    reward = viewbox.ExactMatchReward(field="x")

    def images(self, task):
        return [np.full((320, 320), shade, np.uint8) for shade in (40, 90)]


BOX, OTHER, LARGE = [0.1, 0.1, 0.2, 0.2], [0.7, 0.7, 0.8, 0.8], [0.0, 0.0, 0.5, 0.5]
LOOK, AWAY, AT_OTHER = zoom(4, 0.15, 0.15), f"{BACK}\n{zoom(4, 0.4, 0.75)}", f"{BACK}\n{zoom(4, 0.75, 0.75)}"
TILES = f"\n{BACK}\n".join(zoom(4, x, y) for x in (0.125, 0.375) for y in (0.125, 0.375))
SECOND = write_call("open_image", {"image": "image_2"})
NO, YES = '{"x": 0}', '{"x": 1}'
FOUND_ONE = json.dumps({"x": 0, "box": [side * 1000 for side in BOX]})
SCALE_1, QUARTER = {"seen_at": {"scale": 1}}, {"mask": [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]}


@each("evidence, replies, verdict, settings", [
    (BOX, [AWAY, NO], "search", {}), (BOX, [LOOK, NO], "decision", {}),
    (BOX, [zoom(1.5, 0.15, 0.15), NO], "recognition", SCALE_1),  # shown too small
    (BOX, [zoom(2, 0.15, 0.15), NO], "decision", {}),  # 32 pixels, at 16 across
    (BOX, [YES], "blind", {}), (BOX, [LOOK, YES], "seen", {}),
    (BOX, [NO], "decision", {"max_pixels": 320 * 320}),  # the pictures at the start show it well
    # larger than a view: a quarter of it, and all of it
    (LARGE, [zoom(4, 0.1, 0.1), NO], "recognition", SCALE_1), (LARGE, [TILES, NO], "decision", SCALE_1),
    # two boxes: one was seen, the one that is answered or the other, or both
    ([BOX, OTHER], [LOOK, NO], "search", {}), ([BOX, OTHER], [LOOK, FOUND_ONE], "search", {}),
    ([BOX, OTHER], [AT_OTHER, FOUND_ONE], "decision", {}), ([BOX, OTHER], [LOOK, AT_OTHER, NO], "decision", {}),
    # the second picture, shown at the start; a box of it, and opened
    ({"image": 1}, [NO], "decision", {}), ({"image": 1, "box": BOX}, [LOOK, NO], "search", {}),
    ({"image": 1, "box": BOX}, [SECOND, LOOK, NO], "decision", {}),
    (QUARTER, [zoom(2, 1, 0.5), NO], "decision", {}),
    ({"mask": [[1, 0], [0, 0]]}, [zoom(4, 0.8, 0.8), NO], "search", SCALE_1),
    (BOX, [LOOK, AWAY, NO], "forgotten", {"history": {"last_images": 1}}),  # two later pictures were kept
    (BOX, [LOOK, AWAY, NO], "decision", {"history": {"last_images": 4}}),
    (BOX, [LOOK, NO], "recognition", {"seen_at": {"contrast": 5}}), (None, [LOOK, NO], None, {}),
])  # fmt: skip
def test_what_is_found_of_a_case(evidence, replies, verdict, settings):
    task = Task("a", reference={"x": 1}, metadata={} if evidence is None else {"evidence": evidence})
    assert read_looks(play(Scene(**settings), task, *replies)).verdict == verdict


# ---------------------------------------------------------------------- counted outside
class Numbered(Scene):
    """A picture whose colors number its pixels, on a grid that is often smaller."""

    tools = ("crop", "rotate", "flip_horizontal", "flip_vertical", "undo")
    coordinates = "unit"

    def images(self, task):
        width, height = task.metadata["size"]
        numbers = np.arange(width * height).reshape(height, width)
        return [np.stack([numbers % 256, numbers // 256, 0 * numbers], axis=-1).astype(np.uint8)]


def write_step(draw, grid):
    """Return a call, and what it makes of a grid of numbers; None: what was there before."""
    height, width = grid.shape
    name = draw.choice(["crop", "crop", *Numbered.tools[1:]] if min(grid.shape) > 40 else Numbered.tools[1:])
    if name == "crop":
        (x1, x2), (y1, y2) = (sorted(draw.sample(range(0, side + 1, 2), 2)) for side in (width, height))
        x2, y2 = min(width, max(x2, x1 + 16)), min(height, max(y2, y1 + 16))
        x1, y1 = min(x1, x2 - 16), min(y1, y2 - 16)
        return write_call(name, {"box": [x1 / width, y1 / height, x2 / width, y2 / height]}), grid[y1:y2, x1:x2]
    after = {"rotate": np.rot90(grid, -1), "flip_horizontal": grid[:, ::-1], "flip_vertical": grid[::-1]}
    return write_call(name, {}), after.get(name)


@pytest.mark.slow
def test_share_and_magnification_are_those_of_pixels_counted_outside():
    shown = 0
    for seed in range(200):
        draw = random.Random(seed)
        width, height = draw.randint(60, 250), draw.randint(60, 250)
        x1, y1 = draw.randint(0, width - 30), draw.randint(0, height - 30)
        box = x1, y1, x1 + draw.randint(8, 30), y1 + draw.randint(8, 30)
        bounds = [side / (width, height)[place % 2] for place, side in enumerate(box)]
        grids, calls = [np.arange(width * height).reshape(height, width)], []
        for _ in range(5):
            call, grid = write_step(draw, grids[-1])
            if grid is None and len(grids) == 1:
                continue
            calls.append(call)
            grids.append(grids[-2] if grid is None else grid)
            if grid is None:
                break  # what undo goes back to after undo is another question
        task = Task("a", metadata={"size": [width, height], "evidence": bounds}, reference={"x": 1})
        episode = play(Numbered(), task, "\n".join(calls) or NO, NO)
        target = read_looks(episode, scale=1e-6).targets[0]
        refs = [result.image for turn in episode.turns for result in turn.tool_results]
        inside = set(grids[0][box[1] : box[3], box[0] : box[2]].ravel().tolist())
        found = set()
        for ref, grid, look in zip(refs, grids[1:], [one.look for one in target.sights][1:], strict=True):
            assert look.scale == pytest.approx(min(ref.width / grid.shape[1], ref.height / grid.shape[0]), rel=1e-6)
            if (ref.height, ref.width) == grid.shape:  # the numbers can be read
                pixels = np.asarray(ref.open()).astype(int)
                assert (pixels[..., 0] + 256 * pixels[..., 1] == grid).all()
                shown += 1
            found |= inside & set(grid.ravel().tolist())
        share = target.cover([one for one in target.clear if one.look.reply])
        assert share == pytest.approx(len(found) / len(inside), rel=1e-6, abs=1e-9)
    assert shown > 100


# ---------------------------------------------------------------------- the reward
@pytest.mark.slow
@each("replies, most", [  # what tries to be paid, and the most that it may earn
    *(([reply], 0.0) for reply in ("{whole}", "{coarse}", "{far}", "{tiles}", "{back}")), ([], 0.0),
    (["{half}"], 0.6), (["{left}", "{back}\n{right}"], 0.9), (["\n".join(["{look}"] + ["{whole}"] * 9)], 0.1),
    (["{far}\n{back}", "{far}\n{back}", "{back}\n{look}"], 0.5), (["{middle}"], 0.3),
    (["\n".join(["{refused}"] * 12), "{look}"], 0.0),  # calls that are refused first
])  # fmt: skip
def test_seen_is_for_those_who_know_where_to_look(replies, most):
    earned = []
    for task in (DIGITS.tasks[number] for number in range(24)):
        box = task.reference["bbox"]
        x, y = get_middle(box)
        far = (x + 0.35) % 0.7 + 0.15, (y + 0.35) % 0.7 + 0.15
        words = {
            "look": zoom(4, x, y), "far": zoom(4, *far), "whole": zoom(1, 0.5, 0.5), "coarse": zoom(2, x, y),
            "middle": zoom(4, 0.5, 0.5), "half": zoom(4, x - 0.125, y) if x > 0.5 else zoom(4, x + 0.125, y),
            "tiles": "\n".join(f"{zoom(4, (n % 4 + 0.5) / 4, (n // 4 + 0.5) / 4)}\n{BACK}" for n in range(5)),
            "left": zoom(4, 0.125, 0.5), "right": zoom(4, 0.875, 0.5), "refused": zoom(99, x, y), "back": BACK,
        }  # fmt: skip
        said = [re.sub(r"{(\w+)}", lambda found, words=words: words[found[1]], reply) for reply in replies]
        earned.append(SeenReward().of_episode(play(DIGITS, task, *said, DIGITS.write_answer(task))))
        assert SeenReward().of_episode(play(DIGITS, task, words["look"], DIGITS.write_answer(task))) > 0.9
    assert np.mean(earned) <= most


def test_seen_needs_an_answer_and_a_place():
    task = DIGITS.tasks[0]
    look = zoom(4, *get_middle(task.reference["bbox"]))
    assert SeenReward().of_episode(play(DIGITS, task, look, look, look, look, look, look)) == 0.0
    placed = {
        (look, DIGITS.write_answer(task)): [0.9375, 0.0],
        (zoom(1, 0.5, 0.5), look, DIGITS.write_answer(task)): [0.0, 0.8375, 0.0],  # by the view that showed it
        (f"{look}\n{zoom(99, 0, 0)}", zoom(1, 0.5, 0.5), DIGITS.write_answer(task)): [0.8375, -0.1, 0.0],
        (look, look, look, look, look, look): [0.9375, *[-0.1] * 5],
    }
    for replies, expected in placed.items():
        episode = play(DIGITS, task, *replies)
        assert SeenReward().of_turns(episode) == pytest.approx(expected)
        scores = CombinedReward({"seen": (SeenReward(), 1.0)}).score_episode(episode)
        assert sum(scores.turns) == pytest.approx(scores.total)  # without an answer, the last reply loses all of it
    assert SeenReward().of_episode(play(Scene(), Task("a", reference={"x": 1}), NO)) is None


# ---------------------------------------------------------------------- volumes
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
        place = {"scan": f"{number}.nii.gz", "box": [i, j, k, i + 8, j + 8, k + 3]}
        rows.append({"id": str(number), "finding": "nodule", **place})
    (folder / "boxes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"id": "id", "image": "scan", "label": "finding", "boxes": "box"}
    data = {"source": str(folder / "boxes.jsonl"), "images": str(folder), "columns": columns}
    data |= {"boxes": {"format": "xyzxyz", "frame": "voxel"}}
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
            "recognition": [(here, empty), (f"{front}\n{zoom(1.5, x, 1 - z)}", empty)],
            "decision": [(f"{here}\n{zoom(2, x, y)}", empty), (f"{here}\n{zoom(2, x, y)}", elsewhere, empty)],
            "blind": [(right,), (f"{front}\n{zoom(4, x, z)}", right)],  # the head is up
            "seen": [(f"{here}\n{zoom(2, x, y)}", right), (f"{front}\n{zoom(2, x, 1 - z)}", right)],
        }
        expected, found = sort_scripts(volumes, task, scripts)
        assert expected == found


def test_a_slice_and_a_plane_are_targets(volumes):
    front = write_call("select_slice", {"index": 40, "plane": "coronal"})
    fifth = write_call("select_slice", {"index": 5})
    empty = write_wrong(volumes, volumes.tasks[0], boxes=[])
    for evidence, replies, verdict in (
        ({"plane": "coronal"}, [front, empty], "decision"), ({"plane": "coronal"}, [fifth, empty], "search"),
        ({"plane": "coronal", "slice": 40}, [front, empty], "decision"), ({"slice": 5}, [fifth, empty], "decision"),
        ({"plane": "coronal", "slice": 41}, [front, empty], "search"), ({"slice": 5}, [front, empty], "search"),
    ):  # fmt: skip
        task = replace(volumes.tasks[0], metadata={**volumes.tasks[0].metadata, "evidence": evidence})
        assert read_looks(play(volumes, task, *replies)).verdict == verdict


# ---------------------------------------------------------------------- what cannot be known
def test_what_a_processor_makes_of_a_picture_counts():
    task = Task("a", reference={"x": 1}, metadata={"evidence": BOX})
    env = Scene(seen_at={"scale": 1})
    played = play(env, task, LOOK, NO)
    for limit, verdict in (({}, "decision"), ({"max_pixels": 3000}, "recognition"), ({"max_side": 60}, "recognition")):
        config = replace(played.run_config, **limit)
        assert read_looks(replace(played, run_config=config)).verdict == verdict


def test_of_pictures_without_a_size_or_that_cannot_be_opened_nothing_is_said():
    task = Task("a", reference={"x": 1}, metadata={"evidence": BOX})
    played = play(Scene(seen_at={"contrast": 5}), task, LOOK, NO)
    gone = ImageRef(hash="0" * 64, width=80, height=80, mode="L")
    results = [replace(result, image=gone) for turn in played.turns for result in turn.tool_results]
    turns = [replace(turn, tool_results=results) if turn.tool_results else turn for turn in played.turns]
    found = read_looks(replace(played, turns=tuple(turns)))
    assert (found.verdict, found.why[:12]) == (None, "how clear it")
    old = [
        replace(turn, views=[replace(view, size=None) for view in turn.views], tool_results=()) for turn in played.turns
    ]
    found = read_looks(replace(played, turns=tuple(old)))
    assert (found.verdict, found.explain()) == (None, "no picture of the place has a recorded size")


# ---------------------------------------------------------------------- the page about it
LOOKING = Path(viewbox.__file__).parent / "docs" / "looking.md"
PAGE = LOOKING.read_text()


def test_right_without_looking_is_paid_half_by_the_gate_in_the_page():
    reward = build(yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0]))
    env, task = Digits(reward=reward), DIGITS.tasks[0]
    look, right = zoom(4, *get_middle(task.reference["bbox"])), DIGITS.write_answer(task)
    blind, seen = (play(env, task, *replies).scores for replies in ([right], [look, right]))
    assert (blind.components["label"], blind.components["label_seen"], blind.components["seen"]) == (1.0, 0.0, 0.0)
    assert blind.total == pytest.approx(0.35)
    assert seen.total == pytest.approx(0.7 + 0.3 * 0.9375)


def test_the_words_and_figures_of_the_page_are_those_of_the_code():
    words = [f"| `{name}` |" for name in VERDICTS] + [f"`looks.{name}`" for name in VALUES]
    assert [word for word in words if word not in PAGE] == []
    assert doctest.testfile(str(LOOKING), module_relative=False).failed == 0
