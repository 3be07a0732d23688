"""The quickstart's environment: the same everywhere, fair to every convention, and not to be read unaided."""

import json

import numpy as np
import pytest

from tests.support.tables import each
from viewbox.envs.digits import Digits, canvas, viewer
from viewbox.envs.digits.canvas import LABELS, draw_canvas, load_digit_images
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.tools import call_stateful

ENV = Digits()
SOME = range(0, 60, 3)


def native(env, task):
    return np.asarray(env.images(task)[0], dtype=float)


def pixel_box(env, task):
    return tuple(round(value * env.canvas) for value in task.reference["bbox"])


def test_a_seed_is_always_the_same_picture_and_another_seed_or_split_another():
    tasks = Digits().tasks
    for number in SOME:
        assert tasks[number] == ENV.tasks[number]
        assert (native(Digits(), tasks[number]) == native(ENV, ENV.tasks[number])).all()
    task = Task.from_json(ENV.tasks[3].to_json())
    assert (native(ENV, task) == native(ENV, ENV.tasks[3])).all()
    pictures = [draw_canvas(seed, split, ENV.difficulty).tobytes() for seed in range(20) for split in ("train", "test")]
    assert len(set(pictures)) == len(pictures)


def test_the_images_are_those_of_scikit_learn_none_is_in_both_splits_and_labels_come_about_equally():
    from sklearn.datasets import load_digits

    pixels, labels = canvas._read_digits()
    expected = load_digits()
    assert (pixels.reshape(-1, 8, 8) == expected.images).all()
    assert (labels == expected.target).all()
    train, test = ({image.tobytes() for image in load_digit_images(split)[0]} for split in ("train", "test"))
    assert len(train) > len(test) > 300
    assert not train & test
    labels = [task.reference["label"] for task in Digits(split="test").tasks[:600]]
    assert set(labels) == set(LABELS)
    assert max(map(labels.count, LABELS)) < 2 * min(map(labels.count, LABELS))


def test_tasks_are_a_sequence_that_begins_at_the_first_seed_and_a_digit_without_a_place_is_an_error_in_words():
    assert Digits(first_seed=5).tasks[0] == ENV.tasks[5] == ENV.tasks[2:][3]
    tasks = Digits(num_tasks=3).tasks
    assert [task.metadata["seed"] for task in tasks] == [0, 1, 2]
    assert (tasks[-1], len(tasks[1:9]), tasks.index(tasks[1]), tasks.count(tasks[1])) == (tasks[2], 2, 1, 1)
    with pytest.raises(IndexError, match="task 3 of 3"):
        tasks[3]
    for settings in ({"canvas": 32, "digit": 40}, {"canvas": 33, "digit": 8, "margin": 0.499}):
        with pytest.raises(ConfigError, match="does not fit on a canvas"):
            Digits(**settings).tasks[0]


def test_the_digit_is_drawn_where_its_box_says_and_distractors_keep_clear_of_it():
    alone, among = Digits(noise=0, distractors=0), Digits(noise=0, distractors=30)
    for number in SOME:
        pixels, crowded = (native(env, env.tasks[number]) for env in (alone, among))
        x1, y1, x2, y2 = pixel_box(alone, alone.tasks[number])
        outside = np.ones(pixels.shape, bool)
        outside[y1:y2, x1:x2] = False
        assert np.ptp(pixels[outside]) == 0
        assert pixels[y1:y2, x1:x2].max() > pixels[outside][0] + 50
        assert (pixels[y1:y2, x1:x2] == crowded[y1:y2, x1:x2]).all()
        assert (pixels != crowded).any()


def test_the_digit_keeps_its_margin_and_may_lie_on_a_lattice():
    def list_centers(env, count):
        boxes = [task.reference["bbox"] for task in env.tasks[:count]]
        return {round((box[axis] + box[axis + 2]) / 2, 3) for box in boxes for axis in (0, 1)}

    assert all(ENV.margin <= center <= 1 - ENV.margin for center in list_centers(ENV, 100))
    assert list_centers(Digits(places=4, margin=0.25), 200) == {0.25, 0.417, 0.583, 0.75}


def test_the_digit_is_small_in_the_overview_and_the_gold_look_shows_all_of_it_at_native_resolution_or_better():
    for number in SOME:
        task = ENV.tasks[number]
        state = ENV.reset(task, seed=0)
        x1, _, x2, _ = task.reference["bbox"]
        assert (x2 - x1) * state.view.size[0] < 5
        assert state.view.size == ENV.overview_size
        call = json.loads(viewer.write_gold_look(ENV, task).removeprefix("<tool_call>").removesuffix("</tool_call>"))
        view, result = call_stateful("zoom", state.view, call["arguments"], coordinates=ENV.coordinates)
        assert result.success
        u1, v1, u2, v2 = view.from_original(task.reference["bbox"])
        assert 0 <= min(u1, v1) <= max(u2, v2) <= 1
        assert (u2 - u1) * view.size[0] >= ENV.digit - 1e-6


def test_the_overview_does_not_hold_what_the_look_shows():
    """Nearest neighbors tell the digit from the look (ink as it was drawn), and hardly from the overview."""
    train, targets = load_digit_images("train")
    train = train - train.mean((1, 2), keepdims=True)
    train = train / (train.std((1, 2), keepdims=True) + 1e-9)
    right, env = {"overview": 0, "look": 0}, Digits(split="test", noise=0, distractors=0)
    for task in env.tasks[:60]:
        view = env.reset(task, seed=0).view
        x1, y1, x2, y2 = task.reference["bbox"]
        for name, shown in (("overview", view), ("look", view.zoom(4, ((x1 + x2) / 2, (y1 + y2) / 2)))):
            u1, v1, u2, v2 = shown.from_original(task.reference["bbox"])
            width, height = shown.size
            part = shown.render().resize((8, 8), box=(u1 * width, v1 * height, u2 * width, v2 * height))
            seen = np.asarray(part, dtype=float)
            seen = (seen - seen.mean()) / (seen.std() + 1e-9)
            nearest = targets[((train - seen) ** 2).sum((1, 2)).argmin()]
            right[name] += LABELS[nearest] == task.reference["label"]
    assert right["look"] >= 54
    assert right["overview"] <= 40


@each("coordinates, least", [("unit", 0.95), ("per_mille", 0.95), ("pixel", 0.4)])  # 2 pixels wide there
def test_the_gold_answer_scores_what_its_rounding_allows_and_every_demonstration_is_played(coordinates, least):
    for env in (Digits(coordinates=coordinates, max_pixels=side * side) for side in (48, 100)):
        for number in SOME:
            task = env.tasks[number]
            episode = env.play(task, lambda messages, env=env, task=task: json.dumps(env.gold_answer(task)))
            assert (episode.end_reason, episode.scores.components["label"]) == ("answered", 1.0)
            assert episode.scores.components["box"] >= least
    env, kinds = Digits(coordinates=coordinates), set()
    for number in range(40):
        said = iter(env.demonstration(env.tasks[number], number, guess=0.25, too_far=0.25, astray=0.25))
        episode = env.play(env.tasks[number], lambda messages, said=said: next(said))
        assert (episode.end_reason, episode.info["malformed"], list(said)) == ("answered", 0, [])
        assert all(result.success for turn in episode.turns for result in turn.tool_results)
        kinds.add(episode.num_turns)
    assert kinds == {1, 2, 3}


def test_another_label_loses_only_the_label():
    task = ENV.tasks[0]
    wrong = next(label for label in LABELS if label != task.reference["label"])
    scores = ENV.play(task, lambda messages: viewer.write_answer(ENV, task, wrong)).scores
    assert scores.components["label"] == 0.0
    assert scores.total == pytest.approx(scores.components["box"] / 2)
