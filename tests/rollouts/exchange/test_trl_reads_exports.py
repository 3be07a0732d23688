"""TRL's own trainers take a step on what `viewbox export` writes, with pictures."""

from pathlib import Path

import pytest

import viewbox
from tests.support.saved_episodes import run, written  # noqa: F401
from viewbox.envs.digits import Digits
from viewbox.records import Scores
from viewbox.rollouts.exchange.export import Export, export_run

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
MODEL = Path(viewbox.__file__).parent / "assets" / "tiny_viewer"


@pytest.fixture
def parts():
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return AutoModelForImageTextToText.from_pretrained(MODEL), AutoProcessor.from_pretrained(MODEL)


def list_settings(folder):
    return {
        "output_dir": str(folder / "trained"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "max_length": None,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }


def read(path, folder):
    return datasets.Dataset.from_parquet(str(path), cache_dir=str(folder / "cache"))


def test_the_sft_trainer_learns_from_messages_with_images(run, tmp_path, parts):  # noqa: F811
    export_run(run, "sft", tmp_path / "sft.parquet")
    rows = read(tmp_path / "sft.parquet", tmp_path)
    model, processor = parts
    arguments = trl.SFTConfig(**list_settings(tmp_path))
    trainer = trl.SFTTrainer(model, arguments, train_dataset=rows, processing_class=processor)
    assert 0 < trainer.train().training_loss < 100


def test_the_dpo_trainer_learns_from_pairs_with_images(tmp_path, parts):
    from dataclasses import replace

    env = Digits(canvas=160, max_turns=6)
    given = []
    for number in range(2):
        task = env.tasks[number]
        for total, label in ((1.0, "one"), (0.0, "two")):
            reply = f'{{"label": "{label}", "bbox": [0.1, 0.1, 0.5, 0.5]}}'
            episode = env.play(task, lambda messages, reply=reply: reply, seed=0)
            given.append(replace(episode, scores=Scores(total)))
    report = export_run(written(tmp_path / "run", *given), "dpo", tmp_path / "dpo.parquet", Export(gap=0.5))
    assert report.kept == 4
    rows = read(tmp_path / "dpo.parquet", tmp_path)
    assert len(rows[0]["images"]) == 1
    model, processor = parts
    arguments = trl.DPOConfig(**list_settings(tmp_path))
    trainer = trl.DPOTrainer(model, args=arguments, train_dataset=rows, processing_class=processor)
    assert 0 < trainer.train().training_loss < 100
