"""TRL's own trainers take a step on what `viewbox export` writes, and what they log is imported."""

from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import viewbox
from tests.support.saved_episodes import run, written  # noqa: F401
from tests.support.tiny_models import Words
from viewbox.envs.digits import Digits
from viewbox.images.ref import ImageRef
from viewbox.records import EpisodeTokens, Scores
from viewbox.rollouts.exchange.export import Export, export_run
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


def test_tokens_are_those_of_the_store_and_have_its_log_probs(tmp_path, qwen3, play, plain_logps):
    kit, env = qwen3, Digits(canvas=160, max_turns=3)
    model = kit.model()
    folder = written(tmp_path / "run", *play(env, env.tasks[:4], kit.generator(model)))
    assert export_run(folder, "sft", tmp_path / "tokens.parquet", Export(tokens=True)).kept == 4
    for row, episode in zip(read(tmp_path / "tokens.parquet", tmp_path), load(folder, tokens=True), strict=True):
        stored, start = episode.tokens, len(episode.tokens.prompt_ids)
        assert row["input_ids"] == [*stored.prompt_ids, *stored.completion_ids]
        assert row["assistant_masks"] == [0] * start + list(stored.mask)
        images = tuple(ImageRef.of(np.asarray(image)) for image in row["images"])
        ids, mask = tuple(row["input_ids"]), torch.tensor(row["assistant_masks"][1:]).bool()
        rebuilt = EpisodeTokens(ids[:1], ids[1:], (1,) * len(mask), (0.0,) * len(mask), images)
        recorded = torch.tensor(stored.logprobs)[torch.tensor(stored.mask).bool()]
        assert recorded.min() < -0.1
        drawn = recorded != 0  # a forced token has 0
        torch.testing.assert_close(plain_logps(model, kit, rebuilt)[mask][drawn], recorded[drawn], atol=1e-3, rtol=0)


def test_the_sft_trainer_learns_from_tokens_of_a_run_without_images(tmp_path, qwen3, play):
    kit, env = qwen3, Words()
    folder = written(tmp_path / "run", *play(env, env.tasks[:4], kit.generator()))
    export_run(folder, "sft", tmp_path / "tokens.parquet", Export(tokens=True))
    rows = read(tmp_path / "tokens.parquet", tmp_path).remove_columns("images")
    arguments = trl.SFTConfig(**list_settings(tmp_path))
    trainer = trl.SFTTrainer(kit.model(), arguments, train_dataset=rows, processing_class=kit.processor)
    for row, prepared in zip(rows, trainer.train_dataset, strict=True):
        pairs = zip(row["input_ids"], row["assistant_masks"], strict=True)
        assert prepared["labels"] == [token if own else -100 for token, own in pairs]
    assert 0 < trainer.train().training_loss < 100


def test_the_dpo_trainer_learns_from_pairs_with_images(tmp_path, parts):
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


def test_episodes_with_pictures_after_the_first_reply_are_left_out_of_pairs_by_name(run, tmp_path, viewbox):  # noqa: F811
    later = sum(any(turn.images for turn in one.turns[1:]) for one in load(run))
    assert later > 0
    status, out, _ = viewbox("export", run, "--to", "dpo", "--out", tmp_path / "dpo.parquet")
    assert status == 0
    assert f"{later} (a picture after the first reply, which DPOTrainer cannot read)" in out


def test_trl_still_takes_images_in_the_prompt_only(parts):
    """If this fails, pairs whose episodes show pictures later can be exported too."""
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    image = {"type": "image", "text": None}
    question, reply = ({"role": r, "content": [{"type": "text", "text": "x"}]} for r in ("user", "assistant"))
    later = [reply, {"role": "user", "content": [image]}, reply]
    shown = [ImageRef.of(np.full((56, 56), value, np.uint8)).open().convert("RGB") for value in (0, 255)]
    row = {"images": shown, "prompt": [{"role": "user", "content": [image, *question["content"]]}]}
    with pytest.raises(ValueError, match="Number of images"):
        DataCollatorForVisionPreference(parts[1])([{**row, "chosen": later, "rejected": later}])


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
