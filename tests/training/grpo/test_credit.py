"""Credit: the expectation of each rule by enumeration, gradients of every loss against a plain reference, and what is
refused."""

import doctest
import itertools
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl.trainer.utils import nanstd

from tests.support import forks, several_processes
from tests.support.grpo_kit import compute_gradient, generate_batch, make_trainer, read_gradient, set_loss
from tests.support.several_processes import REWARD
from tests.support.tables import each
from viewbox import registry
from viewbox.errors import ConfigError, ModelError
from viewbox.records import Episode, EpisodeTokens, Scores, Task, Turn
from viewbox.rollouts.store.reader import load
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate
from viewbox.training.grpo.credit import ComponentsCredit, EpisodeCredit, TurnsCredit, spread
from viewbox.training.grpo.groups import group_advantages

LOSSES = [(loss, "token") for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", "luspo")]
LOSSES += [(loss, "sequence") for loss in ("grpo", "sapo", "luspo")]
nan = torch.nan


# ---------------------------------------------------------------------- the expectation of a rule
OUTCOMES = {"stop": ((0.3,), ("stop",)), "a": ((0.2, 0.6), ("go", "a")), "b": ((0.2, 0.1), ("go", "b"))}


def to_rows(group):
    return torch.tensor([[*earned, nan][:2] for earned in group], dtype=torch.float64)


def sum_from(row):
    return [sum(row[turn:]) for turn in range(len(row))]


def subtract(row, means):
    return [value - mean for value, mean in zip(row, means, strict=False)]


def weigh_totals(group):
    return EpisodeCredit("none").weigh(to_rows(group).nansum(1, keepdim=True), len(group)).expand(-1, 2)


def weigh_turns(group):
    return TurnsCredit("none").weigh(to_rows(group), len(group))


RULES = {"`episode`": weigh_totals, "`turns`: who has ended stands at its last reply": weigh_turns}


def enumerate_groups(weigh, n):
    """(mean of the estimated gradient less the exact one, of both choices; variance), over every group of n episodes of
    a policy that stops or goes on, and then chooses a or b."""
    go, a = (1 / (1 + math.exp(-x)) for x in (0.4, -0.7))
    chance = {"stop": 1 - go, "a": go * a, "b": go * (1 - a)}
    slope = {"stop": (-go, 0.0), "go": (1 - go, 0.0), "a": (0.0, 1 - a), "b": (0.0, -a)}  # of the log-prob
    mean, square = [0.0, 0.0], 0.0
    for names in itertools.product(OUTCOMES, repeat=n):
        weight = math.prod(chance[name] for name in names)
        rows = weigh([OUTCOMES[name][0] for name in names])
        pairs = [
            (float(value), slope[action])
            for name, row in zip(names, rows, strict=True)
            for value, action in zip(row, OUTCOMES[name][1], strict=False)
        ]
        found = [1 / (n - 1) * sum(value * one[k] for value, one in pairs) for k in (0, 1)]
        mean = [old + weight * new for old, new in zip(mean, found, strict=True)]
        square += weight * sum(new * new for new in found)
    exact = [0.0, 0.0]
    for name, (earned, actions) in OUTCOMES.items():
        slopes = [sum(slope[action][k] for action in actions) for k in (0, 1)]
        exact = [old + chance[name] * sum(earned) * one for old, one in zip(exact, slopes, strict=True)]
    return *subtract(mean, exact), square - sum(value * value for value in mean)


PAGE = Path(__file__).parents[3].joinpath("docs", "credit.md").read_text()


def test_the_examples_of_the_page_run():
    test = doctest.DocTestParser().get_doctest(PAGE, {}, "credit.md", "credit.md", 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
    names = {}
    exec(next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "class Best" in code), names)
    rows = torch.tensor([[0.5, nan], [0.75, nan], [nan, nan], [0.1, 0.2]])
    assert names["Best"]("group").weigh(rows, 2).tolist() == [[0.0], [1.0], [0.0], [1.0]]


@each("rule, weigh", RULES.items())
def test_a_rule_has_no_bias_and_the_variance_that_the_page_states(rule, weigh):
    for n in (2, 4, 5):
        *bias, variance = enumerate_groups(weigh, n)
        assert max(map(abs, bias)) < 1e-12
        if n == 4:
            assert f"| {rule} | 0 | 0 | 0 | 0 | {variance:.5f} |" in PAGE


def test_if_all_is_earned_by_the_last_reply_the_credit_of_turns_is_that_of_the_episode():
    totals, lengths = [0.2, 1.0, 0.0, 0.7], [1, 4, 2, 3]
    rows = torch.tensor([[0.0] * (n - 1) + [total] + [nan] * (4 - n) for total, n in zip(totals, lengths, strict=True)])
    for scale in ("none", "group", "batch"):
        alone = EpisodeCredit(scale).weigh(torch.tensor(totals)[:, None], 4)
        found = TurnsCredit(scale).weigh(rows, 4)
        for i, n in enumerate(lengths):
            torch.testing.assert_close(found[i, :n], alone[i].expand(n))


# ---------------------------------------------------------------------- one number an episode
@each("scale", ["group", "batch", "none", True, False])
def test_the_credit_of_an_episode_is_its_group_relative_total_bit_for_bit(scale):
    totals = torch.rand(64, generator=torch.manual_seed(0)).round(decimals=1)
    totals[5] = nan
    expected = group_advantages(totals, 8, scale)
    assert torch.equal(EpisodeCredit(scale).weigh(totals[:, None], 8)[:, 0], expected)
    assert torch.equal(spread(expected[:, None], [], 5), expected)


# ---------------------------------------------------------------------- components
def compute_as_trl(scores, weights, group):
    """Lines of TRL 1.16 (`normalize_then_sum`)."""
    grouped = scores.view(-1, group, scores.shape[1])
    parts = (grouped - torch.nanmean(grouped, 1, keepdim=True)) / (nanstd(grouped, dim=1, keepdim=True) + 1e-4)
    rewards = (parts.view(-1, scores.shape[1]) * weights).nansum(1)
    return (rewards - torch.nanmean(rewards)) / (nanstd(rewards) + 1e-4)


def to_pairs(scores, weights):
    return torch.stack([weights.expand_as(scores), scores], 2).flatten(1)


def test_components_are_compared_as_in_trl_and_a_group_of_equal_totals_is_idle_only_if_its_credit_says_so():
    scores = torch.rand(64, 3, generator=torch.manual_seed(1)).round(decimals=1)
    scores[7, 1], weights = nan, torch.tensor([0.5, 0.3, 0.2])
    found = ComponentsCredit().weigh(to_pairs(scores, weights), 8)[:, 0]
    torch.testing.assert_close(found, compute_as_trl(scores, weights, 8))
    # of equal weight with one sum, they cancel to exactly 0 beside a group that teaches
    first = torch.tensor([0.9, 0.1, 0.3, 0.6, 0.2, 0.4, 0.4, 0.9])
    second = torch.cat([1 - first[:4], first[4:]])
    found = ComponentsCredit().weigh(to_pairs(torch.stack([first, second], 1), torch.tensor([0.5, 0.5])), 4)
    assert (found[:4] == 0).all()
    assert (found[4:] != 0).all()
    scores = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert not EpisodeCredit().weigh(scores.mean(1, keepdim=True), 4).any()
    assert ComponentsCredit().weigh(to_pairs(scores, torch.ones(3) / 3), 4).any()


@each("credit", [EpisodeCredit, ComponentsCredit, TurnsCredit, lambda: TurnsCredit("batch")])
def test_episodes_that_teach_nothing_have_0_and_do_not_count(credit):
    rows = torch.rand(8, 4, generator=torch.manual_seed(2))
    rows[:, [0, 2]] = 0.5  # of components: the weights
    rows[:4], rows[5] = nan, nan
    found = credit().weigh(rows, 4)
    assert found.isfinite().all()
    assert (found[[0, 1, 2, 3, 5]] == 0).all()
    assert found[[4, 6, 7], 0].sum().abs() < 1e-5


# ---------------------------------------------------------------------- what a credit may not do
def test_tokens_that_do_not_say_which_are_of_which_reply_are_refused():
    scores, turns = Scores(1.0, turns=(0.4, 0.6)), (Turn("assistant"), Turn("tool_result"), Turn("assistant"))
    for replies in ((2, 1), (0, 3), (3,), ()):
        tokens = EpisodeTokens((1,), (2, 3, 4, 5), (1, 1, 0, 1), (0.0,) * 4, replies=replies)
        episode = Episode(Task("a"), turns, scores=scores, tokens=tokens)
        if len(replies) == 2:
            assert TurnsCredit().read(episode, REWARD) == [0.4, 0.6]
            first = 1.0 if replies[0] else 2.0  # an empty reply takes no other's place
            assert spread(torch.tensor([[1.0, 2.0]]), [tokens], 4).tolist() == [[first, first, 0.0, 2.0]]
            continue
        with pytest.raises(ModelError, match=r"train\.credit = turns: .* how many tokens each reply has"):
            TurnsCredit().read(episode, REWARD)
    with pytest.raises(ValueError, match="replies of 4 tokens, of 3 that were sampled"):
        EpisodeTokens((1,), (2, 3, 4, 5), (1, 1, 0, 1), (0.0,) * 4, replies=(2, 2))


class Raises(EpisodeCredit):
    def read(self, episode, reward):
        raise KeyError("label")


def make_credit(name, weigh):
    return type(name, (EpisodeCredit,), {"weigh": lambda self, rows, group_size: weigh(rows)})


Odd = make_credit("Odd", lambda rows: torch.full((len(rows),), 1.0))
Exits = make_credit("Exits", lambda rows: sys.exit(0))
Empty = make_credit("Empty", lambda rows: rows[:, :0])
Whole = make_credit("Whole", lambda rows: [[place % 2] for place in range(len(rows))])  # of no gradient and no float
SEQUENCE = {"importance_sampling_level": "sequence", "loss_type": "grpo"}


@pytest.mark.parametrize(("name", "given", "words"), [
    ("turn", {}, r"train\.credit\.type: unknown credit 'turn'; allowed: components, .*did you mean 'turns'"),
    ("turns", SEQUENCE, r"importance_sampling_level = 'sequence': averages .*credit = turns.*allowed: token"),
    ("odd", SEQUENCE, r"importance_sampling_level = 'sequence': averages .*train\.credit = odd"),
    ("components", {"scale_rewards": "none"}, r"scale_rewards = 'none': is not read.*allowed: group"),
    ("odd", {}, r"train\.credit = odd: gives advantages of \(8,\); allowed: finite ones, \(8, 1\) or"),
    ("raises", {}, r"train\.credit = raises: raised KeyError: 'label'"),
    ("exits", {}, r"train\.credit = exits: raised SystemExit: 0"),
    ("empty", {}, r"train\.credit = empty: gives advantages of \(8, 0\); allowed"), ("whole", {}, None),
    ("components", SEQUENCE, None), ("episode", SEQUENCE | {"scale_rewards": "none"}, None),
])  # fmt: skip
def test_what_the_loss_cannot_read_is_refused_by_name(qwen3, looking, tmp_path, monkeypatch, name, given, words):
    for one in (Odd, Raises, Exits, Empty, Whole):
        monkeypatch.setitem(registry.CREDITS, one.__name__.lower(), f"{__name__}:{one.__name__}")

    def play():
        generate_batch(make_trainer(qwen3, tmp_path, looking(), own={"credit": name}, **given))

    if words is None:
        play()
    else:
        with pytest.raises(ConfigError, match=words):
            play()


# ---------------------------------------------------------------------- the loss
def weigh_by_hand(name, groups):
    """One advantage a reply of each episode, in plain Python."""
    found = []
    for group in groups:
        if name == "turns":
            earned = [e.scores.turns or (*[0.0] * (e.num_turns - 1), e.scores.total) for e in group]
            returns = [sum_from(row) for row in earned]
            width = max(map(len, returns))
            returns = [[*row, *[row[-1]] * (width - len(row))] for row in returns]
        elif name == "episode":
            returns = [[e.scores.total] for e in group]
        else:
            columns = [[e.scores.components[key] for e in group] for key in REWARD.components]
            returns = [[0.0] for _ in group]
            for column, part in zip(columns, REWARD.components.values(), strict=True):
                mean = sum(column) / len(column)
                deviation = (sum((x - mean) ** 2 for x in column) / (len(column) - 1)) ** 0.5
                for row, x in zip(returns, column, strict=True):
                    row[0] += part.weight * (x - mean) / (deviation + 1e-4)
        means = [sum(column) / len(group) for column in zip(*returns, strict=True)]
        centered = [subtract(row, means) for row in returns]
        variances = [sum(x * x for x in column) / (len(group) - 1) for column in zip(*centered, strict=True)]
        scale = 1.0 if name == "components" else (sum(variances) / len(variances)) ** 0.5 + 1e-4
        found += [[x / scale for x in row] for row in centered]
    if name == "components":
        values = [x for row in found for x in row]
        deviation = (sum(x * x for x in values) / (len(values) - 1)) ** 0.5 + 1e-4
        found = [[x / deviation for x in row] for row in found]
    return found


# What a loss is a mean over; else the tokens
MEANS = {"grpo": "episodes", "sapo": "episodes", "dr_grpo": "room", "luspo": "sums"}


def compute_by_hand(trainer, episodes, advantages):
    """The gradient of each episode alone: no padding, no packing, every token times the advantage of its reply."""
    gradients = []
    for episode, row in zip(episodes, advantages, strict=True):
        batch = add_pixels(collate([episode.tokens], trainer.tokens), [episode.tokens], trainer.tokens)
        logits = trainer.model(**build_model_inputs(batch)).logits[0, :-1]
        ids = torch.tensor([*episode.tokens.prompt_ids, *episode.tokens.completion_ids])[1:]
        logps = logits.log_softmax(1).gather(1, ids[:, None])[:, 0][len(episode.tokens.prompt_ids) - 1 :]
        reply, total, before = -1, 0.0, 0
        for logp, own in zip(logps, episode.tokens.mask, strict=True):
            reply, before = reply + (own > before), own
            if own:
                total = total - logp * (row[0] if len(row) == 1 else row[reply])
        gradients.append(compute_gradient(trainer, total))
    return torch.stack(gradients)


def take_mean(trainer, episodes, gradients, mean="tokens"):
    lengths = torch.tensor([sum(e.tokens.mask) for e in episodes])
    if mean == "episodes":
        return (gradients / lengths[:, None]).mean(0)
    if mean == "tokens":
        return gradients.sum(0) / lengths.sum()
    return gradients.mean(0) / (trainer.max_completion_length if mean == "room" else 1)


@pytest.mark.parametrize("name", ["episode", "components", "turns"])
def test_the_gradient_of_every_loss_is_that_of_each_episode_alone(qwen3, looking, tmp_path, name):
    own = {"credit": name, "episodes_per_step": 8}
    trainer = make_trainer(qwen3, tmp_path, looking(reward=REWARD), own=own)
    trainer.epsilon_high = 5.0  # cispo clips the ratio itself
    inputs = generate_batch(trainer)
    episodes = trainer.player.latest_episodes
    assert len({e.num_turns for e in episodes}) > 1
    assert any(len(set(e.scores.turns)) > 1 for e in episodes)
    assert all(sum(e.scores.turns) == pytest.approx(e.scores.total) for e in episodes)
    advantages = weigh_by_hand(name, [episodes[:4], episodes[4:]])
    for episode, row in zip(episodes, advantages, strict=True):
        stored = episode.info["advantage"]
        expected = row[: episode.num_turns] if name == "turns" else row
        assert pytest.approx(expected, abs=1e-4) == (list(stored) if name == "turns" else [stored])
    loaded = {episode.info["number"]: episode for episode in load(tmp_path / "episodes", tokens=True)}
    for episode in episodes:
        kept = loaded[episode.info["number"]]
        for field in ("total", "components", "faults", "turns"):
            assert getattr(kept.scores, field) == getattr(episode.scores, field), field
        assert (kept.tokens.replies, kept.info["advantage"]) == (episode.tokens.replies, episode.info["advantage"])
    by_hand = compute_by_hand(trainer, episodes, advantages)
    for loss_type, level in LOSSES:
        if name == "turns" and level == "sequence":
            continue  # refused, see above
        set_loss(trainer, loss_type, level)
        ours = compute_gradient(trainer, trainer._compute_loss(trainer.model, inputs))
        plain = take_mean(trainer, episodes, by_hand, MEANS.get(loss_type, "tokens"))
        assert plain.abs().max() > 0
        assert (ours - plain).abs().max() / plain.abs().max() <= 1e-4, (loss_type, level)


@pytest.mark.parametrize("own", [{"micro_batch_tokens": 400}, {"importance_sampling_cap": 2.0}])
def test_credit_of_turns_goes_through_micro_batches_and_importance_weights(qwen3, looking, tmp_path, own):
    reused = {"num_iterations": 2} if "importance_sampling_cap" in own else {}
    own = {"credit": "turns", "episodes_per_step": 8, **own}
    trainer = make_trainer(qwen3, tmp_path, looking(reward=REWARD), own=own, **reused)
    inputs = generate_batch(trainer)
    episodes = trainer.player.latest_episodes
    assert inputs["advantages"].shape == inputs["completion_ids"].shape
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, inputs).backward()
    ours = read_gradient(trainer)
    rows = weigh_by_hand("turns", [episodes[:4], episodes[4:]])
    plain = take_mean(trainer, episodes, compute_by_hand(trainer, episodes, rows))
    assert (ours - plain).abs().max() / plain.abs().max() <= 1e-4


@pytest.mark.parametrize("name", ["components", "turns"])
def test_a_group_on_two_processes_gives_the_gradient_of_each_episode_alone(qwen3, looking, tmp_path, tiny_folder, name):
    said = forks.run_together(several_processes.learn_by_credit, tiny_folder, name, tmp_path, folder=tmp_path)
    found = [torch.load(path, weights_only=False) for path in sorted(tmp_path.glob("[01].pt"))]
    assert len(found) == 2, said
    episodes = [episode for one in found for episode in one["episodes"]]
    assert len({episode.task.id for episode in episodes}) == 1
    assert len({episode.scores.turns for episode in episodes}) > 1
    model = AutoModelForImageTextToText.from_pretrained(tiny_folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(tiny_folder)
    trainer = make_trainer(qwen3, tmp_path, looking(), model=model, processor=processor)
    trainer.model.train()
    plain = take_mean(trainer, episodes, compute_by_hand(trainer, episodes, weigh_by_hand(name, [episodes])))
    assert plain.abs().max() > 0
    for one in found:
        assert (one["gradient"] - plain).abs().max() / plain.abs().max() <= 1e-4
