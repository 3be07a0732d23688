"""`literature_vqa`: exact answers, gold evidence, questions without an answer, and what the model reads and sees."""

from collections import Counter

import pytest

from tests.support.replies import call, list_results, play
from tests.support.tables import each
from viewbox import make
from viewbox.envs.literature_vqa.world import QUESTIONS, UNKNOWN, draw_case_film, draw_case_slice
from viewbox.errors import ConfigError

ENV = make("literature_vqa")


@each("question", list(QUESTIONS))
def test_the_answer_follows_from_the_fact_and_the_picture(question):
    env = make("literature_vqa", questions=[question], unanswerable=0)
    for task in env.tasks[:8]:
        case, seed = env.plan(task), task.metadata["seed"]
        fact, said = case.fact, case.answer
        if question == "class":
            assert said == fact.right[draw_case_slice(seed, env.difficulty).lesion.organ]
            continue
        film = draw_case_film(case, seed, env.difficulty)
        shown = [(one.label, one.side) for one in film.findings]
        if question == "shows":
            assert said == ("yes" if fact.right in shown else "no")
        elif question == "dose":
            assert said == fact.right[0 if fact.sign in [label for label, _ in shown] else 1]
        elif question == "cause":
            assert said == fact.right[shown[0][0]]
        else:
            assert said == fact.right
        assert (question == "limit") <= (film.device is not None)


def test_a_share_of_the_tasks_has_no_answer_and_nothing_of_the_task_shows_it():
    tasks = ENV.tasks[:350]
    unknown = [task for task in tasks if task.reference["answer"] == UNKNOWN]
    assert 0.15 < len(unknown) / len(tasks) < 0.25
    assert all(task.reference["evidence"] == () for task in unknown)
    assert {task.metadata["status"] for task in unknown} == {"absent", "retracted", "unreported"}
    for question in QUESTIONS:
        asked = [task for task in tasks if task.metadata["question"] == question]
        facts = [ENV.plan(task).fact for task in asked]
        questions = [task.prompt["question"] for task in asked]
        names = [(fact.topic.name, fact.drug or "nothing") for fact in facts]
        pairs = zip(questions, names, strict=True)
        templates = {text.replace(one, "X").replace(two, "Y") for text, (one, two) in pairs}
        assert len(templates) == len({len(task.prompt.get("choices", ())) for task in asked}) == 1
    assert all(task.reference["answer"] != UNKNOWN for task in make("literature_vqa", unanswerable=0).tasks[:60])


@pytest.mark.slow
def test_yes_and_no_and_every_choice_are_right_equally_often():
    env = make("literature_vqa", questions=["shows"], unanswerable=0)
    answers = Counter(task.reference["answer"] for task in env.tasks[:400])
    assert abs(answers["yes"] - answers["no"]) < 60
    env = make("literature_vqa", questions=["cause", "class"], unanswerable=0)
    places = Counter(task.prompt["choices"].index(task.reference["answer"][0]) for task in env.tasks[:400])
    assert max(places.values()) < 140


@pytest.mark.slow
def test_a_task_is_the_same_every_time_and_its_reference_is_not_in_the_prompt():
    assert ENV.tasks[3] == make("literature_vqa").tasks[3]
    one, again = (make("literature_vqa").images(ENV.tasks[3])[0].pixels for _ in range(2))
    assert (one == again).all()
    for task in ENV.tasks[:28]:
        said = "".join(message.text for message in ENV.reset(task, seed=0).messages)
        assert not any(pmid in said for pmid in task.reference["evidence"])
        if task.reference["kind"] == "text" and task.reference["answer"] != UNKNOWN:
            assert str(task.reference["answer"]) not in said


def test_a_figure_is_found_opened_and_zoomed_and_the_patients_film_again():
    env = make("literature_vqa", questions=["shows"], unanswerable=0)
    task = env.tasks[0]
    topic = env.plan(task).fact.topic.name
    search, look = call("search_images", query=topic, max_results=2), call("zoom", factor=2)
    second, first = (call("open_image", image=image) for image in ("image_2", "image_1"))
    episode = play(env, task, search, second + look, first, env.write_answer(task))
    found, opened, zoomed, back = list_results(episode)
    assert f"Frontal chest film of a patient with {topic}." in found.text
    assert found.facts["figures"]
    assert opened.facts["images"] == 3
    assert zoomed.success
    assert back.image.hash == episode.turns[0].images[0].hash
    supported = set(task.reference["evidence"]) & set(found.facts["pmids"])
    assert (episode.scores.total > 0.9) == (supported == set(task.reference["evidence"]))


def test_without_the_search_the_right_answer_is_capped_and_a_missing_snapshot_ends_a_run_at_its_start():
    env = make("literature_vqa", specialists={}, unanswerable=0)
    assert not any("search" in name for name in env.tools)
    for task in env.tasks[:7]:
        assert play(env, task, *env.oracle(task), env.write_answer(task)).scores.total == pytest.approx(0.35)
    env = make("literature_vqa", specialists={"search": {"kind": "literature", "snapshot": "nowhere.sqlite"}})
    with pytest.raises(ConfigError, match=r"specialists.search.snapshot: .*nowhere.sqlite: there is no such file"):
        env.prepare()


@each(
    ("settings", "problem"),
    [
        ({"questions": ["dosis"]}, "dosis"),
        ({"split": "dev"}, "split = 'dev'"),
        ({"unanswerable": 2}, "unanswerable = 2"),
        ({"specialists": {"search": {"kind": "literature", "item_chars": 3}}}, "item_chars = 3"),
    ],
)
def test_a_wrong_setting_is_named(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        make("literature_vqa", **settings)
