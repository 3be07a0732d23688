"""Summaries: every figure from one place, with an interval over tasks, whatever the metrics do."""

import json
import math
import random
import sys

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.foreign_numbers import ALONE, HALVES, NO_NUMBERS, ONES
from tests.support.tables import each
from viewbox.envs.digits import Digits
from viewbox.records import Episode, Scores, Task
from viewbox.rewards import ExactMatchReward
from viewbox.rewards.metrics import Accuracy, BoxRates, CalibrationError, MacroF1, MeanAveragePrecision, TopK
from viewbox.rollouts.scoring.metrics import compute_episode_metrics, drop_undefined
from viewbox.rollouts.scoring.summary import EpisodeTally, summarize
from viewbox.training.evaluate import compute_figures

LABELS = ("one", "two", "three")
METRICS = [
    Accuracy(),
    MacroF1(),
    TopK("label", 2),
    CalibrationError(),
    BoxRates(),
    MeanAveragePrecision(label_field="label", ties="together"),
]


def made(number, tasks=12, **changes):
    """An episode that answers more or less well; the reward is for its label."""
    rng = np.random.default_rng(number)
    gold, corner = LABELS[number % tasks % 3], rng.uniform(0, 0.5, 2)
    reference = {"label": gold, "bbox": (*corner, *(corner + 0.3))}
    shaken = corner + rng.normal(0, 0.05, 2)
    answer = {"label": str(rng.choice([gold, *LABELS])), "bbox": (*shaken, *(shaken + 0.3)), "confidence": rng.random()}
    answer = None if rng.random() < 0.1 else answer
    total = ExactMatchReward()(answer, reference)
    task, scores = Task(f"t{number % tasks}", reference=reference), Scores(total, {"label": total})
    plain = Episode(task, answer=answer, scores=scores, end_reason=["answered", "max_turns"][answer is None])
    return replace(plain, environment="made", **changes)


EPISODES = [made(number) for number in range(40)]
PAIRS = [(one.answer, one.task.reference) for one in EPISODES]


class Plain:
    """A metric as a plain function of pairs, so that a bootstrap has to repeat them."""

    def __init__(self, metric):
        self.metric, self.name = metric, metric.name

    def __call__(self, pairs):
        return self.metric(pairs)


# ---- the figures


def test_means_are_those_that_training_logs():
    logged = compute_episode_metrics(EPISODES)
    found = summarize(EPISODES, {}).get_means()
    assert found.keys() <= logged.keys()
    assert found == pytest.approx({name: logged[name] for name in found})
    assert {"reward", "rewards/label/mean", "tools/rate", "episodes/turns", "end/answered"} <= found.keys()


def test_well_formed_is_a_share_of_replies():
    env = Digits()
    replies = iter(["nothing", '{"label": "one", "bbox": [1, 2, 3, 4]}'])
    episode = env.play(env.tasks[0], lambda messages: next(replies))
    assert summarize([episode], {})["replies/well_formed"].mean == 0.5


@each("metric", [*METRICS])
def test_a_metric_stands_under_the_name_its_environment_gives_it(metric):
    found = summarize(EPISODES, {"mine": metric}, resamples=0).get_means()
    own = {name.removeprefix("metrics/mine/"): value for name, value in found.items() if name.startswith("metrics/")}
    assert own == pytest.approx(metric(PAIRS))


def test_the_order_in_which_episodes_ended_changes_nothing():
    episodes = [
        made(number, tasks=40, answer={"bbox": made(number).answer["bbox"]})
        for number in range(40)
        if made(number).answer
    ]
    metrics = {"box": MeanAveragePrecision()}  # equal confidences: it sees an order
    found = summarize(episodes, metrics, resamples=0)
    for seed in range(3):
        random.Random(seed).shuffle(episodes)
        assert summarize(episodes, metrics, resamples=0).figures == pytest.approx(found.figures)


def test_a_figure_that_is_not_defined_is_not_there_and_the_json_is_valid():
    episodes = [replace(one, task=replace(one.task, reference={"label": "one"})) for one in EPISODES]
    found = summarize(episodes, {"box": MeanAveragePrecision(), "label": Accuracy()})
    assert [name for name in found.figures if name.startswith("metrics/")] == ["metrics/label/accuracy"]
    json.loads(json.dumps(found.to_dict(), allow_nan=False))


def test_of_no_episodes_there_are_no_figures():
    assert summarize([], {"label": Accuracy()}).figures == {}


def test_it_prints_a_line_a_figure():
    printed = str(summarize(EPISODES, {"label": Accuracy()}))
    assert printed.startswith("40 episodes of 12 tasks\n")
    line = next(line for line in printed.splitlines() if line.startswith("metrics/label/accuracy"))
    assert "[" in line


# ---- whose metrics


class Declares:
    metrics = {"label": Accuracy()}  # noqa: RUF012


def test_an_environment_brings_its_metrics():
    assert "metrics/label/accuracy" in summarize(EPISODES, Declares()).figures


def test_every_episode_has_the_metrics_of_its_own_environment(monkeypatch):
    environments = {"a": Declares(), "b": type("B", (), {"metrics": {"label": MacroF1()}})()}
    make = "viewbox.rollouts.scoring.summary.make_environment"
    monkeypatch.setattr(make, lambda name, *rest, **more: environments[name])
    of_a = [replace(one, environment="a") for one in EPISODES]
    assert "metrics/label/accuracy" in summarize(of_a).figures
    both = summarize([*of_a, *(replace(one, environment="b") for one in EPISODES[:20])])
    assert both["metrics/a/label/accuracy"].mean == pytest.approx(Accuracy()(PAIRS)["accuracy"])
    assert both["metrics/b/label/macro_f1"].mean == pytest.approx(MacroF1()(PAIRS[:20])["macro_f1"])
    assert both["metrics/b/label/macro_f1"].count == 20


def test_metrics_that_are_given_are_of_all_episodes_whatever_their_environment():
    episodes = [replace(one, environment="ab"[number % 2]) for number, one in enumerate(EPISODES)]
    assert summarize(episodes, {"label": Accuracy()})["metrics/label/accuracy"].count == 40


def test_a_tally_goes_on_after_a_summary():
    tally = EpisodeTally({"label": Accuracy()})
    for count, episode in enumerate(EPISODES, 1):
        tally.add(episode)
        if count in (20, 40):
            assert tally.summarize(0, seed=0) == summarize(EPISODES[:count], {"label": Accuracy()}, resamples=0)


def test_an_environment_that_cannot_be_made_has_no_metrics_and_that_is_said():
    found = summarize(EPISODES)
    assert not [name for name in found.figures if name.startswith("metrics/")]
    assert found.problems[0].startswith("no metrics of the environment 'made': unknown environment 'made'")


@each("fails_at", [1, 2, 5])
def test_a_metric_that_fails_is_left_out_and_named(fails_at):
    calls = iter(range(1, 100))

    def bad(pairs):
        if next(calls) >= fails_at:
            raise ZeroDivisionError("no pairs")
        return {"bad": 1.0}

    found = summarize(EPISODES, {"bad": bad, "label": Accuracy()})
    assert "metrics/label/accuracy" in found.figures
    assert "metrics/bad/bad" not in found.figures
    assert found.problems == ("metrics/bad: this metric failed and is left out: ZeroDivisionError: no pairs",)


@each("value, mean", [*((half, 0.5) for half in (HALVES | ALONE).values()), *((one, 1.0) for one in ONES.values())])
def test_a_figure_of_another_library_is_the_number_it_is(value, mean):
    assert summarize(EPISODES, {"own": lambda pairs: {"x": value}}, resamples=2)["metrics/own/x"].mean == mean


@each("value", [*NO_NUMBERS.values(), math.inf, np.float16("inf")])
def test_a_figure_that_is_no_finite_number_is_refused(value):
    [problem] = summarize(EPISODES, {"own": lambda pairs: {"x": value}}, resamples=2).problems
    assert problem.startswith("metrics/own: this metric failed and is left out: ValueError: x = ")


class Leaves(Accuracy):
    def extract_stats(self, answer, reference):
        sys.exit(3)


@each("metric", [lambda pairs: sys.exit(3), Leaves("label")])
def test_a_metric_that_ends_the_process_is_left_out(metric):
    [problem] = summarize(EPISODES, {"own": metric}, resamples=2).problems
    assert problem == "metrics/own: this metric failed and is left out: ForeignError: SystemExit: 3"


# ---- how sure they are


@each("metric", [*METRICS])
def test_an_interval_is_that_of_repeating_the_pairs_that_were_drawn(metric):
    quick, slow = (summarize(EPISODES, {"m": one}, resamples=60).figures for one in (metric, Plain(metric)))
    assert quick.keys() == slow.keys()
    for name, found in quick.items():
        assert (found.low, found.high) == pytest.approx((slow[name].low, slow[name].high)), name


def test_all_figures_share_the_drawn_tasks():
    found = summarize(EPISODES, {"label": Accuracy()})
    accuracy, reward = found["metrics/label/accuracy"], found["reward"]
    assert (accuracy.mean, accuracy.low, accuracy.high) == pytest.approx((reward.mean, reward.low, reward.high))


@each("metric", [*METRICS])
def test_copies_of_an_episode_make_it_no_surer(metric):
    once = summarize(EPISODES[:12], {"m": metric}, resamples=200).get_intervals()
    copies = summarize(EPISODES[:12] * 4, {"m": metric}, resamples=200).get_intervals()
    assert copies.keys() == once.keys()
    for name, interval in copies.items():
        assert interval == pytest.approx(once[name]), name


def test_the_same_seed_gives_the_same_intervals():
    first, again, other = (summarize(EPISODES, {"m": MacroF1()}, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.get_means() == other.get_means()
    assert first.get_intervals() != other.get_intervals()


@each("episodes, resamples", [(EPISODES[:1] * 5, 1000), (EPISODES, 0)])
def test_one_task_has_no_intervals_and_neither_has_no_bootstrap(episodes, resamples):
    found = summarize(episodes, {"label": Accuracy()}, resamples=resamples)
    assert found.get_intervals() == {}
    assert "metrics/label/accuracy" in found.figures


def test_a_plain_function_is_drawn_less_often_and_that_is_said():
    found = summarize(EPISODES, {"slow": Plain(Accuracy()), "label": Accuracy()}, resamples=300)
    assert (found.resamples, found.fewer_draws) == (300, {"metrics/slow/accuracy": 200})


def test_average_precision_of_very_many_boxes_is_drawn_less_often(monkeypatch):
    metrics = {"box": MeanAveragePrecision()}
    assert summarize(EPISODES, metrics, resamples=1000).fewer_draws == {}
    boxes = sum(one.answer is not None for one in EPISODES)
    monkeypatch.setattr("viewbox.rollouts.scoring.summary.MAX_NUMBERS", 12 * boxes * 300)
    assert set(summarize(EPISODES, metrics, resamples=1000).fewer_draws.values()) == {300}


# ---- held-out evaluation


def test_held_out_figures_are_floats_with_their_intervals_beside_them():
    found = compute_figures(
        EPISODES, type("Env", (), {"metrics": {"label": Accuracy()}, "reward": None, "tools": ()})()
    )
    intervals, counts = found.pop("intervals"), found.pop("counts")
    assert counts["reward"] == counts["metrics/label/accuracy"] == len(EPISODES)
    assert all(isinstance(value, float) for value in found.values())
    assert drop_undefined(compute_episode_metrics(EPISODES)).items() <= found.items()
    assert found["metrics/label/accuracy"] == pytest.approx(found["reward"])
    assert intervals["metrics/label/accuracy"] == pytest.approx(intervals["reward"])
