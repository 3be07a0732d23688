"""What one reply is taken for: malformed, notes, an answer; nudges, idleness, and what wins in a reply that is both."""

from typing import Annotated, ClassVar

import pytest
from pydantic import BaseModel, Field

from tests.support.loop_kit import (
    FINALIZE,
    NOTES,
    NUDGE,
    TASK,
    Find,
    Plain,
    Play,
    make_env_with_tools,
    play_replies,
    write_answer,
    write_call,
)
from viewbox.core.parsing.reply import MAX_BYTES
from viewbox.errors import ToolError, show_json
from viewbox.records import Reply, ToolCall
from viewbox.utils.frozen import FrozenDict

# ---- malformed replies


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "the reply is empty"),
        ("I see it.", "no JSON object"),
        ("[1]", "not a list"),
        ('{"bbox": null}', '"label" is missing'),
        ('{"label": 3}', "label = 3: allowed: a string"),
        ('{"label": "a", "continue": "perhaps"}', '"continue" must be true or false'),
        (Reply('{"label"', finish_reason="length"), "cut off"),
        (write_answer(bbox=[0, 0, 1.5, 1]), "x = 1.5 is out of range; allowed: 0 to 1"),
        (write_answer(bbox=[0.5, 0, 0.5, 1]), "x1 < x2"),
        (write_answer(bbox=[0, 0, 1]), "bbox"),
        ("x" * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes"),
        (write_answer("ü" * (MAX_BYTES // 2)), f"longer than {MAX_BYTES} bytes"),
    ],
)
def test_a_malformed_reply_is_told_why_and_what_is_wanted(reply, words):
    play = Play(Find())
    told = play.say_and_read(reply)
    assert words in told
    assert play.env.answer_format.text in told
    assert not play.result.done


@pytest.mark.parametrize("given", [3, [1, 2], [True, 0, 1, 1], ["0", "0", "1", "1"]])
def test_what_is_no_box_is_a_nudge_also_where_the_schema_lets_it_pass(given):
    class Loose(Find):
        answer = FrozenDict(type="object", properties={"label": {"type": "string"}})

    assert f"bbox = {show_json(given)}: a box is 4 numbers" in Play(Loose()).say_and_read(write_answer(bbox=given))


def test_a_nudge_offers_a_tool_call_only_where_there_are_tools():
    assert "Reply with a tool call, or answer with" in Play(Find()).say_and_read("hm")
    assert "tool call" not in Play(Find(tools=[])).say_and_read("hm")


def test_the_second_malformed_reply_in_a_row_gets_the_final_demand():
    play = Play(Find())
    assert [play.say_and_read("hm").startswith(FINALIZE) for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_which_malformed_reply_in_a_row_gets_it_is_a_setting(number):
    play = Play(Find(max_consecutive_malformed=number, max_turns=10))
    before = max(number - 1, 0)
    assert [play.say_and_read("hm").startswith(FINALIZE) for _ in range(before + 1)] == [*[False] * before, True]


@pytest.mark.parametrize("good", [write_call(), NOTES])
def test_a_good_reply_starts_the_count_in_a_row_again(good):
    play = Play(Find(max_turns=10))
    play.say("hm", good)
    assert play.say_and_read("hm").startswith(NUDGE)


@pytest.mark.parametrize("failed", [write_call("nothing"), write_call(factor=9), "<tool_call>zoom 2</tool_call>"])
def test_a_failed_call_does_not_start_the_count_in_a_row_again(failed):
    play = Play(Find(max_turns=10))
    play.say("hm", "hm", failed)
    assert play.say_and_read("hm").startswith(FINALIZE)


def test_one_call_that_succeeds_beside_a_failed_one_starts_the_count_again():
    play = Play(Find(max_turns=10))
    play.say("hm", "hm", write_call("nothing") + write_call())
    assert play.say_and_read("hm").startswith(NUDGE)


def test_the_fifth_malformed_reply_in_all_ends_the_episode():
    good = (write_call(), NOTES)
    episode = play_replies(Find(max_turns=20), "hm", "hm", *good, "hm", "hm", *good, "hm")
    assert (episode.end_reason, episode.truncated, episode.info["malformed"]) == ("malformed", True, 5)


@pytest.mark.parametrize("limit", [1, 7])
def test_how_many_malformed_replies_end_it_is_a_setting(limit):
    episode = play_replies(Find(max_turns=20, max_malformed=limit), *["hm"] * limit)
    assert (episode.end_reason, episode.num_turns) == ("malformed", limit)


def test_calls_that_cannot_be_read_count_as_malformed():
    episode = play_replies(Find(max_turns=20), *["<tool_call>zoom 2</tool_call>"] * 5)
    assert (episode.end_reason, episode.num_turns) == ("malformed", 5)


def test_calls_that_fail_do_not_count_as_malformed():
    def find(what: str) -> str:
        """Finds nothing."""
        raise ToolError("nothing found")

    env = make_env_with_tools(find, max_turns=8, max_malformed=1)
    episode = play_replies(env, *[write_call("find", what="it")] * 7, write_answer())
    assert (episode.end_reason, episode.info["malformed"]) == ("answered", 0)


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("refused", [write_call(factor=9), write_call("nothing"), write_call("crop")])
def test_replies_with_refused_calls_only_end_the_episode_at_the_limit_too(limit, refused):
    env = Find(max_turns=20, max_malformed=limit, max_calls={"crop": 0})
    beside = [refused + write_call()] * 6  # one call ran
    episode = play_replies(env, *beside, *[refused] * limit, write_answer())
    assert (episode.end_reason, episode.num_turns, episode.info["malformed"]) == ("malformed", 6 + limit, 0)


@pytest.mark.parametrize("reply", ["", "  \n", "x" * (MAX_BYTES + 1)])
def test_no_text_or_far_too_much_is_malformed_also_where_text_answers(reply):
    assert Play(Plain()).say_and_read(reply).startswith(NUDGE)


def test_thinking_never_counts():
    thought = f"<think>{write_answer('right')} {write_call()}</think>"
    assert play_replies(Find(), thought + write_answer()).answer["label"] == "left"
    assert play_replies(Plain(), "<think>right?</think>left").answer == {"text": "left"}


def test_the_tags_of_thinking_are_a_setting():
    env = Find(thinking=[("[THINK]", "[/THINK]")])
    assert play_replies(env, f"[THINK]{write_call()}[/THINK]" + write_answer()).num_turns == 1


# ---- every format is read, whichever the prompt taught


@pytest.mark.parametrize(
    ("reply", "taught"),
    [
        (write_call(factor=2), "json"),
        ('```tool\n{"name": "zoom", "arguments": {"factor": 2}}\n```', "native"),
        ('{"tool": "zoom", "arguments": {"factor": 2}}', "hermes"),
        ('{"name": "zoom", "arguments": {"factor": 2}}', "fenced"),
        (Reply("", (ToolCall("x", "zoom", '{"factor": 2}'),)), "hermes"),
    ],
    ids=["hermes", "fenced", "json", "json_name", "native"],
)
def test_a_call_is_understood_in_every_format_whichever_was_taught(reply, taught):
    (said,) = Play(Find(reply_format=taught)).say(reply).messages
    assert (said.role, said.name, len(said.images)) == ("tool", "zoom", 1)


def test_a_reply_in_full_is_in_the_record_whatever_it_was():
    texts = [
        "hm", write_call() + write_answer(), "<tool_call>zoom</tool_call>", NOTES,
        "<think>x</think>" + write_answer(),
    ]  # fmt: skip
    episode = play_replies(Find(), *texts)
    assert [turn.content for turn in episode.turns if turn.role == "assistant"] == texts


# ---- precedence


@pytest.mark.parametrize("reply", [write_call() + write_answer(), Reply(write_answer(), (ToolCall("x", "zoom"),))])
def test_an_answer_beside_a_call_before_the_last_turn_is_set_aside(reply):
    play = Play(Find())
    play.say(reply)
    assert (play.result.done, play.state.answer) == (False, None)
    assert play.result.messages[0].role == "tool"


# ---- continue


@pytest.mark.parametrize("said", [True, 1, "TRUE", "yes", None, False, 0, "False", "no"])
def test_continue_is_read_leniently(said):
    done = Play(Find()).say(write_answer(**{"continue": said})).terminated
    assert done == (said in (None, False, 0, "False", "no"))


@pytest.mark.parametrize("said", ["perhaps", 2, 0.5, {}, ""])
def test_any_other_continue_is_malformed(said):
    assert '"continue" must be true or false' in Play(Find()).say_and_read(write_answer(**{"continue": said}))


def test_continue_keeps_the_object_as_notes_and_shows_the_turn():
    play = Play(Find())
    assert "Turn 1 of 6" in play.say_and_read(NOTES)
    assert (play.result.done, play.state.answer, play.state.notes) == (False, None, [{"label": "left"}])


# ---- idleness


def test_a_model_that_never_looks_is_told_to_answer_at_turn_three():
    play = Play(Find())
    assert [play.say_and_read(NOTES).startswith(FINALIZE) for _ in range(3)] == [False, False, True]
    assert play.say(write_answer()).end_reason == "answered"


def test_after_the_finalize_message_the_next_object_is_accepted_and_flagged():
    episode = play_replies(Find(), NOTES, NOTES, NOTES, NOTES)
    assert (episode.end_reason, episode.num_turns, episode.flags) == ("answered", 4, {"forced_final"})


def test_the_finalize_message_after_malformed_replies_has_the_same_effect():
    episode = play_replies(Find(), "hm", "hm", "hm", NOTES)
    assert (episode.end_reason, episode.flags) == ("answered", {"forced_final"})


def test_a_look_after_the_finalize_message_lets_the_model_go_on():
    play = Play(Find(max_turns=10))
    play.say(NOTES, NOTES, NOTES, write_call())
    assert "Turn 5 of 10" in play.say_and_read(NOTES)


def test_a_model_that_has_looked_may_go_on():
    play = Play(Find())
    play.say(write_call())
    assert ["Turn" in play.say_and_read(NOTES) for _ in range(3)] == [True, True, True]


def test_without_tools_nobody_is_idle():
    assert "Turn 3" in Play(Find(tools=[])).say_and_read(NOTES, NOTES, NOTES)


# ---- answer schemas


class Lesion(BaseModel):
    side: str = Field(description="left or right, as the reader sees it")
    size: Annotated[float, Field(ge=0)] = 0.0


class Report(BaseModel):
    lesions: list[Lesion] = Field(description="every one you see")


def test_a_nudge_states_the_fields_of_a_pydantic_answer_with_their_descriptions():
    class Reports(Find):
        answer: ClassVar = Report
        boxes = ()

    told = Play(Reports()).say_and_read("hm")
    assert '"lesions": [{"side": "…", "size": 0.0}]' in told
    assert "lesions: every one you see" in told
    assert "lesions[].side: left or right, as the reader sees it" in told
    assert "at least 0" in told


def test_a_json_schema_gives_the_answer_format_too():
    class Listed(Find):
        answer = FrozenDict(
            type="object",
            properties={"label": {"enum": ["left", "right"], "description": "the side"}},
            required=["label"],
        )
        boxes = ()

    assert '{"label": "left|right", "continue": false}\nlabel: the side' in Listed().build_system_prompt(TASK)


def test_an_author_may_refuse_an_answer_in_words():
    class Strict(Find):
        def validate_answer(self, answer, task):
            return None if answer["label"] == task.reference["label"] else "label: look again"

    play = Play(Strict())
    assert "label: look again" in play.say_and_read(write_answer("up"))
    assert play.say(write_answer("left")).terminated


def test_a_refused_answer_counts_as_malformed():
    class Never(Find):
        def validate_answer(self, answer, task):
            return "no"

    assert play_replies(Never(), *[write_answer()] * 5).end_reason == "malformed"


def test_an_answer_under_a_wrong_key_is_found():
    assert play_replies(Find(), f'{{"answer": {write_answer()}}}').answer["label"] == "left"
