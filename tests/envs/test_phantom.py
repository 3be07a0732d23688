"""`phantom`: the same slice from the same seed, an exact reference, and lesions that the overview cannot show."""

import json
import re

import numpy as np
import pytest
from scipy import ndimage

from tests.support.tables import each
from viewbox import make
from viewbox.envs.phantom.anatomy import FIELD, ORGAN_VALUES, SPACING, draw_slice
from viewbox.envs.phantom.env import WINDOW_WIDTH
from viewbox.errors import ConfigError
from viewbox.images.view import View


@each("coordinates, scale", [("unit", 1), ("per_mille", 1000), ("pixel", 112)])
def test_boxes_and_the_spot_that_is_asked_about_are_in_the_coordinates_of_the_model(coordinates, scale):
    env = make("phantom", question="all", coordinates=coordinates, max_pixels=320 * 320)
    for task in env.tasks[:4]:
        answer = env.read_answer(env.write_answer(task), task)
        if "bbox" in task.reference:
            assert np.abs(np.subtract(answer["bbox"], task.reference["bbox"])).max() < 0.003
    env = make("phantom", question="kind", coordinates=coordinates)
    kinds = set()
    for seed, task in enumerate(env.tasks[:10]):
        said = re.search(r"spot in the (.+) at \[(.+), (.+)\]\. Is", env.user_message(task))
        x, y = (float(value) / scale * FIELD for value in said.groups()[1:])
        distance, spot = find_nearest(draw_slice(seed, 0.5, has_lesion=task.metadata["has_lesion"]), x, y)
        assert distance < FIELD / scale + 1
        assert said[1] == spot.organ
        kinds.add(task.reference["lesion"])
    assert kinds == {"yes", "no"}


def find_nearest(drawn, x, y):
    """The solid lesion, or the nearest ring, with its distance from a point."""
    spots = [drawn.lesion] if drawn.lesion else drawn.decoys
    return min(((np.hypot(x - spot.x, y - spot.y), spot) for spot in spots), key=lambda pair: pair[0])


def test_a_seed_gives_one_slice_with_values_of_ct_and_another_seed_or_split_another():
    train, test = make("phantom"), make("phantom", split="test")
    first, again = (make("phantom").images(train.tasks[0])[0].pixels for _ in range(2))
    assert (first == again).all()
    assert all((first != env.images(env.tasks[n])[0].pixels).any() for env, n in ((train, 1), (test, 0)))
    assert {task.id for task in train.tasks[:6]}.isdisjoint(task.id for task in test.tasks[:6])
    pixels = draw_slice(3, 0.5, has_lesion=True).pixels
    assert (pixels.dtype, pixels.min() >= -1024) == (np.int16, True)
    assert 700 < pixels.max() < 1200
    for low, high in ((-1100, -900), (-130, -70), (20, 80), (150, 1200)):  # air, fat, soft tissue, bone
        assert ((pixels > low) & (pixels < high)).mean() > 0.01


def test_the_reference_is_where_the_voxels_are_darker_and_without_a_lesion_there_are_only_rings():
    for seed in range(3):
        drawn = draw_slice(seed, 0.3, has_lesion=True)
        lesion = drawn.lesion
        x1, y1, x2, y2 = (side * FIELD for side in lesion.box)
        smooth = ndimage.uniform_filter(drawn.pixels.astype(float), 3)
        inside = smooth[int(lesion.y / SPACING), int(lesion.x / SPACING)]
        assert inside == pytest.approx(ORGAN_VALUES[lesion.organ] - lesion.contrast, abs=2.5)
        assert (x2 - x1, y2 - y1) == pytest.approx((lesion.diameter, lesion.diameter), abs=0.5)
        drawn = draw_slice(seed, 0.5, has_lesion=False)
        assert drawn.lesion is None
        assert drawn.decoys
        for ring in drawn.decoys:
            core = drawn.pixels[int(ring.y / SPACING) - 1 :, int(ring.x / SPACING) - 1 :][:3, :3].mean()
            assert core == pytest.approx(ORGAN_VALUES[ring.organ], abs=4)  # as bright as the organ


def test_neither_the_number_nor_the_places_of_spots_tell_whether_one_is_solid():
    solid = set()
    for seed in range(12):
        with_lesion, without = (draw_slice(seed, (seed % 3) / 2, has_lesion=has) for has in (True, False))
        spots = [(*drawn.decoys, *([drawn.lesion] if drawn.lesion else [])) for drawn in (with_lesion, without)]
        places = [sorted((spot.x, spot.y, spot.diameter, spot.contrast) for spot in some) for some in spots]
        assert places[0] == places[1]
        assert with_lesion.lesion is not None
        solid.add(sorted((*with_lesion.decoys, with_lesion.lesion), key=lambda spot: spot.x).index(with_lesion.lesion))
    assert len(solid) > 1


def test_demonstrations_look_at_a_spot_whether_it_is_solid_or_not_and_answer_right_or_guess_without_a_look():
    env = make("phantom", question="presence")
    for seed, task in enumerate(env.tasks[:4]):
        zoom = json.loads(env.oracle(task)[0].split("\n")[-2])["arguments"]
        x, y = (value / 1000 * FIELD for value in zoom["center"])
        distance, _ = find_nearest(draw_slice(seed, env.difficulty, has_lesion=task.metadata["has_lesion"]), x, y)
        assert distance < 1
    env, scores = make("phantom"), []
    for seed, task in enumerate(env.tasks[:12]):
        assert env.demonstration(task, seed) == [*env.oracle(task), env.write_answer(task)]
        [reply] = env.demonstration(task, seed, guess=1.0)
        episode = env.play(task, lambda messages, reply=reply: reply)
        assert episode.end_reason == "answered"
        scores.append(episode.scores.total)
    assert 0.1 < np.mean(scores) < 0.8  # sometimes right by chance
    with pytest.raises(ConfigError, match="did you mean 'guess'"):
        env.demonstration(env.tasks[0], 0, gues=0.5)


def test_difficulty_makes_lesions_smaller_and_fainter_and_rings_more():
    def measure(difficulty):
        drawn = [draw_slice(seed, difficulty, has_lesion=True) for seed in range(12)]
        lesions = [one.lesion for one in drawn if one.lesion]
        means = [np.mean([getattr(lesion, name) for lesion in lesions]) for name in ("diameter", "contrast")]
        return [*means, -np.mean([len(one.decoys) for one in drawn])]

    figures = np.array([measure(difficulty) for difficulty in (0.0, 0.5, 1.0)])
    assert (np.diff(figures, axis=0) < 0).all()


def test_a_lesion_is_fainter_than_a_gray_level_of_the_overview_and_dark_in_the_window():
    env = make("phantom", question="place")
    source = env.images(env.tasks[0])[0]
    low, high = source.display
    lesion = draw_slice(0, 0.5, has_lesion=True).lesion
    assert lesion.contrast * 255 / (high - low) < 0.5
    assert lesion.contrast * 255 / WINDOW_WIDTH > 20
    assert source.size == (640, 640)
    assert View.of(source, max_pixels=env.max_pixels).size == (112, 112)


def test_the_size_reward_falls_with_the_error_and_reads_no_nonsense():
    reward, right = make("phantom", question="size").reward.components["size"].reward, {"diameter_mm": 10.0}
    assert reward({"diameter_mm": 10.0}, right) == 1.0
    assert reward({"diameter_mm": 12.5}, right) == pytest.approx(0.5)
    wrong = (None, {}, *({"diameter_mm": nonsense} for nonsense in (None, "1O", True, 1e9)))
    assert [reward(answer, right) for answer in wrong] == [0.0] * 6
