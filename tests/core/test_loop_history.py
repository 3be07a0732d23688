"""Which pictures and words a model is shown again: all of them, or the last few."""

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.loop_kit import NOTES, TASK, Find, Play, write_answer, write_call
from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import apply_history
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef

REPLIES = ["hm", write_call(factor=2), write_call("nothing") + write_call(), NOTES, "hm", "hm", "hm", NOTES]


def pictures(messages):
    return [image.hash for message in messages for image in message.images]


# ---- full
def test_with_the_full_history_messages_only_ever_grow():
    play = Play(Find(max_turns=10))
    before = list(play.state.messages)
    for reply in REPLIES:
        play.say(reply)
        assert play.state.messages[: len(before)] == before
        assert play.state.messages[len(before) :][1:] == list(play.result.messages)
        before = list(play.state.messages)


# ---- last_images
def last(k, **settings):
    return Play(Find(history={"last_images": k}, tools=["zoom", "reset", "get_intensity_stats"], **settings))


@each("k", [1, 2, 3, 9])
def test_only_the_last_images_are_shown(k):
    play = last(k, max_turns=10)
    play.say(write_call(factor=2), write_call(factor=3), write_call("reset") + write_call(factor=4))
    every = pictures(play.state.messages)
    assert len(every) == 5
    assert pictures(apply_history(play.env, play.state.messages)) == every[-k:]


def test_the_messages_themselves_and_the_record_keep_every_image():
    play = last(1)
    play.say(write_call(factor=2))
    shown = apply_history(play.env, play.state.messages)
    assert shown[1].content == ("[picture 0 is no longer shown]", "What is it?")
    assert [message.role for message in shown] == [message.role for message in play.state.messages]
    play = last(1)
    play.say(write_call(factor=2), write_call(factor=2), write_answer())
    assert len(pictures(play.state.messages)) == 3
    assert sum(len(turn.images) for turn in play.build_episode().turns) == 3


@each("imageless", ["hm", NOTES, write_call("nothing"), write_call("get_intensity_stats")])
def test_after_a_turn_without_a_picture_the_last_one_is_still_shown(imageless):
    play = last(1)
    play.say(write_call(factor=2), imageless)
    every = pictures(play.state.messages)
    assert pictures(apply_history(play.env, play.state.messages)) == every[-1:]  # GAZE shows none


def test_the_original_is_shown_again_on_the_last_turn_where_the_history_cut_it():
    play = last(1, max_turns=2)
    (said,) = play.say(write_call(factor=2)).messages
    first = play.state.messages[1].images[0]
    assert said.images[1:] == (first,)
    assert "The original image again:" in said.text
    assert pictures(apply_history(play.env, play.state.messages)) == pictures([said])  # the view and the original
    (said,) = last(2, max_turns=2).say(write_call(factor=2)).messages
    assert len(said.images) == 1
    (said,) = last(1, max_turns=2).say("hm").messages
    assert said.images == ()
    play = last(1, max_turns=3)
    play.say(write_call(factor=2))
    (said,) = play.say(write_call("reset")).messages
    assert len(said.images) == 1
    play, start = start_two(1, max_turns=3)
    play.say(write_call(factor=2))
    (said,) = play.say(write_call("open_image", image="image_2") + write_call(factor=2)).messages[-1:]
    assert pictures([said])[1:] == start
    assert "The original images again, image_1 and image_2:" in said.text
    assert pictures(apply_history(play.env, play.state.messages)) == pictures([said])


OTHER = ImageRef.of(np.full((30, 20), 9, np.uint8))
TWO = replace(TASK, images=(*TASK.images, OTHER))


def start_two(k, **settings):
    play = Play(Find(history={"last_images": k}, **settings), TWO)
    return play, pictures(play.state.messages)


@each("k, looks, is_start_kept", [(1, 0, True), (1, 1, False), (2, 1, True), (2, 2, False)])
def test_several_pictures_at_the_start_count_as_one_and_are_dropped_together(k, looks, is_start_kept):
    play, start = start_two(k)
    play.say("hm", *[write_call(factor=factor) for factor in range(2, 2 + looks)])
    shown = apply_history(play.env, play.state.messages)
    assert pictures(shown) == start * is_start_kept + pictures(play.state.messages)[2:][-k:]
    assert len(start) == 2
    gone = [part for part in shown[1].content[:-1] if isinstance(part, str)]
    assert gone == ([] if is_start_kept else [f"[picture {number} is no longer shown]" for number in (0, 1)])


# ---- the last turns
def test_the_words_before_the_last_turns_are_left_out_and_replies_and_pictures_stay():
    seen = []

    def policy(messages):
        seen.append(messages)
        return write_call(factor=2)

    env = make("digits", history={"last_turns": 1}, tools=["zoom"], max_turns=5)
    env.play(env.tasks[0], policy)
    del seen[4:]
    results = [[message.text for message in messages if message.role == "tool"] for messages in seen]
    assert [sum("left out" in text for text in texts) for texts in results] == [0, 0, 1, 2]
    assert "left out" not in results[-1][-1]
    assert [sum(len(message.images) for message in messages) for messages in seen] == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="one of last_images and last_turns is needed"):
        make("digits", history={})
