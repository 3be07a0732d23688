"""A person's own images and question: one episode, whatever is said in it."""

import asyncio
import json
import re
import signal
import threading
import time

import numpy as np
import pytest
from PIL import Image

import viewbox
from viewbox import ConfigError, EpisodeWriter, ScriptedPolicy, Task
from viewbox.viewer.pictures import Pictures
from viewbox.viewer.sources import find_sets

CHEST = [
    '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>',
    '{"ask": "Left or right?"}',
    '{"answer": "an effusion"}',
    '<tool_call>{"name": "open_image", "arguments": {"image": "image_1"}}</tool_call>',
    '{"answer": "none here"}',
]


@pytest.fixture
def film(tmp_path):
    path = tmp_path / "film.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)).save(path)
    return path


def write_plainly(episode):
    return re.sub(r'"uri":("[^"]*"|null)', '"uri":0', episode.to_json())


def test_a_conversation_is_one_episode_that_is_read_back_bit_for_bit(film, tmp_path):
    asked = []
    deep = np.arange(600, dtype=np.uint16).reshape(20, 30)
    with viewbox.open_session("chest_xray", ScriptedPolicy(CHEST), out=tmp_path / "run") as session:
        first = session.ask("An effusion?", film, on_question=lambda said: (asked.append(said), "left")[1])
        second = session.ask("And here?", deep)
        episode = session.episode
    (stored,) = viewbox.load(tmp_path / "run")
    assert (str(first), str(second), asked) == ("an effusion", "none here", ["Left or right?"])
    assert write_plainly(stored) == write_plainly(episode)
    assert np.array_equal(stored.task.images[1].load().pixels, deep)
    assert stored.scores is None
    assert stored.answer == {"answer": "none here"}
    assert [one["answer"] for one in stored.info["answers"]] == [
        {"ask": "Left or right?"}, {"answer": "an effusion"}, {"answer": "none here"},
    ]  # fmt: skip
    assert [turn.views[0].image for turn in stored.turns if turn.views] == [0, 1]
    opened = [result for turn in stored.turns for result in turn.tool_results][-1]
    assert opened.success
    assert opened.tool_name == "open_image"


def test_an_image_that_is_shown_later_brings_the_tools_for_images(film):
    seen = []

    def policy(messages):
        seen.append(len(session.play.conversation.tools))
        return '{"answer": "yes"}' if len(seen) < 3 else CHEST[0] if len(seen) == 3 else '{"answer": "closer"}'

    with viewbox.open_session("vqa", policy) as session:
        session.ask("What is an effusion?")
        session.ask("Here?", film)
        assert str(session.ask("Closer?")) == "closer"
        assert seen[0] < seen[1]
        assert session.episode.tools_used() == {"zoom"}


def test_a_question_back_without_a_person_to_answer_is_returned_and_the_next_words_answer_it(film):
    with viewbox.open_session("chest_xray", ScriptedPolicy([CHEST[1], CHEST[2]])) as session:
        asked = session.ask("An effusion?", film)
        assert (asked.question, str(asked)) == ("Left or right?", "Left or right?")
        assert str(session.ask("left")) == "an effusion"


def test_turns_are_counted_anew_for_what_a_person_says_next_but_not_for_a_reply(film):
    replies = ['{"answer": "a", "continue": true}', '{"answer": "b"}', '{"answer": "c", "continue": true}', CHEST[2]]
    with viewbox.open_session("vqa", ScriptedPolicy(replies), max_turns=2) as session:
        assert [str(session.ask("?", film)), str(session.ask("more"))] == ["b", "an effusion"]
    with viewbox.open_session("chest_xray", ScriptedPolicy([CHEST[1]] * 9), max_turns=2) as session:
        said = iter(["left", "right", "both"])
        answer = session.ask("?", film, on_question=lambda asked: next(said))
        assert (answer.question, next(said)) == (None, "right")  # its last turn asked: nothing is left for an answer


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("vqa", '{"answer": "yes"}'),
        ("literature_vqa", '{"answer": "yes", "evidence": []}'),  # live, and nothing is searched
        ("software_adviser", '{"explanation": "none"}'),
        ("digits", '{"label": "one", "bbox": [0, 0, 500, 500]}'),
        ("phantom", '{"lesion": "no", "bbox": null, "diameter_mm": null}'),
        ("grounding", '{"boxes": [[0, 0, 0.5, 0.5]]}'),
        ("report", '{"report": "normal"}'),
        ("consultation", '{"answer": "a cold"}'),
    ],
)
def test_every_environment_answers_an_own_question_and_play_gives_it_no_score(name, answer, film):
    env = viewbox.make(name, **({"specialists": {"search": {"kind": "literature"}}} if "literature" in name else {}))
    assert viewbox.ask(env, film, "What is it?", ScriptedPolicy([answer])).value is not None
    episode = env.play(Task(images=film, prompt={"question": "What?"}), ScriptedPolicy([answer]))
    assert episode.end_reason == "answered"
    assert episode.scores.total is None
    shown = [message for message in _watch(env, Task(images=film, prompt={"question": "?"}), answer) if message.images]
    assert len(shown) == 1


def test_nobody_asks_an_invented_literature():
    with pytest.raises(ConfigError, match=r"specialists\.search: its articles are invented; .*`viewbox ask --live`"):
        viewbox.open_session("literature_vqa", ScriptedPolicy([]))


def _watch(env, task, answer):
    seen = []
    env.play(task, lambda messages: (seen.extend(messages), answer)[1])
    return seen


def test_a_field_that_is_missing_is_named_with_what_it_is_for(film):
    with pytest.raises(ConfigError, match=r"task mine: prompt.question is missing, what is asked; given: words"):
        viewbox.make("vqa").play(Task("mine", images=film, prompt={"words": "x"}), ScriptedPolicy(["{}"]))


def test_it_works_inside_an_event_loop_and_with_await(film):
    async def cell():
        policy = ScriptedPolicy(['{"answer": "yes"}'])
        waited = await viewbox.ask_async("vqa", film, "?", policy)
        return str(viewbox.ask("vqa", film, "?", policy)), str(waited)

    assert asyncio.run(cell()) == ("yes", "yes")


def test_a_notebook_shows_the_pictures_and_the_boxes_and_runs_nothing_of_the_answer():
    answer = viewbox.ask(
        "grounding", np.zeros((30, 30), np.uint8), "?", ScriptedPolicy(['{"boxes": [[0, 0, 0.5, 1]]}'])
    )
    assert answer.boxes == ((0.0, 0.0, 0.5, 1.0),)
    page = answer._repr_html_()
    assert "data:image/png" in page
    assert "width:50.00%" in page
    spoken = viewbox.ask("vqa", (), "?", ScriptedPolicy([json.dumps({"answer": "<script>x</script>"})]))
    assert "<script>" not in spoken._repr_html_()


def test_every_turn_is_on_disk_before_the_next(film, tmp_path):
    stored = []

    def policy(messages):
        number = sum(message.role == "assistant" for message in messages)
        (episode,) = viewbox.load(tmp_path / "run")
        stored.append((len(episode.turns), episode.end_reason))
        return CHEST[0] if number == 0 else CHEST[2]

    with viewbox.open_session("chest_xray", policy, out=tmp_path / "run") as session:
        session.ask("?", film)
    assert stored == [(1, "cancelled"), (3, "cancelled")]


def test_a_person_who_stops_keeps_what_was_said(film, tmp_path):
    def policy(messages):
        if any(message.role == "assistant" for message in messages):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # Ctrl-C
            time.sleep(0.5)
        return CHEST[0]

    session = viewbox.open_session("chest_xray", policy, out=tmp_path / "run")
    with session, pytest.raises(KeyboardInterrupt):
        session.ask("?", film)
    (episode,) = viewbox.load(tmp_path / "run")
    assert episode.end_reason == "cancelled"
    assert [turn.role for turn in episode.turns][:3] == ["user", "assistant", "tool_result"]


def test_an_exchange_that_takes_too_long_ends_and_the_person_may_go_on(film):
    async def slow(messages):
        if sum(message.role == "user" for message in messages) == 1:
            await asyncio.sleep(60)
        return '{"answer": "yes"}'

    session = viewbox.open_session("vqa", slow)
    session.timeout = 0.2
    started = time.monotonic()
    assert session.ask("?", film).episode.end_reason == "timeout"
    assert time.monotonic() - started < 30
    assert str(session.ask("again?")) == "yes"
    session.close()


def test_a_restricted_environment_is_asked_on_this_machine_only():
    class Ward(viewbox.BaseMultiTurnEnv):
        name, answer, restricted, reward = "ward", None, True, viewbox.ExactMatchReward("text")

    model = viewbox.connect("https://models.example/v1", model="m")
    with pytest.raises(ConfigError, match="its data is restricted to this machine"):
        viewbox.open_session(Ward(), model)


def test_a_later_state_takes_the_place_of_the_one_before_and_another_writer_is_not_overwritten(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(viewbox.Episode(Task("first")))
        for text in ("a", "a" * 500, "b"):  # longer, and shorter again
            writer.append(viewbox.Episode(Task("talk"), answer={"text": text}), replaces=True)
            assert [episode.task.id for episode in viewbox.load(tmp_path)] == ["first", "talk"]
        assert viewbox.load(tmp_path)[1].answer == {"text": "b"}
        assert writer.count == 2
        with EpisodeWriter(tmp_path) as other:
            other.append(viewbox.Episode(Task("theirs")))
        with pytest.raises(viewbox.StoreError, match="another process has appended"):
            writer.append(viewbox.Episode(Task("talk")), replaces=True)


def test_what_ends_a_policys_process_ends_its_call_and_no_later_one(film):
    def interrupted(messages):
        raise KeyboardInterrupt

    session = viewbox.open_session("vqa", interrupted)
    with session, pytest.raises((KeyboardInterrupt, RuntimeError)):
        session.ask("?", film)
    assert str(viewbox.ask("vqa", film, "?", ScriptedPolicy(['{"answer": "yes"}']))) == "yes"


def test_the_page_has_the_boxes_of_earlier_answers_and_draws_nothing_that_is_empty(film, tmp_path):
    replies = ['{"boxes": [[0, 0, 0.5, 0.5]]}', '{"boxes": [[0.5, 0.5, 1, 1]]}', '{"boxes": [[0.5, 0.5, 1, 1]]}']
    with viewbox.open_session("grounding", ScriptedPolicy(replies), out=tmp_path / "run") as session:
        for said in ("a nodule", "and below?", "sure?"):
            session.ask(said, film if said == "a nodule" else ())
    (episode,) = viewbox.load(tmp_path / "run")
    marks = Pictures.of(episode).marks
    assert [(mark.kind, mark.corners[0]) for mark in marks] == [("answer", (0.0, 0.0)), ("answer", (0.5, 0.5))]
    (found,) = find_sets([str(tmp_path / "run")])
    found.index.refresh()
    assert "scores.total" not in found.index.columns
