"""GRPO on episodes: the contract with the pinned TRL, log-probs and gradients that match, and runs that survive."""

import inspect
import json
from importlib import metadata

import pytest
import torch
from msgspec.structs import replace
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOTrainer

from tests.support.grpo_kit import compute_gradient, generate_batch, make_trainer, read_gradient, train_and_read_steps
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load
from viewbox.training.grpo.micro_batches import split_by_tokens
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer

PARITY = 1e-5
LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")


class Damaged(EpisodeGRPOTrainer):
    """Loses the last picture of some episodes on their way into the batch."""

    lost = ()

    def _play_tasks(self, tasks):
        episodes = super()._play_tasks(tasks)
        for i in self.lost:
            tokens = episodes[i].tokens
            episodes[i] = replace(episodes[i], tokens=replace(tokens, images=tokens.images[:-1]))
        return episodes


@pytest.fixture
def trainer(qwen3, tmp_path):
    def make(env, model=None, **given):
        return make_trainer(qwen3, tmp_path, env, model=model, **given)

    return make


@pytest.fixture
def trained(trainer, tmp_path):
    """The metrics of every step of a training."""
    return lambda *args, **given: train_and_read_steps(trainer(*args, **given), tmp_path)


@pytest.fixture(scope="module")
def plain(qwen3, looking, tmp_path_factory):
    """A training of three steps: (its folder, the metrics of every step)."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, train_and_read_steps(make_trainer(qwen3, folder, looking()), folder)


def of_loss(one, inputs):
    """The gradient of the loss of a batch."""
    return compute_gradient(one, one._compute_loss(one.model, inputs))


def alone(inputs, i):
    """Sample `i` of a batch without any padding, normalized as in the batch."""
    prompt, completion = inputs["prompt_mask"][i].bool(), inputs["completion_mask"][i].bool()
    found = {
        "advantages": inputs["advantages"][i : i + 1],
        "num_items_in_batch": inputs["num_items_in_batch"],
        "image_keys": inputs["image_keys"][i : i + 1],
        "image_grids": inputs["image_grids"][i : i + 1],
        "mm_token_type_ids": inputs["mm_token_type_ids"][i : i + 1, torch.cat([prompt, completion])],
    }
    for name in ("prompt_ids", "prompt_mask"):
        found[name] = inputs[name][i : i + 1, prompt]
    for name in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
        found[name] = inputs[name][i : i + 1, completion]
    return found


def count_images(inputs):
    """How many images each episode of a batch has."""
    return inputs["image_grids"].any(dim=2).sum(dim=1).tolist()


# ---------------------------------------------------------------------- the contract with TRL
def test_the_private_methods_of_the_pinned_trl_are_as_the_trainer_uses_them():
    assert metadata.version("trl").startswith("1.16.")
    parameters = {
        "_generate_and_score_completions": ["self", "inputs"],
        "_compute_loss": ["self", "model", "inputs"],
        "_get_per_token_logps_and_entropies": [
            "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
            "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images",
        ],
    }  # fmt: skip
    for name, expected in parameters.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[: len(expected)] == expected
    keywords = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    assert "mm_token_type_ids" in keywords


def test_the_batch_holds_what_the_loss_of_the_pinned_trl_reads(trainer, looking):
    read = inspect.getsource(GRPOTrainer._compute_loss)
    inputs = generate_batch(trainer(looking()))
    needed = {"prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages"}
    for name in needed | {"mm_token_type_ids", "num_items_in_batch", "sampling_per_token_logps"}:
        assert name in inputs
        assert f'"{name}"' in read, f"TRL's loss no longer reads {name}"
    assert inputs["advantages"].shape == (8,)
    assert inputs["num_items_in_batch"] == (inputs["completion_mask"] * inputs["tool_mask"]).sum()
    assert max(count_images(inputs)) > 1
    assert "pixel_values" not in inputs  # they stay on the host


# ---------------------------------------------------------------------- log-probs and gradients
def check_agreement(lines):
    assert all(line["tools/rate"] > 0 for line in lines)
    assert any(line["grad_norm"] > 0 for line in lines)
    for line in lines:
        assert 0 < line["sampling/logp_difference/max"] <= PARITY
        assert line["sampling/logp_difference/mean"] <= line["sampling/logp_difference/max"]


def test_the_generator_and_the_trainer_agree_on_every_log_prob_over_real_steps(plain):
    assert [line["step"] for line in plain[1]] == [1, 2, 3]
    check_agreement(plain[1])


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.7},
        {"peft_config": LORA, "gradient_checkpointing": True},
        {"gradient_checkpointing": True, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    ],
    ids=["temperature 0.7", "LoRA with gradient checkpointing", "checkpointing, two micro-batches"],
)
def test_they_agree_under_other_settings(trained, looking, given):
    check_agreement(trained(looking(), max_steps=2, **given))


def test_samples_stay_aligned_when_one_generation_is_shuffled_into_several_steps(trained, looking):
    # With a learning rate of 0 the policy stays where it was: any difference would be a sample's wrong picture.
    given = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "num_iterations": 2}
    lines = trained(looking(), max_steps=8, learning_rate=0.0, **given)
    assert len(lines) == 8
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY


def test_a_second_iteration_sees_how_far_the_policy_has_moved(trained, looking):
    first, second = trained(looking(), num_iterations=2, max_steps=2)
    assert first["sampling/logp_difference/max"] <= PARITY
    assert second["sampling/logp_difference/max"] > 100 * PARITY


def test_the_gradient_of_a_batch_is_the_sum_over_its_episodes_one_by_one(trainer, looking):
    one = trainer(looking())
    inputs = generate_batch(one)
    assert len(set(count_images(inputs))) > 1
    assert len(set(inputs["prompt_mask"].sum(dim=1).tolist())) > 1
    assert len(set(inputs["completion_mask"].sum(dim=1).tolist())) > 2
    assert inputs["advantages"].abs().max() > 0.1
    whole = of_loss(one, inputs)
    parts = sum(of_loss(one, alone(inputs, i)) for i in range(8))
    assert whole.norm() > 0
    assert (whole - parts).norm() / whole.norm() < 1e-4


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo"])
def test_micro_batches_by_tokens_give_the_gradient_and_the_loss_of_the_whole_batch(trainer, looking, loss_type):
    one = trainer(looking(), loss_type=loss_type)
    inputs = generate_batch(one)
    whole, loss = of_loss(one, inputs), one._compute_loss(one.model, inputs)
    one.micro_batch_tokens = 200
    assert len(split_by_tokens(inputs, 200)) > 3
    one.model.zero_grad()
    told = one.compute_loss(one.model, inputs)
    told.backward()
    parts = read_gradient(one)
    assert (whole - parts).norm() / whole.norm() < 1e-4
    torch.testing.assert_close(told, loss, atol=1e-5, rtol=1e-4)


def test_a_micro_batch_in_which_nothing_is_trained_tells_no_mismatch_and_hides_none(trainer, looking):
    one = trainer(looking(), own={"micro_batch_tokens": 1})
    inputs = generate_batch(one)
    inputs["tool_mask"][0] = 0
    one._metrics["train"].clear()
    one.compute_loss(one.model, inputs)
    told = one._metrics["train"]["sampling/logp_difference/max"]
    assert len(told) == 7
    assert 0 < max(told) <= PARITY


def test_advantages_are_the_rewards_relative_to_their_own_group(trainer, looking):
    one = trainer(looking())
    episodes = []
    play = one._play_tasks
    one._play_tasks = lambda tasks: episodes.extend(play(tasks)) or list(episodes)
    inputs = generate_batch(one)
    rewards = torch.tensor([episode.scores.total for episode in episodes]).view(2, 4)
    expected = (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-4)
    assert rewards.std() > 0
    torch.testing.assert_close(inputs["advantages"], expected.flatten())


# ---------------------------------------------------------------------- a reference model
def test_with_beta_the_policy_is_held_to_a_frozen_copy_of_its_start(trained, looking, tiny_folder):
    model = AutoModelForImageTextToText.from_pretrained(tiny_folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(tiny_folder)
    lines = trained(looking(), model, beta=0.1, processor=processor, max_steps=2)
    assert abs(lines[0]["kl"]) < 1e-6
    assert lines[-1]["kl"] > 1e-6
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY


def test_with_beta_and_lora_the_reference_is_the_model_without_its_adapter(trained, looking):
    lines = trained(looking(), beta=0.1, peft_config=LORA, learning_rate=1e-2, max_steps=2)
    assert abs(lines[0]["kl"]) < 1e-6
    assert lines[-1]["kl"] > 1e-6
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY


# ---------------------------------------------------------------------- runs that survive
def endless(kit):
    """A policy that never ends a reply."""
    return kit.model(bias=dict.fromkeys(kit.tokens.stop_ids, -50.0), ends=0.0)


def finite(lines):
    return all(isinstance(value, int | float) and value == value for line in lines for value in line.values())


def test_steps_of_a_policy_that_never_uses_a_tool_run_through_and_show_it(trained, looking):
    given = {"per_device_train_batch_size": 4, "num_generations": 2}
    lines = trained(looking(at_most=0), max_steps=4, generation={"max_reply_tokens": 4}, **given)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert {line["tools/rate"] for line in lines} == {line["tools/calls"] for line in lines} == {0.0}
    assert {line["end/answered"] for line in lines} == {1.0}
    assert finite(lines)


def test_steps_of_replies_that_never_end_run_through_and_show_it(trained, strips, qwen3):
    given = {"per_device_train_batch_size": 4, "num_generations": 2}
    generation = {"max_reply_tokens": 6, "max_completion_tokens": 6}
    lines = trained(strips, endless(qwen3), max_steps=4, generation=generation, **given)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert {line["end/max_tokens"] for line in lines} == {line["episodes/truncated"] for line in lines} == {1.0}
    assert {line["tokens/sampled"] for line in lines} == {6.0}
    assert {line["frac_reward_zero_std"] for line in lines} == {1.0}
    assert finite(lines)


def test_a_run_in_which_every_episode_is_masked_goes_on_and_changes_nothing(trained, strips, qwen3):
    generation = {"max_reply_tokens": 6, "max_completion_tokens": 6}
    model = endless(qwen3)
    before = [weight.detach().clone() for weight in model.parameters()]
    lines = trained(strips, model, generation=generation, mask_truncated_completions=True)
    assert [line["loss"] for line in lines] == [0.0] * 3
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_batches_that_hold_no_image_at_all_are_trained_on(trained, words):
    lines = trained(words, max_steps=2)
    assert len(lines) == 2
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY
    assert {line["episodes/dropped"] for line in lines} == {0.0}


# ---------------------------------------------------------------------- samples that cannot be used
def test_a_sample_whose_image_tokens_mismatch_is_dropped_alone(trainer, looking):
    one = trainer(looking(), cls=Damaged)
    intact = generate_batch(one)
    one.player.num_played, one.lost = 0, (2,)  # the same episodes again
    inputs = generate_batch(one)
    assert one._metrics["train"]["episodes/dropped"] == [0.0, 1.0]

    others = [i for i in range(8) if i != 2]
    assert count_images(inputs) == [0 if i == 2 else count for i, count in enumerate(count_images(intact))]
    for i in others:
        for name, value in alone(intact, i).items():
            if name not in ("advantages", "num_items_in_batch"):
                assert torch.equal(alone(inputs, i)[name], value), name
    assert torch.equal(inputs["advantages"][4:], intact["advantages"][4:])  # the other group's
    assert inputs["advantages"][2] == 0
    assert inputs["tool_mask"][2].sum() == 0

    whole = of_loss(one, inputs)
    parts = sum(of_loss(one, alone(inputs, i)) for i in others)
    assert (whole - parts).norm() / whole.norm() < 1e-4
    assert whole.isfinite().all()


@pytest.mark.parametrize(
    ("lost", "given"),
    [
        ((2,), {}),
        (range(8), {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}),
        ((2,), {"beta": 0.1, "peft_config": LORA}),
    ],
    ids=["one of a batch", "all, one sample a micro-batch", "one, with a reference"],
)
def test_a_run_with_dropped_samples_goes_on_and_counts_them(trained, looking, lost, given):
    lines = trained(looking(at_most=1), cls=type("Lossy", (Damaged,), {"lost": lost}), max_steps=2, **given)
    assert [line["episodes/dropped"] for line in lines] == [len(lost)] * 2


def test_masking_truncated_completions_masks_those_and_no_others(trainer, looking, qwen3):
    # Two looks and an answer do not fit the budget, fewer do.
    generation = {"max_reply_tokens": 8, "max_completion_tokens": 120}
    episodes = []
    batches = {}
    for masked in (False, True):
        one = trainer(looking(), generation=generation, mask_truncated_completions=masked)
        play = one._play_tasks
        one._play_tasks = lambda tasks, play=play: episodes.extend(play(tasks)) or episodes[-8:]
        batches[masked] = generate_batch(one)
    cut = torch.tensor([episode.truncated for episode in episodes[:8]])
    assert 0 < cut.sum() < 8
    assert [episode.truncated for episode in episodes[8:]] == cut.tolist()
    assert (batches[True]["tool_mask"][cut] == 0).all()
    assert torch.equal(batches[True]["tool_mask"][~cut], batches[False]["tool_mask"][~cut])
    assert (batches[False]["tool_mask"].sum(dim=1) > 0).all()
    assert batches[True]["num_items_in_batch"] == batches[True]["tool_mask"].sum()


# ---------------------------------------------------------------------- what is kept, and what is refused
def test_the_first_episodes_of_every_step_are_saved_with_their_tokens(plain):
    kept = list(load(plain[0] / "episodes", tokens=True))
    assert len(kept) == 3 * 2
    assert all(sum(episode.tokens.mask) > 0 for episode in kept)
    assert len({episode.run_config.seed for episode in kept}) == 6


def test_the_episodes_of_a_group_say_their_number_in_it(trainer, looking):
    one, groups = trainer(looking(), own={"episodes_per_step": None}), {}
    generate_batch(one)
    for episode in one.player.latest_episodes:
        groups.setdefault(episode.task.id, []).append(episode.info["sample"])
    assert len(groups) == 2
    assert all(sorted(samples) == [0, 1, 2, 3] for samples in groups.values())


def test_no_two_episodes_of_a_run_share_a_seed(trainer, looking):
    one = trainer(looking())
    tasks = [one.env.tasks[0]] * 8
    seeds = [episode.run_config.seed for _ in range(3) for episode in one._play_tasks(tasks)]
    assert len(set(seeds)) == 24


def test_a_logged_line_names_every_component_end_and_time(plain):
    line = plain[1][0]
    assert {"rewards/label/mean", "rewards/box/mean", "time/generation", "time/scoring", "time/loss_forward"} <= set(
        line
    )
    assert sum(value for name, value in line.items() if name.startswith("end/")) == pytest.approx(1)
    assert json.loads(json.dumps(line, allow_nan=False)) == line


def test_vllm_is_refused_in_words(trainer, looking):
    with pytest.raises(ConfigError, match=r"train\.use_vllm"):
        trainer(looking(), use_vllm=True)
