"""What an environment decides about its tools: how often, for which task, over which images, and in which view."""

import asyncio
import json
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.tools import TOOLS, Hidden, Picture, Tool, ToolOutput, tool
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.images.source import Volume
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward

GRAY = np.random.default_rng(0).integers(0, 256, (40, 80), dtype=np.uint8)
TASK = Task("t", (ImageRef.of(GRAY),), {"question": "Where?"}, {"label": "left"})
TWO = Task("two", (ImageRef.of(GRAY), ImageRef.of(np.full((30, 20), 7, np.uint8))), {"question": "Where?"})


class Finding(BaseModel):
    label: str = "left"
    bbox: tuple[float, float, float, float] | None = None


class Find(BaseMultiTurnEnv):
    name = "find"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    max_turns = 10
    boundary = False  # what a tool says is compared as it is

    def default_reward(self):
        return ExactMatchReward("label")


class Seen(Finding):
    view: int = 0


class FindInView(Find):
    answer: ClassVar = Seen
    view_field = "view"


@pytest.fixture
def scratch():
    """Tools of a test are gone after it."""
    before = dict(TOOLS)
    yield
    TOOLS.clear()
    TOOLS.update(before)


def call(name="zoom", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Play:
    """One play, a reply at a time."""

    def __init__(self, env, task=TASK):
        self.env, self.state = env, env.reset(task, seed=0)

    def told(self, *replies):
        """The environment's words to the last reply."""
        for reply in replies:
            result = asyncio.run(self.env.step(self.state, reply))
        return "\n".join(message.text for message in result.messages)


# ---- how often


def test_a_tool_beyond_its_limit_is_refused_with_what_is_still_allowed():
    play = Play(Find(tools=["zoom", "reset"], max_calls={"zoom": 2}))
    assert "error" not in play.told(call(), call())
    assert play.told(call()) == "error: zoom is used up (2 calls). You can still call: reset."
    assert "error" not in play.told(call("reset"))


def test_a_refused_call_leaves_the_view_and_is_a_failed_call_of_the_record():
    play = Play(Find(max_calls={"zoom": 1}))
    play.told(call())
    before = play.state.view
    play.told(call())
    assert play.state.view is before
    results = [result for turn in play.env.build_episode(play.state).turns for result in turn.tool_results]
    assert [result.success for result in results] == [True, False]


def test_the_limit_holds_within_one_reply():
    play = Play(Find(max_calls={"zoom": 1}))
    said = play.told(call() + call())
    assert said.count("zoomed") == 1
    assert said.count("is used up") == 1


def test_a_call_that_failed_counts():
    play = Play(Find(max_calls={"zoom": 1}))
    assert "is used up" in play.told(call(factor=9), call())


def test_the_total_limits_all_tools_together():
    play = Play(Find(max_total_calls=2))
    assert "error" not in play.told(call(), call("reset"))
    assert play.told(call("reset")) == "error: Tool budget used up (2 calls). Give your final answer now."


def test_a_limit_of_none_at_all_is_a_limit():
    assert "(0 calls)" in Play(Find(max_calls={"zoom": 0})).told(call())


def test_two_plays_do_not_share_their_calls():
    env = Find(max_calls={"zoom": 1})
    Play(env).told(call())
    assert "error" not in Play(env).told(call())


def test_limits_are_told_before_the_first_call():
    state = Find(max_calls={"zoom": 2}, max_total_calls=5).reset(TASK, seed=0)
    described = {one["function"]["name"]: one["function"]["description"] for one in state.tool_schemas}
    assert described["zoom"].endswith(" At most 2 calls.")
    assert "At most" not in described["crop"]
    assert "You may make at most 5 tool calls in total." in state.messages[0].text


def test_an_environment_without_limits_says_nothing_of_them():
    state = Find().reset(TASK, seed=0)
    assert "At most" not in state.messages[0].text + json.dumps([dict(one) for one in state.tool_schemas])


def test_the_limit_a_tool_brings_holds_unless_the_environment_says_another(scratch):
    @tool(max_calls=1)
    def costly(view) -> ToolOutput:
        """Costs much."""
        return ToolOutput("paid")

    assert "used up" in Play(Find(tools=["costly"])).told(call("costly"), call("costly"))
    assert "used up" not in Play(Find(tools=["costly"], max_calls={"costly": 2})).told(call("costly"), call("costly"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_calls": {"zom": 2}}, "did you mean 'zoom'"),
        ({"max_calls": {"zoom": -1}}, "max_calls.zoom"),
        ({"max_total_calls": -1}, "max_total_calls"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_when_the_environment_is_made(settings, words):
    with pytest.raises(ConfigError, match=words):
        Find(**settings)


def test_limits_cannot_be_changed():
    with pytest.raises(TypeError):
        Find(max_calls={"zoom": 2}).max_calls["zoom"] = 3


# ---- for which task


class FewerTools(Find):
    def tools_of(self, task):
        return tuple(name for name in self.tools if name not in task.metadata.get("without", ()))


WITHOUT = Task("w", TASK.images, metadata={"without": ["crop", "zoom"]})


def test_a_tool_that_is_off_for_a_task_is_not_offered_to_it():
    env = FewerTools()
    assert [one["function"]["name"] for one in env.reset(WITHOUT, seed=0).tool_schemas] == ["adjust_contrast", "reset"]
    assert len(env.reset(TASK, seed=0).tool_schemas) == 4


def test_a_tool_that_is_off_for_a_task_is_unknown_in_it():
    said = Play(FewerTools(), WITHOUT).told(call())
    assert said.startswith("error: unknown tool 'zoom'; allowed: adjust_contrast, reset")


def test_a_task_with_a_tool_that_the_environment_does_not_have_is_an_error():
    class Wrong(Find):
        def tools_of(self, task):
            return ("zom",)

    with pytest.raises(ConfigError, match=r"find: task t: unknown tool 'zom'.*did you mean 'zoom'"):
        Wrong().reset(TASK, seed=0)


def test_the_driver_offers_a_conversation_the_tools_of_its_task():
    from viewbox.records import Reply, RunConfig
    from viewbox.rollouts.play import play_many

    class Listens:
        run_config = RunConfig()
        offered: ClassVar = {}

        def join(self, conversation):
            pass

        def leave(self, conversation):
            pass

        async def reply(self, conversation):
            names = [one["function"]["name"] for one in conversation.tools]
            self.offered[conversation.task.id] = names
            return Reply('{"label": "left"}')

    async def run():
        return [one async for one in play_many(FewerTools(), [TASK, WITHOUT], Listens())]

    assert len(asyncio.run(run())) == 2
    assert Listens.offered == {"t": ["zoom", "crop", "adjust_contrast", "reset"], "w": ["adjust_contrast", "reset"]}


def test_what_the_environment_fills_in_reaches_the_tool_and_not_the_prompt(scratch):
    @tool
    def look_up(view, word: str, path: Hidden[str]) -> ToolOutput:
        """Looks a word up."""
        return ToolOutput(f"{word} in {path}")

    class Filled(Find):
        def hidden_arguments(self, task, tool):
            return {"path": f"{task.id}-{tool}.txt"}

    play = Play(Filled(tools=["look_up"]))
    assert "path" not in json.dumps([dict(one) for one in play.state.tool_schemas])
    assert play.told(call("look_up", word="a")) == "a in t-look_up.txt"
    assert "unknown argument of look_up 'path'" in play.told(call("look_up", word="a", path="/etc"))


# ---- over which images


def test_the_model_is_told_how_many_images_there_are():
    env = Find(tools=["zoom", "open_image"])
    assert env.reset(TWO, seed=0).messages[1].text == (
        "There are 2 images, numbered from 0. This is image 0. Boxes in your answer refer to image 0.\nWhere?"
    )
    assert env.reset(TASK, seed=0).messages[1].text == "Where?"


def test_without_the_tool_other_images_are_not_spoken_of():
    assert Find().reset(TWO, seed=0).messages[1].text == "Where?"


def test_another_image_is_shown_with_the_same_budget():
    play = Play(Find(tools=["zoom", "open_image"], max_pixels=300), TWO)
    assert play.told(call("open_image", index=1)) == (
        "opened (index: 1, images: 2, size: [14, 21], shows: [0.0, 0.0, 1.0, 1.0])"
    )
    shown = play.state.messages[-1].images[0]
    assert (shown.width, shown.height) == (14, 21)
    assert shown.open().getpixel((3, 3)) == 7


def test_what_is_shown_is_told_in_the_frame_of_the_open_image():
    play = Play(Find(tools=["zoom", "open_image"], coordinates="pixel"), TWO)
    said = play.told(call("open_image", index=1), call("zoom", factor=2, center=[10, 15]))
    assert said.endswith("shows: [5, 8, 15, 22])")


def test_boxes_are_of_the_first_image_whatever_is_open():
    play = Play(Find(tools=["open_image"], coordinates="pixel"), TWO)
    play.told(call("open_image", index=1), json.dumps({"bbox": [0, 0, 40, 20]}))
    assert play.state.answer["bbox"] == (0, 0, 0.5, 0.5)


def test_an_image_is_opened_only_when_it_is_asked_for_and_one_that_cannot_be_is_told_without_its_name(caplog):
    missing = Task("m", (*TASK.images, ImageRef("0", 1, 1, uri="nowhere.png")))
    play = Play(Find(tools=["zoom", "open_image"]), missing)
    assert "zoomed" in play.told(call())
    assert play.told(call("open_image", index=1)) == "error: open_image: the image cannot be opened"
    assert "nowhere.png" in caplog.text


def test_images_drawn_by_the_environment_are_drawn_once_a_play():
    drawn = []

    class Draws(Find):
        def images(self, task):
            drawn.append(task.id)
            return [Image.fromarray(GRAY), Image.new("L", (20, 30))]

    env = Draws(tools=["open_image"])
    play = Play(env)
    assert len(drawn) == 1
    play.told(call("open_image", index=1), call("open_image", index=0), call("open_image", index=1))
    assert len(drawn) == 2


# ---- in which view


def test_every_picture_says_its_view_number():
    play = Play(FindInView())
    assert play.state.messages[1].text == "view: 0\nWhere?"
    assert play.told(call()).endswith(", view: 1)")
    assert play.told(call("reset")).endswith(", view: 2)")
    assert '"view"' in play.state.messages[0].text


def test_a_tool_that_shows_nothing_takes_no_number(scratch):
    @tool
    def look(view) -> ToolOutput:
        """Reads."""
        return ToolOutput("read")

    play = Play(FindInView(tools=["zoom", "look"]))
    assert play.told(call("look")) == "read"
    assert play.told(call()).endswith("view: 1)")


def test_a_failed_call_takes_no_number():
    assert Play(FindInView()).told(call(factor=9), call()).endswith("view: 1)")


def test_without_a_view_field_no_number_is_told():
    play = Play(Find())
    assert "view:" not in "".join(message.text for message in play.state.messages) + play.told(call())


def test_a_box_is_mapped_back_from_the_view_it_was_seen_in():
    play = Play(FindInView())
    play.told(call("crop", box=[0.5, 0, 1, 0.5]), call("reset"), json.dumps({"bbox": [0, 0, 0.5, 1], "view": 1}))
    assert play.state.answer["bbox"] == (0.5, 0, 0.75, 0.5)


def test_pixels_are_those_of_the_view_that_is_named():
    play = Play(FindInView(coordinates="pixel"))
    play.told(call("crop", box=[40, 0, 80, 20]), json.dumps({"bbox": [0, 0, 40, 10], "view": 1}))
    assert play.state.answer["bbox"] == (0.5, 0, 1, 0.25)


def test_a_box_seen_in_a_turned_and_mirrored_view_is_upright_in_the_original(scratch):
    @tool
    def turn(view) -> ToolOutput:
        """Turns and mirrors."""
        return ToolOutput("turned", view=view.rotate().flip_horizontal())

    play = Play(FindInView(tools=["zoom", "turn"]))
    play.told(call(factor=2), call("turn"), json.dumps({"bbox": [0.1, 0.2, 0.3, 0.8], "view": 2}))
    assert play.state.answer["bbox"] == pytest.approx((0.35, 0.3, 0.65, 0.4))


def test_an_answer_without_a_view_is_about_the_overview():
    play = Play(FindInView())
    play.told(call(), json.dumps({"bbox": [0, 0, 0.5, 1]}))
    assert play.state.answer["bbox"] == (0, 0, 0.5, 1)


@pytest.mark.parametrize("number", [2, -1, 99])
def test_an_unknown_view_is_told_those_there_are(number):
    said = Play(FindInView()).told(call(), json.dumps({"bbox": [0, 0, 1, 1], "view": number}))
    assert f"view: unknown view {number}; allowed: 0 to 1" in said


def test_a_view_of_another_image_is_refused_in_words():
    play = Play(FindInView(tools=["open_image"]), TWO)
    said = play.told(call("open_image", index=1), json.dumps({"bbox": [0, 0, 1, 1], "view": 1}))
    assert "view: view 1 shows another image; boxes must refer to image 0" in said


def test_an_answer_read_without_its_play_knows_the_overview_only():
    env = FindInView()
    assert env.read_answer('{"bbox": [0, 0, 1, 1], "view": 0}', TASK)["bbox"] == [0, 0, 1, 1]
    assert env.read_answer('{"bbox": [0, 0, 1, 1], "view": 1}', TASK) is None


def test_a_view_field_that_the_answer_does_not_have_is_refused_when_the_environment_is_made():
    class Wrong(Find):
        view_field = "where"

    with pytest.raises(ConfigError, match="view_field = 'where'; allowed: a field of the answer"):
        Wrong()


def test_an_answer_in_fractions_is_read_without_opening_the_image():
    missing = Task("m", (ImageRef("0", 1, 1, uri="nowhere.png"),))
    for env in (Find(), FindInView()):
        assert env.read_answer('{"bbox": [0, 0, 1, 1]}', missing)["bbox"] == [0, 0, 1, 1]


class Slices(FindInView):
    volume = Volume(np.random.default_rng(0).integers(0, 999, (4, 20, 30), dtype=np.int16), (0.0, 999.0))

    def images(self, task):
        return [self.volume.get_slice(2)]


def test_a_box_may_be_in_another_slice_of_the_same_plane():
    play = Play(Slices(tools=["select_slice", "crop"]))
    play.told(call("select_slice", index=3), call("crop", box=[0, 0, 0.5, 1]))
    play.told(json.dumps({"bbox": [0, 0, 1, 0.5], "view": 2}))
    assert play.state.answer["bbox"] == (0, 0, 0.5, 0.5)


def test_a_box_in_another_plane_has_no_place_in_the_original():
    play = Play(Slices(tools=["select_slice"]))
    said = play.told(call("select_slice", index=3, plane="coronal"), json.dumps({"bbox": [0, 0, 1, 1], "view": 1}))
    assert "view 1 shows another image" in said


# ---- functions beside names


def count(image: Picture) -> str:
    """Counts."""
    return f"{image.size[0]} columns"


def glance(view) -> str:
    """Reads."""
    return "looked"


class Mixed(Find):
    tools = (count, "zoom", Tool.from_function(glance, "look", max_calls=1))


def test_functions_stand_in_tools_beside_names():
    env = Mixed()
    assert env.tools == ("count", "zoom", "look")
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["count", "zoom", "look"]
    assert Play(env).told(call("count", image="image_1") + call("look")) == "80 columns\nlooked"
    assert {"count", "look"}.isdisjoint(TOOLS)


def test_a_run_names_the_functions_of_its_environment_and_a_program_gives_others():
    assert Mixed(tools=["look"]).tools == ("look",)
    assert Find(tools=["reset", count]).tools == ("reset", "count")
    with pytest.raises(ConfigError, match="unknown tool 'count'"):
        Find(tools=["count"])


def test_a_registered_function_keeps_the_limit_of_its_registration(scratch):
    @tool(max_calls=1)
    def costly(view) -> str:
        """Costs much."""
        return "paid"

    assert Find(tools=[costly]).get_max_calls("costly") == 1


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two different tools are named 'count'"):
        Find(tools=[count, Tool.from_function(glance, "count")])


@pytest.mark.parametrize("given", ["zoom", 3, [3], None])
def test_what_lists_no_tools_is_refused_with_the_setting(given):
    with pytest.raises(ConfigError, match="tools"):
        Find(tools=given)
