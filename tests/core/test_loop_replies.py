"""What one reply is taken for, what the model is told, and how an episode ends: a play of each in a row."""

import asyncio
import json
from typing import Annotated, ClassVar

import pytest
from pydantic import BaseModel, Field

from tests.support.loop_kit import (
    FINALIZE,
    LAST,
    NOTES,
    NUDGE,
    PICTURE,
    TASK,
    Find,
    Plain,
    Play,
    make_env_with_tools,
    play_replies,
    write_answer,
    write_call,
)
from tests.support.tables import each
from viewbox.core.parsing.reply import MAX_BYTES
from viewbox.errors import ToolError, show_json
from viewbox.records import Reply, RunConfig, Task, ToolCall
from viewbox.utils.frozen import FrozenDict


class Loose(Find):
    """Its schema lets any box pass."""

    answer = FrozenDict(type="object", properties={"label": {"type": "string"}})


class Inner(BaseModel):
    side: str
    size: float


class Nested(BaseModel):
    finding: Inner


class Nest(Find):
    answer: ClassVar = Nested
    boxes = ()


class Lesion(BaseModel):
    side: str = Field(description="left or right, as the reader sees it")
    size: Annotated[float, Field(ge=0)] = 0.0


class Report(BaseModel):
    lesions: list[Lesion] = Field(description="every one you see")


class Reports(Find):
    answer: ClassVar = Report
    boxes = ()


class Strict(Find):
    def validate_answer(self, answer, task):
        return None if answer["label"] == task.reference["label"] else "label: look again"


class Two(Find):
    def images(self, task):
        return [PICTURE, PICTURE]


def find(what: str) -> str:
    """Finds nothing."""
    raise ToolError("nothing found")


def cut(text):
    return Reply(text, finish_reason="length")


HM, CALL, LOOK, UNKNOWN = "hm", write_call(), write_call(factor=2), write_call("nothing")
TORN, BESIDE = "<tool_call>zoom 2</tool_call>", write_call() + write_answer()
NATIVE = Reply(write_answer(), (ToolCall("x", "zoom"),))
CUT = cut('{"label": "left", "bbox": [0, 0, 0.')
LEFT = {"label": "left", "bbox": None}
WORDS = '"continue" must be true or false'
STATS = {"tools": ["zoom", "reset", "get_intensity_stats"]}

TOLD = [  # the environment, its settings, the replies, what the last message holds, and what it does not
    (Find, {}, [""], ["the reply is empty"], []), (Find, {}, ['{"label": 3}'], ["label = 3: allowed: a string"], []),
    *((Find, {}, [write_answer(**{"continue": said})], [WORDS], []) for said in ("perhaps", 2, 0.5, {}, "")),
    (Find, {}, [CUT], ["cut off"], []), (Find, {}, [write_answer(bbox=[0.5, 0, 0.5, 1])], ["x1 < x2"], []),
    (Find, {}, [write_answer("ü" * (MAX_BYTES // 2))], [f"longer than {MAX_BYTES} bytes"], []),
    *((Loose, {}, [write_answer(bbox=said)], [f"bbox = {show_json(said)}: a box is 4 numbers"], [])
      for said in (3, [1, 2], [True, 0, 1, 1], ["0", "0", "1", "1"])),
    *((Plain, {}, [said], [NUDGE], []) for said in ("  \n", "x" * (MAX_BYTES + 1))),
    (Find, {"tools": []}, [HM], [], ["tool call"]),
    (Strict, {}, [write_answer("up")], ["label: look again"], []),
    (Reports, {}, [HM], ['"lesions": [{"side": "…", "size": 0.0}]', "lesions: every one you see",
                         "lesions[].side: left or right, as the reader sees it", "at least 0"], []),
    # the demand for the final answer: which malformed reply in a row gets it, and what starts the count again
    (Find, {}, [HM], [NUDGE], [FINALIZE]), (Find, {}, [HM] * 2, [FINALIZE], []),
    (Find, {"max_consecutive_malformed": 0}, [HM], [FINALIZE], []),
    (Find, {"max_consecutive_malformed": 3}, [HM] * 2, [NUDGE], [FINALIZE]),
    (Find, {"max_consecutive_malformed": 3}, [HM] * 3, [FINALIZE], []),
    *((Find, {"max_turns": 10}, [HM, good, HM], [NUDGE], [FINALIZE]) for good in (CALL, NOTES)),
    *((Find, {"max_turns": 10}, [HM, HM, bad, HM], [FINALIZE], []) for bad in (UNKNOWN, write_call(factor=9), TORN)),
    (Find, {"max_turns": 10}, [HM, HM, UNKNOWN + CALL, HM], [NUDGE], [FINALIZE]),
    # notes, and who never looks
    (Find, {}, [NOTES], ["Turn 1 of 6"], [FINALIZE]), (Find, {}, [NOTES] * 2, ["Turn 2"], [FINALIZE]),
    (Find, {}, [NOTES] * 3, [FINALIZE], []),
    (Find, {"max_turns": 10}, [*[NOTES] * 3, CALL, NOTES], ["Turn 5 of 10"], []),
    *((Find, {}, [CALL, *[NOTES] * count], ["Turn"], [FINALIZE]) for count in (1, 2, 3)),
    (Find, {"tools": []}, [NOTES] * 3, ["Turn 3"], [FINALIZE]),
    # the last turn is announced before it, once
    *((Find, {"max_turns": 3}, [said] * count, [LAST] * (count - 1), [LAST] * (2 - count))
      for said in (HM, CALL, UNKNOWN, NOTES) for count in (1, 2)),
    (Find, {"max_turns": 2}, [HM], ["Answer now with one JSON object that has the keys label, bbox, continue."], []),
    (Find, {"max_turns": 2}, [LOOK], ["The open view is not the original image. Give bbox in coordinates of the "
                                      "original image", "intensities"], []),
    *((Find, {"max_turns": 2, **STATS}, [said], [LAST], ["not the original"])
      for said in (HM, LOOK + write_call("reset"), write_call("get_intensity_stats"))),
]  # fmt: skip


@each("env, settings, replies, has, lacks", TOLD)
def test_a_malformed_reply_is_told_why_and_what_is_wanted(env, settings, replies, has, lacks):
    play = Play(env(**settings))
    told = play.say_and_read(*replies)
    assert [words for words in has if words not in told] == []
    assert [words for words in lacks if words in told] == []
    assert told.count(LAST) <= 1
    assert not play.result.done
    if NUDGE in told:
        assert play.env.answer_format.text in told


ENDS = [  # the environment, its settings, the replies, the end, the answer, its flags, and how many replies it took
    (Find, {}, [write_answer()], "answered", LEFT), (Find, {}, [CALL] * 6, "max_turns", None),
    (Find, {}, [f'{{"answer": {write_answer()}}}'], "answered", LEFT, {"repaired"}),
    (Find, {}, [HM] * 5, "malformed", None, (), 5), (Strict, {}, [write_answer("up")] * 5, "malformed", None),
    (Find, {"max_turns": 20}, [HM, HM, CALL, NOTES, HM, HM, CALL, NOTES, HM], "malformed", None, (), 9),
    *((Find, {"max_turns": 20, "max_malformed": limit}, [HM] * limit, "malformed", None, (), limit)
      for limit in (1, 7)),
    (Find, {"max_turns": 20}, [TORN] * 5, "malformed", None, (), 5),
    # replies with refused calls only end it at the limit, too
    *((Find, {"max_turns": 20, "max_malformed": limit, "max_calls": {"crop": 0}},
       [*[refused + CALL] * 6, *[refused] * limit, write_answer()], "malformed", None, (), 6 + limit)
      for limit in (1, 5) for refused in (write_call(factor=9), UNKNOWN, write_call("crop"))),
    # thinking never counts
    (Find, {}, [f"<think>{write_answer('right')} {CALL}</think>{write_answer()}"], "answered", LEFT),
    (Plain, {}, ["<think>right?</think>left"], "answered", {"text": "left"}),
    (Find, {"thinking": [("[THINK]", "[/THINK]")]}, [f"[THINK]{CALL}[/THINK]{write_answer()}"], "answered", LEFT),
    # after the demand for the final answer the next object is it
    (Find, {}, [NOTES] * 4, "answered", LEFT, {"forced_final"}, 4),
    (Find, {}, [HM, HM, HM, NOTES], "answered", LEFT, {"forced_final"}),
    # the last turn: calls are not run, what was said counts, and nothing is filled in
    (Find, {"max_turns": 2}, [CALL, CALL], "max_turns", None),
    *((Find, {"max_turns": 2}, [CALL, said], "answered", LEFT, {"salvaged"}) for said in (BESIDE, NATIVE)),
    *((Plain, {"max_turns": 1}, [said], "max_turns", None)
      for said in (CALL + "Let me look.", Reply("Let me look.", (ToolCall("x", "zoom"),)))),
    (Find, {"max_turns": 1}, [NOTES], "answered", LEFT, {"forced_final"}),
    (Find, {"max_turns": 1}, [cut('{"bbox": [0, 0, 0.5, 1], "lab')], "max_turns", None),  # label was not said
    (Nest, {"max_turns": 1}, ['{"side": "left", "size": 2}'], "answered",
     {"finding": {"side": "left", "size": 2.0}}, {"salvaged"}),
    (Find, {}, [cut(write_answer() + " becau")], "answered", LEFT, {"salvaged"}),
    (Plain, {"max_turns": 1}, [cut("It is on the le")], "answered", {"text": "It is on the le"}, {"salvaged"}),
]  # fmt: skip


@each("env, settings, replies, reason, answer, flags, count", [(*row, *((), None)[len(row) - 5 :]) for row in ENDS])
def test_every_end_is_an_episode_with_a_reason_and_a_score(env, settings, replies, reason, answer, flags, count):
    episode = play_replies(env(**settings), *replies)
    assert (episode.end_reason, episode.answer, episode.flags) == (reason, answer, set(flags))
    assert (episode.terminated, episode.truncated) == (reason == "answered", reason != "answered")
    assert episode.num_turns == (count or len(replies))
    assert episode.scores.total == float(answer in (LEFT, {"text": "left"}))


def test_malformed_replies_and_failed_calls_are_counted_apart():
    torn = play_replies(Find(max_turns=20), HM, HM, CALL, NOTES, HM, HM, CALL, NOTES, HM)
    refused = play_replies(Find(max_turns=20, max_malformed=1), UNKNOWN)
    failed = play_replies(make_env_with_tools(find, max_turns=8, max_malformed=1),
                          *[write_call("find", what="it")] * 7, write_answer())  # fmt: skip
    assert [(one.end_reason, one.info["malformed"]) for one in (torn, refused, failed)] == [
        ("malformed", 5), ("malformed", 0), ("answered", 0)]  # fmt: skip


def test_a_step_after_the_end_is_the_programs_fault_and_a_play_broken_off_is_cancelled():
    play = Play(Find())
    play.say(write_answer())
    with pytest.raises(RuntimeError, match="answered"):
        play.say(write_answer())
    play = Play(Find())
    play.say(CALL)
    episode = play.build_episode(RunConfig("m"))
    assert (episode.end_reason, episode.truncated, episode.run_config.model_name) == ("cancelled", True, "m")


@each("reply", [BESIDE, NATIVE])
def test_an_answer_beside_a_call_before_the_last_turn_is_set_aside(reply):
    play = Play(Find())
    play.say(reply)
    assert (play.result.done, play.state.answer, play.result.messages[0].role) == (False, None, "tool")


def test_a_call_on_the_last_turn_is_not_run_and_the_last_result_announces_it():
    episode = play_replies(Find(max_turns=2), CALL, CALL)
    assert sum(len(turn.tool_results) for turn in episode.turns) == 1
    first, second = Play(Find(max_turns=2)).say(CALL + write_call("reset")).messages
    assert (LAST in first.text, LAST in second.text) == (False, True)


@each("said, done", [*((said, False) for said in (True, 1, "TRUE", "yes")),
                     *((said, True) for said in (None, False, 0, "False", "no"))])  # fmt: skip
def test_continue_is_read_leniently_and_keeps_notes(said, done):
    play = Play(Find())
    assert play.say(write_answer(**{"continue": said})).terminated == done
    assert play.state.notes == ([] if done else [{"label": "left"}])


# ---- one turn only
def test_with_one_turn_there_are_no_tools_and_the_prompt_has_no_turn_policy():
    env = Find(max_turns=1)
    assert (env.tool_schemas, env.reset(TASK, seed=0).tool_schemas) == ((), ())
    said = Find(max_turns=1, boundary=True).build_system_prompt(TASK)
    assert all(word not in said for word in ("replies", "tool call", "continue", "notes", "[data"))
    said = Reports(max_turns=1).build_system_prompt(TASK)
    assert json.dumps({"lesions": [{"side": "…", "size": 0.0}]}, ensure_ascii=False) in said
    assert "lesions: every one you see" in said


@each("turns, switching", [(6, True), (1, False)])
def test_with_one_turn_all_of_several_images_are_shown_and_no_switching_is_promised(turns, switching):
    first = Two(tools=["open_image"], max_turns=turns).reset(TASK, seed=0).messages[1]
    assert len(first.images) == 2
    assert "There are 2 images: image_1 and image_2." in first.text
    assert ("open_image" in first.text) == switching


# ---- a simulated user
class Asked(Find):
    def on_answer(self, state, answer):
        return "What do you mean?" if answer["label"] == "unclear" else None


class AskedLater(Find):
    """Its user is another model."""

    async def on_answer(self, state, answer):
        await asyncio.sleep(0)
        return "What do you mean?" if answer["label"] == "unclear" else None


class Chat(Plain):
    """A user who answers questions in plain text."""

    def on_answer(self, state, answer):
        return "I am 40." if "how old" in answer["text"] else None


@each("env", [Asked, AskedLater])
def test_a_users_words_keep_the_episode_going(env):
    play = Play(env())
    (said,) = play.say(write_answer("unclear")).messages
    assert (said.role, said.text, play.result.done) == ("user", "What do you mean?", False)
    assert play.say(write_answer()).terminated
    assert play.state.answer["label"] == "left"
    assert play_replies(env(max_turns=1), write_answer("unclear")).end_reason == "answered"


def test_a_user_hears_only_what_is_a_valid_answer_and_answers_plain_text_too():
    heard = []

    class Hears(Find):
        def on_answer(self, state, answer):
            heard.append(answer)

    Play(Hears()).say("hm", NOTES, '{"label": 3}', write_call() + write_answer("beside"), write_answer())
    assert heard == [{"label": "left", "bbox": None}]
    episode = play_replies(Chat(), "how old are you?", "left")
    assert [turn.content for turn in episode.turns][1:] == ["how old are you?", "I am 40.", "left"]
    assert episode.answer == {"text": "left"}


def test_a_user_knows_the_play_and_the_facts_hidden_in_its_task():
    class Knows(Find):
        def on_answer(self, state, answer):
            return f"{state.task.metadata['age']} years" if state.turn == 1 else None

    task = Task("t", TASK.images, TASK.prompt, TASK.reference, {"age": 40})
    play = Play(Knows(), task)
    assert "40" not in "".join(message.text for message in play.state.messages)
    assert play.say_and_read(write_answer()) == "40 years"
    told = Play(Asked(max_turns=2)).say_and_read(write_answer("unclear"))
    assert told.startswith("What do you mean?\n" + LAST)


def test_a_word_of_the_user_starts_the_counts_again():
    class Patient(Find):
        def on_answer(self, state, answer):
            return "Sure?"

    play = Play(Patient(max_turns=20))
    play.say("hm", "hm", "hm", write_answer())
    assert play.say_and_read("hm").startswith(NUDGE)
    assert not play.say(NOTES).done  # the finalize message before the user's words is forgotten
