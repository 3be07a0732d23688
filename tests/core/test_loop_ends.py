"""How an episode ends: named ends, the only turn, the last turn, what is salvaged there."""

import json
from typing import ClassVar

import pytest
from pydantic import BaseModel, Field

from tests.support.loop_kit import LAST, NOTES, PICTURE, TASK, Find, Plain, Play, play_replies, write_answer, write_call
from viewbox.records import Reply, RunConfig, ToolCall

# ---- named ends


def test_an_answer_terminates():
    episode = play_replies(Find(), write_answer())
    assert (episode.end_reason, episode.terminated, episode.truncated) == ("answered", True, False)
    assert episode.answer == {"label": "left", "bbox": None}


@pytest.mark.parametrize("reply", [write_call(), "hm", NOTES, write_call("nothing"), "", write_call() + write_answer()])
def test_the_turn_budget_is_kept_whatever_is_said(reply):
    episode = play_replies(Find(max_turns=4), *[reply] * 4)
    assert episode.num_turns <= 4
    assert episode.end_reason in ("max_turns", "answered")


def test_every_bad_end_is_an_episode_with_a_reason_and_a_score():
    for replies, reason in (([write_call()] * 6, "max_turns"), (["hm"] * 5, "malformed")):
        episode = play_replies(Find(), *replies)
        assert (episode.end_reason, episode.truncated, episode.answer, episode.scores.total) == (reason, True, None, 0)


def test_a_step_after_the_end_is_the_programs_fault():
    play = Play(Find())
    play.say(write_answer())
    with pytest.raises(RuntimeError, match="answered"):
        play.say(write_answer())


def test_a_play_that_is_broken_off_is_recorded_as_cancelled():
    play = Play(Find())
    play.say(write_call())
    episode = play.build_episode(RunConfig("m"))
    assert (episode.end_reason, episode.truncated, episode.run_config.model_name) == ("cancelled", True, "m")


# ---- one turn only


class Described(BaseModel):
    label: str = Field(description="the side it is on")


def test_with_one_turn_there_are_no_tools():
    env = Find(max_turns=1)
    assert (env.tool_schemas, env.reset(TASK, seed=0).tool_schemas) == ((), ())
    assert play_replies(env, write_answer()).end_reason == "answered"


def test_with_one_turn_the_prompt_has_no_turn_policy():
    said = Find(max_turns=1, boundary=True).build_system_prompt(TASK)
    assert all(word not in said for word in ("replies", "tool call", "continue", "notes", "[data"))


def test_with_one_turn_the_answer_format_and_its_descriptions_are_in_the_system_prompt():
    class Single(Find):
        answer: ClassVar = Described
        boxes = ()
        max_turns = 1

    said = Single().build_system_prompt(TASK)
    assert '{"label": "…"}' in said
    assert "label: the side it is on" in said


def test_with_one_turn_all_of_several_images_are_shown_and_no_switching_is_promised():
    class Two(Find):
        def images(self, task):
            return [PICTURE, PICTURE]

    for turns, switching in ((6, True), (1, False)):
        first = Two(tools=["open_image"], max_turns=turns).reset(TASK, seed=0).messages[1]
        assert len(first.images) == 2
        assert "There are 2 images: image_1 and image_2." in first.text
        assert ("open_image" in first.text) == switching


# ---- the last turn


@pytest.mark.parametrize("reply", ["hm", write_call(), write_call("nothing"), NOTES])
def test_the_last_turn_is_announced_in_the_observation_before_it(reply):
    play = Play(Find(max_turns=3))
    assert LAST not in play.say_and_read(reply)
    assert play.say_and_read(reply).count(LAST) == 1


def test_the_last_turn_names_the_keys_of_the_answer():
    told = Play(Find(max_turns=2)).say_and_read("hm")
    assert told.endswith("Answer now with one JSON object that has the keys label, bbox, continue.")


def test_of_several_results_the_last_one_announces_the_last_turn():
    first, second = Play(Find(max_turns=2)).say(write_call() + write_call("reset")).messages
    assert (LAST in first.text, LAST in second.text) == (False, True)


def test_the_last_turn_warns_where_the_open_view_is_a_changed_one():
    told = Play(Find(max_turns=2)).say_and_read(write_call(factor=2))
    assert "The open view is not the original image. Give bbox in coordinates of the original image" in told
    assert "intensities" in told


@pytest.mark.parametrize("reply", ["hm", write_call(factor=2) + write_call("reset"), write_call("get_intensity_stats")])
def test_the_last_turn_does_not_warn_where_the_open_view_is_the_original(reply):
    env = Find(max_turns=2, tools=["zoom", "reset", "get_intensity_stats"])
    assert "not the original" not in Play(env).say_and_read(reply)


def test_a_call_on_the_last_turn_is_not_run():
    episode = play_replies(Find(max_turns=2), write_call(), write_call())
    assert episode.end_reason == "max_turns"
    assert sum(len(turn.tool_results) for turn in episode.turns) == 1


@pytest.mark.parametrize("reply", [write_call() + write_answer(), Reply(write_answer(), (ToolCall("x", "zoom"),))])
def test_an_answer_beside_a_call_on_the_last_turn_counts_and_is_flagged(reply):
    episode = play_replies(Find(max_turns=2), write_call(), reply)
    assert (episode.end_reason, episode.answer["label"], episode.flags) == ("answered", "left", {"salvaged"})


@pytest.mark.parametrize("reply", [write_call() + "Let me look.", Reply("Let me look.", (ToolCall("x", "zoom"),))])
def test_words_beside_a_call_on_the_last_turn_are_no_answer_where_text_answers(reply):
    episode = play_replies(Plain(max_turns=1), reply)
    assert (episode.end_reason, episode.answer) == ("max_turns", None)


def test_notes_on_the_last_turn_are_the_answer_and_are_flagged():
    episode = play_replies(Find(max_turns=1), NOTES)
    assert (episode.end_reason, episode.flags) == ("answered", {"forced_final"})


# ---- what is salvaged


CUT = '{"label": "left", "bbox": [0, 0, 0.'


def cut(text):
    return Reply(text, finish_reason="length")


def test_a_reply_cut_off_on_the_last_turn_keeps_what_was_said_and_is_flagged():
    episode = play_replies(Find(max_turns=1), cut(CUT))
    assert (episode.end_reason, episode.answer, episode.flags) == (
        "answered",
        {"label": "left", "bbox": None},
        {"salvaged"},
    )


def test_a_reply_cut_off_before_the_last_turn_is_malformed():
    play = Play(Find())
    assert "cut off" in play.say_and_read(cut(CUT))
    assert not play.result.done


def test_nothing_is_filled_in_that_the_model_did_not_say():
    episode = play_replies(Find(max_turns=1), cut('{"bbox": [0, 0, 0.5, 1], "lab'))
    assert (episode.end_reason, episode.answer) == ("max_turns", None)  # label is required, and was not said


class Inner(BaseModel):
    side: str
    size: float


class Nested(BaseModel):
    finding: Inner


class Nest(Find):
    answer: ClassVar = Nested
    boxes = ()


INNER = json.dumps({"side": "left", "size": 2})


def test_the_keys_of_an_inner_object_are_put_under_their_parent_on_the_last_turn():
    episode = play_replies(Nest(max_turns=1), INNER)
    assert (episode.answer, "salvaged" in episode.flags) == ({"finding": {"side": "left", "size": 2.0}}, True)


def test_an_answer_cut_off_after_it_was_whole_is_flagged():
    assert play_replies(Find(), cut(write_answer() + " becau")).flags == {"salvaged"}


def test_a_reward_sees_the_flags():
    class Clean:
        name = "clean"

        def of_episode(self, episode):
            return 0.0 if episode.flags & {"salvaged", "repaired"} else 1.0

    env = Find(reward=Clean(), max_turns=1)
    assert [play_replies(env, reply).scores.total for reply in (write_answer(), cut(CUT))] == [1.0, 0.0]


def test_text_cut_off_on_the_last_turn_is_kept_and_flagged():
    episode = play_replies(Plain(max_turns=1), cut("It is on the le"))
    assert (episode.answer, episode.flags) == ({"text": "It is on the le"}, {"salvaged"})
