"""Summaries: every figure from one place, with an interval over tasks, whatever the metrics do; and the intervals."""

import json
import math
import random
import sys

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import binomtest, ttest_1samp

from tests.support.foreign_numbers import ALONE, HALVES, NO_NUMBERS, ONES
from tests.support.saved_episodes import made as saved
from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox import CombinedReward, Episode, ExactMatchReward, Scores, Task
from viewbox.envs.digits import Digits
from viewbox.rewards.metrics import Accuracy, BoxRates, CalibrationError, MacroF1, MeanAveragePrecision, TopK
from viewbox.rollouts.scoring.metrics import compute_episode_metrics, drop_undefined
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.summary import EpisodeTally, summarize
from viewbox.rollouts.scoring.table import Table
from viewbox.training.held_out import compute_figures

LABELS = ("one", "two", "three")
PRECISION = MeanAveragePrecision(label_field="label", ties="together")
METRICS = [Accuracy(), MacroF1(), TopK("label", 2), CalibrationError(), BoxRates(), PRECISION]
ACCURACY = "metrics/label/accuracy"


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
    env, replies = Digits(), iter(["nothing", '{"label": "one", "bbox": [1, 2, 3, 4]}'])
    episode = env.play(env.tasks[0], lambda messages: next(replies))
    assert summarize([episode], {})["replies/well_formed"].mean == 0.5  # a share of replies


@each("metric", [*METRICS])
def test_a_metric_stands_under_the_name_its_environment_gives_it(metric):
    found = summarize(EPISODES, {"mine": metric}, resamples=0).get_means()
    own = {name.removeprefix("metrics/mine/"): value for name, value in found.items() if name.startswith("metrics/")}
    assert own == pytest.approx(metric(PAIRS))


def test_the_order_in_which_episodes_ended_changes_nothing():
    boxes = {number: {"bbox": one.answer["bbox"]} for number, one in enumerate(EPISODES) if one.answer}
    episodes = [made(number, tasks=40, answer=answer) for number, answer in boxes.items()]
    metrics = {"box": MeanAveragePrecision()}  # equal confidences: it sees an order
    found = summarize(episodes, metrics, resamples=0)
    for seed in range(3):
        random.Random(seed).shuffle(episodes)
        assert summarize(episodes, metrics, resamples=0).figures == pytest.approx(found.figures)


def test_a_figure_that_is_not_defined_is_not_there_and_the_json_is_valid():
    episodes = [replace(one, task=replace(one.task, reference={"label": "one"})) for one in EPISODES]
    found = summarize(episodes, {"box": MeanAveragePrecision(), "label": Accuracy()})
    assert [name for name in found.figures if name.startswith("metrics/")] == [ACCURACY]
    json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert summarize([], {"label": Accuracy()}).figures == {}


def test_it_prints_a_line_a_figure():
    printed = str(summarize(EPISODES, {"label": Accuracy()}))
    assert printed.startswith("40 episodes of 12 tasks (mean over tasks; metrics/ and replies/ over episodes)\n")
    line = next(line for line in printed.splitlines() if line.startswith(ACCURACY))
    assert "[" in line


# ---- whose metrics
class Declares:
    metrics, reward, tools = {"label": Accuracy()}, None, ()


def test_every_episode_has_the_metrics_of_its_own_environment_or_those_that_are_given(monkeypatch):
    environments = {"a": Declares(), "b": type("B", (), {"metrics": {"label": MacroF1()}})()}
    make = "viewbox.rollouts.scoring.summary.make_environment"
    monkeypatch.setattr(make, lambda name, *rest, **more: environments[name])
    assert ACCURACY in summarize(EPISODES, Declares()).figures
    of_a = [replace(one, environment="a") for one in EPISODES]
    assert ACCURACY in summarize(of_a).figures
    both = summarize([*of_a, *(replace(one, environment="b") for one in EPISODES[:20])])
    assert both["metrics/a/label/accuracy"].mean == pytest.approx(Accuracy()(PAIRS)["accuracy"])
    assert both["metrics/b/label/macro_f1"].mean == pytest.approx(MacroF1()(PAIRS[:20])["macro_f1"])
    assert both["metrics/b/label/macro_f1"].count == 20
    episodes = [replace(one, environment="ab"[number % 2]) for number, one in enumerate(EPISODES)]
    assert summarize(episodes, {"label": Accuracy()})[ACCURACY].count == 40


def test_a_tally_goes_on_after_a_summary():
    tally = EpisodeTally({"label": Accuracy()})
    for count, episode in enumerate(EPISODES, 1):
        tally.add(episode)
        if count in (20, 40):
            assert tally.summarize(0, seed=0) == summarize(EPISODES[:count], {"label": Accuracy()}, resamples=0)


def test_an_environment_that_cannot_be_made_has_no_metrics_and_that_is_said():
    found = summarize(EPISODES)
    assert not [name for name in found.figures if name.startswith("metrics/")]
    assert found.problems[0].startswith("no metrics of the environment 'made': env.name = 'made'; allowed")


@each("fails_at", [1, 2, 5])
def test_a_metric_that_fails_is_left_out_and_named(fails_at):
    calls = iter(range(1, 100))

    def bad(pairs):
        if next(calls) >= fails_at:
            raise ZeroDivisionError("no pairs")
        return {"bad": 1.0}

    found = summarize(EPISODES, {"bad": bad, "label": Accuracy()})
    assert ACCURACY in found.figures
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
        if found.count == slow[name].count:  # a plain function does not say which episodes it counts
            assert (found.low, found.high) == pytest.approx((slow[name].low, slow[name].high)), name


def test_all_figures_share_the_drawn_tasks():
    found = summarize(EPISODES[:36], {"label": Accuracy(), "again": Accuracy()})  # three of each task
    accuracy, reward = found[ACCURACY], found["reward"]
    ends = (reward.mean, reward.low, reward.high)
    assert (accuracy.mean, accuracy.low, accuracy.high) == pytest.approx(ends, abs=0.02)
    assert accuracy == found["metrics/again/accuracy"]


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
    assert ACCURACY in found.figures


def test_a_plain_function_and_average_precision_of_very_many_boxes_are_drawn_less_often(monkeypatch):
    found = summarize(EPISODES, {"slow": Plain(Accuracy()), "label": Accuracy()}, resamples=300)
    assert (found.resamples, found.fewer_draws) == (300, {"metrics/slow/accuracy": 200})
    metrics = {"box": MeanAveragePrecision()}
    assert summarize(EPISODES, metrics, resamples=1000).fewer_draws == {}
    boxes = sum(one.answer is not None for one in EPISODES)
    monkeypatch.setattr("viewbox.rollouts.scoring.summary.MAX_NUMBERS", 12 * boxes * 300)
    assert set(summarize(EPISODES, metrics, resamples=1000).fewer_draws.values()) == {300}


# ---- held-out evaluation
def test_held_out_figures_are_floats_with_their_intervals_beside_them():
    found = compute_figures(EPISODES[:36], Declares())
    intervals, counts = found.pop("intervals"), found.pop("counts")
    assert counts["reward"] == counts[ACCURACY] == 36
    assert all(isinstance(value, float) for value in found.values())
    assert drop_undefined(compute_episode_metrics(EPISODES[:36])).items() <= found.items()
    assert found[ACCURACY] == pytest.approx(found["reward"])
    assert intervals[ACCURACY] == pytest.approx(intervals["reward"], abs=0.02)


# ---- intervals: as wide as independent tasks make them, paired for changes
def interval_of(values, before=None):
    """The interval of a column, or of its change from `before`; a task a row."""
    samples = Table()
    for number, value in enumerate(values):
        samples.add(str(number), {"new/": value} | ({} if before is None else {"old/": before[number]}))
    return samples.compute_intervals(change=("old", "new"))["new/" if before is None else "change/"]


def test_an_interval_of_independent_episodes_is_that_of_the_normal_approximation():
    values = np.random.default_rng(0).normal(size=2000)
    found, right = interval_of(values), ttest_1samp(values, 0).confidence_interval()
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(right), abs=1e-3)


@each("right, tasks", [(1, 2), (10, 10), (20, 20), (0, 20), (19, 20), (1, 30), (50, 100), (400, 400)])
def test_the_interval_of_right_and_wrong_is_nearly_wilsons_and_never_narrower(right, tasks):
    found = interval_of([1.0] * right + [0.0] * (tasks - right))
    wilson = binomtest(right, tasks).proportion_ci(method="wilson")  # of the normal distribution: narrow for few
    assert found.low <= wilson.low + 1e-9 < wilson.high - 1e-9 <= found.high
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1 / tasks)


@each("values, before", [([0.5] * 30, None), ([1.0] * 3, None), ([1.0] * 30, [1.0] * 30), ([0.75] * 30, [0.5] * 30)])
def test_no_interval_has_width_0_but_values_beyond_1_that_are_all_equal_say_nothing_of_their_spread(values, before):
    found = interval_of(values, before)
    assert found.low < found.mean <= found.high
    assert found.high - found.low > 0.01
    assert (interval_of([3.0] * 30).low, interval_of([1.0]).low) == (None, None)


def test_a_figure_that_is_no_mean_has_no_width_0_either():
    figures = {"f1": 1.0, "part": 0.5, "mm": 7.0}
    found = summarize([saved(n) for n in range(20)], {"own": lambda pairs: figures}, resamples=200)
    ends = {name: found[f"metrics/own/{name}"] for name in figures}
    assert ends["f1"].low < 0.9 < ends["f1"].high
    assert ends["part"].low < 0.5 < ends["part"].high
    assert ends["mm"].low is None


@each("old, new, tasks", [(None, 0.95, 10), (None, 0.98, 20), (None, 0.8, 10), (0.95, 0.95, 10), (0.98, 0.9, 20)])
def test_at_least_92_of_100_intervals_hold_the_true_mean_at_the_ends_and_of_few_tasks(old, new, tasks):
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        before = None if old is None else rng.binomial(1, old, tasks).astype(float)
        found = interval_of(rng.binomial(1, new, tasks).astype(float), before)
        inside += found.low <= new - (old or 0.0) <= found.high
    assert inside / 400 >= 0.92


def test_a_change_is_paired(tmp_path):
    rng = np.random.default_rng(3)
    folder = written(tmp_path, *(saved(n, scores=Scores(float(rng.uniform(0, 0.9)))) for n in range(80)))
    (tmp_path / "more.py").write_text("def more(episode):\n    return episode.scores.total + 0.1\n")
    total = score_run(folder, reward=f"{tmp_path}/more.py:more").total
    assert total.change.mean == pytest.approx(0.1)
    assert total.change.high - total.change.low < 0.06
    assert total.new.low < total.stored.high


def test_components_are_compared_over_the_episodes_that_have_both_and_without_stored_scores_there_is_no_change(
    tmp_path,
):
    parts = [{"a": 0.0, "old": 1.0}, {"a": None}, {"a": 0.5}, {}]
    folder = written(tmp_path / "both", *(saved(n, scores=Scores(0.0, part)) for n, part in enumerate(parts)))
    reward = CombinedReward({"a": (lambda answer, reference: 1.0, 1.0)})
    found = score_run(folder, reward=reward).components
    assert (found["a"].change.count, found["a"].change.mean) == (2, 0.75)
    assert (found["a"].new.count, found["a"].stored.count) == (4, 2)
    assert (found["old"].new, found["old"].change, found["old"].stored.count) == (None, None, 1)
    folder = written(tmp_path / "none", *(saved(n, scores=None) for n in range(4)))
    total = score_run(folder, reward=ExactMatchReward()).total
    assert (total.stored, total.change, total.new.mean) == (None, None, 0.5)
