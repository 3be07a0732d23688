"""TRL's own trainer takes a step on what `viewbox export` writes."""

from pathlib import Path

import pytest

import viewbox
from tests.support.saved_episodes import run, written  # noqa: F401
from viewbox.rollouts.exchange.export import export_run

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
