"""The warm start: the policy's tokens are learned, those that carry information most."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainingArguments

from tests.support.families import list_names
from tests.support.family_episodes import FamilyKit
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.training.sft.trainer import SFTTrainer, build_sft_batches, compute_sft_loss, compute_token_weights

ENV = Digits()


@pytest.fixture(scope="module")
def demonstrations(kits, play):
    """The token sides of 8 demonstrations on a family's tokenizer."""

    def of(kit, script=None):
        habits = viewer.Habits(guess=0.2, too_far=0.3, astray=0.1)

        def demonstrated(conversation):
            replies = viewer.write_demonstration(ENV, conversation.task, conversation.seed, habits)
            return replies[sum(message.role == "assistant" for message in conversation.messages)]

        episodes = play(ENV, [ENV.tasks[i] for i in range(8)], ScriptedGenerator(kit.tokens, script or demonstrated))
        return [episode.tokens for episode in episodes]

    return of


def spoken(kit, tokens, weights, raised):
    """The text of the policy's tokens whose weight is above 1 (`raised`), or is 1."""
    both = zip(tokens.completion_ids, weights, strict=True)
    return "".join(kit.tokenizer.decode([one]) for one, weight in both if weight and (weight > 1) == raised)


def digits(text):
    return "".join(ch for ch in text if ch.isdigit())


def test_what_the_environment_says_has_no_weight_and_what_the_policy_says_at_least_1(kit, demonstrations):
    for tokens in demonstrations(kit):
        weights = compute_token_weights(tokens, kit.tokens, True)
        assert all(weight >= 1 if bit else weight == 0 for weight, bit in zip(weights, tokens.mask, strict=True))
        assert max(weights) > 1


def test_the_values_of_a_replys_json_and_the_numbers_of_a_tool_call_are_raised_and_nothing_else(kit, demonstrations):
    reply = 'Row 3, 4: well [5, 6]. {"label": "seven", "bbox": [12, 3, 45, 6.5], "continue": false} That was 7, 8.'
    tokens = demonstrations(kit, lambda conversation: reply)[0]
    weights = compute_token_weights(tokens, kit.tokens, True)
    raised, plain = (spoken(kit, tokens, weights, which) for which in (True, False))
    assert digits(raised) == "1234565"
    assert "seven" in raised
    assert digits(plain) == "345678"
    assert all(word in plain for word in ("Row", "label", "bbox", "continue", "false", "That", "<|im_end|>"))
    # 5 values, each of one weight however many tokens it takes
    assert sum(weight for weight in weights if weight > 1) == pytest.approx(5 * 12)
    script = lambda c: viewer.write_zoom(ENV, 4, 0.123, 0.456) if len(c.messages) == 2 else "{}"  # noqa: E731
    tokens = demonstrations(kit, script)[0]
    assert digits(spoken(kit, tokens, compute_token_weights(tokens, kit.tokens, True), True)) == "4123456"


@pytest.mark.parametrize("parts", [3, 20])
def test_parts_hold_every_episode_once_with_its_own_weights(qwen3, demonstrations, parts):
    episodes = demonstrations(qwen3)
    batches = build_sft_batches(episodes, qwen3.tokens, True, parts)
    assert len(batches) <= parts
    found = []
    for batch in batches:
        assert batch["weights"].shape == batch["completion_ids"].shape
        for ids, mask, weights in zip(batch["completion_ids"], batch["completion_mask"], batch["weights"], strict=True):
            found.append((tuple(ids[mask.bool()].tolist()), weights[mask.bool()].tolist()))
            assert weights[~mask.bool()].sum() == 0
    single = lambda weights: torch.tensor(weights).tolist()  # noqa: E731  float32, as in a batch
    given = [
        (episode.completion_ids, single(compute_token_weights(episode, qwen3.tokens, True))) for episode in episodes
    ]
    assert sorted(found) == sorted(given)


# ---------------------------------------------------------------------- the window of an update
@pytest.fixture
def train(qwen3, demonstrations, tmp_path):
    """One step of plain SGD on 8 episodes, which moves the weights by the gradient."""

    def run(model=None, **arguments):
        model = qwen3.model() if model is None else model
        fixed = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
        fixed |= {"remove_unused_columns": False, "max_steps": 1, "optim": "sgd", "learning_rate": 1.0}
        fixed |= {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1}
        trainer = SFTTrainer(
            model=model,
            args=TrainingArguments(str(tmp_path), **fixed | arguments),
            train_dataset=demonstrations(qwen3),
            tokens=qwen3.tokens,
            weigh_values=True,
        )
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        trainer.train()
        moved = {name: before[name] - weight.detach() for name, weight in model.named_parameters()}
        return trainer, moved

    return run


def test_accumulated_batches_give_the_gradient_and_the_loss_of_one_batch(train, qwen3, demonstrations):
    model, episodes = qwen3.model().train(), demonstrations(qwen3)
    loss = compute_sft_loss(model, build_sft_batches(episodes, qwen3.tokens, True))
    loss.backward()
    trainer, moved = train(per_device_train_batch_size=3, gradient_accumulation_steps=3)  # 8 episodes
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), abs=1e-5)
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(moved[name], weight.grad, atol=1e-5, rtol=1e-3)


def test_with_lora_only_the_adapters_move(train, qwen3):
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    _, moved = train(get_peft_model(qwen3.model(), adapters), per_device_train_batch_size=8)
    assert any(move.abs().max() > 0 for move in moved.values())
    assert all("lora_" in name for name, move in moved.items() if move.abs().max() > 0)


# ---------------------------------------------------------------------- every family
SPOKEN = ([31], [[8], [47]])  # a group without a picture
# Of the largest number. Padding on the left moves tokens to angles that RoPE rounds otherwise, to float32: where both
# sides are given the same positions, Gemma 4 is at 5e-7, too.
ROUNDED = {"gemma4": 1e-3}


@pytest.mark.parametrize("name", list_names("gemma3", "qwen3_vl"))
def test_the_loss_and_its_gradient_are_those_of_plain_forwards(name):
    kit = FamilyKit(name, torch.float64)
    model, shown, spoken = kit.model.train(), kit.make_episodes(), kit.make_episodes([SPOKEN])
    batches = build_sft_batches(shown, kit.tokens, True, 4) + build_sft_batches(spoken, kit.tokens, True)
    episodes = shown + spoken
    loss = compute_sft_loss(model, batches)
    loss.backward()
    ours = [weight.grad for weight in model.parameters()]
    width = max(len(episode.completion_ids) for episode in episodes)
    weights = torch.zeros(len(episodes), width)
    for row, episode in zip(weights, episodes, strict=True):
        row[: len(episode.mask)] = torch.tensor(compute_token_weights(episode, kit.tokens, True))
    model.zero_grad()
    naive = -(weights * kit.score_plainly(model.eval(), episodes, width)[0]).sum() / weights.sum()
    naive.backward()
    assert loss.item() == pytest.approx(naive.item(), abs=1e-5)
    for one, weight in zip(ours, model.parameters(), strict=True):
        assert (one is None) == (weight.grad is None)
        if one is not None:
            limit = ROUNDED.get(name, 1e-4) * weight.grad.abs().max().item() + 1e-9
            torch.testing.assert_close(one, weight.grad, atol=limit, rtol=0)
