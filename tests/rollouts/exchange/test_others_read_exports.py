"""inspect-ai's own reader opens what `viewbox export` writes, also back again, and TRL's trainer takes a step on it."""

import sys
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

import viewbox
from tests.support.saved_episodes import made, written
from viewbox import ConfigError, ToolCall, Turn, load
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.inspect_log import CONVERT

MODEL = Path(viewbox.__file__).parent / "assets" / "tiny_viewer"


@pytest.fixture
def log():
    return pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")


def list_images(folder):
    return sorted([image.hash for turn in one.turns for image in turn.images] for one in load(folder))


def test_messages_images_and_scores_are_read_by_inspect_also_of_a_packed_log(log, run, tmp_path):
    export_run(run, "inspect", tmp_path / "log.json")
    read = log.read_eval_log(str(tmp_path / "log.json"))
    assert read.status == "success"
    for sample, episode in zip(read.samples, load(run), strict=True):
        components = {} if episode.scores is None else {"reward": episode.scores.total, **episode.scores.components}
        found = {name: score.value for name, score in (sample.scores or {}).items()}
        assert found == {name: value for name, value in components.items() if value is not None}
        assert sample.messages[1].content[0].type == "image"
    for name in ("again.json", "log.eval"):
        log.write_eval_log(read, str(tmp_path / name))
    assert import_file(tmp_path / "again.json", "inspect", tmp_path / "back").kept == 21
    # inspect sorts samples by epoch
    assert sorted(repr(one.scores) for one in load(tmp_path / "back")) == sorted(repr(one.scores) for one in load(run))
    with mock.patch.dict(sys.modules, {"pyarrow": None}), pytest.raises(ConfigError) as raised:
        import_file(tmp_path / "log.eval", "inspect", tmp_path / "refused")
    assert CONVERT in str(raised.value)  # the error names the way
    assert import_file(tmp_path / "log.eval", "inspect", tmp_path / "unpacked").kept == 21
    assert list_images(tmp_path / "unpacked") == list_images(run)


def test_native_calls_without_a_text_are_read_by_inspect(log, tmp_path):
    call = Turn("assistant", "", tool_calls=(ToolCall("1", "zoom", {"factor": 2.0}),))
    thought = replace(call, reasoning="Closer.")
    export_run(written(tmp_path / "run", replace(made(0), turns=(call, thought))), "inspect", tmp_path / "log.json")
    (sample,) = log.read_eval_log(str(tmp_path / "log.json")).samples
    assert [message.tool_calls[0].function for message in sample.messages] == ["zoom", "zoom"]
    assert [message.text for message in sample.messages] == ["", ""]


def test_the_sft_trainer_of_trl_learns_from_messages_with_images(run, tmp_path):
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    from transformers import AutoModelForImageTextToText, AutoProcessor

    export_run(run, "sft", tmp_path / "sft.parquet")
    rows = datasets.Dataset.from_parquet(str(tmp_path / "sft.parquet"), cache_dir=str(tmp_path / "cache"))
    off = {"max_length": None, "bf16": False, "gradient_checkpointing": False, "use_cpu": True, "report_to": []}
    size = {"max_steps": 1, "per_device_train_batch_size": 2, "save_strategy": "no"}
    arguments = trl.SFTConfig(output_dir=str(tmp_path / "trained"), **off, **size)
    model, processor = AutoModelForImageTextToText.from_pretrained(MODEL), AutoProcessor.from_pretrained(MODEL)
    trainer = trl.SFTTrainer(model, arguments, train_dataset=rows, processing_class=processor)
    assert 0 < trainer.train().training_loss < 100
