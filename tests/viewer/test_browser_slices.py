"""Boxes of a volume in a real browser: on the right pixels of the right slice, whose number and window are named."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.support.browser import wait_until
from tests.support.saved_episodes import written
from tests.viewer.test_browser import open_page, report
from tests.viewer.test_marks_on_pixels import BODY, STACK, Look

CALLS = (
    ("select_slice", {"plane": "coronal", "index": 15}),
    ("zoom", {"factor": 1.5, "center": [0.5, 0.6]}),
    ("select_slice", {"plane": "sagittal", "index": 32}),
    ("flip_horizontal", {}),
    ("window_level", {"center": 100, "width": 150}),
    ("select_slice", {"plane": "axial", "index": BODY[1]}),  # the first slice above the bright voxels
    ("select_slice", {"plane": "axial", "index": BODY[1] - 1}),
)
NAMES = ("axial 6 of 20", "image_2", "coronal 15 of 40", "coronal 15 of 40", "sagittal 32 of 60", "sagittal 32 of 60",
         "sagittal 32 of 60", "axial 9 of 20", "axial 8 of 20")  # fmt: skip
OTHER, EMPTY, WINDOWED = (
    1,
    7,
    6,
)  # the other image of the task, the picture without the mark, the one with a window (a new slice drops it)


@pytest.fixture(scope="module", autouse=True)
def volume(tmp_path_factory):
    """A report of an episode that looks at slices of a volume, played before the browser is opened."""
    env = Look(tools=("select_slice", "zoom", "flip_horizontal", "window_level"))
    replies = iter([f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in CALLS] + ["{}"])
    with ThreadPoolExecutor(1) as pool:  # this thread has the event loop of the browser
        episode = pool.submit(env.play, STACK, lambda messages: next(replies)).result()
    folder = tmp_path_factory.mktemp("volume")
    return report(folder, written(folder / "run", episode))


def shoot(page, number):
    shot = page.locator(".frame").nth(number).screenshot()
    return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_the_box_lies_on_the_bright_pixels_of_the_slice(page, volume, number):
    page.emulate_media(color_scheme="dark")
    open_page(page, volume, "#/run/0/episode/1")
    page.locator(".controls select").select_option("8")
    wait_until(page, f"document.querySelectorAll('figure.picture img')[{number}].naturalWidth > 0")
    for name in ("outlines of later views", "arguments of tools"):
        page.get_by_label(name).uncheck()
    with_box = shoot(page, number)
    page.get_by_label("reference").uncheck()
    white = np.argwhere(shoot(page, number).min(axis=2) > 120)
    green = np.argwhere((with_box[..., 1] > 140) & (with_box[..., 0] < 110) & (with_box[..., 2] < 130))
    if number in (OTHER, EMPTY):
        assert (len(white) > 0, len(green)) == (number == OTHER, 0)
        return
    half = page.evaluate("parseFloat(getComputedStyle(document.querySelector('polygon.gold')).strokeWidth) / 2")
    assert len(white) > 100
    assert np.abs(green.min(axis=0) + half - white.min(axis=0)).max() <= 4.5  # half a pixel of the picture
    assert np.abs(green.max(axis=0) - half - white.max(axis=0)).max() <= 4.5


def test_the_slice_and_the_window_are_named(page, volume):
    open_page(page, volume, "#/run/0/episode/1")
    captions = page.locator("figure.picture figcaption").all_inner_texts()
    assert [name in caption for name, caption in zip(NAMES, captions, strict=True)] == [True] * len(NAMES)
    window = "window center 100, width 150"
    assert [window in caption for caption in captions] == [n == WINDOWED for n in range(len(NAMES))]
