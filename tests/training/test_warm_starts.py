"""The warm starts of the shipped policies train, and save the model from which their GRPO configs start."""

import pytest

from viewbox.training import command as train


@pytest.mark.slow
@pytest.mark.parametrize("config", ["chest_xray_warmstart", "software_adviser_warmstart"])
def test_the_warm_start_trains_two_steps_and_saves_its_model(tmp_path, config):
    model = tmp_path / "model"
    small = ("train.max_steps=2", "train.demonstrations.count=16", "train.per_device_train_batch_size=4")
    where = (f"log.dir={tmp_path / 'runs'}", f"log.export={model}", "log.eval_tasks=4")
    assert train.main([config, *small, *where]) == 0
    assert (model / "model.safetensors").is_file()
