"""Where a mark is: in the original, in a view after a chain of tools, in the pixels that a model gets, and back again.

The picture is 256 x 128 with a bright square about (0.8, 0.3). All fractions below are by hand:

| step | shows | the mark in it |
| --- | --- | --- |
| overview | all | (0.8, 0.3) |
| zoom 2 about (0.75, 0.25) | x 0.5 to 1, y 0 to 0.5 | (0.6, 0.6) |
| rotated clockwise: (x, y) is at (1 - y, x) | | (0.4, 0.6) |
| mirrored: x is at 1 - x | | (0.6, 0.6) |
| zoom 2 about (0.5, 0.7) | x 0.25 to 0.75, y 0.45 to 0.95 of the view before | (0.7, 0.3) |
"""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.families import NAMES, build_family
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.picture_settings import find_pixel_multiple, set_max_pixels, show_whole
from viewbox.images.coordinates import to_unit
from viewbox.images.view import View

SIDE = 64
CHAIN = [
    (lambda view: view, (0.8, 0.3)), (lambda view: view.zoom(2, (0.75, 0.25)), (0.6, 0.6)), (lambda view: view.rotate(),
    (0.4, 0.6)), (lambda view: view.flip_horizontal(), (0.6, 0.6)), (lambda view: view.zoom(2, (0.5, 0.7)), (0.7, 0.3)),
]  # fmt: skip


def draw():
    picture = np.zeros((128, 256), np.uint8)
    picture[34:43, 200:210] = 255  # its middle is (205, 38.5): (0.801, 0.301)
    return Image.fromarray(picture)


def put_together(pixels, processor, size):
    """Every picture of a view of this size that a vision tower gets, (height, width) each, from its form of pixels."""
    values, images = pixels.inputs["pixel_values"].float(), processor.image_processor
    if "image_grid_thw" in pixels.inputs:  # patches in blocks of 2 x 2, two equal frames
        _, rows, columns = pixels.inputs["image_grid_thw"][0].tolist()
        side = images.patch_size
        blocks = values.view(rows // 2, columns // 2, 2, 2, 3, 2, side, side).mean(4)[..., 0, :, :]
        return [blocks.permute(0, 2, 4, 1, 3, 5).reshape(rows * side, columns * side)]
    if "image_position_ids" in pixels.inputs:  # patches with (column, row), -1: none
        side, places = images.patch_size, pixels.inputs["image_position_ids"][0]
        whole = torch.zeros(int(places[:, 1].max()) + 1, int(places[:, 0].max()) + 1, side, side)
        for patch, (column, row) in zip(values[0], places.tolist(), strict=True):
            if row >= 0:
                whole[row, column] = patch.view(side, side, 3).mean(2)
        return [whole.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)]
    if "spatial_shapes" in pixels.inputs:  # patches of each tile; the last is the whole
        rows, columns = pixels.inputs["spatial_shapes"][-1].tolist()
        side = images.encoder_patch_size
        patches = values[-1, : rows * columns].view(rows, columns, side, side, 3).mean(4)
        return [patches.permute(0, 2, 1, 3).reshape(rows * side, columns * side)]
    tiles = values.flatten(0, -4).mean(1)
    if len(tiles) == 1:
        return list(tiles)
    whole, tiles = (tiles[0], tiles[1:]) if "image_sizes" in pixels.inputs else (tiles[-1], tiles[:-1])
    ways = [n for n in range(1, len(tiles) + 1) if len(tiles) % n == 0]
    columns = min(ways, key=lambda n: abs(n * n / len(tiles) - size[0] / size[1]))
    grid = tiles.unflatten(0, (-1, columns)).permute(0, 2, 1, 3)
    return [whole, grid.flatten(2).flatten(0, 1)]


def find_mark(picture):
    """(x, y) of the middle of what is bright, in fractions."""
    bright = picture > (picture.min() + picture.max()) / 2
    rows, columns = bright.nonzero(as_tuple=True)
    return (columns.float().mean() + 0.5) / picture.shape[1], (rows.float().mean() + 0.5) / picture.shape[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_mark_is_where_it_should_be_in_every_picture_a_model_gets_and_maps_back(name):
    model, processor = build_family(name)
    architecture = Architecture(model.config, processor)
    show_whole(processor.image_processor)
    set_max_pixels(processor, SIDE * SIDE)
    view = View.of(draw(), max_pixels=SIDE * SIDE, multiple=find_pixel_multiple(architecture) or 1)
    for step, (x, y) in CHAIN:
        view = step(view)
        pixels = architecture.preprocess(view.to_ref().open())
        for picture in put_together(pixels, processor, view.size):
            height, width = picture.shape
            found = find_mark(picture)
            assert found == (pytest.approx(x, abs=1.2 / width), pytest.approx(y, abs=1.2 / height)), picture.shape
        said = to_unit([round(1000 * x), round(1000 * y)], "per_mille", view.size, "center")
        assert view.to_original(said) == pytest.approx((0.8, 0.3), abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_pixels_of_a_view_are_those_of_the_models_picture_where_views_have_its_multiple(name):
    model, processor = build_family(name)
    architecture = Architecture(model.config, processor)
    multiple = find_pixel_multiple(architecture)
    if multiple is None:
        assert name not in {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4v", "mistral3"}
        return
    set_max_pixels(processor, SIDE * SIDE)
    view = View.of(draw(), max_pixels=SIDE * SIDE, multiple=multiple)
    for step, _ in CHAIN:
        view = step(view)
        if name == "lfm2_vl" and view.size[0] * view.size[1] > 4 * multiple**2:
            continue  # it has four tokens for a picture that is not cut
        if name == "mistral3" and max(view.size) > 64:
            continue  # its tower has positions for 64 x 64 pixels
        [picture] = put_together(architecture.preprocess(view.to_ref().open()), processor, view.size)
        assert picture.shape == view.size[::-1]
