"""Only finite gradients reach the weights, and weights that are not finite are never saved."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.support.runs import RUN, on_path, read_steps, run, write_config
from viewbox.engines.hf.model_runner import ModelRunner
from viewbox.training import run as training_run
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer
from viewbox.training.plan import Plan
from viewbox.training.sft.trainer import SFTTrainer

SUPERVISED = {
    "env": {"name": "digits", "max_turns": 3}, "rollout": {"max_completion_tokens": 1000},
    "train": {"method": "sft", "demonstrations": {"count": 8}, "per_device_train_batch_size": 4, "max_steps": 6},
}  # fmt: skip
TRAIN = {"max_steps": 6, "save_steps": 10}


@pytest.fixture
def spoil(monkeypatch):
    """Makes the loss of these steps NaN, counted from 1."""

    def patch(*steps):
        for kind in (EpisodeGRPOTrainer, SFTTrainer):
            plain = kind.compute_loss

            def compute_loss(self, *args, plain=plain, **kwargs):
                loss = plain(self, *args, **kwargs)
                return loss * torch.nan if self.state.global_step + 1 in steps else loss

            monkeypatch.setattr(kind, "compute_loss", compute_loss)

    return patch


@pytest.mark.parametrize("content", [RUN, SUPERVISED], ids=["grpo", "sft"])
def test_a_step_without_a_finite_gradient_changes_no_weight_and_is_said(tmp_path, tiny_folder, spoil, caplog, content):
    spoil(2)
    train = {"max_steps": 3, "save_steps": 1, "save_total_limit": 5}
    with on_path(tmp_path):
        folder = run(write_config(tmp_path, tiny_folder, "run", content, train=train, log={"eval_tasks": 0}))
    weights = [load_file(folder / "checkpoints" / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2, 3)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[1][name], weights[2][name]) for name in weights[0])
    assert all(value.isfinite().all() for value in weights[2].values())
    assert "step 2: the gradient is not finite" in caplog.text
    warnings = json.loads((folder / "summary.json").read_text())["warnings"]
    assert "step 2: the gradient is not finite, so that no weight is changed" in warnings
    with on_path(tmp_path):  # and what a run that goes on knows of it
        run(tmp_path / "run.yaml", "train.max_steps=4", f"--resume={folder}")
    assert set(warnings) <= set(json.loads((folder / "summary.json").read_text())["warnings"])
    assert len(read_steps(folder)) == 4


def test_a_run_that_diverges_ends_with_the_last_good_weights_and_goes_on_from_them(
    tmp_path, tiny_folder, spoil, capsys
):
    spoil(3, 4, 5, 6)
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, train=TRAIN, log={"eval_tasks": 0})
        folder = run(path, code=2)
        said = capsys.readouterr().err
        assert "3 steps in a row had no finite gradient" in said
        assert "the last good step is 2; go on with --resume=" in said
        assert "checkpoint-5 and a smaller train.learning_rate" in said
        assert not (folder / "model").exists()
        spoil()  # on top of the other: the resumed run has steps 6 and 7, of which 6 is spoiled
        run(path, "train.max_steps=7", "train.learning_rate=1e-4", f"--resume={folder}")
    assert all(value.isfinite().all() for value in load_file(folder / "model" / "model.safetensors").values())


def test_a_short_run_without_any_finite_gradient_ends_too(tmp_path, tiny_folder, spoil, capsys):
    spoil(1, 2)
    with on_path(tmp_path):
        folder = run(write_config(tmp_path, tiny_folder, train={"max_steps": 2}, log={"eval_tasks": 0}), code=2)
    assert "2 steps in a row had no finite gradient" in capsys.readouterr().err
    assert not (folder / "model").exists()


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
ON_A_CPU = RuntimeError("[enforce fail at x.cpp:1] DefaultCPUAllocator: can't allocate memory")
PLACES = [  # the loss, generation, on a CPU, loading
    (EpisodeGRPOTrainer, "compute_loss", FULL), (ModelRunner, "decode", FULL), (ModelRunner, "prefill", ON_A_CPU),
    (Plan, "load", MemoryError()),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "error"), PLACES)
def test_without_enough_memory_a_run_says_what_takes_less(
    tmp_path, tiny_folder, monkeypatch, capsys, owner, name, error
):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(owner, name, fail)
    monkeypatch.setattr(training_run, "check_parity", lambda *given: None)
    with on_path(tmp_path):
        run(write_config(tmp_path, tiny_folder, log={"eval_tasks": 0}), code=2)
    said = capsys.readouterr().err
    for word in ("micro_batch_tokens", "gradient_checkpointing=true", "rollout.slots", "viewbox config memory"):
        assert word in said
    assert f"out of memory: {type(error).__name__}" in said
