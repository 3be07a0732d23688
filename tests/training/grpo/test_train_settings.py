"""GRPO's settings with a real tiny model and the real TRL: importance correction, masked episodes, resampled groups."""

from itertools import cycle

import pytest
import torch
from msgspec.structs import replace

from tests.support.grpo_kit import compute_gradient, generate_batch, make_trainer, show_pixels, train_and_read_steps
from viewbox.envs.digits import viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.records import Reply
from viewbox.rollouts.store.reader import load
from viewbox.training.grpo.batch import build_model_inputs
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer

CAP = 2.0
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")
LIES = (0.3, -0.4, 1.5, 0.0)  # what the engine's log-probs are too low by, token for token
REUSED = {"num_iterations": 2}


class Lying(EpisodeGRPOTrainer):
    """Its engine's log-probs of sampled tokens are wrong by a known amount."""

    lies = LIES

    def _play_tasks(self, *args):
        return [replace(e, tokens=self._falsified(e.tokens)) for e in super()._play_tasks(*args)]

    def _falsified(self, tokens):
        known = zip(tokens.logprobs, tokens.mask, cycle(self.lies))
        return replace(tokens, logprobs=tuple(logp - lie if sampled else logp for logp, sampled, lie in known))


@pytest.fixture(scope="module")
def guessing(strips):
    """Plays whose rewards are known while every token is the policy's own: see `Guessing`."""

    class Guessing(type(strips)):
        """Half the group is right where a task's number is a multiple of `telling` (0: nowhere); elsewhere all are."""

        telling: int = 1

        async def step(self, state, reply_):
            if state.turn < state.seed % 3:
                return await super().step(state, Reply(viewer.write_zoom(self, 2, 0.3, 0.6)))
            tells = self.telling and state.task.metadata["seed"] % self.telling == 0
            wrong = LABELS[(LABELS.index(state.task.reference["label"]) + 1) % 10]
            return await super().step(
                state, Reply(viewer.write_answer(self, state.task, wrong if tells and state.seed % 2 else None))
            )

    def make(**settings):
        return Guessing(**{"max_turns": 4, "tools": ("zoom",), "num_tasks": 12} | settings)

    return make


@pytest.fixture
def trainer(qwen3, tmp_path):
    def make(env, cls=EpisodeGRPOTrainer, own=None, **given):
        own = {"episodes_per_step": 8, "importance_sampling_cap": CAP} | (own or {})
        return make_trainer(qwen3, tmp_path, env, cls=cls, own=own, **given)

    return make


@pytest.fixture
def trained(trainer, tmp_path):
    """The metrics of every step of a training."""
    return lambda *args, **given: train_and_read_steps(trainer(*args, **given), tmp_path)


def sampled(inputs):
    return (inputs["completion_mask"] * inputs["tool_mask"]).bool()


def weights_of(inputs):
    """min(exp(lie), cap) on sampled tokens, 1 elsewhere, worked out from `LIES` alone."""
    lies = torch.tensor(LIES).repeat(inputs["tool_mask"].shape[1])[: inputs["tool_mask"].shape[1]]
    return torch.where(sampled(inputs), lies.exp().clamp(max=CAP), 1.0)


# ---------------------------------------------------------------------- truncated importance correction
def test_of_a_true_engine_the_ratio_is_one_and_changes_nothing(trainer, guessing):
    one = trainer(guessing(), **REUSED)
    inputs = generate_batch(one)
    found = {name: values[0] for name, values in one._metrics["train"].items() if "importance_ratio" in name}
    assert set(found) == {f"sampling/importance_ratio/{name}" for name in ("mean", "min", "max")}
    assert all(value == pytest.approx(1, abs=1e-5) for value in found.values())
    plain = generate_batch(trainer(guessing(), own={"importance_sampling_cap": None}, **REUSED))
    torch.testing.assert_close(inputs["advantages"], plain["advantages"][:, None].expand(inputs["advantages"].shape))


def test_the_old_log_probs_are_the_trainers_own(trainer, guessing):
    inputs, true = (generate_batch(trainer(guessing(), cls, **REUSED)) for cls in (Lying, EpisodeGRPOTrainer))
    mask = sampled(inputs)
    torch.testing.assert_close(inputs["old_per_token_logps"][mask], true["sampling_per_token_logps"][mask])
    gap = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"])[mask].abs()
    assert gap.max() == pytest.approx(max(LIES), abs=1e-4)


def test_the_ratios_logged_are_those_before_the_cap(trainer, guessing):
    one = trainer(guessing(), Lying, **REUSED)
    inputs = generate_batch(one)
    lies = torch.tensor(LIES).repeat(100)[: inputs["tool_mask"].shape[1]].expand(inputs["tool_mask"].shape)
    ratio = lies[sampled(inputs)].exp()
    assert ratio.max() > CAP
    for name, expected in (("mean", ratio.mean()), ("min", ratio.min()), ("max", ratio.max())):
        assert one._metrics["train"][f"sampling/importance_ratio/{name}"] == [pytest.approx(expected.item(), rel=1e-4)]


def test_the_gradient_is_that_of_the_loss_weighted_by_the_capped_ratio(trainer, guessing):
    one = trainer(guessing(), Lying, **REUSED)
    inputs = generate_batch(one)
    plain = generate_batch(trainer(guessing(), own={"importance_sampling_cap": None}, **REUSED))
    found = compute_gradient(one, one._compute_loss(one.model, inputs))

    width = inputs["completion_ids"].shape[1]
    logits = one.model(**build_model_inputs(show_pixels(one, inputs))).logits[:, -width - 1 : -1].float()
    logps = logits.log_softmax(-1).gather(2, inputs["completion_ids"][..., None])[..., 0]
    gain = plain["advantages"][:, None] * weights_of(inputs) * (logps - logps.detach()).exp()
    mask = sampled(inputs)
    expected = compute_gradient(one, -gain[mask].sum() / mask.sum())
    assert expected.norm() > 0
    assert (found - expected).norm() / expected.norm() < 1e-4
    unweighted = compute_gradient(one, one._compute_loss(one.model, plain))
    assert (unweighted - expected).norm() / expected.norm() > 0.05


@pytest.mark.parametrize(
    ("loss", "level"), [*((loss, "token") for loss in LOSSES), ("grpo", "sequence"), ("vespo", "sequence")]
)
def test_every_loss_is_weighted_as_trl_weights_it_under_vllm(trainer, guessing, loss, level):
    # a step behind the old log-probs, so that clipping and the sequence's own ratio matter
    one = trainer(guessing(), Lying, loss_type=loss, importance_sampling_level=level, beta=0.0, **REUSED)
    inputs = generate_batch(one)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in one.model.parameters():
            weight += 0.01 * torch.randn_like(weight)
    found = one._compute_loss(one.model, inputs)
    found_gradient = compute_gradient(one, found)

    advantages = generate_batch(trainer(guessing(), own={"importance_sampling_cap": None}, **REUSED))["advantages"]
    one.use_vllm = one.vllm_importance_sampling_correction = True
    as_vllm = {**inputs, "advantages": advantages, "importance_sampling_ratio": weights_of(inputs)}
    expected = one._compute_loss(one.model, as_vllm)
    expected_gradient = compute_gradient(one, expected)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert expected_gradient.norm() > 0
    assert (found_gradient - expected_gradient).norm() / expected_gradient.norm() < 1e-3


def test_weights_stay_with_their_tokens_when_a_batch_is_shuffled_into_several_steps(trained, guessing):
    steps = []

    class Watched(Lying):
        def _compute_loss(self, model, inputs):
            ratio = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]).exp().clamp(max=CAP)
            bare = torch.where(sampled(inputs), inputs["advantages"] / ratio, torch.nan)
            mean = bare.nanmean(1, keepdim=True).expand_as(bare)
            steps.append((bare - mean)[sampled(inputs)].abs().max().item())
            assert inputs["advantages"].abs().max() > 0.1
            return super()._compute_loss(model, inputs)

    given = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "num_iterations": 2}
    trained(guessing(), Watched, max_steps=8, **given)
    assert len(steps) == 8
    assert max(steps) < 1e-4


@pytest.mark.parametrize(
    "given",
    [
        REUSED,
        {"steps_per_generation": 2, "per_device_train_batch_size": 4},
        {"steps_per_generation": 2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 4},
    ],
    ids=["iterations", "steps", "steps across an update"],
)
def test_a_batch_with_an_update_inside_is_corrected(trainer, guessing, given):
    inputs = generate_batch(trainer(guessing(), **given))
    assert inputs["advantages"].shape == inputs["old_per_token_logps"].shape


@pytest.mark.parametrize("given", [{}, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}])
def test_a_batch_without_an_update_inside_is_not_corrected(trainer, guessing, given):
    one = trainer(guessing(), Lying, **given)
    inputs = generate_batch(one)
    assert inputs["advantages"].shape == (8,)
    assert "old_per_token_logps" not in inputs
    assert not any("importance_ratio" in name for name in one._metrics["train"])


def test_without_a_cap_nothing_is_corrected_and_no_forward_spent(trainer, guessing):
    one = trainer(guessing(), Lying, own={"importance_sampling_cap": None}, **REUSED)
    one.log_probs.compute_in_parts = None  # cannot be called
    inputs = generate_batch(one)
    assert inputs["advantages"].shape == (8,)
    assert torch.equal(inputs["old_per_token_logps"], inputs["sampling_per_token_logps"])
    assert not any("importance_ratio" in name for name in one._metrics["train"])


# ---------------------------------------------------------------------- masked episodes
def test_a_masked_episode_has_no_part_in_the_gradient(trainer, guessing):
    # two looks and an answer do not fit the budget, fewer do
    given = {"generation": {"max_completion_tokens": 120}, "mask_truncated_completions": True}
    one = trainer(guessing(), Lying, **given, **REUSED)
    inputs = generate_batch(one)
    cut = inputs["tool_mask"].sum(dim=1) == 0
    assert 0 < cut.sum() < 8
    assert cut.tolist() == [episode.truncated for episode in one.player.latest_episodes]
    whole = compute_gradient(one, one._compute_loss(one.model, inputs))
    other = torch.where(cut[:, None], 100.0, inputs["advantages"])
    assert whole.norm() > 0
    torch.testing.assert_close(
        compute_gradient(one, one._compute_loss(one.model, {**inputs, "advantages": other})), whole
    )


def test_a_masked_episode_still_counts_in_its_groups_mean(trainer, guessing):
    given = {"generation": {"max_completion_tokens": 120}, "own": {"importance_sampling_cap": None}}
    masked, plain = (
        generate_batch(trainer(guessing(), mask_truncated_completions=yes, **given)) for yes in (True, False)
    )
    assert torch.equal(masked["advantages"], plain["advantages"])


# ---------------------------------------------------------------------- resampling
def numbers(one):
    return [episode.task.metadata["seed"] for episode in one.player.latest_episodes]


def test_groups_without_spread_are_replaced_until_none_is_left(trainer, guessing):
    env = guessing(telling=3)  # tasks 0, 3, 6 and 9 of 12
    one = trainer(env, own={"dynamic_sampling_rounds": 8})
    inputs = generate_batch(one)
    kept = numbers(one)
    assert kept[:4] == [0] * 4
    assert kept[4:] == [kept[4]] * 4
    assert kept[4] in (3, 6, 9)
    assert inputs["advantages"].view(2, 4).std(dim=1).min() > 0.1
    found = one._metrics["train"]
    assert found["frac_reward_zero_std"] == [0.0]
    assert found["dynamic_sampling/groups"][0] >= 1
    assert found["episodes/played"] == [8 + 4 * found["dynamic_sampling/groups"][0]]


def test_without_the_setting_they_stay(trainer, guessing):
    one = trainer(guessing(telling=3))
    inputs = generate_batch(one)
    assert numbers(one) == [0] * 4 + [1] * 4
    assert (inputs["advantages"][4:] == 0).all()
    assert one._metrics["train"]["episodes/played"] == [8]
    assert "dynamic_sampling/groups" not in one._metrics["train"]


class Recording(EpisodeGRPOTrainer):
    """Keeps the tasks and seeds of every round."""

    def _play_tasks(self, tasks, *args):
        episodes = super()._play_tasks(tasks, *args)
        self.rounds = [*getattr(self, "rounds", []), episodes]
        return episodes

    @property
    def plays(self):
        return [[(e.task.id, e.run_config.seed, e.info["number"]) for e in episodes] for episodes in self.rounds]


def test_the_rounds_are_bounded_and_what_then_has_no_spread_stays(trainer, guessing):
    one = trainer(guessing(telling=0), Recording, own={"dynamic_sampling_rounds": 2})
    inputs = generate_batch(one)
    assert [len(play) for play in one.plays] == [8, 8, 8]
    assert [episode.info["number"] for episode in one.player.latest_episodes] == [
        number for *_, number in one.plays[-1]
    ]
    assert (inputs["advantages"] == 0).all()
    assert one._metrics["train"]["dynamic_sampling/groups"] == [4]
    assert one._metrics["train"]["episodes/played"] == [24]
    assert one.player.num_played == 24
    generate_batch(one)
    _, seeds, places = zip(*[sample for play in one.plays for sample in play], strict=True)
    assert len(set(seeds)) == len(set(places)) == 2 * 3 * 8  # every sample has its own over rounds and steps


def test_every_task_is_drawn_once_and_none_of_the_batch(trainer, guessing):
    one = trainer(guessing(telling=0), Recording, own={"dynamic_sampling_rounds": 9})
    generate_batch(one)
    drawn = [task for play in one.plays for task, *_ in play[::4]]
    assert len(drawn) == len(set(drawn)) == 12  # all there are: five rounds more, then nothing is left to draw


def test_the_rounds_are_the_same_again_from_the_same_seed_and_step(trainer, guessing):
    one, again = (trainer(guessing(telling=5), Recording, own={"dynamic_sampling_rounds": 3}) for _ in range(2))
    for _ in range(2):
        generate_batch(one)
    again.player.num_played = 4 * 8  # as a checkpoint after the first step says
    generate_batch(again)
    assert len(again.plays) > 1
    assert one.plays[-len(again.plays) :] == again.plays


def test_a_step_sets_aside_the_seeds_of_its_rounds_if_none_is_played(trainer, guessing):
    one = trainer(guessing(telling=1), Recording, own={"dynamic_sampling_rounds": 2})
    generate_batch(one)
    assert (len(one.plays), one.player.num_played) == (1, 24)


def test_another_seed_draws_other_tasks(trainer, guessing):
    one, other = (
        trainer(guessing(telling=0), Recording, own={"dynamic_sampling_rounds": 2}, seed=seed) for seed in (0, 1)
    )
    generate_batch(one)
    generate_batch(other)
    drawn = [[task for play in each.plays[1:] for task, *_ in play[::4]] for each in (one, other)]
    assert drawn[0] != drawn[1]


def test_a_group_of_samples_that_cannot_be_used_is_replaced(trainer, guessing):
    class Damaged(Recording):
        def _describe_problem(self, episode):
            return "for the test" if episode.task.metadata["seed"] == 1 else super()._describe_problem(episode)

    one = trainer(guessing(), Damaged, own={"dynamic_sampling_rounds": 1})
    generate_batch(one)
    assert 1 not in numbers(one)
    assert one._metrics["train"]["episodes/dropped"] == [0.0]


def test_evaluation_is_never_resampled(trainer, guessing):
    one = trainer(guessing(telling=0), Recording, own={"dynamic_sampling_rounds": 2})
    one.model.eval()
    one._generate_and_score_completions([{"task": i, "prompt": ""} for i in (0, 1) for _ in range(4)])
    assert len(one.plays) == 1


def test_a_run_trains_on_the_replacements_keeps_them_and_counts_the_rest(trained, guessing, tmp_path):
    lines = trained(guessing(telling=2), own={"dynamic_sampling_rounds": 6}, max_steps=2)
    assert [line["frac_reward_zero_std"] for line in lines] == [0.0] * 2
    assert sum(line["dynamic_sampling/groups"] for line in lines) > 0
    assert all(line["episodes/played"] == 8 + 4 * line["dynamic_sampling/groups"] for line in lines)
    assert all(line["reward"] < 1 for line in lines)
    assert all(line["grad_norm"] > 0 for line in lines)
    kept = list(load(tmp_path / "episodes"))
    assert len(kept) == 2 * 8
    assert {episode.task.metadata["seed"] % 2 for episode in kept} == {0}
