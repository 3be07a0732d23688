"""Sampling by a plain resize where it is exact, against the general warp, which places every point by itself."""

import itertools

import cv2
import numpy as np
import pytest

from viewbox.images import resample

SMOOTH = cv2.resize(np.random.default_rng(0).uniform(0, 255, (30, 40)).astype(np.float32), (400, 300))
KINDS = {
    "uint8": SMOOTH.astype(np.uint8), "rgb": np.dstack([SMOOTH, SMOOTH[::-1], SMOOTH[:, ::-1]]).astype(np.uint8),
    "uint16": (SMOOTH * 200).astype(np.uint16), "int16": (SMOOTH * 100 - 9000).astype(np.int16), "float32": SMOOTH,
}  # fmt: skip


def box_of(factor, center):
    width, height, move = 200 / factor, 150 / factor, (center - 0.5) * (1 - 1 / factor)
    x, y = 200 + 400 * move, 150 + 300 * move
    return x - width, y - height, x + width, y + height


@pytest.fixture
def warped(monkeypatch):
    """`resample` without its fast way."""

    def sample(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(resample, "_is_whole", lambda value: False)
            return resample.resample(*arguments)

    return sample


def test_a_plain_resize_shows_what_the_warp_shows(warped):
    factors, sizes = (4 / 3, 1.5, 2, 4), ((400, 300), (333, 250), (800, 600))
    for kind, factor, size, center in itertools.product(KINDS, factors, sizes, (0.0, 0.5, 1.0)):
        arguments = KINDS[kind], box_of(factor, center), size
        difference = resample.resample(*arguments).astype(float) - warped(*arguments)
        assert np.abs(difference).max() <= 2  # both round to the depth, the resize of 8 bits twice
    arguments = SMOOTH, (0, 200, 400 / 3, 300), (133, 100)  # 400/3 pixels on 133: one by one they would drift
    assert np.abs(resample.resample(*arguments) - warped(*arguments)).max() < 0.01


def test_a_zoom_about_the_middle_takes_the_fast_way(monkeypatch):
    monkeypatch.setattr(cv2, "warpAffine", None)
    for factor in (1.5, 2, 3, 4):
        assert resample.resample(KINDS["rgb"], box_of(factor, 0.5), (400, 300)).shape == (300, 400, 3)
