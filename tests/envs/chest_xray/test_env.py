"""`chest_xray`: exact answers, tools beside each other, two films, a doctor who is asked, data of other people."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.support.data_kit import write_images, write_jsonl
from tests.support.replies import call, list_results, play, play_gold
from viewbox import check_rewards, make
from viewbox.core.base import get_offered_tools, remove_tools
from viewbox.envs.chest_xray.cases import QUESTIONS, draw_case, plan_case
from viewbox.envs.chest_xray.radiographs import SIZE
from viewbox.errors import ConfigError
from viewbox.tools import Picture, Tool, ToolOutput, ViewFractions

FORMS = ("json", "text")


def classify(image: Picture) -> dict:
    """Probability of each finding."""
    return {"nodule": round(float(image.to_gray().mean() / 255), 3)}


def ground(image: Picture, phrase: str) -> ToolOutput:
    """The box of what a phrase names."""
    return ToolOutput(phrase, {"box": ViewFractions((0.1, 0.1, 0.3, 0.4))})


TOOLS = (classify, Tool.from_function(classify, "second_opinion"), ground, "zoom", "open_image")


def test_a_box_is_right_in_all_coordinates_and_millimeters_are_known():
    for coordinates in ("unit", "per_mille", "pixel"):
        env = make("chest_xray", questions=["place"], coordinates=coordinates, max_pixels=SIZE * SIZE)
        for task in env.tasks[:3]:
            answer = env.read_answer(env.write_answer(task), task)
            assert np.abs(np.subtract(answer["bbox"], task.reference["bbox"])).max() < 0.003
    env = make("chest_xray", questions=["size"], max_pixels=SIZE * SIZE, coordinates="pixel")
    asked = call("measure", point1=[0, 10], point2=[100, 10])
    [result] = play(env, env.tasks[0], asked, "{}").turns[2].tool_results
    assert result.facts["distance_mm"] == pytest.approx(90, abs=0.5)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_reference_is_what_the_film_shows(kind):
    for seed in range(5):
        case, films = plan_case(seed, kind), draw_case(seed, kind, 0.3)
        labels = [one.label for one in films[0].findings]
        sided = {f"{one.side} {one.label}" if one.side else one.label for one in films[0].findings}
        if kind == "presence":
            assert (case.answer == "yes") == any(label in case.question for label in labels)
        elif kind == "which":
            assert labels == [case.answer] * (case.answer != "no finding")
        elif kind == "findings":
            assert set(case.labels) == sided
        elif kind == "side":
            shown = {one.side for one in films[0].findings if one.label in case.question}
            assert {"both": {"left", "right"}, "none": set()}.get(case.answer, {case.answer}) == shown
        elif kind in ("place", "size"):
            assert films[0].findings[0].label in case.question or "heart" in case.question
        elif kind == "complaint":
            side = "right" if "right side" in case.facts else "left"
            shown = [one.label for one in films[0].findings if one.side == side]
            assert shown == [case.answer] * (case.answer != "no finding")
        elif kind == "compare":
            asked = [[one.mask.sum() for one in film.findings if one.label in case.question] for film in films]
            now, before = (sum(some) for some in asked)
            grown = {"new": now > 0 == before, "gone": before > 0 == now, "larger": now > before > 0,
                     "smaller": before > now > 0, "unchanged": 0.8 < now / max(before, 1) < 1.25}  # fmt: skip
            assert grown[case.answer], (seed, case.answer, now, before)


def test_the_second_film_is_opened_by_name_where_there_are_two():
    env = make("chest_xray", questions=["compare", "which"])
    for task in env.tasks[:2]:
        second = task.metadata["question"] == "compare"
        assert len(env.images(task)) == 1 + second
        assert ("open_image" in get_offered_tools(env, task)) == second


def test_the_oracle_asks_the_tools_that_bear_on_the_question_and_demonstrations_may_guess_or_ask_others():
    bearing = {"all": ("classify",), "place": ("ground",)}
    env = make("chest_xray", tools=TOOLS, questions=["compare", "place"], tool_bonus=0.2, bearing=bearing)
    for task in env.tasks[:2]:  # about every film
        episode = play_gold(env, task)
        assert episode.scores.total == pytest.approx(1.0)
        two = task.metadata["question"] == "compare"
        asked = [result.tool_name for result in list_results(episode)]
        assert asked == (["classify", "classify"] if two else ["ground", "classify"])
        assert play(env, task, env.write_answer(task)).scores.total == pytest.approx(0.8)  # without a look
    env = make("chest_xray", tools=TOOLS, questions=["which"], bearing={"all": ("classify",)})
    task = env.tasks[0]
    assert [len(env.demonstration(task, seed, guess=1.0)) for seed in range(4)] == [1] * 4
    strays = [env.demonstration(task, seed, stray=1.0) for seed in range(12)]
    assert {json.loads(said[0].split("\n")[1])["name"] for said in strays} == {"second_opinion", "ground"}
    assert len({said[-1] for said in strays}) > 2  # not always the right one
    with pytest.raises(ConfigError, match="did you mean 'guess'"):
        env.demonstration(task, 0, gues=0.5)


@pytest.mark.parametrize("form", FORMS)
def test_a_question_back_is_answered_from_hidden_facts_once(form):
    env = make("chest_xray", questions=["complaint"], answer_form=form)
    for task in env.tasks[:3]:
        side = "right" if "right side" in task.reference["facts"] else "left"
        words = "Which side does it hurt on?"
        question = words if form == "text" else json.dumps({"ask": words})
        episode = play(env, task, question, env.write_answer(task))
        assert episode.turns[2].content.startswith("The referring doctor says: ")
        assert f"{side} side" in episode.turns[2].content
        assert episode.scores.total == 1.0
        again = play(env, task, question, question)
        assert again.end_reason == "answered"
        assert again.scores.total == 0.0
    assert side not in env.user_message(task)


def test_the_doctor_knows_the_facts_alone_and_an_answer_beside_a_question_is_the_answer():
    env = make("chest_xray", questions=["which"], answer_form="text", max_questions=2)
    episode = play(env, env.tasks[0], "What is the blood pressure?", "no finding")
    assert episode.turns[2].content == "The referring doctor says: I do not know."
    env, silent = (make("chest_xray", questions=["complaint"], max_questions=count) for count in (1, 0))
    assert "ask" not in silent.answer_format.text
    assert "ask the referring" not in silent.build_system_prompt(silent.tasks[0])
    assert play(silent, silent.tasks[0], json.dumps({"ask": "Which side?"})).scores.total == 0.0
    gold = json.loads(env.write_answer(env.tasks[0]))
    episode = play(env, env.tasks[0], json.dumps({**gold, "ask": "Which side?"}))
    assert (episode.scores.total, len(episode.turns)) == (1.0, 2)


def test_the_splits_share_no_film_a_task_is_the_same_every_time_and_its_facts_are_not_in_the_prompt():
    train, test = make("chest_xray"), make("chest_xray", split="test")
    assert {task.id for task in train.tasks[:9]}.isdisjoint(task.id for task in test.tasks[:9])
    one, again = (make("chest_xray").images(train.tasks[3])[0].pixels for _ in range(2))
    assert (one == again).all()
    assert train.tasks[3] == make("chest_xray").tasks[3]
    for task in train.tasks[:9]:
        said = "".join(message.text for message in train.reset(task, seed=0).messages)
        assert not any(line in said for line in task.reference["facts"].splitlines())


@pytest.mark.parametrize("arm", ["tools", "tools taken away", "no tools", "one turn"])
def test_both_films_are_in_the_first_message_with_and_without_tools(arm):
    settings = {"no tools": {"tools": []}, "one turn": {"max_turns": 1}}.get(arm, {})
    env = make("chest_xray", questions=["compare"], **settings)
    env = remove_tools(env) if arm == "tools taken away" else env
    task = env.tasks[0]
    state = env.reset(task, seed=0)
    shown = [np.asarray(image.open().convert("L"), float).ravel() for image in state.messages[1].images]
    drawn = (film.pixels.astype(np.float32) for film in draw_case(task.metadata["seed"], "compare", env.difficulty))
    films = [np.asarray(Image.fromarray(pixels).resize((224, 224))).ravel() for pixels in drawn]
    alike = np.corrcoef([*films, *shown])[:2, 2:]
    assert alike.shape == (2, 2)
    assert alike.argmax(axis=0).tolist() == [0, 1]  # today's film first
    assert alike.diagonal().min() > 0.95
    assert "There are 2 images: image_1 and image_2. They are shown in this order." in state.messages[1].text
    told = state.messages[0].text + state.messages[1].text + str(state.tool_schemas)
    assert ("open_image" in told) == (arm == "tools")


def test_a_row_may_ask_for_a_box_findings_and_facts(tmp_path):
    row = {"id": 1, "img": "0.png", "q": "What and where?", "a": "nodule", "box": [3, 4, 15, 12], "f": ["left nodule"],
           "story": "The cough began last week."}  # fmt: skip
    columns = {"id": "id", "image": "img", "question": "q", "answer": "a", "bbox": "box", "findings": "f",
               "facts": "story"}  # fmt: skip
    write_images(tmp_path, 1)
    data = {"source": str(write_jsonl(tmp_path / "rows.jsonl", [row])), "columns": columns}
    env = make("chest_xray", data=data, coordinates="unit")
    [task] = env.tasks
    assert task.reference["bbox"] == pytest.approx((0.1, 0.2, 0.5, 0.6))
    assert check_rewards(env) == []
    episode = play(env, task, json.dumps({"ask": "When did the cough begin?"}), env.write_answer(task))
    assert "last week" in episode.turns[2].content
    assert episode.scores.total == 1.0


WRONG = {
    "questions: 'place'": {"questions": ["place"], "answer_form": "text"},
    "plase": {"questions": ["plase"]},
    "difficulty = 2": {"difficulty": 2},
    "tool_bonus needs `bearing`": {"tool_bonus": 0.2},
    "less than 1": {"tool_bonus": 0.5, "repeat_penalty": 0.5, "bearing": {"all": ["zoom"]}},
    "trust_bonus . tool_bonus . repeat_penalty = 1.2": {"trust_bonus": 0.4, "tool_bonus": 0.4, "repeat_penalty": 0.4},
    "trust_bonus needs": {"trust_bonus": 0.2},
    "unknown tool 'zom'": {"bearing": {"all": ["zom"]}, "tool_bonus": 0.2},
    "wich": {"bearing": {"wich": ["zoom"]}, "tool_bonus": 0.2},
}


def test_a_wrong_setting_is_named():
    for problem, settings in WRONG.items():
        with pytest.raises(ConfigError, match=problem):
            _ = make("chest_xray", **settings).tasks[0]
