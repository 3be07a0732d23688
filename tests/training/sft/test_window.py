"""The loss of an update is that of its whole window: accumulation steps do not change what a token weighs."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import TrainingArguments

from tests.training.sft.test_trainer import demonstrations  # noqa: F401  a fixture
from viewbox.training.sft.trainer import SFTTrainer, build_sft_batches, compute_sft_loss


@pytest.fixture
def train(qwen3, demonstrations, tmp_path):  # noqa: F811
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
            informative_weight=5.0,
        )
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        trainer.train()
        moved = {name: before[name] - weight.detach() for name, weight in model.named_parameters()}
        return trainer, moved

    return run


def test_accumulated_batches_give_the_gradient_and_the_loss_of_one_batch(train, qwen3, demonstrations):  # noqa: F811
    model, episodes = qwen3.model().train(), demonstrations(qwen3)
    loss = compute_sft_loss(model, build_sft_batches(episodes, qwen3.tokens, 5.0))
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
