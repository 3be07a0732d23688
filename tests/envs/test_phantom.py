"""`phantom`: the same slice from the same seed, an exact reference, and lesions that the overview cannot show."""

import numpy as np
import pytest
from scipy import ndimage

from viewbox import make
from viewbox.envs.phantom.anatomy import FIELD, ORGAN_VALUES, SPACING, draw_slice
from viewbox.envs.phantom.env import WINDOW_WIDTH, SizeReward
from viewbox.errors import ConfigError
from viewbox.images.view import View


def play_gold(env, task):
    replies = iter([*env.oracle(task), env.write_answer(task)])
    return env.play(task, lambda messages: next(replies))


@pytest.mark.parametrize("question", ["presence", "place", "size", "all", "mixed"])
def test_the_gold_policy_scores_one(question):
    env = make("phantom", question=question)
    for task in env.tasks[:9]:
        episode = play_gold(env, task)
        assert episode.end_reason == "answered"
        assert episode.scores.total == pytest.approx(1.0)
        assert len(episode.tools_used()) == 2


@pytest.mark.parametrize("coordinates", ["unit", "per_mille", "pixel"])
def test_gold_answers_are_right_in_all_coordinates(coordinates):
    env = make("phantom", question="all", coordinates=coordinates, max_pixels=320 * 320)
    for task in env.tasks[:4]:
        answer = env.read_answer(env.write_answer(task), task)
        if "bbox" in task.reference:
            assert np.abs(np.subtract(answer["bbox"], task.reference["bbox"])).max() < 0.003


def test_a_seed_gives_one_slice_and_another_seed_or_split_another():
    pictures = [make("phantom", split=split).images(make("phantom", split=split).tasks[k])[0].pixels
                for split, k in (("train", 0), ("train", 0), ("train", 1), ("test", 0))]  # fmt: skip
    assert (pictures[0] == pictures[1]).all()
    assert (pictures[0] != pictures[2]).any()
    assert (pictures[0] != pictures[3]).any()
    assert {task.id for task in make("phantom").tasks[:50]}.isdisjoint(
        task.id for task in make("phantom", split="test").tasks[:50]
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_reference_is_where_the_voxels_are_darker(seed):
    with_lesion = draw_slice(seed, 0.3, has_lesion=True)
    lesion = with_lesion.lesion
    assert lesion is not None
    x1, y1, x2, y2 = (side * FIELD for side in lesion.box)
    smooth = ndimage.uniform_filter(with_lesion.pixels.astype(float), 3)
    inside = smooth[int(lesion.y / SPACING), int(lesion.x / SPACING)]
    organ = ORGAN_VALUES[lesion.organ]
    assert inside == pytest.approx(organ - lesion.contrast, abs=2.5)
    assert x2 - x1 == pytest.approx(lesion.diameter, abs=0.5)
    assert y2 - y1 == pytest.approx(lesion.diameter, abs=0.5)


@pytest.mark.parametrize("seed", range(6))
def test_without_a_lesion_there_are_only_rings(seed):
    drawn = draw_slice(seed, 0.5, has_lesion=False)
    assert drawn.lesion is None
    assert drawn.decoys
    for ring in drawn.decoys:
        core = drawn.pixels[int(ring.y / SPACING) - 1 :, int(ring.x / SPACING) - 1 :][:3, :3].mean()
        assert core == pytest.approx(ORGAN_VALUES[ring.organ], abs=4)  # as bright as the organ


def test_the_number_of_spots_does_not_tell_whether_one_is_solid():
    for seed in range(8):
        counts = [len(d.decoys) + (d.lesion is not None)
                  for d in (draw_slice(seed, 0.2, has_lesion=one) for one in (True, False))]  # fmt: skip
        assert counts[0] == counts[1]


def test_values_are_those_of_ct():
    pixels = draw_slice(3, 0.5, has_lesion=True).pixels
    assert pixels.dtype == np.int16
    assert pixels.min() >= -1024
    assert 700 < pixels.max() < 1200
    shares = {name: ((pixels > low) & (pixels < high)).mean() for name, low, high in
              (("air", -1100, -900), ("fat", -130, -70), ("soft tissue", 20, 80), ("bone", 150, 1200))}  # fmt: skip
    assert all(share > 0.01 for share in shares.values()), shares


def test_difficulty_makes_lesions_smaller_and_fainter_and_rings_more():
    def measure(difficulty):
        drawn = [draw_slice(seed, difficulty, has_lesion=True) for seed in range(40)]
        lesions = [one.lesion for one in drawn if one.lesion]
        means = [np.mean([getattr(lesion, name) for lesion in lesions]) for name in ("diameter", "contrast")]
        return [*means, -np.mean([len(one.decoys) for one in drawn])]

    figures = np.array([measure(difficulty) for difficulty in (0.0, 0.5, 1.0)])
    assert (np.diff(figures, axis=0) < 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_lesion_is_fainter_than_a_gray_level_of_the_overview_and_dark_in_the_window(seed):
    env = make("phantom", question="place", first_seed=seed)
    task = env.tasks[0]
    source = env.images(task)[0]
    low, high = source.display
    lesion = draw_slice(seed, 0.5, has_lesion=True).lesion
    assert lesion.contrast * 255 / (high - low) < 0.5
    assert lesion.contrast * 255 / WINDOW_WIDTH > 20
    assert source.size == (640, 640)
    assert View.of(source, max_pixels=env.max_pixels).size == (112, 112)


def test_the_size_reward_falls_with_the_error_and_reads_no_nonsense():
    reward, right = SizeReward(), {"diameter_mm": 10.0}
    assert reward({"diameter_mm": 10.0}, right) == 1.0
    assert reward({"diameter_mm": 12.5}, right) == pytest.approx(0.5)
    for wrong in (None, {}, {"diameter_mm": None}, {"diameter_mm": "10"}, {"diameter_mm": True}, {"diameter_mm": 1e9}):
        assert reward(wrong, right) == 0.0


def test_a_wrong_setting_is_named():
    with pytest.raises(ConfigError, match="difficulty = 2"):
        make("phantom", difficulty=2)
