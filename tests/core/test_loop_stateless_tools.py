"""Stateless tools in an episode: they run at the same time as other calls, and take pictures by name."""

import asyncio
import json
import threading
import time

import numpy as np
import pytest

from tests.support.loop_kit import Find, Play, ask, make_env_with_tools, write_call
from viewbox.images.view import View
from viewbox.tools import Hidden, Picture, ToolOutput

# ---- stateless tools


def shade(image: Picture) -> dict:
    """The mean gray value of a picture."""
    return {"mean": float(np.asarray(image.to_gray()).mean())}


def paint(image: Picture) -> ToolOutput:
    """A picture painted over."""
    return ToolOutput("painted", {"side": 8}, image=np.full((8, 8), 200, np.uint8))


def test_results_come_in_the_order_of_the_calls_whatever_ends_first():
    async def slow() -> str:
        """Slow."""
        await asyncio.sleep(0.05)
        return "slow"

    play = Play(make_env_with_tools(slow, ask))
    said = play.say(
        write_call("slow") + write_call("ask", question="x") + write_call(factor=2) + write_call("slow")
    ).messages
    assert [m.name for m in said] == ["slow", "ask", "zoom", "slow"]
    assert [m.tool_call_id for m in said] == ["call_0", "call_1", "call_2", "call_3"]


def test_stateless_tools_run_beside_each_other_and_beside_stateful_tools():
    meeting = threading.Barrier(3, timeout=10)  # passed only by three at the same time

    def meet(number: int) -> str:
        """Waits for the others."""
        meeting.wait()
        return f"met {number}"

    def look(view) -> ToolOutput:
        """Waits for the others."""
        meeting.wait()
        return ToolOutput("met 2")

    said = (
        Play(make_env_with_tools(meet, look))
        .say(write_call("meet", number=0) + write_call("meet", number=1) + write_call("look"))
        .messages
    )
    assert [m.text for m in said] == ["met 0", "met 1", "met 2"]


def test_stateful_tools_never_run_beside_each_other():
    inside, most = [], []

    def look(view) -> ToolOutput:
        """Counts who is inside."""
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return ToolOutput("seen")

    Play(make_env_with_tools(look)).say(write_call("look") * 5)
    assert most == [1] * 5


def test_arguments_of_a_stateless_tool_are_validated_before_it_runs():
    ran = []

    def count(number: int) -> str:
        """Counts."""
        ran.append(number)
        return "counted"

    told = Play(make_env_with_tools(count)).say_and_read(
        write_call("count", number="many") + write_call("count") + write_call("count", nubmer=1)
    )
    assert told.count("error: ") == 3
    assert (ran, 'did you mean "number"' in told) == ([], True)


# ---- pictures by name


def test_a_picture_is_given_by_name_and_arrives_as_a_view():
    seen = []

    def keep(image: Picture) -> str:
        """Keeps it."""
        seen.append(image)
        return "kept"

    play = Play(make_env_with_tools(keep))
    play.say(
        write_call(factor=2, center=[0, 0]), write_call("keep", image="view_1"), write_call("keep", image="image_1")
    )
    assert [(type(view), view.window) for view in seen] == [(View, (0, 0, 0.5, 0.5)), (View, (0, 0, 1, 1))]


def test_a_picture_that_a_stateless_tool_shows_can_be_named_in_the_next_reply():
    play = Play(make_env_with_tools(paint, shade))
    (said,) = play.say(write_call("paint", image="view_0")).messages
    assert (len(said.images), "view: 1" in said.text) == (1, True)
    assert "mean: 200" in play.say_and_read(write_call("shade", image="view_1"))


def test_a_picture_of_the_same_reply_cannot_be_named_yet():
    told = Play(make_env_with_tools(shade)).say_and_read(write_call(factor=2) + write_call("shade", image="view_1"))
    assert 'unknown picture "view_1"; allowed: image_1, view_0' in told


@pytest.mark.parametrize(
    "name", ["view_9", "image_0", "image_2", "view_-1", "view_1e0", "the first", "", "view_" + "9" * 999]
)
def test_a_picture_that_is_not_there_is_told_those_that_are(name):
    assert "allowed: image_1, view_0" in Play(make_env_with_tools(shade)).say_and_read(write_call("shade", image=name))


# ---- hidden arguments


def test_a_stateless_tool_is_given_what_the_environment_hides_and_the_model_never_sees_it():
    def lookup(word: str, secret: Hidden[str]) -> str:
        """Looks up."""
        return f"{word} in a file of {len(secret)} letters"

    class Own(Find):
        tools = (lookup,)

        def hidden_arguments(self, task, tool):
            return {"secret": "/data/gold"} if tool == "lookup" else {}

    play = Play(Own())
    assert "secret" not in json.dumps([m.text for m in play.state.messages]) + str(play.state.tool_schemas)
    assert play.say_and_read(write_call("lookup", word="x")) == "x in a file of 10 letters"
    assert "unknown argument" in play.say_and_read(write_call("lookup", word="x", secret="mine"))
