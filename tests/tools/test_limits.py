"""What an environment decides about its tools: how often, for which task, and which functions beside names."""

import asyncio
import json
from typing import ClassVar

import pytest

from tests.support.loop_kit import write_call
from tests.support.tool_play import TASK, Find, Play
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.tools import TOOLS, Hidden, Picture, Tool, ToolOutput, tool

# ---- how often


def test_a_tool_beyond_its_limit_is_refused_with_what_is_still_allowed():
    play = Play(Find(tools=["zoom", "reset"], max_calls={"zoom": 2}))
    assert "error" not in play.say_and_read(write_call(), write_call())
    assert play.say_and_read(write_call()) == "error: zoom is used up (2 calls). You can still call: reset."
    assert "error" not in play.say_and_read(write_call("reset"))


def test_a_refused_call_leaves_the_view_and_is_a_failed_call_of_the_record():
    play = Play(Find(max_calls={"zoom": 1}))
    play.say_and_read(write_call())
    before = play.state.view
    play.say_and_read(write_call())
    assert play.state.view is before
    results = [result for turn in play.env.build_episode(play.state).turns for result in turn.tool_results]
    assert [result.success for result in results] == [True, False]


def test_the_limit_holds_within_one_reply():
    play = Play(Find(max_calls={"zoom": 1}))
    said = play.say_and_read(write_call() + write_call())
    assert said.count("zoomed") == 1
    assert said.count("is used up") == 1


def test_a_call_that_is_refused_for_its_arguments_does_not_count():
    play = Play(Find(max_calls={"zoom": 1}))
    assert "zoomed" in play.say_and_read(write_call(factor=9), write_call())
    assert "is used up" in play.say_and_read(write_call())


def test_the_total_limits_all_tools_together():
    play = Play(Find(max_total_calls=2))
    assert "error" not in play.say_and_read(write_call(), write_call("reset"))
    assert play.say_and_read(write_call("reset")) == "error: Tool budget used up (2 calls). Give your final answer now."


def test_a_limit_of_none_at_all_is_a_limit():
    assert "(0 calls)" in Play(Find(max_calls={"zoom": 0})).say_and_read(write_call())


def test_two_plays_do_not_share_their_calls():
    env = Find(max_calls={"zoom": 1})
    Play(env).say_and_read(write_call())
    assert "error" not in Play(env).say_and_read(write_call())


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

    assert "used up" in Play(Find(tools=["costly"])).say_and_read(write_call("costly"), write_call("costly"))
    assert "used up" not in Play(Find(tools=["costly"], max_calls={"costly": 2})).say_and_read(
        write_call("costly"), write_call("costly")
    )


def test_a_limit_that_cannot_be_is_refused_when_the_environment_is_made():
    for settings, words in [
        ({"max_calls": {"zom": 2}}, "did you mean 'zoom'"),
        ({"max_calls": {"zoom": -1}}, "max_calls.zoom"),
        ({"max_total_calls": -1}, "max_total_calls"),
    ]:
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
    said = Play(FewerTools(), WITHOUT).say_and_read(write_call())
    assert said.startswith('error: unknown tool "zoom"; allowed: adjust_contrast, reset')


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
    assert play.say_and_read(write_call("look_up", word="a")) == "a in t-look_up.txt"
    assert 'unknown argument of look_up "path"' in play.say_and_read(write_call("look_up", word="a", path="/etc"))


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
    assert Play(env).say_and_read(write_call("count", image="image_1") + write_call("look")) == "80 columns\nlooked"
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

    assert Find(tools=[costly]).toolbox.get_max_calls("costly") == 1


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two different tools are named 'count'"):
        Find(tools=[count, Tool.from_function(glance, "count")])


def test_what_lists_no_tools_is_refused_with_the_setting():
    for given in ["zoom", 3, [3], None]:
        with pytest.raises(ConfigError, match="tools"):
            Find(tools=given)
