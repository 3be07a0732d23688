"""Readers with known reliabilities: what they say is fixed with the case, and believing the right one pays."""

import json

import numpy as np
import pytest

from tests.support.specialist_env import call
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.chest_xray.opinions import RATES

READERS = {name: {"kind": "function", "function": f"viewbox.envs.chest_xray.opinions:{name}"} for name in RATES}


def play(believes, count=60, asks=tuple(RATES), **settings):
    env = make(
        "chest_xray", questions=["opinion"], tools=[], specialists=READERS, max_questions=0, max_pixels=6400, **settings
    )
    scores = []
    for task in env.tasks[:count]:

        def answer(messages, task=task):
            said = {one.name: "yes" if "say yes" in one.text else "no" for one in messages if one.role == "tool"}
            if asks and not said:
                return "".join(call(name, image="image_1") for name in asks)
            return json.dumps({"answer": believes(said, task.metadata["film"], task)})

        scores.append(env.play(task, answer).scores.total)
    return float(np.mean(scores))


@pytest.mark.slow
def test_the_right_trust_earns_more_than_any_fixed_one_and_truth_earns_all():
    best = {film: max(RATES, key=lambda name: RATES[name][film]) for film in ("plain", "paced")}
    right = play(lambda said, film, task: said[best[film]], trust_bonus=0.3)
    fixed = [play(lambda said, film, task, name=name: said[name], asks=(name,), trust_bonus=0.3) for name in RATES]
    assert right > max(fixed) + 0.2
    assert min(fixed) == fixed[2]  # the decoy
    assert play(lambda said, film, task: task.reference["answer"], trust_bonus=0.3) == 1.0
    assert play(lambda said, film, task: "yes", asks=(), trust_bonus=0.3) < 0.5


def test_the_oracle_asks_the_reader_that_knows_the_film_and_demonstrations_repeat_whom_they_ask():
    env = make("chest_xray", questions=["opinion"], tools=[], specialists=READERS, max_questions=0, trust_bonus=0.3)
    for number, task in enumerate(env.tasks[:40]):
        assert env.play(task, ScriptedPolicy([*env.oracle(task), env.write_answer(task)])).scores.total == 1.0
        shown = env.play(task, ScriptedPolicy(env.demonstration(task, number)))
        (result,) = shown.turns[2].tool_results
        assert shown.answer["answer"] == result.facts["says"]
        assert ("no pacemaker" in shown.turns[1].content) == (task.metadata["film"] == "plain")


def test_answers_in_words_are_demonstrated_in_words_and_readers_know_the_films_of_their_questions_only():
    words = make("chest_xray", questions=["opinion"], answer_form="text", specialists=READERS, trust_bonus=0.3)
    last = {words.demonstration(task, seed, guess=0.5)[-1] for seed, task in enumerate(words.tasks[:20])}
    assert last == {"yes", "no"}
    env = make("chest_xray", questions=["opinion", "side"], specialists=READERS, trust_bonus=0.3)
    side = next(task for task in env.tasks[:2] if "film" not in task.metadata)
    episode = env.play(side, ScriptedPolicy([call("reader_a", image="image_1"), env.write_answer(side)]))
    assert episode.turns[2].tool_results[0].error == "reader_a knows the films of the questions `opinion` only"
    assert (episode.scores.components["trust"], episode.scores.total) == (None, 1.0)
