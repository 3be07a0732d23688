"""Filters against Pillow, SciPy, scikit-image and OpenCV's own words."""

import cv2
import numpy as np
import pytest
from PIL import Image, ImageEnhance
from scipy import ndimage
from skimage.filters import gaussian

from viewbox.images.view import View
from viewbox.tools import call_stateful

COLOR = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (70, 110, 3), dtype=np.uint8), (0, 0), 1)
GRAY = np.ascontiguousarray(COLOR[..., 0])


def after(image, name, **arguments):
    view, result = call_stateful(name, image if isinstance(image, View) else View.of(image), arguments)
    assert result.success, result.error
    return view


def shown(image, name, **arguments):
    return after(image, name, **arguments).to_uint8().astype(int)


# ---- sharpness and noise


def test_sharpness_is_that_of_pillow():
    for factor in [0.1, 0.6, 1.7, 3]:
        for pixels in [GRAY, COLOR, GRAY[:1], GRAY[:2, :3]]:
            theirs = np.asarray(ImageEnhance.Sharpness(Image.fromarray(pixels)).enhance(factor), dtype=int)
            assert abs(shown(pixels, "adjust_sharpness", factor=factor) - theirs).max() <= 1  # Pillow rounds down


def test_denoising_is_the_gaussian_of_scipy():
    for sigma in [0.5, 1, 2.3, 5]:
        theirs = ndimage.gaussian_filter(GRAY.astype(float), sigma, truncate=3, mode="reflect")
        assert abs(shown(GRAY, "denoise", sigma=sigma) - theirs).max() <= 1.5


def test_denoising_color_is_the_gaussian_of_scikit_image_in_each_channel():
    for sigma in [0.7, 3]:
        theirs = gaussian(COLOR.astype(float), sigma, truncate=3, mode="mirror", channel_axis=-1, preserve_range=True)
        inside = np.s_[15:-15, 15:-15]  # its border modes are named otherwise
        assert abs(shown(COLOR, "denoise", sigma=sigma) - theirs)[inside].max() <= 1.5


# ---- local contrast


def test_adaptive_equalization_is_clahe_with_that_many_tiles_a_side():
    for tiles in [2, 8, 16]:
        for clip_limit in [1, 2, 4]:
            theirs = cv2.createCLAHE(clipLimit=clip_limit, tileGridSize=(tiles, tiles)).apply(GRAY)
            assert (shown(GRAY, "adaptive_equalize", clip_limit=clip_limit, tile_size=tiles) == theirs).all()


def test_adaptive_equalization_leaves_a_uniform_picture():
    for tiles in [2, 8, 32]:
        for size in [(64, 64), (100, 37), (5, 5), (1, 1), (2, 300)]:
            for level in [0, 7, 128, 255]:
                uniform = np.full(size, level, np.uint8)
                assert (shown(uniform, "adaptive_equalize", tile_size=tiles, clip_limit=4) == uniform).all()


def test_a_small_picture_is_not_all_turned_white():
    for tiles in [8, 32]:
        small = np.full((16, 16), 100, np.uint8)
        small[4:8, 4:8] = 120
        equal = shown(small, "adaptive_equalize", tile_size=tiles)
        assert abs(equal - small).max() < 40


def test_the_clip_limit_bounds_how_far_noise_is_spread():
    faint = (128 + np.random.default_rng(0).normal(0, 1.5, (256, 256))).round().astype(np.uint8)
    spread = {limit: shown(faint, "adaptive_equalize", clip_limit=limit).std() for limit in (1, 2, 4)}
    assert spread[1] < spread[2] < spread[4]
    for limit, found in spread.items():  # the table's slope is `limit`; what is clipped adds up to one
        assert found <= (limit + 1) * faint.std() * 1.1
    assert shown(faint, "equalize_histogram").std() > 5 * spread[4]


# ---- edges


def sobel(pixels):
    return np.hypot(*(ndimage.sobel(pixels.astype(float), axis=axis, mode="mirror") for axis in (0, 1)))


def laplacian(pixels):
    return abs(ndimage.laplace(pixels.astype(float), mode="mirror"))


def test_edges_are_those_of_scipy_over_their_maximum():
    for size in [(70, 110), (64, 64), (65, 3), (1, 50), (50, 1), (129, 20)]:
        for method, reference in [("sobel", sobel), ("laplacian", laplacian)]:
            pixels = np.random.default_rng(2).integers(0, 256, size, dtype=np.uint8)
            strength = reference(pixels)
            assert abs(shown(pixels, "detect_edges", method=method) - strength / strength.max() * 255).max() <= 0.51


def test_a_uniform_picture_has_no_edges():
    for method in ["sobel", "laplacian"]:
        assert not shown(np.full((20, 20), 90, np.uint8), "detect_edges", method=method).any()


def test_edges_of_a_part_are_measured_by_the_maximum_of_the_whole():
    faint = np.full((60, 100), 100, np.uint8)
    faint[:, 20:] = 110
    faint[:, 70:] = 210
    now = after(faint, "detect_edges")
    part = now.crop((0, 0, 0.4, 1)).to_uint8()
    assert part.max() == now.to_uint8()[:, :40].max() == round(255 / 10)


def test_an_edge_keeps_its_brightness_when_it_is_magnified():
    for factor in [2, 4]:
        for method in ["sobel", "laplacian"]:
            step = np.full((64, 64), 60, np.uint8)
            step[:, 32:] = 180
            now = after(View.of(step, max_pixels=64 * 64), "detect_edges", method=method)
            closer = now.zoom(factor)
            assert closer.to_uint8().max() > 0.75 * now.to_uint8().max() == 0.75 * 255
            assert closer.to_uint8().mean() == pytest.approx(factor * now.to_uint8().mean(), rel=0.1)  # so much wider


def test_the_steps_of_interpolation_are_no_edges():
    for method in ["sobel", "laplacian"]:
        wave = np.sin(np.arange(128) / 8)
        smooth = (120 + 60 * np.add.outer(wave, wave)).astype(np.uint8)
        direct = after(View.of(smooth).zoom(4).zoom(4), "detect_edges", method=method)
        pixels = direct.to_uint8().astype(int)
        assert abs(np.diff(pixels)).max() < 64  # an edge between two native pixels is spread over the 16 shown for them


def test_edges_of_a_larger_picture_are_found_in_its_finer_detail_after_a_zoom():
    fine = np.random.default_rng(0).integers(0, 256, (256, 256), dtype=np.uint8)
    view = View.of(fine, max_pixels=64 * 64)
    now = after(view, "detect_edges")
    top = sobel(view.to_uint8()).max()
    inside = np.s_[1:-1, 1:-1]
    expected = (sobel(fine[96:160, 96:160]) / top * 255).clip(0, 255)
    assert abs(now.zoom(4).to_uint8() - expected)[inside].max() <= 0.51


# ---- shapes

PARTS = {"erode": "e", "dilate": "d", "open": "ed", "close": "de"}
STEPS = {"e": ndimage.grey_erosion, "d": ndimage.grey_dilation}


def test_morphology_honors_its_iterations():
    for iterations in [1, 2, 5]:
        for operation in PARTS:
            expected = GRAY
            for part in PARTS[operation]:
                for _ in range(iterations):
                    expected = STEPS[part](expected, size=(3, 3), mode="reflect")
            assert (shown(GRAY, "morphological", operation=operation, iterations=iterations) == expected).all()


def test_a_threshold_makes_the_picture_black_and_white_first():
    for iterations in [1, 3]:
        opened = ndimage.binary_opening(GRAY > 120, np.ones((3, 3)), iterations=iterations)
        ours = shown(GRAY, "morphological", operation="open", iterations=iterations, threshold_value=120)
        inside = np.s_[iterations:-iterations, iterations:-iterations]  # scipy's outside is black
        assert set(np.unique(ours)) <= {0, 255}
        assert ((ours > 0) == opened)[inside].mean() > 0.98
        assert (ours == ndimage.grey_opening(255 * (GRAY > 120), (3, 3)))[inside].all() or iterations > 1


def test_opening_removes_what_is_narrower_than_its_iterations_reach():
    square = np.zeros((60, 60), np.uint8)
    square[20:27, 20:27] = 255  # 7 pixels wide: three erosions leave one pixel, four none
    assert (shown(square, "morphological", operation="open", iterations=3) == square).all()
    assert not shown(square, "morphological", operation="open", iterations=4).any()


def test_closing_fills_a_gap():
    gap = np.full((40, 40), 255, np.uint8)
    gap[:, 18:22] = 0
    assert shown(gap, "morphological", operation="close", iterations=2).min() == 255
    assert (shown(gap, "morphological", operation="close", iterations=1) == gap).all()


def test_a_threshold_of_the_brightest_level_leaves_black():
    assert not shown(np.full((9, 9), 255, np.uint8), "morphological", operation="dilate", threshold_value=255).any()


def test_a_threshold_that_is_not_given_is_not_stated():
    result = call_stateful("morphological", View.of(GRAY), {"operation": "erode"})[1]
    assert result.facts == {"operation": "erode", "iterations": 1, "size": (110, 70), "shows": (0, 0, 1, 1)}
