"""Where things are: through any chain of turns, mirrors, zooms, crops and steps back, a point of the view is the point
of the original that the view says, and the pixels shown there are the ones that the original has there.
"""

import random

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from tests.support.tables import each
from tests.support.tool_calls import after, call, refused
from viewbox import tools
from viewbox.errors import ToolError
from viewbox.images.resample import resample
from viewbox.images.source import Source
from viewbox.images.view import View

NOISE = np.random.default_rng(0).integers(0, 256, (48, 64), dtype=np.uint8)
DEPTHS = ["L", "RGB", "uint16", "int16", "float32"]
SOURCE = Source.of(NOISE)
VIEW = View.of(SOURCE)


def step(rng, now):
    """One geometric tool with random arguments; the same view where the tool refuses."""
    name = rng.choice(["zoom", "zoom", "crop", "crop", "rotate", "flip_horizontal", "flip_vertical", "undo", "reset"])
    arguments = {}
    if name == "zoom":
        arguments = {"factor": rng.uniform(0.5, 4), "center": (rng.random(), rng.random())}
    elif name == "crop":
        (x1, x2), (y1, y2) = (sorted((rng.random(), rng.random())) for _ in "xy")
        arguments = {"box": (x1, y1, x2, y2)}
    elif name == "rotate":
        arguments = {"clockwise": rng.random() < 0.5}
    try:
        return tools.get_tool(name).function(now, **arguments).view
    except ToolError:
        return now


def walk(rng, now, most):
    for _ in range(rng.randint(1, most)):
        now = step(rng, now)
    return now


def order(corners):
    x1, y1, x2, y2 = corners
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


# ---- the map
def test_a_point_and_a_box_come_back_in_a_thousand_chains_of_tools_and_go_through_the_affine_map():
    rng, farthest = random.Random(0), 0.0
    empty = np.zeros(4096 * 4096, np.uint8)  # untouched: no memory is taken
    for _ in range(1_000):
        width, height = rng.randint(1, 4096), rng.randint(1, 4096)
        overview = View.of(Source(empty[: width * height].reshape(height, width)), max_pixels=rng.choice([4096, 2**18]))
        now = walk(rng, overview, 20)
        point = rng.random(), rng.random()
        there = now.to_original(point)
        back = now.from_original(there)
        again = now.to_original(back)
        assert -1e-9 <= min(there) <= max(there) <= 1 + 1e-9
        farthest = max(farthest, *(abs(a - b) for a, b in zip(back + again, point + there, strict=True)))
        (x1, x2), (y1, y2) = (sorted((rng.random(), rng.random())) for _ in "xy")
        box = now.box_to_original((x1, y1, x2, y2))
        assert box == order(box)
        assert order(now.from_original(box)) == pytest.approx((x1, y1, x2, y2), abs=1e-9)
        a, b, c, d, e, f = now.matrix
        assert (a * x1 + b * y2 + c, d * x1 + e * y2 + f) == pytest.approx(now.to_original((x1, y2)), abs=1e-12)
    assert farthest <= 1e-9


# ---- pixels
def smooth(x, y):
    """A picture without detail, from 0 to 1, at places in native pixels."""
    return 0.5 + 0.25 * np.sin(x / 9 + 1) + 0.25 * np.cos(y / 13 - x / 40)


@each("depth", DEPTHS)
def test_a_smooth_picture_is_shown_with_the_values_it_has_there(depth):
    rng = random.Random(depth)
    rows, columns = np.indices((150, 190)) + 0.5
    wave = smooth(columns, rows)
    if depth in ("L", "RGB"):
        source, top = Source.of(Image.fromarray(np.rint(wave * 255).astype(np.uint8)).convert(depth)), 255
    else:
        source, top = Source.of((wave * 30000).astype(depth)), 30000
    for _ in range(100):
        now = walk(rng, View.of(source, max_pixels=80 * 80), 6)
        values = now.get_values().astype(float)
        v, u = (np.indices((now.size[1], now.size[0])) + 0.5) / np.array(now.size[::-1])[:, None, None]
        a, b, c, d, e, f = now.matrix
        said = smooth((a * u + b * v + c) * 190, (d * u + e * v + f) * 150) * top
        said = said[..., None] if depth == "RGB" else said
        assert abs(values - said)[2:-2, 2:-2].max(initial=0) <= 0.02 * top, now


def test_magnifying_agrees_with_scipy():
    rows, columns = np.indices((60, 60)) + 0.5
    picture = (smooth(columns, rows) * 1000).astype(np.float32)
    found = resample(picture, (10.3, 20.6, 30.3, 35.6), (160, 120))
    y, x = np.meshgrid(20.6 + (np.arange(120) + 0.5) / 8 - 0.5, 10.3 + (np.arange(160) + 0.5) / 8 - 0.5, indexing="ij")
    assert abs(found - ndimage.map_coordinates(picture, [y, x], order=3)).max() <= 5


def overlaps(low, high, count, side):
    """(count, side) weights: how much of each part of [low, high) each pixel takes."""
    edges = np.linspace(low, high, count + 1)
    pixel = np.arange(side)
    covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return np.clip(covered, 0, None) / (edges[1] - edges[0])


@each("size", [(21, 16), (32, 24), (50, 37), (63, 47)])
def test_minifying_whole_pixels_is_the_mean_of_areas(size):
    said = overlaps(0, 48, size[1], 48) @ NOISE @ overlaps(0, 64, size[0], 64).T
    for dtype in ("uint8", "uint16", "int16", "float32"):
        found = resample(NOISE.astype(dtype), (0, 0, 64, 48), size)
        assert found.dtype == dtype
        assert abs(found - said).max() <= 0.5 + 1e-3


@each("size", [(9, 7), (32, 24), (40, 30), (58, 43)])
def test_minifying_between_pixels_leaves_no_pixel_out(size):
    dots = np.zeros((52, 48, 64), np.float32)
    dots[range(52), 20, range(6, 58)] = 1
    seen = [resample(dot, (2.3, 1.6, 62.4, 46.2), size).sum() for dot in dots]
    whole = size[0] * size[1] / (60.1 * 44.6)
    assert 0.6 * whole < min(seen) < max(seen) < 1.4 * whole


@each("step, count", [(0.25, 40), (1, 10), (1.5, 8), (3.5, 4)])
def test_the_edge_of_a_view_is_interpolated_from_what_lies_beyond_it(step, count):
    noise = np.random.default_rng(1).integers(0, 256, (100, 100), dtype=np.uint8)
    low, high, more = 30.5, 30.5 + step * count, 6 * step
    part = resample(noise, (low, low, high, high), (count, count))
    larger = resample(noise, (low - more, low - more, high + more, high + more), (count + 12, count + 12))
    assert abs(part.astype(int) - larger[6:-6, 6:-6]).max() <= 2


TURNS = {"rotate": lambda pixels: np.rot90(pixels, -1), "flip_horizontal": np.fliplr, "flip_vertical": np.flipud}


@each("depth", DEPTHS)
def test_every_orientation_at_native_size_shows_the_native_pixels(depth):
    pixels = NOISE if depth in ("L", "RGB") else (NOISE * 7.0 - (300 if depth != "uint16" else 0)).astype(depth)
    source = Source.of(Image.fromarray(pixels).convert("RGB") if depth == "RGB" else pixels)
    now, said = View.of(source).crop((0.25, 0.25, 0.75, 1)), source.pixels[12:48, 16:48]
    for name, turn in [*TURNS.items()] * 4:
        now, said = getattr(now, name)(), turn(said)
        assert (now.get_values() == said).all()
    assert (now.rotate(clockwise=False).get_values() == np.rot90(said)).all()


def test_zooms_and_crops_of_a_turned_view_are_those_of_the_turned_picture():
    turned = View.of(np.ascontiguousarray(np.rot90(NOISE, -1)), max_pixels=24 * 32)
    now = View.of(SOURCE, max_pixels=24 * 32).rotate()
    for step in (lambda v: v.zoom(2, (0.2, 0.7)), lambda v: v.crop((0.1, 0.3, 0.9, 0.95)), lambda v: v.zoom(0.7)):
        now, turned = step(now), step(turned)
        assert now.size == turned.size
        assert abs(now.get_values().astype(int) - turned.get_values().astype(int)).max() <= 2


# ---- the tools
def test_rotate_tells_the_sizes_before_and_after():
    after, result = call("rotate", VIEW)
    assert result.facts == {"clockwise": True, "original_size": (64, 48), "new_size": (48, 64), "shows": (0, 0, 1, 1)}
    assert (np.asarray(result.image.open()) == np.rot90(NOISE, -1)).all()
    assert call("rotate", after, {"clockwise": False})[0] == VIEW


@each("name, what", [("flip_horizontal", "laterality"), ("flip_vertical", "orientation")])
def test_a_mirrored_view_says_so_and_warns(name, what):
    after, result = call(name, VIEW)
    assert result.facts == {"size": (64, 48), what: "reversed", "shows": (0, 0, 1, 1)}
    assert "Careful: this is a mirror image" in result.text
    assert (np.asarray(result.image.open()) == TURNS[name](NOISE)).all()
    again = call(name, after)[1]
    assert again.facts[what] == "as in the original"
    both = call("flip_vertical", VIEW.flip_horizontal())[1]  # turned, and no mirror image
    assert both.facts["orientation"] == "reversed"
    assert all("no longer a mirror image" in text for text in (again.text, both.text))


def test_undo_says_what_is_shown():
    now = after(VIEW.rotate(), ("adjust_contrast", {"factor": 2}), ("zoom", {}))
    now, result = call("undo", now)
    said = "one step back: the whole image, turned, intensities changed (size: [48, 64], shows: [0.0, 0.0, 1.0, 1.0])"
    assert result.text == said
    plain = call("undo", now.undo())[1]
    assert plain.text == "one step back: the whole image (size: [64, 48], shows: [0.0, 0.0, 1.0, 1.0])"
    assert "nothing to undo" in refused("undo", VIEW)


def test_another_image_of_the_task_is_opened_and_one_that_is_not_there_is_refused():
    images = [SOURCE, Source.of(np.zeros((10, 20), np.uint8))]
    other, result = call("open_image", VIEW.zoom(2), {"image": "image_2"}, hidden={"images": images})
    assert other.source is images[1]
    assert result.facts == {"image": "image_2", "images": 2, "size": (20, 10), "shows": (0, 0, 1, 1)}
    assert "(another image)" in call("undo", other)[1].text
    for name in ("image_3", f"image_{10**30}", "image_0", "image_-1", "view_0", "1", ""):
        said = refused("open_image", VIEW, {"image": name}, hidden={"images": [SOURCE, SOURCE]})
        assert "allowed: image_1 and image_2" in said
    assert "no other image" in refused("open_image", VIEW, {"image": "image_1"})
