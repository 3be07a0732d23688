"""Tools as a model meets them: what it may write, what it is told, what it is shown; and what hints become."""

import json
import math
import random
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from PIL import Image

import viewbox
from tests.support.tables import each
from tests.support.tool_calls import after, call, refused
from viewbox import tools
from viewbox.envs import make
from viewbox.errors import ImageError
from viewbox.images.coordinates import from_unit, get_limits, to_unit
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.tools import TOOLS, Box, Hidden, Point, Range, Tool, ToolOutput, call_stateful, tool
from viewbox.utils.json_schema import check_schema, find_violation

NOISE = np.random.default_rng(0).integers(0, 256, (100, 200), dtype=np.uint8)
SOURCE = Source.of(NOISE)
VIEW, SQUARE = View.of(SOURCE), View.of(Image.new("L", (100, 100)))


def properties(name, coordinates="unit"):
    made = TOOLS[name] if isinstance(name, str) else Tool.from_function(name)
    return made.build_schema(coordinates)["function"]["parameters"]["properties"]


# ---- what a model may write

LIMITS = "allowed: a number; 0.5 to 4"


@each("name, arguments, how, words", [
    ("zom", {}, "unit", "(did you mean 'zoom'?)"), ("crop", {}, "unit", 'crop: argument "box" is missing'),
    *(("zoom", {"factor": odd}, "unit", LIMITS) for odd in (True, "2", [2], {"x": 2})),
    *(("zoom", f'{{"factor": {odd}}}', "unit", "factor must be finite") for odd in ("NaN", "Infinity", "1e999",
     "9" * 400)),
    *(("zoom", f'{{"center": [0, {odd}]}}', "unit", "center must be finite") for odd in ("NaN", "Infinity", "1e999",
     "9" * 400)),
    *(("crop", {"box": odd}, "unit", "a box is 4 numbers") for odd in ([0, 0, 1], [0, 0, 1, 1, 1], "0,0,1,1",
     [0, 0, 1, True], [0, 0, 1, None], {}, np.zeros(3), "null")),
    *(("zoom", odd, "unit", "zoom: the arguments ") for odd in ("{", "[" * 100_000, "[2]", "null", "2")),
    *(("crop", {"box": box}, "unit", "x1 < x2 and y1 < y2") for box in ([0.5, 0, 0.5, 1], [0.6, 0, 0.5, 1],
     [0, 0.6, 1, 0.5])),
    ("crop", {"box": [0, 0, 0.5, 0.09]}, "unit", "crop: box is 100x9 pixels; allowed: at least 10x10"),
    ("zoom", {"center": [1.01, 0]}, "unit", "x = 1.01 is out of range; allowed: 0 to 1 (fractions"),
    ("zoom", {"center": [0, -0.1]}, "unit", "y = -0.1 is out of range; allowed: 0 to 1 (fractions"),
    ("zoom", {"center": [0, 1001]}, "per_mille", "y = 1001 is out of range; allowed: 0 to 1000 (thousandths"),
    ("zoom", {"center": [0, 101]}, "pixel", "y = 101 is out of range; allowed: 0 to 100 (pixels"),
    ("zoom", {"center": [201, 0]}, "pixel", "x = 201 is out of range; allowed: 0 to 200 (pixels"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words_and_leaves_the_view(name, arguments, how, words):
    assert words in refused(name, VIEW, arguments, coordinates=how)


@each("name, arguments, how, expected", [
    *(("zoom", arguments, "unit", VIEW.zoom(2)) for arguments in ({}, {"factor": None, "center": None})),
    *(("zoom", arguments, "unit", VIEW.zoom(3)) for arguments in ({"factor": 3}, '{"factor": 3}')),
    ("reset", "", "unit", VIEW),
    *(("crop", {"box": box}, how, VIEW.crop((0.25, 0.5, 0.75, 1)))
      for how, box in (("unit", [0.25, 0.5, 0.75, 1]), ("per_mille", [250, 500, 750, 1000]), ("pixel", [50, 50, 150,
       100]))),
])  # fmt: skip
def test_what_is_left_out_null_a_string_of_json_or_in_other_coordinates_is_one_view(name, arguments, how, expected):
    assert call(name, VIEW, arguments, coordinates=how)[0] == expected


@each("name, argument", [
    ("get_intensity_stats", "box"), ("zoom", "center"), ("zoom", "factor"), ("window_level", "width"),
    ("window_level", "preset"),
])  # fmt: skip
@each("null", [None, "null", "None", " none "])
def test_null_as_text_leaves_an_optional_argument_out_and_is_text_where_text_is_needed(name, argument, null):
    assert TOOLS[name].check_arguments({argument: null}, "unit", (64, 64)) == {}
    given = {"box": [0, 0, 1, 1], "label": "none"}
    assert TOOLS["annotate_region"].check_arguments(given, "unit", (64, 64))["label"] == "none"


@settings(max_examples=100)
@drawn(
    st.tuples(st.floats(0, 1), st.floats(0, 1)), st.sampled_from(["unit", "per_mille", "pixel"]),
    st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
)  # fmt: skip
def test_a_written_point_is_read_back_within_its_rounding(point, coordinates, size):
    read = to_unit(from_unit(point, coordinates, size), coordinates, size, "point")
    for i, top in enumerate(get_limits(coordinates, size)):
        assert abs(read[i] - point[i]) <= 0.5 / (1000 if coordinates == "unit" else top) + 1e-12


# ---- what each does
def test_a_zoom_looks_closer_a_crop_gives_native_pixels_and_reset_shows_the_original_again():
    now, result = call("zoom", VIEW, {"factor": 4, "center": [0, 0]})
    sizes = {"original_size": (200, 100), "new_size": (724, 362)}  # as large as the budget allows
    assert result.facts == {"factor": 4.0, **sizes, "shows": (0, 0, 0.25, 0.25)}
    assert (now.window, result.image.open().size) == ((0, 0, 0.25, 0.25), (724, 362))
    for _ in range(20):
        now, result = call_stateful("zoom", now, {"factor": 4})
    assert "maximum zoom reached" in result.error
    assert call("zoom", now, {"factor": 0.5})
    result = call("crop", VIEW, {"box": [0.25, 0.5, 0.75, 1]})[1]
    assert (np.asarray(result.image.open()) == NOISE[50:100, 50:150]).all()
    assert result.facts["area_percentage"] == 25.0
    for x in (0, 0.3, 0.6, 0.65, 0.9):  # ten pixels are allowed wherever they stand
        assert call("crop", SQUARE, {"box": [x, x, x + 0.1, x + 0.1]})
    closer, _ = call("zoom", View.of(SOURCE, max_pixels=5000), {"factor": 2})
    part, _ = call("crop", closer, {"box": [0, 0, 50, 50]}, coordinates="pixel")
    assert (closer.size, part.window) == ((100, 50), pytest.approx((0.25, 0.25, 0.5, 0.75)))
    now = after(VIEW, ("crop", {"box": [0, 0, 0.5, 0.5]}), ("adjust_contrast", {"factor": 2}), ("zoom", {}))
    now, result = call("reset", now)
    assert now == VIEW
    assert (np.asarray(result.image.open()) == NOISE).all()


# ---- outside an episode
def test_apply_gives_the_picture_and_what_a_model_would_read_and_a_chain_ends_at_the_first_call_that_fails(tmp_path):
    _, done = tools.apply_tool("zoom", Image.new("RGB", (64, 32)), factor=2)
    assert (done.image.open().size, done.image.open().mode, done.error) == ((128, 64), "RGB", None)
    said = "zoomed (factor: 2.0, original_size: [64, 32], new_size: [128, 64], shows: [0.25, 0.25, 0.75, 0.75])"
    assert done.text == said
    now, done = tools.apply_tool("zoom", VIEW, factor=9)
    assert (now, done.image, done.text) == (VIEW, None, f"error: {done.error}")
    now, done = tools.apply_tool("crop", VIEW, coordinates="pixel", box=[50, 50, 150, 100])
    assert now.window == pytest.approx((0.25, 0.5, 0.75, 1))
    assert done.text.endswith("shows: [50, 50, 150, 100])")
    given = (NOISE, Image.fromarray(NOISE), SOURCE, VIEW)
    assert len({tools.apply_tool("zoom", one, factor=2)[1].image.open().tobytes() for one in given}) == 1
    Image.new("L", (40, 20)).save(tmp_path / "a.png")
    assert tools.apply_tool("zoom", tmp_path / "a.png", max_pixels=200)[1].image.open().size == (20, 10)
    assert tools.apply_tool("zoom", str(tmp_path / "a.png"))[1].image.open().size == (80, 40)
    with pytest.raises(ImageError, match=r"b\.png"):
        tools.apply_tool("zoom", tmp_path / "b.png")
    steps = tools.apply_tools(VIEW, [("crop", {"box": [0.5, 0, 1, 1]}), ("zoom", {"factor": 9}), ("zoom", {})])
    assert [result.success for _, result in steps] == [True, False]
    assert steps[-1][0] is steps[0][0]


# ---- what hints and docstrings become
def blur(
    view: View, sigma: Annotated[float, Range(0.5, 5), "width in pixels"], n: float = 1, mode: str = "fast"
) -> ToolOutput:
    """Blurs. Note: it is slow.

    n: how often
    mode: how, one of: fast, exact
    """


def pick(
    view: View, index: Annotated[int, Range(0, math.inf)], n: Annotated[int, Range(0, 9)] = 0,
        numbers: Annotated[list[int], "to add"] = (),
    names: list[str] | None = None, how: Literal["a", "b"] = "a", at: Point | None = None,
        box: Annotated[Box | None, "around it"] = None,
    flag: bool = True, share: float = 0.50,
) -> ToolOutput:  # fmt: skip
    """Picks."""
    return ToolOutput(f"{sum(numbers)} {names}", {"n": n, "type": type(n).__name__})


@each("function, argument, spec", [
    (blur, "sigma", {"type": "number", "minimum": 0.5, "maximum": 5, "description": "width in pixels"}),
    (blur, "n", {"type": "number", "description": "how often; default 1"}),
    (blur, "mode", {"type": "string", "description": 'how, one of: fast, exact; default "fast"'}),
    (pick, "index", {"type": "integer", "minimum": 0}),
    (pick, "n", {"type": "integer", "minimum": 0, "maximum": 9, "description": "default 0"}),
    (pick, "how", {"type": "string", "enum": ["a", "b"], "description": 'default "a"'}),
    (pick, "flag", {"type": "boolean", "description": "default true"}),
    (pick, "share", {"type": "number", "description": "default 0.5"}),
])  # fmt: skip
def test_a_hint_and_a_line_of_the_docstring_become_the_schema_of_an_argument(function, argument, spec):
    assert properties(function)[argument] == spec
    assert Tool.from_function(blur).description == "Blurs. Note: it is slow."
    assert Tool.from_function(pick).build_schema()["function"]["parameters"]["required"] == ["index"]


@each(
    "coordinates, unit, top", [("unit", "fractions", 1), ("per_mille", "thousandths", 1000), ("pixel", "pixels", None)]
)
def test_a_box_is_written_in_the_coordinates_and_its_note_stands_behind(coordinates, unit, top):
    spec = properties(pick, coordinates)
    assert spec["box"]["description"].startswith(f"[x1, y1, x2, y2] in {unit} of the image; around it")
    assert (spec["box"]["items"].get("maximum"), spec["at"]["minItems"]) == (top, 2)
    assert spec["numbers"]["items"] == {"type": "integer"}


@each("arguments, said", [
    ({"index": -1}, "pick: index = -1: out of range; allowed: at least 0"),
    ({"index": "two"}, 'pick: index = "two": allowed: an integer'),
    ({"index": 1, "n": "two"}, 'pick: n = "two": allowed: an integer; 0 to 9'),
    ({"index": 1, "numbers": ["x"]}, 'pick: numbers[0] = "x": '),
    ({"index": 1, "numbers": 3}, "pick: numbers = 3: allowed: a list"),
    # only a lossless number passes for an integer
    *(({"index": 1, "n": odd}, "pick: n = ") for odd in (2.5, True, "2")), ({"index": 1, "n": 2.0}, (2, "3 None")),
    ({"index": 1, "n": 2}, (2, "3 None")), ({"index": 1, "names": ["a"]}, (0, "3 ['a']")),
])  # fmt: skip
def test_what_is_given_is_checked_by_the_hint(arguments, said):
    tool(pick)
    result = call_stateful("pick", VIEW, {"numbers": (1, 2), **arguments})[1]
    if isinstance(said, str):
        assert result.error.startswith(said)
    else:
        assert (result.facts["n"], result.facts["type"], result.description) == (said[0], "int", said[1])


@each("hint, words", [(complex, "cannot be the type of an argument; allowed: float, int"),
                      *((hint, "allowed: a list of float, int, bool or str")
                          for hint in (list[Box], list[complex], list[list[int]]))])  # fmt: skip
def test_a_hint_that_no_schema_can_say_is_the_authors_error(hint, words):
    def pick(view: View, many: hint) -> ToolOutput:
        """Picks."""

    with pytest.raises(TypeError, match=words):
        tool(pick)


OFFERED = TOOLS | {
    f"{env.name}.{name}": env.toolbox[name]
    for env in map(make, ("consultation", "literature_vqa", "software_adviser"))
    for name in env.tools
}


@each("name", sorted(OFFERED))
def test_every_tool_has_a_valid_schema_that_describes_its_arguments_with_defaults_that_may_be_given(name):
    made = OFFERED[name]
    for coordinates in ("unit", "per_mille", "pixel"):
        schema = json.loads(json.dumps(made.build_schema(coordinates), allow_nan=False))["function"]
        check_schema(schema["parameters"])
        assert schema["description"].endswith(".")
    for argument, spec in made.build_schema("per_mille")["function"]["parameters"]["properties"].items():
        text = spec.get("description", "")
        assert len(text.split()) > 1, argument
        if argument not in made.required and not name.endswith("window_level"):  # which takes a preset, or both others
            assert "default" in text or "empty" in text, text
        default = made.defaults.get(argument)
        assert default is None or not find_violation(json.loads(json.dumps(default)), made.parameters[argument])
    said = "true turns it to the right, false to the left; default true"
    assert properties("rotate")["clockwise"]["description"] == said


# ---- what the model never sees, limits, and tools that only read
def test_a_tool_that_only_reads_leaves_the_view_and_a_hidden_argument_that_is_forgotten_is_the_environments_fault():
    @tool(max_calls=1)
    def secret(view: View, where: str, images: Hidden[Sequence[str]], path: Annotated[str, "hidden"]) -> ToolOutput:
        """Looks."""
        return ToolOutput(f"{where} {path}", {"mean": len(images)})

    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        call_stateful("secret", VIEW, {"where": "in"})
    before = VIEW.zoom(2)
    now, result = call("secret", before, {"where": "in"}, hidden={"images": ["a"], "path": "b"})
    assert now is before
    assert (result.image, result.text) == (None, "in b (mean: 1)")
    assert TOOLS["secret"].max_calls == 1
    for count, words in ((1, "Looks. At most 1 call."), (3, "Looks. At most 3 calls.")):
        assert TOOLS["secret"].build_schema(max_calls=count)["function"]["description"] == words


# ---- any picture, any valid arguments

F = np.float32
CHANCE = np.random.default_rng(0)


def stacked(voxels, **fields):
    return Volume(voxels, (float(np.nanmin(voxels)), float(np.nanmax(voxels))), **fields).get_slice(0)


def draw(*shape, below=256, kind=np.uint8):
    return CHANCE.integers(0, below, shape).astype(kind)


NORMAL = CHANCE.normal(size=(3, 9, 7)).astype(F)
EPI = draw(3, 4, 20, 30, below=1000, kind=np.int16)
ODD = {
    "1 x 1": draw(1, 1), "1 x N": draw(1, 300), "N x 1": draw(300, 1, below=9999, kind=np.int16), "thin": draw(2, 5000),
    "tall": draw(5000, 2, below=60000, kind=np.uint16), "bool": NORMAL[0] > 0, "16 bit": draw(60, 40, kind=np.uint16),
    "flat": np.full((40, 50), 2**24, F), "flat and huge": np.full((5, 5), 3e38, F), "tiny": np.full((5, 5), 1e-45, F),
    "next": np.where(NORMAL[0] > 0, np.nextafter(F(100), F(200)), F(100)), "wide": np.sign(NORMAL[0]) * F(3.4e38),
    "small": np.abs(NORMAL[0]) * F(1e-40), "int32": np.full((9, 9), 614454277, np.int32),
    "int64": np.array([[0, 2**41]]),
    "uint64": np.array([[2**63, 2**64 - 1]], np.uint64), "infinity": np.where(NORMAL[0] > 1, np.inf, NORMAL[0]),
    "NaN": np.where(NORMAL[0] > 0, np.nan, NORMAL[0]), "one number": np.where(NORMAL[0] < NORMAL[0].max(), np.nan, 4),
    "RGBA": draw(33, 44, 4), "RGBA of 16 bits": draw(33, 44, 4, kind=np.uint16), "float RGB": CHANCE.random((9, 7, 3)),
    "RGB with NaN": np.where(CHANCE.random((9, 7, 3)) < 0.1, np.nan, 0.5), "int RGB": draw(9, 7, 3, kind=int) - 500,
    "huge RGB": (CHANCE.random((9, 7, 3)) * 3e38).astype(F), "flat RGB": np.full((9, 7, 3), 9, np.uint8),
    "palette": Image.fromarray(draw(9, 7)).convert("P"), "1": Image.new("1", (9, 9), 1), "LA": Image.new("LA", (9, 9)),
    "I;16": Image.fromarray(draw(20, 30, kind=np.uint16)), "CMYK": Image.new("CMYK", (9, 9), (9, 99, 3, 4)),
    "one slice": stacked(NORMAL[:1], spacing=(3.0, 1.0, 1.0)),
    "one voxel": stacked(np.full((1, 1, 1), 5, np.int16), spacing=(3.0, 1.0, 1.0), affine=np.eye(4), unit="HU"),
    "flat volume": stacked(np.full((4, 5, 6), 2e8, F), spacing=(1.0, 1.0, 500.0)),
    "frames": stacked(draw(3, 9, 7), planes=False), "RGB frames": stacked(draw(3, 9, 7, 3), planes=False),
    "4-D": stacked(EPI[0], times=EPI), "empty slice": stacked(np.stack([NORMAL[0] * np.nan, NORMAL[0]]), blank=np.nan),
    "inverted": Source(EPI[0, 0], (4000.0, 0.0)), "one display": Source(EPI[0, 0], (5.0, 5.0)),
    "needles": Source.of(draw(9, 7), spacing=(1e-9, 1e9)), "long pixels": Source.of(draw(9, 7), spacing=(1.0, 99.0)),
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
        assert (now.to_uint8().dtype, now.to_uint8().shape[:2]) == (np.uint8, now.size[::-1]), (name, last.name)


# ---- the same where Python has left docstrings out
AUTHORS = '''
import enum, functools, json, sys
import viewbox
from pydantic import BaseModel
from viewbox.tools import Tool
from viewbox.utils.docstrings import read_docstring

class Side(enum.Enum):
    """Of the patient, not of the picture."""
    left = "left"

class Finding(BaseModel):
    """One for each place."""
    side: Side

class Read(BaseModel):
    """All that is seen."""
    best: Finding
    others: list[Finding] = []

def keep(function):
    @functools.wraps(function)
    def inner(*given, **named):
        return function(*given, **named)
    return inner

@keep
def look(name: str) -> str:
    """Look
    again.

    name: of what
    """
    return name

async def wait(seconds: int) -> str:
    """Wait."""

class Ask:
    """Not this one."""
    def __call__(self, question: str) -> str:
        """Ask a colleague."""

def bare(word: str) -> str:
    return word

def make():
    def inner(word: str) -> str:
        """Within."""
    return inner

def said(word: str) -> str: ...
said.__doc__ = "By hand."

given = Tool.from_function(bare, name="given", description="Given.")
tools = [look, wait, make(), said, bare, Tool.from_function(Ask(), name="ask"), given]
for one in tools:
    one = one if isinstance(one, Tool) else Tool.from_function(one)
    print(json.dumps(one.build_schema()))

class Own(viewbox.BaseMultiTurnEnv):
    """Mine."""
    name, answer = "own", Read
    tasks = [viewbox.Task("a")]
    def images(self, task):
        return ()

envs = [Own(reward=lambda answer, reference: 1.0), *map(viewbox.make, ("digits", "grounding", "software_adviser"))]
for env in envs:
    print(read_docstring(type(env)), env.answer_format.text, env.answer_format.schema, env.tool_schemas)
    if env.name != "grounding":
        print([message.text for message in env.reset(env.tasks[0], seed=0).messages])
'''
OWN = ["Look again.", "Wait.", "Within.", "By hand.", "", "Ask a colleague.", "Given."]


@pytest.mark.slow
def test_a_prompt_is_the_same_without_docstrings(tmp_path, capsys):
    (tmp_path / "own.py").write_text(AUTHORS)
    runpy.run_path(str(tmp_path / "own.py"))
    plain, env = capsys.readouterr().out, {"PYTHONPATH": str(Path(viewbox.__file__).parents[1])}
    options = {"cwd": tmp_path, "env": env, "capture_output": True, "text": True, "check": True}
    assert subprocess.run([sys.executable, "-OO", "own.py"], **options).stdout == plain
    assert [json.loads(line)["function"]["description"] for line in plain.splitlines()[: len(OWN)]] == OWN
    assert "One for each place." in plain


def test_a_docstring_that_cannot_be_read_is_not_left_out_without_a_word():
    code = 'from viewbox.tools import tool\n@tool\ndef look(name: str) -> str:\n    """Look."""'
    env = {"PYTHONPATH": str(Path(viewbox.__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-OO", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "look: python -OO has taken its docstring out, and its source cannot be read" in ended.stderr
