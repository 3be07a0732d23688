"""GRPO on episodes: the contract with the pinned TRL, log-probs and gradients that match, and runs that survive."""

import inspect
import json
from copy import copy

import pytest
import torch
from msgspec.structs import replace
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOTrainer

from tests.support import forks, grpo_kit, several_processes
from viewbox.errors import ConfigError, ModelError
from viewbox.rollouts.store.reader import load
from viewbox.training.grpo.batch import split_by_tokens
from viewbox.training.grpo.logprobs import EpisodeLogProbs
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer, check_first_difference

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
        return grpo_kit.make_trainer(qwen3, tmp_path, env, model=model, **given)

    return make


@pytest.fixture
def trained(trainer, tmp_path):
    """The metrics of every step of a training."""
    return lambda *args, **given: grpo_kit.train_and_read_steps(trainer(*args, **given), tmp_path)


@pytest.fixture(scope="module")
def plain(qwen3, looking, tmp_path_factory):
    """A training of three steps: (its folder, the metrics of every step)."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, grpo_kit.train_and_read_steps(grpo_kit.make_trainer(qwen3, folder, looking()), folder)


def of_loss(one, inputs):
    return grpo_kit.compute_gradient(one, one._compute_loss(one.model, inputs))


def alone(inputs, i):
    """Sample `i` of a batch without any padding, normalized as in the batch."""
    prompt, completion = inputs["prompt_mask"][i].bool(), inputs["completion_mask"][i].bool()
    found = {
        "advantages": inputs["advantages"][i : i + 1], "num_items_in_batch": inputs["num_items_in_batch"],
        "image_keys": inputs["image_keys"][i : i + 1], "image_tokens": inputs["image_tokens"][i : i + 1],
        "mm_token_type_ids": inputs["mm_token_type_ids"][i : i + 1, torch.cat([prompt, completion])],
    }  # fmt: skip
    for name in ("prompt_ids", "prompt_mask"):
        found[name] = inputs[name][i : i + 1, prompt]
    for name in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
        found[name] = inputs[name][i : i + 1, completion]
    return found


def count_images(inputs):
    return inputs["image_tokens"].bool().sum(dim=1).tolist()


# ---------------------------------------------------------------------- epochs
def test_pictures_of_later_epochs_are_played_and_learned_with_the_weights_of_then(trainer, looking, tmp_path):
    trained = trainer(looking(), max_steps=4, learning_rate=1e-2)
    trained.train_dataset = trained.train_dataset.select(range(2))  # one step is an epoch
    assert "fused" in trained.args.optim  # the default, which counts no versions of the weights
    steps = grpo_kit.train_and_read_steps(trained, tmp_path)
    assert [line["epoch"] for line in steps] == [1, 2, 3, 4]
    assert max(line["sampling/logp_difference/max"] for line in steps) < PARITY


# ---------------------------------------------------------------------- the contract with TRL
PARAMETERS = {
    "_generate_and_score_completions": ["self", "inputs"], "_compute_loss": ["self", "model", "inputs"],
    "_get_per_token_logps_and_entropies": ["self", "model", "input_ids", "attention_mask", "logits_to_keep",
        "batch_size", "compute_entropy", "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images"],
}  # fmt: skip


def test_the_private_methods_of_the_pinned_trl_and_what_its_loss_reads_are_as_the_trainer_uses_them(trainer, looking):
    for name, expected in PARAMETERS.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[: len(expected)] == expected
    keywords = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    assert "mm_token_type_ids" in keywords
    read = inspect.getsource(GRPOTrainer._compute_loss)
    inputs = grpo_kit.generate_batch(trainer(looking()))
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


def test_the_generator_and_the_trainer_agree_on_every_log_prob_and_a_line_names_every_component_end_and_time(plain):
    assert [line["step"] for line in plain[1]] == [1, 2, 3]
    check_agreement(plain[1])
    line = plain[1][0]
    named = {"rewards/label/mean", "rewards/box/mean", "time/generation", "time/scoring", "time/loss_forward"}
    assert named <= line.keys()
    assert sum(value for name, value in line.items() if name.startswith("end/")) == pytest.approx(1)
    assert json.loads(json.dumps(line, allow_nan=False)) == line


def test_they_agree_at_another_temperature_and_in_two_batches(trained, looking):
    halves = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    check_agreement(trained(looking(), max_steps=1, temperature=0.7, **halves))


def test_a_second_iteration_sees_how_far_the_policy_has_moved(trained, looking):
    first, second = trained(looking(), num_iterations=2, max_steps=2)
    assert first["sampling/logp_difference/max"] <= PARITY
    assert second["sampling/logp_difference/max"] > 100 * PARITY


def test_the_gradient_of_a_batch_is_the_sum_over_its_episodes_one_by_one_and_that_of_micro_batches(trainer, looking):
    one = trainer(looking())
    inputs = grpo_kit.generate_batch(one)
    assert len(set(count_images(inputs))) > 1
    assert len(set(inputs["prompt_mask"].sum(dim=1).tolist())) > 1
    assert len(set(inputs["completion_mask"].sum(dim=1).tolist())) > 2
    assert inputs["advantages"].abs().max() > 0.1
    whole = of_loss(one, inputs)
    parts = sum(of_loss(one, alone(inputs, i)) for i in range(8))
    assert whole.norm() > 0
    assert (whole - parts).norm() / whole.norm() < 1e-4
    assert len(split_by_tokens(inputs, 200)) > 3
    for loss_type in ("grpo", "bnpo", "dapo"):
        grpo_kit.set_loss(one, loss_type)
        one.micro_batch_tokens = None
        whole, loss = of_loss(one, inputs), one._compute_loss(one.model, inputs)
        one.micro_batch_tokens = 200
        one.model.zero_grad()
        told = one.compute_loss(one.model, inputs)
        told.backward()
        assert (whole - grpo_kit.read_gradient(one)).norm() / whole.norm() < 1e-4
        torch.testing.assert_close(told, loss, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------------- episodes that teach nothing
LOSSES = [{"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")] + [
    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    {"loss_type": "grpo", "delta": 1.3},
    {"loss_type": "grpo", "off_policy_mask_threshold": 0.01},
]
IDLE = (0, 1, 2, 3, 6)  # one group, and an episode of the other


def score_plainly(one, inputs):
    """The log-probs and entropies of one padded forward of whole episodes, with every picture."""
    images = [one.log_probs.pixels[key] for row in inputs["image_keys"].tolist() for key in row if key]
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    architecture = one.tokens.architecture
    vision = architecture.build_vision_inputs(images, ids.device, torch.float32) | architecture.build_token_types(ids)
    logits = one.model(input_ids=ids, attention_mask=mask, **vision, use_cache=False).logits
    logp = logits[:, inputs["prompt_ids"].shape[1] - 1 : -1].log_softmax(-1)
    chosen = logp.gather(2, inputs["completion_ids"][:, :, None])[:, :, 0]
    return chosen, -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize(("idle", "losses"), [
    (IDLE, LOSSES), (range(8), LOSSES[:1]), pytest.param(range(8), LOSSES[1:], marks=pytest.mark.nightly),
], ids=["some", "all", "all, other losses"])  # fmt: skip
def test_the_gradient_of_every_loss_is_that_of_a_plain_forward_of_all(trainer, looking, seen_rows, idle, losses):
    one = trainer(looking())
    batch = grpo_kit.generate_batch(one)
    torch.manual_seed(0)
    batch["advantages"] = torch.randn(8).index_fill(0, torch.tensor([*idle]), 0.0)
    noise = 0.2 * torch.randn_like(batch["sampling_per_token_logps"])
    batch["old_per_token_logps"] = batch["sampling_per_token_logps"] + noise
    weights = noise.flip(0).exp().clamp(max=1.1)  # of importance
    scored = score_plainly(one, batch)
    for loss in losses:
        grpo_kit.set_loss(one, **loss)
        inputs = batch | {"importance_sampling_ratio": weights}
        if loss["loss_type"] != "vespo":
            inputs = batch | {"advantages": batch["advantages"][:, None] * weights}
        plain = copy(one)
        plain._get_per_token_logps_and_entropies = lambda *args, **kwargs: (*scored, None)
        expected = grpo_kit.compute_gradient(one, GRPOTrainer._compute_loss(plain, one.model, inputs))
        for tokens in (None, 200)[: 1 + (loss["loss_type"] != "luspo")]:
            one.micro_batch_tokens = tokens
            one.model.zero_grad()
            seen_rows.clear()
            one.compute_loss(one.model, inputs).backward()
            assert sum(seen_rows) == max(1, 8 - len(idle))
            assert (grpo_kit.read_gradient(one) - expected).norm() <= 1e-4 * expected.norm(), loss
            assert all(weight.grad is not None for weight in one.model.parameters() if weight.requires_grad)


@pytest.fixture
def seen_rows(monkeypatch):
    """How many episodes went through the model, at each time."""
    seen, compute = [], EpisodeLogProbs.__call__
    note = lambda self, batch: seen.append(len(batch["prompt_ids"])) or compute(self, batch)  # noqa: E731
    monkeypatch.setattr(EpisodeLogProbs, "__call__", note)
    return seen


@pytest.mark.parametrize(("given", "own"), [
    ({"beta": 0.1, "peft_config": LORA}, {}), ({"entropy_coef": 0.1}, {}), ({"top_entropy_quantile": 0.5}, {}),
    ({}, {"top_p": 0.9}),
], ids=["KL", "entropy bonus", "entropy quantile", "filtered"])  # fmt: skip
def test_a_loss_that_needs_every_episode_has_every_episode(trainer, looking, seen_rows, given, own):
    one = trainer(looking(), generation=own, **given)
    inputs = grpo_kit.generate_batch(one)
    inputs["advantages"] = torch.zeros(8)
    seen_rows.clear()
    of_loss(one, inputs)
    assert seen_rows == [8]


def test_figures_of_idle_episodes_are_those_that_were_sampled(trainer, looking):
    """Their entropy is minus the mean log-prob: right in the mean. Nothing is said of how far log-probs are apart."""
    one = trainer(looking())
    inputs = grpo_kit.generate_batch(one)
    inputs["advantages"] = torch.ones(8).index_fill(0, torch.tensor(IDLE), 0.0)
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    learned = mask & (inputs["advantages"] != 0)[:, None]
    entropies = score_plainly(one, inputs)[1].detach()
    expected = entropies[learned].sum() - inputs["sampling_per_token_logps"][mask & ~learned].sum()
    inputs["sampling_per_token_logps"][learned] += 0.25
    one._metrics["train"].clear()
    one._compute_loss(one.model, inputs)
    told = one._metrics["train"]
    assert told["entropy"] == pytest.approx([float(expected / mask.sum())], rel=1e-5)
    assert told["sampling/logp_difference/mean"] == pytest.approx([0.25], rel=1e-4)
    assert told["clip_ratio/region_mean"] == [0.0]


def test_a_micro_batch_in_which_nothing_is_trained_tells_no_mismatch_and_hides_none(trainer, looking):
    one = trainer(looking(), own={"micro_batch_tokens": 1})
    inputs = grpo_kit.generate_batch(one)
    inputs["tool_mask"][0] = 0
    one._metrics["train"].clear()
    one.compute_loss(one.model, inputs)
    told = one._metrics["train"]["sampling/logp_difference/max"]
    assert len(told) == 7
    assert 0 < max(told) <= PARITY


# ---------------------------------------------------------------------- a reference model
@pytest.mark.parametrize("lora", [None, LORA], ids=["a copy", "the model without its adapter"])
def test_with_beta_the_policy_is_held_to_its_start(trained, looking, tiny_folder, lora):
    model = AutoModelForImageTextToText.from_pretrained(tiny_folder, dtype=torch.float32)
    given = {"processor": AutoProcessor.from_pretrained(tiny_folder), "peft_config": lora, "learning_rate": 1e-2}
    lines = trained(looking(), model, beta=0.1, max_steps=2, **given)
    assert abs(lines[0]["kl"]) < 1e-6
    assert lines[-1]["kl"] > 1e-6
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY


# ---------------------------------------------------------------------- runs that survive
def test_a_run_in_which_every_episode_is_masked_goes_on_and_changes_nothing(trained, strips, qwen3):
    model = qwen3.model(bias=dict.fromkeys(qwen3.tokens.stop_ids, -50.0), ends=0.0)
    before = [weight.detach().clone() for weight in model.parameters()]
    generation = {"max_reply_tokens": 6, "max_completion_tokens": 6}
    lines = trained(strips, model, generation=generation, mask_truncated_completions=True, max_steps=2)
    assert [line["loss"] for line in lines] == [0.0] * 2
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert {line["end/max_tokens"] for line in lines} == {line["episodes/truncated"] for line in lines} == {1.0}
    assert {line["tokens/sampled"] for line in lines} == {6.0}
    assert all(value == value for line in lines for value in line.values())


def test_batches_that_hold_no_image_at_all_are_trained_on(trained, words):
    lines = trained(words, max_steps=1)
    assert max(line["sampling/logp_difference/max"] for line in lines) <= PARITY
    assert {line["episodes/dropped"] for line in lines} == {0.0}


# ---------------------------------------------------------------------- samples that cannot be used
def test_a_sample_whose_image_tokens_mismatch_is_dropped_alone(trainer, looking):
    one = trainer(looking(), cls=Damaged)
    intact = grpo_kit.generate_batch(one)
    one.player.num_played, one.lost = 0, (2,)  # the same episodes again
    inputs = grpo_kit.generate_batch(one)
    assert one._metrics["train"]["episodes/dropped"] == [0.0, 1.0]
    others = [i for i in range(8) if i != 2]
    assert count_images(inputs) == [0 if i == 2 else count for i, count in enumerate(count_images(intact))]
    for i in others:
        for name, value in alone(intact, i).items():
            if name not in ("advantages", "num_items_in_batch"):
                assert torch.equal(alone(inputs, i)[name], value), name
    assert torch.equal(inputs["advantages"][4:], intact["advantages"][4:])  # the other group's
    assert inputs["advantages"][2] == inputs["tool_mask"][2].sum() == 0
    whole = of_loss(one, inputs)
    parts = sum(of_loss(one, alone(inputs, i)) for i in others)
    assert (whole - parts).norm() / whole.norm() < 1e-4
    assert whole.isfinite().all()


def test_a_run_with_dropped_samples_goes_on_and_counts_them_and_one_without_any_score_ends(trained, looking):
    given = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "beta": 0.1, "peft_config": LORA}
    lost = {"lost": property(lambda self: range(0 if self.state.global_step else 8))}
    lines = trained(looking(at_most=1), cls=type("Lossy", (Damaged,), lost), max_steps=2, **given)
    assert [line["episodes/dropped"] for line in lines] == [8, 0]
    with pytest.raises(ConfigError, match=r"no episode so far has a score.* image tokens"):
        trained(looking(at_most=1), cls=type("Lossy", (Damaged,), {"lost": range(8)}), max_steps=9)


# ---------------------------------------------------------------------- what is kept, and what is refused
def test_episodes_have_seeds_of_their_own_and_say_their_number_in_their_group(trainer, looking, plain):
    kept = list(load(plain[0] / "episodes", tokens=True))
    assert len(kept) == len({episode.run_config.seed for episode in kept}) == 3 * 2
    assert all(sum(episode.tokens.mask) > 0 for episode in kept)
    one, groups = trainer(looking(), own={"episodes_per_step": None}), {}
    grpo_kit.generate_batch(one)
    for episode in one.player.latest_episodes:
        groups.setdefault(episode.task.id, []).append(episode.info["sample"])
    assert [sorted(samples) for samples in groups.values()] == [[0, 1, 2, 3]] * 2


def test_a_server_that_computes_another_model_ends_a_run_with_the_numbers():
    check_first_difference(torch.tensor([0.0, 0.4]))
    check_first_difference(torch.tensor([]))
    for gap in ([0.2, 17.0], [float("nan")]):
        with pytest.raises(ModelError, match=r"rollout\.engine = vllm: its log-probs of the first batch differ by"):
            check_first_difference(torch.tensor(gap))


# ---------------------------------------------------------------------- two real processes
def test_processes_play_tasks_and_seeds_of_their_own_and_share_a_gradient(tmp_path, tiny_folder):
    said = forks.run_together(several_processes.train, tiny_folder, 8, tmp_path, folder=tmp_path)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("[01].json"))]
    assert len(found) == 2, said
    assert all(apart <= 1e-4 for one in found for apart in one["apart"])  # though episodes teach nothing, unevenly
    plays = [play for one in found for play in one["rounds"]]
    assert sorted(number for play in plays for _, number in play) == list(range(2 * 16))
    assert [(one["given"], one["played"]) for one in found] == [(2 * 16, 16)] * 2
    groups = [{task for task, _ in play[start : start + 4]} for play in plays for start in (0, 4)]
    assert [len(group) for group in groups] == [1] * 8
    assert len(set().union(*groups)) == 8
