"""Environments that talk: plain text answers, and a simulated user. `chest_xray_stub.py` is an agent with both."""

import asyncio

import pytest

from tests.support.loop_kit import LAST, NOTES, NUDGE, TASK, Find, Plain, Play, play_replies, write_answer, write_call
from viewbox.records import Task

# ---- plain text


def test_plain_text_answers_where_there_is_no_schema():
    episode = play_replies(Plain(), write_call(), "left")
    assert (episode.end_reason, episode.answer, episode.scores.total) == ("answered", {"text": "left"}, 1.0)


def test_the_last_turn_asks_for_plain_text_where_text_answers():
    told = Play(Plain(max_turns=2)).say_and_read(write_call())
    assert f"{LAST}. Tool calls are no longer possible. Answer now in plain text." in told


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


@pytest.mark.parametrize("env", [Asked(), AskedLater()], ids=["function", "coroutine"])
def test_a_users_words_keep_the_episode_going(env):
    play = Play(env)
    (said,) = play.say(write_answer("unclear")).messages
    assert (said.role, said.text, play.result.done) == ("user", "What do you mean?", False)
    assert play.say(write_answer()).terminated
    assert play.state.answer["label"] == "left"


def test_a_user_answers_plain_text_too():
    episode = play_replies(Chat(), "how old are you?", "left")
    assert [turn.content for turn in episode.turns][1:] == ["how old are you?", "I am 40.", "left"]
    assert episode.answer == {"text": "left"}


@pytest.mark.parametrize("env", [Asked(max_turns=1), AskedLater(max_turns=1)], ids=["function", "coroutine"])
def test_on_the_last_turn_the_user_has_no_word(env):
    assert play_replies(env, write_answer("unclear")).end_reason == "answered"


def test_the_words_of_a_user_announce_the_last_turn():
    told = Play(Asked(max_turns=2)).say_and_read(write_answer("unclear"))
    assert told.startswith("What do you mean?\n" + LAST)


def test_a_user_hears_only_what_is_a_valid_answer():
    heard = []

    class Hears(Find):
        def on_answer(self, state, answer):
            heard.append(answer)

    Play(Hears()).say("hm", NOTES, '{"label": 3}', write_call() + write_answer("beside"), write_answer())
    assert heard == [{"label": "left", "bbox": None}]


def test_a_user_knows_the_play_and_the_facts_hidden_in_its_task():
    class Knows(Find):
        def on_answer(self, state, answer):
            return f"{state.task.metadata['age']} years" if state.turn == 1 else None

    task = Task("t", TASK.images, TASK.prompt, TASK.reference, {"age": 40})
    play = Play(Knows(), task)
    assert "40" not in "".join(message.text for message in play.state.messages)
    assert play.say_and_read(write_answer()) == "40 years"


def test_a_word_of_the_user_starts_the_counts_again():
    class Patient(Find):
        def on_answer(self, state, answer):
            return "Sure?"

    play = Play(Patient(max_turns=20))
    play.say("hm", "hm", "hm", write_answer())
    assert play.say_and_read("hm").startswith(NUDGE)
    assert not play.say(NOTES).done  # the finalize message before the user's words is forgotten
