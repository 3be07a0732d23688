"""Tools as a model meets them: what it may write, what it is told, what it is shown."""

import json
import random
import re
from itertools import product
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from viewbox import tools
from viewbox.images.coordinates import from_unit, get_limits, to_unit
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.tools import TOOLS, Point, Range, ToolOutput, call_stateful, tool

NOISE = np.random.default_rng(0).integers(0, 256, (100, 200), dtype=np.uint8)
SOURCE = Source.of(NOISE)


def view(**options):
    return View.of(SOURCE, **options)


def error(name, arguments, **options):
    before = view()
    after, result = call_stateful(name, before, arguments, **options)
    assert after is before
    assert not result.success
    assert result.image is None
    return result.error


# ---- arguments


def test_an_unknown_tool_is_named_with_the_nearest_one():
    assert error("zom", {}).endswith("(did you mean 'zoom'?)")


def test_a_missing_argument_is_named():
    assert error("crop", {}) == 'crop: argument "box" is missing'


def test_an_argument_with_a_default_may_be_left_out_or_null():
    assert (
        call_stateful("zoom", view(), {})[0]
        == call_stateful("zoom", view(), {"factor": None, "center": None})[0]
        == view().zoom(2)
    )


def test_what_is_not_a_number_is_refused():
    for given in [True, "2", [2], {"x": 2}]:
        assert "allowed: a number; 0.5 to 4" in error("zoom", {"factor": given})


def test_what_is_not_finite_is_refused():
    for given in ["NaN", "Infinity", "1e999", "9" * 400]:
        assert "factor must be finite" in error("zoom", f'{{"factor": {given}}}')
        assert "center must be finite" in error("zoom", f'{{"center": [0, {given}]}}')


def test_what_is_not_a_box_is_refused():
    for given in [[0, 0, 1], [0, 0, 1, 1, 1], "0,0,1,1", [0, 0, 1, True], [0, 0, 1, None], {}, np.zeros(3)]:
        assert "a box is 4 numbers" in error("crop", {"box": given})


def test_an_integer_passes_for_a_number():
    assert call_stateful("zoom", view(), {"factor": 3})[1].facts["factor"] == 3.0


@pytest.mark.parametrize(("given", "taken"), [(2, 2), (2.0, 2), (2.5, None), (True, None), ("2", None)])
def test_only_a_lossless_number_passes_for_an_integer(scratch, given, taken):
    @tool
    def tiles(view: View, n: int) -> ToolOutput:
        """Tiles."""
        return ToolOutput("tiled", {"n": n, "type": type(n).__name__})

    _, result = call_stateful("tiles", view(), {"n": given})
    if taken is None:
        assert "allowed: an integer" in result.error
    else:
        assert result.facts == {"n": taken, "type": "int"}


def test_arguments_may_be_a_string_of_json():
    assert call_stateful("zoom", view(), '{"factor": 3}')[0] == view().zoom(3)
    assert call_stateful("reset", view(), "")[1].success


def test_arguments_that_are_no_json_object_are_refused_in_words():
    for given in ["{", "[" * 100_000, "[2]", "null", "2"]:
        assert error("zoom", given).startswith("zoom: the arguments ")


def test_a_tool_that_only_reads_leaves_the_view_and_shows_no_image(scratch):
    @tool
    def look(view: View) -> ToolOutput:
        """Reads."""
        return ToolOutput("read", {"mean": 3.5})

    before = view().zoom(2)
    after, result = call_stateful("look", before, {})
    assert after is before
    assert (result.image, result.text) == (None, "read (mean: 3.5)")


# ---- schemas


def test_a_schema_states_the_coordinates():
    for coordinates, top in [("unit", 1), ("per_mille", 1000), ("pixel", None)]:
        box = TOOLS["crop"].build_schema(coordinates)["function"]["parameters"]["properties"]["box"]
        assert box["items"].get("maximum") == top
        assert {"unit": "fractions", "per_mille": "thousandths", "pixel": "pixels"}[coordinates] in box["description"]


def test_hints_become_a_schema_with_ranges_choices_and_optional_values(scratch):
    @tool
    def all_kinds(
        view: View, n: Annotated[int, Range(1, 5)], how: Literal["a", "b"], at: Point | None = None, flag: bool = True
    ) -> ToolOutput:
        """All kinds."""

    parameters = TOOLS["all_kinds"].build_schema()["function"]["parameters"]
    assert parameters["required"] == ["n", "how"]
    assert parameters["properties"]["n"] == {"type": "integer", "minimum": 1, "maximum": 5}
    assert parameters["properties"]["how"] == {"type": "string", "enum": ["a", "b"]}
    assert parameters["properties"]["at"]["minItems"] == 2
    assert parameters["properties"]["flag"] == {"type": "boolean", "description": "default true"}


# ---- coordinates


def test_one_box_in_three_conventions_is_one_view():
    for coordinates, box in [
        ("unit", [0.25, 0.5, 0.75, 1]),
        ("per_mille", [250, 500, 750, 1000]),
        ("pixel", [50, 50, 150, 100]),
    ]:
        after, _ = call_stateful("crop", view(), {"box": box}, coordinates=coordinates)
        assert after.window == pytest.approx((0.25, 0.5, 0.75, 1))


def test_a_point_out_of_range_is_told_the_range():
    for coordinates, center, words in [
        ("unit", [1.01, 0], "x = 1.01 is out of range; allowed: 0 to 1 (fractions"),
        ("unit", [0, -0.1], "y = -0.1 is out of range; allowed: 0 to 1 (fractions"),
        ("per_mille", [0, 1001], "y = 1001 is out of range; allowed: 0 to 1000 (thousandths"),
        ("pixel", [0, 101], "y = 101 is out of range; allowed: 0 to 100 (pixels"),
        ("pixel", [201, 0], "x = 201 is out of range; allowed: 0 to 200 (pixels"),
    ]:
        assert words in error("zoom", {"center": center}, coordinates=coordinates)


def test_pixels_are_those_of_the_current_view():
    closer, _ = call_stateful("zoom", view(max_pixels=5000), {"factor": 2})
    assert closer.size == (100, 50)
    part, _ = call_stateful("crop", closer, {"box": [0, 0, 50, 50]}, coordinates="pixel")
    assert part.window == pytest.approx((0.25, 0.25, 0.5, 0.75))


@settings(max_examples=100)
@drawn(
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from(["unit", "per_mille", "pixel"]),
    st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
)
def test_a_written_point_is_read_back_within_its_rounding(point, coordinates, size):
    read = to_unit(from_unit(point, coordinates, size), coordinates, size, "point")
    for i, top in enumerate(get_limits(coordinates, size)):
        assert abs(read[i] - point[i]) <= 0.5 / (1000 if coordinates == "unit" else top) + 1e-12


# ---- what each does


def test_a_zoom_looks_closer_and_tells_its_sizes():
    after, result = call_stateful("zoom", view(), {"factor": 4, "center": [0, 0]})
    assert after.window == (0, 0, 0.25, 0.25)
    sizes = {"original_size": (200, 100), "new_size": (724, 362)}  # as large as the budget allows
    assert result.facts == {"factor": 4.0, **sizes, "shows": (0, 0, 0.25, 0.25)}
    assert result.image.open().size == (724, 362)


def test_a_zoom_stops_where_there_is_nothing_more_to_see():
    now, result = view(), None
    for _ in range(20):
        now, result = call_stateful("zoom", now, {"factor": 4})
        if not result.success:
            break
    assert "maximum zoom reached" in result.error
    assert call_stateful("zoom", now, {"factor": 0.5})[1].success


def test_a_crop_gives_the_native_pixels_of_its_box():
    _, result = call_stateful("crop", view(), {"box": [0.25, 0.5, 0.75, 1]})
    assert (np.asarray(result.image.open()) == NOISE[50:100, 50:150]).all()
    assert result.facts["area_percentage"] == 25.0


def test_a_reversed_or_empty_box_is_refused():
    for box in [[0.5, 0, 0.5, 1], [0.6, 0, 0.5, 1], [0, 0.6, 1, 0.5]]:
        assert "x1 < x2 and y1 < y2" in error("crop", {"box": box})


def test_a_crop_of_ten_pixels_is_allowed_wherever_it_stands():
    for x in [0, 0.3, 0.6, 0.65, 0.9]:
        assert call_stateful("crop", View.of(Image.new("L", (100, 100))), {"box": [x, x, x + 0.1, x + 0.1]})[1].success


def test_a_crop_of_less_than_ten_pixels_is_refused_with_the_limit():
    assert error("crop", {"box": [0, 0, 0.5, 0.09]}) == "crop: box is 100x9 pixels; allowed: at least 10x10"


def test_reset_shows_the_original_again():
    now = view()
    for name, arguments in [("crop", {"box": [0, 0, 0.5, 0.5]}), ("adjust_contrast", {"factor": 2}), ("zoom", {})]:
        now, _ = call_stateful(name, now, arguments)
    now, result = call_stateful("reset", now, {})
    assert now == view()
    assert (np.asarray(result.image.open()) == NOISE).all()


def test_contrast_is_that_of_pillow():
    for factor in [0.5, 1, 1.7, 3]:
        for mode in ["L", "RGB"]:
            picture = Image.fromarray(NOISE // 2 + 30).convert(mode)
            ours = np.asarray(tools.apply_tool("adjust_contrast", picture, factor=factor)[1].image.open(), dtype=int)
            theirs = np.asarray(ImageEnhance.Contrast(picture).enhance(factor), dtype=int)
            assert ours.shape == theirs.shape
            assert abs(ours - theirs).max() <= 1


def test_contrast_keeps_its_reference_level_when_the_viewer_looks_closer():
    half = np.zeros((64, 64), np.uint8)
    half[:, 32:] = 100
    changed, _ = call_stateful("adjust_contrast", View.of(half), {"factor": 2})
    _, result = call_stateful("crop", changed, {"box": [0.6, 0, 1, 1]})
    assert set(np.unique(np.asarray(result.image.open()))) == {150}


def test_apply_takes_arrays_images_sources_and_views():
    given = (NOISE, Image.fromarray(NOISE), SOURCE, view())
    assert len({tools.apply_tool("zoom", one, factor=2)[1].image.open().tobytes() for one in given}) == 1


# ---- any picture, any valid arguments


F = np.float32
CHANCE = np.random.default_rng(0)


def stacked(voxels, **fields):
    return Volume(voxels, (float(np.nanmin(voxels)), float(np.nanmax(voxels))), **fields).get_slice(0)


def pick(*shape, below=256, kind=np.uint8):
    return CHANCE.integers(0, below, shape).astype(kind)


NORMAL = CHANCE.normal(size=(3, 9, 7)).astype(F)
EPI = pick(3, 4, 20, 30, below=1000, kind=np.int16)
ODD = {
    "1 x 1": pick(1, 1), "1 x N": pick(1, 300), "N x 1": pick(300, 1, below=9999, kind=np.int16), "thin": pick(2, 5000),
    "tall": pick(5000, 2, below=60000, kind=np.uint16), "bool": NORMAL[0] > 0, "16 bit": pick(60, 40, kind=np.uint16),
    "flat": np.full((40, 50), 2**24, F), "flat and huge": np.full((5, 5), 3e38, F), "tiny": np.full((5, 5), 1e-45, F),
    "next": np.where(NORMAL[0] > 0, np.nextafter(F(100), F(200)), F(100)), "wide": np.sign(NORMAL[0]) * F(3.4e38),
    "small": np.abs(NORMAL[0]) * F(1e-40), "int32": np.full((9, 9), 614454277, np.int32),
    "int64": np.array([[0, 2**41]]),
    "uint64": np.array([[2**63, 2**64 - 1]], np.uint64), "infinity": np.where(NORMAL[0] > 1, np.inf, NORMAL[0]),
    "NaN": np.where(NORMAL[0] > 0, np.nan, NORMAL[0]), "one number": np.where(NORMAL[0] < NORMAL[0].max(), np.nan, 4),
    "RGBA": pick(33, 44, 4), "RGBA of 16 bits": pick(33, 44, 4, kind=np.uint16), "float RGB": CHANCE.random((9, 7, 3)),
    "RGB with NaN": np.where(CHANCE.random((9, 7, 3)) < 0.1, np.nan, 0.5), "int RGB": pick(9, 7, 3, kind=int) - 500,
    "huge RGB": (CHANCE.random((9, 7, 3)) * 3e38).astype(F), "flat RGB": np.full((9, 7, 3), 9, np.uint8),
    "palette": Image.fromarray(pick(9, 7)).convert("P"), "1": Image.new("1", (9, 9), 1), "LA": Image.new("LA", (9, 9)),
    "I;16": Image.fromarray(pick(20, 30, kind=np.uint16)), "CMYK": Image.new("CMYK", (9, 9), (9, 99, 3, 4)),
    "one slice": stacked(NORMAL[:1], spacing=(3.0, 1.0, 1.0)),
    "one voxel": stacked(np.full((1, 1, 1), 5, np.int16), spacing=(3.0, 1.0, 1.0), affine=np.eye(4), unit="HU"),
    "flat volume": stacked(np.full((4, 5, 6), 2e8, F), spacing=(1.0, 1.0, 500.0)),
    "frames": stacked(pick(3, 9, 7), planes=False), "RGB frames": stacked(pick(3, 9, 7, 3), planes=False),
    "4-D": stacked(EPI[0], times=EPI), "empty slice": stacked(np.stack([NORMAL[0] * np.nan, NORMAL[0]]), blank=np.nan),
    "inverted": Source(EPI[0, 0], (4000.0, 0.0)), "one display": Source(EPI[0, 0], (5.0, 5.0)),
    "needles": Source.of(pick(9, 7), spacing=(1e-9, 1e9)), "long pixels": Source.of(pick(9, 7), spacing=(1.0, 99.0)),
}  # fmt: skip


def draw_arguments(tool, chance):
    given = [name for name in tool.parameters if name in tool.required or chance.random() < 0.6]
    return {name: draw_value(tool.parameters[name], name, chance) for name in given}


def draw_value(spec, name, chance):
    kind = spec.get("x-kind", spec.get("type"))
    if "enum" in spec or kind == "boolean" or name in ("image", "label"):
        names = {"image": ["image_1", "image_2", "image_3"], "label": ["", "a", "é", "x" * 40]}
        return chance.choice(spec.get("enum") or names.get(name) or [True, False])
    if kind == "point":
        return [chance.choice([0, 1, chance.random()]) for _ in range(2)]
    if kind == "box":
        (x1, x2), (y1, y2) = (sorted([chance.choice([0, chance.random()]), chance.random()]) for _ in range(2))
        return [x1, y1, x2, y2]
    whole = kind == "integer"
    low, high = spec.get("minimum", 0 if whole else -1e6), min(spec.get("maximum", 3 if whole else 1e6), 1e6)
    return chance.choice([low, high, chance.randint(low, high) if whole else chance.uniform(low, high)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of 3e38: sums that are shown as white
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))])
def test_no_tool_raises_and_every_fact_is_finite_on_any_picture(seed):
    sources = {name: Source.of(picture) for name, picture in ODD.items()}
    shipped = [one for one in TOOLS.values() if one.stateful and one.function.__module__.startswith("viewbox.")]
    for name, last in product(sources, shipped):
        chance = random.Random(f"{seed} {name} {last.name}")
        images = [sources[name], *chance.sample(list(sources.values()), 2)]
        now = View.of(images[0], max_pixels=chance.choice([1, 64, 4096, 65536]))
        for one in [*chance.choices(shipped, k=chance.randrange(4)), last]:
            arguments = draw_arguments(one, chance)
            hidden = {"images": images, "mask": chance.choice([None, *images])}
            now, result = call_stateful(one, now, arguments, hidden=hidden)
            told = json.dumps(dict(result.facts))
            assert not re.search(r"NaN|Infinity|\"(nan|-?inf)\"", told), (name, one.name, arguments, told)
            assert result.error is None or result.error.startswith(one.name), (name, one.name, arguments)
