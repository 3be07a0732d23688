"""Drawn chest films: the same from the same seed, left and right as radiologists have it, findings where they are said
to be."""

import itertools

import numpy as np
import pytest

from viewbox.envs.chest_xray.anatomy import NORMAL_RATIO, SIDES, draw_chest
from viewbox.envs.chest_xray.radiographs import DEVICES, LABELS, SIZE, SPACING, Finding, draw_film

FOCAL = [label for label in LABELS if label != "cardiomegaly"]
SEEDS = range(3)


def draw(seed, *findings, **settings):
    return draw_film(seed, findings, device=False, **settings)


def test_a_seed_gives_one_film_and_another_seed_or_study_another():
    first, other_seed, other_study = draw(1), draw(2), draw(1, study=1)
    draw_film.cache_clear()
    assert (draw(1).pixels == first.pixels).all()
    assert (first.pixels != other_seed.pixels).mean() > 0.9
    assert (first.pixels != other_study.pixels).mean() > 0.9


def test_pixels_are_deep_lungs_darker_than_the_heart_air_darkest_and_the_patients_left_on_the_right():
    for seed in SEEDS:
        film = draw(seed)
        assert film.pixels.dtype == np.uint16
        assert film.pixels.shape == (SIZE, SIZE)
        assert len(np.unique(film.pixels)) > 5000  # more than 12 bits of an 8-bit picture
        lungs = film.masks["right lung"] | film.masks["left lung"]
        heart = film.masks["heart"] & ~lungs
        assert film.pixels[:20, :20].mean() < film.pixels[lungs].mean() < film.pixels[heart].mean()
        masks = (film.masks[name] for name in ("right lung", "heart", "left lung"))
        right, heart, left = (np.nonzero(mask)[1].mean() / SIZE for mask in masks)
        assert right < 0.45 < 0.5 < heart < left  # the heart lies to the left
        letter = film.pixels[:45] > 0.7 * film.pixels.max()
        assert np.nonzero(letter[:, 330:])[1].size > 30  # the L
        assert np.nonzero(letter[:, :70])[1].size == 0


@pytest.mark.parametrize("label", FOCAL)
def test_a_finding_lies_in_the_lung_of_its_side_and_is_brighter_or_as_a_pneumothorax_darker(label):
    sign = -1 if label == "pneumothorax" else 1
    for seed, side in itertools.product(SEEDS, SIDES):
        with_it, without = draw(seed, Finding(label, side, 0.6, seed)), draw(seed)
        [shown] = with_it.findings
        assert (shown.label, shown.side) == (label, side)
        assert shown.mask.sum() > 60
        assert (shown.mask & ~without.masks[f"{side} lung"]).mean() < 0.001
        change = with_it.pixels.astype(float) - without.pixels
        other = without.masks["left lung" if side == "right" else "right lung"]
        assert np.abs(change[shown.mask]).mean() > 8 * np.abs(change[other]).mean()
        assert sign * change[shown.mask].mean() > 100


@pytest.mark.slow
def test_the_box_is_the_smallest_around_the_mask_in_millimeters_and_a_larger_one_is_in_the_same_place():
    for label in LABELS:
        side = None if label == "cardiomegaly" else "right"
        [shown] = draw(5, Finding(label, side, 0.5, 3)).findings
        rows, columns = np.nonzero(shown.mask)
        tight = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert np.allclose(np.array(shown.box) * SIZE, tight, atol=0.05)
        assert shown.size_mm == pytest.approx(max(tight[2] - tight[0], tight[3] - tight[1]) * SPACING)
        side = side and "left"
        for seed in SEEDS:
            small, large = (draw(seed, Finding(label, side, size, seed)).findings[0] for size in (0.1, 0.9))
            assert large.mask.sum() > 1.1 * small.mask.sum()
            assert (small.mask & large.mask).sum() / small.mask.sum() > 0.6


def test_the_heart_is_enlarged_only_where_it_is_said_to_be_and_changes_no_other_shape():
    for seed, difficulty in itertools.product(range(4), (0.0, 1.0)):
        large = draw(seed, Finding("cardiomegaly", None, 0.0, seed), difficulty=difficulty)
        assert large.ratio > 0.53
        assert NORMAL_RATIO[0] <= draw(seed, difficulty=difficulty).ratio <= NORMAL_RATIO[1]
        columns = np.nonzero(large.masks["heart"])[1]
        assert np.ptp(columns) / SIZE > 0.34
    normal, large = draw_chest(3), draw_chest(3, 0.6)
    assert (normal.bone == large.bone).all()
    assert (normal.vessels == large.vessels).all()
    assert (normal.lungs["right"] == large.lungs["right"]).all()


def test_difficulty_makes_findings_fainter():
    def measure(label, seed, difficulty):
        shown, bare = (draw(seed, *some, difficulty=difficulty) for some in ([Finding(label, "left", 0.5, seed)], []))
        mask = shown.findings[0].mask
        return abs(shown.pixels[mask].astype(float) - bare.pixels[mask]).mean()

    for label in FOCAL:
        clear, faint = (np.mean([measure(label, seed, difficulty) for seed in range(2)]) for difficulty in (0.0, 1.0))
        assert clear > 1.1 * faint, label


def test_a_device_is_bright_and_is_no_finding():
    kinds = set()
    for seed in range(9):
        film = draw_film(seed, device=True)
        kinds.add(film.device)
        assert film.findings == ()
        bare = draw_film(seed, device=False)
        assert bare.device is None
        assert (film.pixels.astype(float) - bare.pixels).max() > 1500
    assert kinds == set(DEVICES)


def test_two_studies_show_the_same_patient():
    """The anatomy is the same up to position: the lungs of two studies overlap more than those of two patients."""

    def overlap(one, two):
        return (one & two).sum() / (one | two).sum()

    same = [overlap(draw(seed).masks["left lung"], draw(seed, study=1).masks["left lung"]) for seed in range(4)]
    assert np.mean(same) > 0.75
    assert [draw(seed).ratio for seed in SEEDS] == [draw(seed, study=1).ratio for seed in SEEDS]
