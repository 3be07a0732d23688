"""TRL's own trainers take a step on what `viewbox export` writes, and what they log is imported."""

from pathlib import Path

import numpy as np
import pytest

import viewbox
from tests.support.saved_episodes import run, written  # noqa: F401
from viewbox.images.ref import ImageRef
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.store.reader import load

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
MODEL = Path(viewbox.__file__).parent / "assets" / "tiny_viewer"


@pytest.fixture
def parts():
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return AutoModelForImageTextToText.from_pretrained(MODEL), AutoProcessor.from_pretrained(MODEL)


def list_settings(folder):
    off = {"max_length": None, "bf16": False, "gradient_checkpointing": False, "use_cpu": True}
    size = {"max_steps": 1, "per_device_train_batch_size": 2}
    return {"output_dir": str(folder / "trained"), "report_to": [], "save_strategy": "no", **size, **off}


def read(path, folder):
    return datasets.Dataset.from_parquet(str(path), cache_dir=str(folder / "cache"))


def test_the_sft_trainer_learns_from_messages_with_images(run, tmp_path, parts):  # noqa: F811
    export_run(run, "sft", tmp_path / "sft.parquet")
    rows = read(tmp_path / "sft.parquet", tmp_path)
    model, processor = parts
    arguments = trl.SFTConfig(**list_settings(tmp_path))
    trainer = trl.SFTTrainer(model, arguments, train_dataset=rows, processing_class=processor)
    assert 0 < trainer.train().training_loss < 100


def test_completions_that_trl_logged_are_imported(tmp_path, parts):
    def is_odd(completions, **columns):
        return [float(number % 2) if number else None for number in range(len(completions))]

    def measure_length(completions, **columns):
        return [len(completion[0]["content"]) / 100 for completion in completions]

    messages = [
        [{"role": "system", "content": "Be short."}, {"role": "user", "content": f"Which digit {n}?"}] for n in range(2)
    ]
    image = ImageRef.of(np.zeros((56, 56), np.uint8)).open().convert("RGB")
    rows = datasets.Dataset.from_list([{"prompt": prompt, "image": image} for prompt in messages])
    model, processor = parts
    settings = {name: value for name, value in list_settings(tmp_path).items() if name != "max_length"}
    settings |= {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 8, "logging_steps": 1}
    arguments = trl.GRPOConfig(**settings, log_completions=True)
    rewards = [is_odd, measure_length]
    trl.GRPOTrainer(model, rewards, args=arguments, train_dataset=rows, processing_class=processor).train()
    (file,) = (tmp_path / "trained" / "completions").iterdir()
    report = import_file(file, "trl", tmp_path / "back")
    assert (report.kept, report.left_out.total()) == (4, 0)
    assert report.not_held["pictures, which TRL does not write"] == 4
    episodes = list(load(tmp_path / "back"))
    assert sorted(one.task.id for one in episodes) == ["Which digit 0?"] * 2 + ["Which digit 1?"] * 2
    for number, one in enumerate(episodes):
        assert [turn.role for turn in one.turns] == ["user", "assistant"]
        length = len(one.turns[1].content) / 100
        parity = float(number % 2) if number else None
        assert dict(one.scores.components) == {"is_odd": parity, "measure_length": pytest.approx(length)}
        assert one.scores.total == pytest.approx(length + (parity or 0))
        assert one.info["step"] == 1
    for first, second in (episodes[:2], episodes[2:]):
        assert first.info["advantage"] == pytest.approx(-second.info["advantage"], abs=1e-3)
