"""Tools as functions: what makes one, how it is called, what it may return, and what it may do wrong without harm."""

import asyncio
import inspect
import json
import threading
from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.tables import each
from viewbox import tools
from viewbox.cli import tools as trial
from viewbox.core import tool_calls
from viewbox.errors import ConfigError, ImageError, ToolError, ToolFault, describe_value
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import Episode, Task, ToolResult, Turn
from viewbox.tools import (
    TOOLS,
    Box,
    Picture,
    Point,
    Range,
    Tool,
    ToolOutput,
    ViewFractions,
    call_stateful,
    call_stateless,
    calling,
)
from viewbox.utils import concurrency

GRAY = View.of(np.full((50, 100), 7, np.uint8))
DEEP = View.of(np.linspace(-1000, 1000, 64 * 32, dtype=np.int16).reshape(32, 64), max_pixels=16 * 8)
KINDS = ["stateful", "thread", "coroutine"]


def pictures(name):
    """Two pictures and the words for any other."""
    known = {"image_1": GRAY, "view_0": GRAY, "view_1": DEEP}
    if name not in known:
        raise ToolError(f"there is no picture {name!r}; allowed: {', '.join(known)}")
    return known[name]


def said(function, arguments=None, **how):
    """The result of one call of a function as a tool."""
    made = function if isinstance(function, Tool) else Tool.from_function(function)
    how = {"find_picture": pictures, **how}
    return asyncio.run(call_stateless(made, {} if arguments is None else arguments, **how))


def properties(made):
    return Tool.from_function(made).build_schema()["function"]["parameters"]["properties"]


def mean(image: Picture) -> dict:
    """The mean gray value of a picture."""
    return {"mean": image.get_values().mean()}


async def find(image: Picture, box: Box | None = None, what: Literal["nodule", "tube"] = "nodule") -> ToolOutput:
    """Finds things in a picture."""
    return ToolOutput(f"a {what}", {"box": ViewFractions(box or (0, 0, 0.5, 1))}, image.render())


def darkest(image: Picture) -> str:
    """The darkest."""
    return f"{image.source.pixels.min()} of {image.source.size}, seen at {image.size}"


def corner(box: Box, image: Picture) -> str:
    """The corner."""
    return str(box)


# ---- what is a tool
def test_a_tool_whose_first_argument_is_the_view_is_stateful_and_a_function_is_registered_or_named():
    def look(view: View, closer: bool = True) -> ToolOutput:
        """Looks."""

    def ask(words: str, view: int) -> str:
        """Asks."""

    assert [Tool.from_function(function).stateful for function in (look, ask, find)] == [True, False, False]
    tools.tool(max_calls=2)(find)
    assert (TOOLS["find"].stateful, TOOLS["find"].is_async, TOOLS["find"].max_calls) == (False, True, 2)
    made = Tool.from_function(mean, "brightness", "How bright a picture is.", max_calls=3)
    assert (made.name, made.description, made.max_calls) == ("brightness", "How bright a picture is.", 3)
    assert {"brightness", "mean"}.isdisjoint(TOOLS)


class Specialist:
    """A model that is loaded once."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, image: Picture, at_least: Annotated[float, Range(0, 1)] = 0.5) -> str:
        """Classifies a picture."""
        return f"{self.weights} at {at_least}"

    async def explain(self, image: Picture, prior: Annotated[Picture | None, "an older study"] = None) -> str:
        """Explains a picture."""
        return f"{self.weights} explains"


def test_one_class_is_offered_twice_under_two_names_and_a_method_is_a_tool():
    first, second = (Tool.from_function(Specialist(name), name) for name in ("chexpert", "mimic"))
    assert first.build_schema()["function"]["description"] == "Classifies a picture."
    assert said(first, {"image": "image_1"}).text == "chexpert at 0.5"
    assert said(second, {"image": "image_1", "at_least": 1}).text == "mimic at 1.0"
    explain = Tool.from_function(Specialist("padchest").explain)
    assert said(explain, {"image": "image_1"}).text == "padchest explains"
    spec = properties(Specialist("a").explain)
    assert (set(spec["image"]), spec["image"]["type"], explain.required) == (
        {"type", "description"},
        "string",
        ("image",),
    )
    assert all(name in spec["image"]["description"] for name in ("image_1", "view_3"))
    assert spec["prior"]["description"].startswith("an older study: a picture by name")


async def awaited(view: View) -> ToolOutput: ...
def both(view: View, other: Picture) -> ToolOutput: ...
def boxless(box: Box) -> str: ...
def pointless(where: Point | None = None) -> str: ...
def defaulted(image: Picture = "image_1") -> str: ...
def unhinted(words) -> str: ...


@each("function, name, words", [
    *((Specialist("a"), name, "is not a tool name") for name in (None, "two words", "", "1st", "x" * 65)),
    (awaited, None, "a stateful tool is a plain function"),
    (both, None, "'other' is a Picture, but a stateful tool works on the view"),
    (boxless, None, "needs a Picture to refer to"), (pointless, None, "needs a Picture to refer to"),
    (defaulted, None, "a Picture can only have the default None"),
    (unhinted, None, "argument 'words' has no type hint"),
])  # fmt: skip
def test_declarations_that_could_not_be_called_are_the_authors_error(function, name, words):
    with pytest.raises(TypeError, match=words):
        Tool.from_function(function, name)


# ---- arguments and results

CORNER = {"box": [0, 0, 8, 4], "image": "view_1"}  # 16 x 8 pixels


@each("function, arguments, coordinates, text", [
    (mean, {"image": "view_0"}, "unit", "found (mean: 7.0)"),  # facts alone are read as facts
    (darkest, {"image": "view_1"}, "unit", "-1000 of (64, 32), seen at (16, 8)"),
    # the native pixels come with the view
    (corner, CORNER, "pixel", "(0.0, 0.0, 0.5, 0.5)"),
    (corner, {**CORNER, "box": [0, 0, 99, 4]}, "pixel", "out of range; allowed: 0 to 16"),
    (mean, {"image": "view_9"}, "unit", "mean: image: there is no picture 'view_9'; allowed: image_1, view_0, view_1"),
    (mean, {"image": 1}, "unit", "mean: image = 1: allowed: a string"),
    (find, {"image": "view_0", "what": "tube"}, "unit", "a tube (box: [0.0, 0.0, 0.5, 1.0])"),
    (find, {"image": "view_0"}, "per_mille", "a nodule (box: [0, 0, 500, 1000])"),
    (find, {"image": "view_0"}, "pixel", "a nodule (box: [0, 0, 50, 50])"),
    (TOOLS["zoom"], {"factor": 2}, "unit",
     "zoom is a stateful tool: it works on the view and never runs beside other calls"),
])  # fmt: skip
def test_what_the_model_reads(function, arguments, coordinates, text):
    result = said(function, arguments, coordinates=coordinates)
    assert text in (result.error or result.text)
    if function is find:
        assert (result.image.width, result.image.height, result.mime_type) == (100, 50, "image/png")


def test_a_stateless_tool_is_refused_on_a_view_in_words():
    TOOLS["mean"] = Tool.from_function(mean)
    for view, result in (
        call_stateful(TOOLS["mean"], GRAY, {"image": "image_1"}),
        tools.apply_tool("mean", GRAY, image="image_1"),
    ):
        words = "mean is a stateless tool: it does not work on a view and can only be called in an episode"
        assert (view, result.error) == (GRAY, words)
    with pytest.raises(ConfigError, match="mean is a stateless tool: it can only be called in an episode"):
        trial.parse_calls(["zoom", "mean", "image=image_1"])


@each("picture, how, grid", [
    *((picture, {}, None) for picture in (np.zeros((6, 8), bool), np.linspace(0, 1, 48).reshape(6, 8),
     Image.new("P", (8, 6)), Image.new("RGBA", (8, 6)), Source.of(np.zeros((6, 8), np.uint16)),
     View.of(np.zeros((6, 8), np.int16)))),
    (np.zeros((3000, 2000, 3), np.uint8), {"max_pixels": 100 * 100, "multiple": 28}, 28),
    (View.of(np.zeros((300, 200), np.uint8)), {"max_pixels": 100 * 100}, 1),
])  # fmt: skip
def test_a_picture_of_any_kind_is_shown_in_eight_bits_within_the_budget_on_the_models_grid(picture, how, grid):
    def draw() -> ToolOutput:
        """Draws."""
        return ToolOutput(image=picture)

    shown = said(draw, **how).image
    assert shown.mode in ("L", "RGB")
    assert grid or (shown.width, shown.height) == (8, 6)
    assert shown.width * shown.height <= 100 * 100
    assert not grid or (shown.width % grid, shown.height % grid) == (0, 0)


@each("function", [mean, find])
def test_pictures_are_looked_up_away_from_the_event_loop_and_one_that_is_gone_is_no_error_of_the_model(function):
    where = []
    said(function, {"image": "image_1"}, find_picture=lambda name: where.append(threading.get_ident()) or GRAY)
    assert where
    assert threading.get_ident() not in where

    def missing(name):
        raise ImageError("/data/patient_17/scan.dcm: no such file")

    with pytest.raises(ImageError, match="no such file"):
        said(function, {"image": "image_1"}, find_picture=missing)


# ---- tools that misbehave: the three kinds of them
def probe(kind, body):
    """A tool called `probe` of one of the three kinds that does `body()`."""

    def stateful(view: View) -> ToolOutput:
        """Probes."""
        return body()

    def thread() -> str:
        """Probes."""
        return body()

    async def coroutine() -> str:
        """Probes."""
        return body()

    return Tool.from_function({"stateful": stateful, "thread": thread, "coroutine": coroutine}[kind], "probe")


async def run(made, limit=None):
    """One call as the loop makes it: tried once more if the tool raises."""

    async def once():
        if made.stateful:
            return (await concurrency.run_in_thread(call_stateful, made, GRAY, {}, timeout=limit))[1]
        return await call_stateless(made, {}, find_picture=pictures, timeout=limit)

    return await tool_calls._run_twice("probe", once, [])


def try_kind(kind, *outcomes):
    """The result of a tool that raises, does or returns one outcome after the other (the last again), and its tries."""
    tries = []

    def body():
        outcome = outcomes[min(len(tries), len(outcomes) - 1)]
        tries.append(1)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome() if inspect.isfunction(outcome) else outcome

    return asyncio.run(asyncio.wait_for(run(probe(kind, body)), 60)), len(tries)


def stored(result: ToolResult) -> str:
    """The line of an episode that holds the result, as a store writes it."""
    return Episode(Task("t"), (Turn("tool_result", tool_results=(result,)),)).to_json()


class Strange(BaseException):
    """Of nobody's hierarchy."""


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


RAISED = [
    ValueError("/data/patient_17"), Unspeakable(), Strange(), SystemExit(3), StopIteration(), GeneratorExit(),
    asyncio.CancelledError(), MemoryError(), TimeoutError("the server did not answer"), RecursionError(),
]  # fmt: skip


@each("kind", KINDS)
@each("error", RAISED)
def test_whatever_a_tool_raises_is_tried_once_more_and_kept_as_raised(kind, error, caplog):
    result, tries = try_kind(kind, error)
    stops = isinstance(error, StopIteration)
    name = "RuntimeError" if stops and kind == "coroutine" else type(error).__name__  # Python's own doing
    # its message may hold a path or a name: only the log has it
    assert (result.raised, result.error) == (name, f"probe failed ({name})")
    assert tries == (1 if not isinstance(error, Exception) or (stops and kind != "coroutine") else 2)
    assert not isinstance(error, ValueError) or "/data/patient_17" in caplog.text


@each("kind", KINDS)
def test_a_second_try_may_succeed_and_faults_and_errors_of_tools_are_not_tried_again(kind):
    result, _ = try_kind(kind, ConnectionError("refused"), "seen")
    assert (result.success, result.text, result.raised) == (True, "seen", "ConnectionError")
    result, tries = try_kind(kind, ToolFault("probe: the scanner is off"))
    assert (result.raised, tries) == ("probe: the scanner is off", 1)
    result, tries = try_kind(kind, ToolError("probe: nothing is open; open an image first"))
    assert (result.error, tries) == ("probe: nothing is open; open an image first", 1)
    if kind != "coroutine":  # in a thread of its own
        assert try_kind(kind, KeyboardInterrupt())[0].raised.startswith("KeyboardInterrupt")


@each("notice", [True, False])
def test_a_coroutine_that_hangs_is_cancelled_after_the_limit_and_holds_nobody_up(notice, monkeypatch):
    monkeypatch.setattr(calling, "GRACE", 0.05)
    ended, release = [], []

    async def probe() -> str:
        """Hangs, and takes notice of its cancellation or none."""
        while not release:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                ended.append("tidied up")
                if notice:
                    raise

    async def play():
        result = await run(Tool.from_function(probe), limit=0.05)
        release.append("now it may end")
        return result, len(asyncio.all_tasks())

    result, tasks = asyncio.run(asyncio.wait_for(play(), 30))
    assert result.error == "probe took longer than 0.05 seconds and was stopped"
    assert ended[:1] == ["tidied up"]
    assert not notice or tasks == 2  # the play and its timeout


def test_a_tool_whose_picture_takes_too_long_to_open_is_given_up():
    gate = threading.Event()
    try:
        with pytest.raises(ToolFault, match=r"took longer than 0\.05 seconds"):
            said(mean, {"image": "image_1"}, find_picture=lambda name: gate.wait(), timeout=0.05)
    finally:
        gate.set()


# ---- what they return

NO_IMAGES = [
    np.zeros((0, 0), np.uint8), np.zeros((0, 5, 3), np.uint8), np.full((4, 4), np.nan), np.array([[object(), None]]),
    np.array([["a", "b"]]), np.zeros((4, 4), complex), np.zeros((2, 4, 4, 3), np.uint8), np.zeros(16, np.uint8),
    np.zeros((4, 4, 5), np.uint8), Image.new("L", (0, 0)), 7, {"pixels": []}, b"\x89PNG", "/etc/hostname",
]  # fmt: skip


@each("kind", KINDS)
@each("returned, raised", [
    *((odd, f"probe returned {describe_value(odd)}; allowed: ") for odd in (None, 3, b"bytes", ["a", "b"], View,
     ToolOutput(text=3), ToolOutput(facts=[1]))),
    *((ToolOutput("drawn", image=image), "probe returned an image that cannot be shown (") for image in NO_IMAGES),
])  # fmt: skip
def test_what_is_neither_words_nor_facts_nor_a_picture_is_an_error_that_says_why(returned, raised, kind):
    result, _ = try_kind(kind, returned)
    assert result.raised.startswith(raised)
    assert result.image is None


@each("kind", KINDS)
def test_tools_of_every_kind_return_text_facts_or_both_and_only_a_stateful_one_a_view(kind):
    for returned in ("words", {"count": 2}, ToolOutput("words", {"count": 2})):
        result, _ = try_kind(kind, returned)
        assert (result.success, result.description in ("words", "found")) == (True, True)
        assert dict(result.facts) in ({}, {"count": 2})
    result, _ = try_kind(kind, ToolOutput("new", view=GRAY))
    assert result.success == (kind == "stateful")
    assert result.success or "probe returned ToolOutput(" in result.error
    assert "probe returned ToolOutput(" in try_kind(kind, ToolOutput("new", view="no view"))[0].error
    deep = try_kind(kind, ToolOutput("drawn", image=np.array([[0.0, np.nan], [0.5, 1.0]])))[0]  # shown all the same
    assert np.asarray(deep.image.open()).shape == (2, 2)


def test_a_coroutine_is_closed_a_path_is_never_opened_and_a_broken_view_is_a_fault(tmp_path):
    async def later():
        return "never"

    coroutine = later()
    assert "returned <coroutine" in try_kind("thread", lambda: coroutine)[0].raised
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    assert "str is not an image" in try_kind("thread", ToolOutput(image=str(tmp_path / "a.png")))[0].error

    def breaks(view: View) -> ToolOutput:
        """Breaks the view."""
        return ToolOutput("broken", view=view.apply(lambda pixels, before: np.zeros((0, 0), np.uint8)))

    with pytest.raises(ToolFault, match="breaks returned an image that cannot be shown"):
        call_stateful(Tool.from_function(breaks), GRAY, {})


@pytest.mark.slow
def test_millions_of_facts_are_bounded_and_facts_without_end_end():
    assert len(try_kind("thread", lambda: {str(i): i for i in range(3_000_000)})[0].facts) < 200_000
    many = {"numbers": list(range(3_000_000)), "pixels": np.zeros(3_000_000), "words": "x" * 10_000_000}
    assert len(stored(try_kind("thread", many)[0])) < 2_000_000
    endless, wide = {"self": None}, [0]
    endless["self"] = endless
    for _ in range(60):
        wide = [wide, wide]  # 2 to the power of 60 values, held in 60 lists
    assert try_kind("thread", {"loop": endless, "wide": wide})[0].success


@each("kind", KINDS)
@each("given, kept", [
    (np.float32(0.25), 0.25), (np.True_, True), (np.longdouble(0.25), 0.25),
    (torch.tensor(0.25, dtype=torch.bfloat16), 0.25), (torch.tensor([0.25, 0.5], requires_grad=True), (0.25, 0.5)),
    (torch.empty(100_001), "array of shape (100001,)"), (Fraction(1, 4), 0.25), (np.array([[1, 2]]), ((1, 2),)),
    (float("nan"), "nan"), (np.float64("inf"), "inf"), ({"b", "a", "c"}, ("a", "b", "c")),
    ([ViewFractions((0, 0, 0.5, 1))], ((0.0, 0.0, 0.5, 1.0),)), (10**5000, "a number of 16610 bits"),
    ("a\ud800b", "a\ufffdb"), (complex(1, 2), "(1+2j)"), ({1: "x"}, {"1": "x"}),
])  # fmt: skip
def test_facts_are_kept_as_json_can_hold_them(given, kept, kind):
    result, _ = try_kind(kind, ToolOutput("read", {"fact": given}))
    assert result.facts["fact"] == kept
    assert Episode.from_json(stored(result)).turns[0].tool_results[0].facts == result.facts
    json.loads(stored(result).encode())
