"""Filters against Pillow, SciPy, scikit-image and OpenCV's own words."""

from itertools import product

import cv2
import numpy as np
import pytest
from PIL import Image, ImageEnhance
from scipy import ndimage
from skimage.filters import gaussian

from tests.support.tables import each
from tests.support.tool_calls import after, call, shown
from viewbox.images.view import View

COLOR = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (70, 110, 3), dtype=np.uint8), (0, 0), 1)
GRAY = np.ascontiguousarray(COLOR[..., 0])
RNG = np.random.default_rng(2)


def sobel(pixels):
    return np.hypot(*(ndimage.sobel(pixels.astype(float), axis=axis, mode="mirror") for axis in (0, 1)))


def laplacian(pixels):
    return abs(ndimage.laplace(pixels.astype(float), mode="mirror"))


METHODS = {"sobel": sobel, "laplacian": laplacian}
PARTS = {"erode": "e", "dilate": "d", "open": "ed", "close": "de"}
STEPS = {"e": ndimage.grey_erosion, "d": ndimage.grey_dilation}


def edges(method, pixels):
    strength = METHODS[method](pixels)
    return strength / strength.max() * 255


def morph(operation, iterations):
    pixels = GRAY
    for part in PARTS[operation]:
        for _ in range(iterations):
            pixels = STEPS[part](pixels, size=(3, 3), mode="reflect")
    return pixels


@each("name, arguments, pixels, theirs, most", [
    *(("adjust_sharpness", {"factor": factor}, pixels, ImageEnhance.Sharpness(Image.fromarray(pixels)).enhance(factor),
     1) for factor in (0.1, 0.6, 1.7, 3) for pixels in (GRAY, COLOR, GRAY[:1], GRAY[:2, :3])),  # Pillow rounds down
    *(("denoise", {"sigma": sigma}, GRAY, ndimage.gaussian_filter(GRAY.astype(float), sigma, truncate=3,
     mode="reflect"), 1.5) for sigma in (0.5, 1, 2.3, 5)),
    *(("adaptive_equalize", {"clip_limit": limit, "tile_size": tiles}, GRAY,
     cv2.createCLAHE(clipLimit=limit, tileGridSize=(tiles, tiles)).apply(GRAY), 0) for tiles in (2, 8,
     16) for limit in (1, 2, 4)),
    *(("adaptive_equalize", {"tile_size": tiles, "clip_limit": 4}, pixels, pixels, 0) for tiles in (2, 8,
     32) for size in ((64, 64), (100, 37), (5, 5), (1, 1), (2, 300)) for pixels in (np.full(size, 7, np.uint8),
     np.full(size, 255, np.uint8))),
    *(("detect_edges", {"method": method}, pixels, edges(method, pixels),
     0.51) for method in METHODS for pixels in (RNG.integers(0, 256, size, dtype=np.uint8) for size in ((70, 110),
     (64, 64), (65, 3), (1, 50), (50, 1), (129, 20)))),
    *(("detect_edges", {"method": method}, np.full((20, 20), 90, np.uint8), 0, 0) for method in METHODS),
    *(("morphological", {"operation": operation, "iterations": count}, GRAY, morph(operation, count),
     0) for operation in PARTS for count in (1, 2, 5)),
    ("morphological", {"operation": "dilate", "threshold_value": 255}, np.full((9, 9), 255, np.uint8), 0, 0),
])  # fmt: skip
def test_a_filter_is_that_of_the_library(name, arguments, pixels, theirs, most):
    assert abs(shown(pixels, name, **arguments) - np.asarray(theirs, float)).max() <= most


@each("sigma", [0.7, 3])
def test_denoising_color_is_the_gaussian_of_scikit_image_in_each_channel(sigma):
    theirs = gaussian(COLOR.astype(float), sigma, truncate=3, mode="mirror", channel_axis=-1, preserve_range=True)
    inside = np.s_[15:-15, 15:-15]  # its border modes are named otherwise
    assert abs(shown(COLOR, "denoise", sigma=sigma) - theirs)[inside].max() <= 1.5


def test_a_small_picture_is_not_all_turned_white():
    small = np.full((16, 16), 100, np.uint8)
    small[4:8, 4:8] = 120
    assert max(abs(shown(small, "adaptive_equalize", tile_size=tiles) - small).max() for tiles in (8, 32)) < 40


# ---- edges of a part
def test_edges_of_a_part_are_measured_by_the_maximum_of_the_whole():
    faint = np.full((60, 100), 100, np.uint8)
    faint[:, 20:] = 110
    faint[:, 70:] = 210
    now = after(faint, ("detect_edges", {}))
    assert now.crop((0, 0, 0.4, 1)).to_uint8().max() == now.to_uint8()[:, :40].max() == round(255 / 10)


@each("factor, method", product([2, 4], METHODS))
def test_an_edge_keeps_its_brightness_when_it_is_magnified(factor, method):
    step = np.full((64, 64), 60, np.uint8)
    step[:, 32:] = 180
    now = after(View.of(step, max_pixels=64 * 64), ("detect_edges", {"method": method}))
    closer = now.zoom(factor)
    assert closer.to_uint8().max() > 0.75 * now.to_uint8().max() == 0.75 * 255
    assert closer.to_uint8().mean() == pytest.approx(factor * now.to_uint8().mean(), rel=0.1)  # so much wider


@each("method", list(METHODS))
def test_the_steps_of_interpolation_are_no_edges(method):
    wave = np.sin(np.arange(128) / 8)
    smooth = (120 + 60 * np.add.outer(wave, wave)).astype(np.uint8)
    pixels = shown(View.of(smooth).zoom(4).zoom(4), "detect_edges", method=method)
    assert abs(np.diff(pixels)).max() < 64  # an edge between two native pixels is spread over the 16 shown for them


def test_edges_of_a_larger_picture_are_found_in_its_finer_detail_after_a_zoom():
    fine = np.random.default_rng(0).integers(0, 256, (256, 256), dtype=np.uint8)
    view = View.of(fine, max_pixels=64 * 64)
    expected = (sobel(fine[96:160, 96:160]) / sobel(view.to_uint8()).max() * 255).clip(0, 255)
    assert abs(after(view, ("detect_edges", {})).zoom(4).to_uint8() - expected)[1:-1, 1:-1].max() <= 0.51


# ---- shapes
@each("iterations", [1, 3])
def test_a_threshold_makes_the_picture_black_and_white_first(iterations):
    opened = ndimage.binary_opening(GRAY > 120, np.ones((3, 3)), iterations=iterations)
    ours = shown(GRAY, "morphological", operation="open", iterations=iterations, threshold_value=120)
    inside = np.s_[iterations:-iterations, iterations:-iterations]  # scipy's outside is black
    assert set(np.unique(ours)) <= {0, 255}
    assert ((ours > 0) == opened)[inside].mean() > 0.98
    assert (ours == ndimage.grey_opening(255 * (GRAY > 120), (3, 3)))[inside].all() or iterations > 1


def test_a_threshold_that_was_not_given_is_not_stated():
    stated = call("morphological", GRAY, {"operation": "erode"})[1].facts
    assert stated == {"operation": "erode", "iterations": 1, "size": (110, 70), "shows": (0, 0, 1, 1)}
