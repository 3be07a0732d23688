"""What an environment decides about its tools: how often, for which task, and which functions beside names."""

import asyncio
import json
from typing import ClassVar

import pytest

from tests.support.loop_kit import write_call
from tests.support.scoring import refuse
from tests.support.tables import each
from tests.support.tool_play import TASK, Find, Play
from viewbox.errors import ConfigError
from viewbox.records import Reply, RunConfig, Task
from viewbox.rollouts.play import play_many
from viewbox.tools import TOOLS, Hidden, Picture, Tool, ToolOutput, tool

ZOOM, RESET = write_call(), write_call("reset")


def count(image: Picture) -> str:
    """Counts."""
    return f"{image.size[0]} columns"


def glance(view) -> str:
    """Reads."""
    return "looked"


def costly(view) -> ToolOutput:
    """Costs much."""
    return ToolOutput("paid")


# ---- how often
@each("settings, said, ends", [
    ({"tools": ["zoom", "reset"], "max_calls": {"zoom": 2}}, [ZOOM, ZOOM, ZOOM],
     "zoom is used up (2 calls). You can still call: reset."), ({"max_calls": {"zoom": 2}}, [ZOOM, ZOOM, RESET], None),
    ({"max_calls": {"zoom": 1}}, [ZOOM + ZOOM], "zoom is used up"),
    # a call that is refused for its arguments does not count
    ({"max_calls": {"zoom": 1}}, [write_call(factor=9), ZOOM], None),
    ({"max_calls": {"zoom": 1}}, [write_call(factor=9), ZOOM, ZOOM], "is used up"),
    ({"max_total_calls": 2}, [ZOOM, RESET], None),
    ({"max_total_calls": 2}, [ZOOM, RESET, RESET], "error: Tool budget used up (2 calls). Give your final answer now."),
    ({"max_calls": {"zoom": 0}}, [ZOOM], "(0 calls)"),
    # the limit a tool brings holds unless the environment says another
    ({"tools": ["costly"]}, [write_call("costly")] * 2, "used up"),
    ({"tools": ["costly"], "max_calls": {"costly": 2}}, [write_call("costly")] * 2, None),
])  # fmt: skip
def test_a_tool_beyond_its_limit_is_refused_with_what_is_still_allowed(settings, said, ends):
    tool(max_calls=1)(costly)
    env = Find(**settings)
    for _ in range(2):  # two plays do not share their calls
        read = Play(env).say_and_read(*said)
        assert ("error" in read) == (ends is not None)
        assert ends is None or ends in read


def test_a_refused_call_leaves_the_view_and_is_a_failed_call_and_limits_are_told_before_the_first_call():
    play = Play(Find(max_calls={"zoom": 1}))
    play.say_and_read(ZOOM)
    before = play.state.view
    play.say_and_read(ZOOM)
    assert play.state.view is before
    results = [result for turn in play.env.build_episode(play.state).turns for result in turn.tool_results]
    assert [result.success for result in results] == [True, False]
    state = Find(max_calls={"zoom": 2}, max_total_calls=5).reset(TASK, seed=0)
    described = {one["function"]["name"]: one["function"]["description"] for one in state.tool_schemas}
    assert described["zoom"].endswith(" At most 2 calls.")
    assert "At most" not in described["crop"]
    assert "You may make at most 5 tool calls in total." in state.messages[0].text
    state = Find().reset(TASK, seed=0)
    assert "At most" not in state.messages[0].text + json.dumps([dict(one) for one in state.tool_schemas])


@each("settings, words", [
    ({"max_calls": {"zom": 2}}, "did you mean 'zoom'"), ({"max_calls": {"zoom": -1}}, "max_calls.zoom"),
    ({"max_total_calls": -1}, "max_total_calls"), ({"tools": ["count"]}, "unknown tool 'count'"),
    ({"tools": [count, Tool.from_function(glance, "count")]}, "two different tools are named 'count'"),
    *(({"tools": odd}, "tools") for odd in ("zoom", 3, [3], None)),
])  # fmt: skip
def test_what_cannot_be_is_refused_when_the_environment_is_made(settings, words):
    refuse(words, Find, **settings)
    with pytest.raises(TypeError):
        Find(max_calls={"zoom": 2}).max_calls["zoom"] = 3


# ---- for which task
class FewerTools(Find):
    def tools_of(self, task):
        return tuple(name for name in self.tools if name not in task.metadata.get("without", ()))


WITHOUT = Task("w", TASK.images, metadata={"without": ["crop", "zoom"]})


def test_a_tool_that_is_off_for_a_task_is_neither_offered_nor_known_and_the_driver_offers_those_of_its_task():
    env = FewerTools()
    assert [one["function"]["name"] for one in env.reset(WITHOUT, seed=0).tool_schemas] == ["adjust_contrast", "reset"]
    assert len(env.reset(TASK, seed=0).tool_schemas) == 4
    said = Play(env, WITHOUT).say_and_read(ZOOM)
    assert said.startswith('error: unknown tool "zoom"; allowed: adjust_contrast, reset')

    class Wrong(Find):
        def tools_of(self, task):
            return ("zom",)

    with pytest.raises(ConfigError, match=r"find: task t:.*'zom'"):
        Wrong().reset(TASK, seed=0)

    async def run():
        return [one async for one in play_many(FewerTools(), [TASK, WITHOUT], Listens())]

    assert len(asyncio.run(run())) == 2
    assert Listens.offered == {"t": ["zoom", "crop", "adjust_contrast", "reset"], "w": ["adjust_contrast", "reset"]}


class Listens:
    run_config = RunConfig()
    offered: ClassVar = {}

    def join(self, conversation):
        pass

    leave = join

    async def reply(self, conversation):
        self.offered[conversation.task.id] = [one["function"]["name"] for one in conversation.tools]
        return Reply('{"label": "left"}')


def test_what_the_environment_fills_in_reaches_the_tool_and_not_the_prompt():
    @tool
    def look_up(view, word: str, path: Hidden[str]) -> ToolOutput:
        """Looks a word up."""
        return ToolOutput(f"{word} in {path}")

    class Filled(Find):
        def hidden_arguments(self, task, tool):
            return {"path": f"{task.id}-{tool}.txt"}

    play = Play(Filled(tools=["look_up"]))
    assert "path" not in json.dumps([dict(one) for one in play.state.tool_schemas])
    assert play.say_and_read(write_call("look_up", word="a")) == "a in t-look_up.txt"
    assert 'unknown argument of look_up "path"' in play.say_and_read(write_call("look_up", word="a", path="/etc"))


# ---- functions beside names
class Mixed(Find):
    tools = (count, "zoom", Tool.from_function(glance, "look", max_calls=1))


def test_functions_stand_in_tools_beside_names():
    env = Mixed()
    assert env.tools == tuple(schema["function"]["name"] for schema in env.tool_schemas) == ("count", "zoom", "look")
    assert Play(env).say_and_read(write_call("count", image="image_1") + write_call("look")) == "80 columns\nlooked"
    assert {"count", "look"}.isdisjoint(TOOLS)
    assert Mixed(tools=["look"]).tools == ("look",)  # a run names them, and a program gives others
    assert Find(tools=["reset", count]).tools == ("reset", "count")
    tool(max_calls=1)(costly)
    assert Find(tools=[costly]).toolbox.get_max_calls("costly") == 1
