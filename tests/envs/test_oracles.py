"""An oracle answers by what was shown to it: each shipped environment's looks show all that its right answer says.

A check of its own, across environments: what an environment scores as 1.0 hides a result that was cut too short.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import viewbox
from tests.support.literature_reader import read_answer
from tests.support.replies import play_gold
from tests.support.tables import each
from viewbox import make
from viewbox.configs import schema
from viewbox.core.contract import AuthoredEnv
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs import load_class
from viewbox.envs.chest_xray.cases import QUESTIONS as CHEST
from viewbox.envs.literature_vqa.world import QUESTIONS, UNKNOWN
from viewbox.envs.software_adviser.request import REASONS
from viewbox.errors import ConfigError
from viewbox.images.task_images import open_source
from viewbox.registry import ENVIRONMENTS
from viewbox.rewards.looks import read_looks
from viewbox.utils.frozen import thaw

PICTURES, TEXTS = ("digits", "phantom", "chest_xray"), ("software_adviser", "literature_vqa")


def list_shown(env, task):
    """Play the oracle's looks and the right answer; return the messages that were read before the answer."""
    shown = []
    replies = ScriptedPolicy([*env.oracle(task), env.write_answer(task)])

    def policy(messages):
        shown[:] = messages
        return replies(messages)

    episode = env.play(task, policy)
    assert episode.scores.total > 0.99
    return shown


def test_every_shipped_environment_with_an_oracle_is_asked():
    known = {name for name in ENVIRONMENTS if load_class(name).oracle is not AuthoredEnv.oracle}
    assert known == {*PICTURES, *TEXTS, "mixture"}  # which refuses: each of its environments is asked


DRAWN = (*PICTURES, *TEXTS)
GOLD = [  # an environment, its settings, how many tasks have a gold answer that scores 1.0, and the kinds that come
    *(("phantom", {"question": question}, 4, {question}) for question in ("presence", "place", "size", "all", "kind")),
    ("phantom", {}, 4, {"presence", "place", "size"}),
    ("chest_xray", {}, 9, {*CHEST} - {"opinion"}),
    ("chest_xray", {"answer_form": "text"}, 9, {*CHEST} - {"opinion", "place"}),
    *(("literature_vqa", {"split": split}, 21, {*QUESTIONS, "unanswerable"}) for split in ("train", "test")),
    *(("software_adviser", {"split": split}, 60, {"answerable", "ambiguous", *REASONS}) for split in ("train", "test")),
]


@pytest.mark.slow
@each("name, settings, count, kinds", GOLD)
def test_the_gold_policy_scores_one_on_every_kind_of_task(name, settings, count, kinds):
    env, seen = make(name, **settings), set()
    for task in env.tasks[:count]:
        episode = play_gold(env, task)
        assert (episode.end_reason, episode.scores.total) == ("answered", pytest.approx(1.0)), task.id
        assert env.score(episode) == episode.scores  # from the record alone
        seen.add(task.reference.get("category") or task.metadata["question"])
    assert seen == kinds


@pytest.mark.slow
@each("name", DRAWN)
def test_a_seed_is_one_task_and_one_picture_and_another_seed_or_split_another(name):
    env, again, test = make(name), make(name), make(name, split="test")
    assert env.tasks[3] == again.tasks[3]
    assert {task.id for task in env.tasks[:9]}.isdisjoint(task.id for task in test.tasks[:9])
    first, same, *others = (
        open_source(one.images(one.tasks[number])[0]).pixels
        for one, number in ((env, 3), (again, 3), (env, 4), (test, 3))
    )
    assert np.array_equal(first, same)
    assert not any(np.array_equal(first, other) for other in others)


@pytest.mark.slow
@each("name", DRAWN)
def test_without_habits_the_right_answer_is_demonstrated_and_an_unknown_habit_is_named(name):
    env = make(name, **({"ambiguous": 0.5, "unanswerable": 0} if name == "software_adviser" else {}))
    for seed, task in enumerate(env.tasks[:8]):
        plain = env.demonstration(task, seed, **({"guess": 0, "too_far": 0, "astray": 0} if name == "digits" else {}))
        assert plain[-1] == env.write_answer(task)
        assert name == "digits" or plain == [*env.oracle(task), env.write_answer(task)]
        guessed = env.demonstration(task, seed, guess=1.0)
        assert len(guessed) == 1 or name == "software_adviser"  # which answers a question back less
    with pytest.raises(ConfigError, match="did you mean 'guess'"):
        env.demonstration(task, 0, gues=0.5)


@pytest.mark.slow
@each("name", ["phantom", "chest_xray", "literature_vqa"])
def test_the_looks_do_not_depend_on_the_right_answer(name):
    """Two still do: that of digits zooms to the box, and the adviser searches again for right names that it missed."""
    env = make(name)
    for task in env.tasks[:30]:
        assert env.oracle(replace(task, reference={})) == env.oracle(task)


@pytest.mark.slow
@each("name", PICTURES)
def test_a_picture_shows_what_the_answer_is_about(name):
    verdicts = [read_looks(play_gold(make(name), task)).verdict for task in make(name).tasks[:40]]
    asked = [verdict for verdict in verdicts if verdict is not None]  # of a finding that is there
    assert asked.count("seen") >= 0.95 * len(asked) > 0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A large world of the literature, as small as the tiny configs can play in."""
    folder = tmp_path_factory.mktemp("world")
    script = Path(viewbox.__file__).with_name("benchmarks") / "write_literature.py"
    subprocess.run([sys.executable, str(script), str(folder), "60", "240"], check=True)
    return {"facts": str(folder / "facts.jsonl"), "snapshot": str(folder / "snapshot.sqlite")}


@pytest.mark.slow
@each("split", ["train", "test"])
@each("name", ["literature_vqa", "literature_tiny"])
def test_the_literature_is_answered_from_the_messages_alone(name, split, world):
    settings = {}
    if name == "literature_tiny":
        settings = thaw(schema.load(name).env.settings)
        settings["specialists"]["search"]["snapshot"] = world["snapshot"]
        settings |= {"facts": world["facts"]}
    env = make("literature_vqa", **settings | {"split": split})
    for task in env.tasks[:21]:
        shown = list_shown(env, task)
        case, (said, cited) = env.plan(task), read_answer(shown)
        for look in env.oracle(task):  # a name that it searches for was read in the question
            assert set(re.findall(r"[A-Z]\w+", look)) <= set(re.findall(r"\w+", shown[1].text))
        right = thaw(case.fact.right)
        assert said == (None if case.answer == UNKNOWN else tuple(right) if isinstance(right, list) else right)
        assert sorted(cited) == sorted(task.reference["evidence"])


def test_a_result_that_is_cut_too_short_does_not_hide_behind_the_right_answer():
    search = {"kind": "literature", "snapshot": "package:literature", "item_chars": 130, "total_chars": 400}
    env = make("literature_vqa", questions=["limit"], unanswerable=0, specialists={"search": search})
    said = [read_answer(list_shown(env, task))[0] for task in env.tasks[:10]]
    assert None in said


@pytest.mark.slow
def test_the_adviser_recommends_what_its_searches_returned():
    env = make("software_adviser")
    for task in env.tasks[:20]:
        read = "\n".join(message.text for message in list_shown(env, task) if message.role != "assistant")
        assert all(choice["name"] in read for choice in env.perfect_answer(task).get("choices", ()))
