"""A whole run from YAML: what it leaves behind, that it can be repeated, and how it says what is wrong."""

import io
import json
from contextlib import redirect_stdout

import pytest
import torch
import yaml
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.support.runs import RUN, on_path, read_steps, write_config
from tests.support.runs import run as train_once
from tests.support.tables import each
from viewbox.configs import schema as configs
from viewbox.rollouts.store.reader import load
from viewbox.training import command as train
from viewbox.training.findings import check
from viewbox.training.plan import Plan

SHIPPED = ("quickstart", "tiny_warmstart", "qwen3_vl_4b_lora", "qwen3_vl_4b_qlora", "qwen2_5_vl_3b")
SFT = {
    "env": {"name": "digits", "max_turns": 3, "eval": {"split": "test"}},
    "rollout": {"slots": 4, "max_reply_tokens": 8, "max_completion_tokens": 300},
    "train": {"method": "sft", "max_steps": 4, "per_device_train_batch_size": 8, "learning_rate": 3e-3,
        "lr_scheduler_type": "constant"},
    "log": {"eval_tasks": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    with on_path(tmp_path_factory.mktemp("runs")) as folder:
        yield folder


@pytest.fixture(scope="module")
def run(workplace, tiny_folder):
    """Trains by the command line's function; returns the run's folder. `start.said` is what each run printed."""
    said = {}

    def start(name, content, *overrides, **sections):
        path = write_config(workplace, tiny_folder, name, content, **sections)
        with redirect_stdout(io.StringIO()) as output:
            folder = train_once(path, *overrides)
        said[folder] = output.getvalue()
        return folder

    start.said = said
    return start


@pytest.fixture(scope="module")
def grpo(run):
    return run("first", RUN)


@pytest.fixture(scope="module")
def sft(run):
    return run("warm", SFT, "train.demonstrations.count=32")


# ---------------------------------------------------------------------- what a GRPO run leaves behind
FILES = ("config.yaml", "versions.json", "metrics.jsonl", "episodes", "model", "curve.png", "summary.json")
SHOWN = ("before", "after", "oracle", "label", "box", "tool rate", "well-formed")


def test_a_run_is_named_after_its_config_and_seed_and_leaves_everything_with_a_line_for_every_step(grpo, run):
    assert grpo.name == "first-seed0"
    assert [name for name in FILES if not (grpo / name).exists()] == []
    with Image.open(grpo / "curve.png") as picture:
        assert picture.format == "PNG"
    lines = [line for line in read_steps(grpo) if "reward" in line]
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["sampling/logp_difference/max"] <= 1e-5
        assert line["tools/rate"] == 1.0
    assert any(line["grad_norm"] > 0 for line in lines)
    kept = list(load(grpo / "episodes", tokens=True))
    assert len(kept) == 3 * RUN["log"]["episodes_per_step"]
    assert all(episode.tokens.images and episode.scores for episode in kept)
    summary = json.loads((grpo / "summary.json").read_text())
    blind = summary["held_out"].pop("blind")  # the best answer without the picture
    assert 0 <= blind["reward"] < 1
    assert set(summary["held_out"]) == {"before", "after", "oracle", "oracle_after"}
    for figures in summary["held_out"].values():
        assert figures["reward"] == pytest.approx((figures["rewards/label/mean"] + figures["rewards/box/mean"]) / 2)
        assert figures["tools/rate"] == 1.0
        assert figures["rewards/box/mean"] > 0.9
    assert summary["seed"] == 0
    assert 0 < summary["seconds"]["training"] < summary["seconds"]["all"]
    said = run.said[grpo].splitlines()  # each step in one line, and the figures at the end
    assert said[0] == f"run folder: {grpo}"
    assert [line.split("  ")[0] for line in said if line.startswith("step")] == [f"step {n}/3" for n in (1, 2, 3)]
    assert not [line for line in said if line.startswith("{")]
    table = "\n".join(said)
    assert all(word in table for word in SHOWN)
    assert f"{grpo}/summary.json" in table.replace("\n", "")


def test_the_saved_config_gives_the_same_run_again_and_the_saved_model_is_the_trained_one(grpo, tiny_folder):
    saved = configs.load(str(grpo / "config.yaml"))
    assert saved.train.arguments == RUN["train"]
    assert saved.env.settings == {"max_turns": 3}
    assert saved.env.eval == {"split": "test"}
    assert configs.parse(saved.model_dump(exclude_none=True)) == saved
    model = AutoModelForImageTextToText.from_pretrained(grpo / "model")
    start = AutoModelForImageTextToText.from_pretrained(tiny_folder)
    assert AutoProcessor.from_pretrained(grpo / "model").tokenizer.eos_token == "<|im_end|>"
    changed = [not torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True)]
    assert sum(changed) > len(changed) / 2


def flat(figures):
    ends = {(name, end): value for name, ends in figures["intervals"].items() for end, value in enumerate(ends)}
    return {name: value for name, value in figures.items() if name not in ("intervals", "counts")} | ends


def test_a_run_on_weights_of_4_bits_leaves_a_model_without_quantization_to_go_on_from(run, tmp_path):
    settings = ["lora.r=4", "lora.quantize=4bit", f"log.export={tmp_path}/export"]
    folder = run("lora", RUN, *settings, "train.gradient_checkpointing=true", "train.max_steps=2")
    lines = [line for line in read_steps(folder) if "reward" in line]
    assert max(line["sampling/logp_difference/max"] for line in lines) <= 1e-5
    assert (folder / "adapter" / "adapter_config.json").is_file()
    assert "4 bits" in (tmp_path / "export" / "README.md").read_text()
    again = run("again", RUN, "train.max_steps=1", model={"name": str(tmp_path / "export")})
    after = json.loads((folder / "summary.json").read_text())["held_out"]["after"]
    before = json.loads((again / "summary.json").read_text())["held_out"]["before"]
    assert flat(before) == pytest.approx(flat(after), abs=1e-6)


# ---------------------------------------------------------------------- warm starts
UNWATCHED = "log.eval_tasks=0"
FEW = "env.num_tasks=64", "log.eval_tasks=32"  # a dry run looks at all tasks, which takes seconds


def losses(folder):
    return [line["loss"] for line in read_steps(folder) if "loss" in line]


def test_a_warm_start_lowers_the_loss_and_leaves_a_model_and_a_card_with_its_figures_and_config(sft):
    assert len(losses(sft)) == 4
    assert losses(sft)[-1] < 0.9 * losses(sft)[0]
    assert len(list(load(sft / "demonstrations"))) == 32
    AutoModelForImageTextToText.from_pretrained(sft / "model")
    card = (sft / "model" / "README.md").read_text()
    header, body = card.split("---\n")[1:3]
    assert yaml.safe_load(header)["pipeline_tag"] == "image-text-to-text"
    after = json.loads((sft / "summary.json").read_text())["held_out"]["after"]
    assert f"reward {after['reward']:.3f}" in body
    assert "4 bits" not in body
    rebuilt = yaml.safe_load(body.split("```yaml\n")[1].split("```")[0])
    assert configs.parse(rebuilt) == configs.load(str(sft / "config.yaml"))


def test_a_warm_start_from_saved_episodes_lowers_the_loss_as_the_demonstrations_did(sft, run, workplace, tiny_folder):
    """With LoRA it trains the adapter alone, here on the episodes that are kept."""
    saved = f"train.episodes={sft}/demonstrations"
    folder = run("saved", SFT, saved, f"log.export={workplace}/exported", UNWATCHED)
    assert losses(folder) == losses(sft)
    assert not (folder / "demonstrations").exists()
    exported = AutoModelForImageTextToText.from_pretrained(workplace / "exported")
    trained = AutoModelForImageTextToText.from_pretrained(folder / "model")
    assert all(torch.equal(a, b) for a, b in zip(exported.parameters(), trained.parameters(), strict=True))
    assert (workplace / "exported" / "README.md").is_file()
    overrides = ["lora.r=4", "train.where=scores.total>=0.9", "train.best_of_group=true", UNWATCHED]
    folder = run("adapted", SFT, saved, *overrides, "train.gradient_checkpointing=true")
    assert "of 32 episodes; left out: " in run.said[folder]
    assert losses(folder)[-1] < losses(folder)[0]
    both = folder / "model", tiny_folder
    merged, start = (AutoModelForImageTextToText.from_pretrained(at).state_dict() for at in both)
    changed = {name for name, weight in merged.items() if not torch.equal(weight, start[name])}
    assert changed
    assert all("proj" in name or "linear" in name or "qkv" in name for name in changed)


def test_a_warm_start_from_conversations_says_which_it_leaves_out(run, workplace):
    Image.new("RGB", (64, 64), "gray").save(workplace / "gray.png")
    user = {"role": "user", "content": [{"type": "image", "image": "gray.png"}, {"type": "text", "text": "Color?"}]}
    good = {"messages": [user, {"role": "assistant", "content": "gray"}]}
    bad = {"messages": [user]}
    (workplace / "chats.jsonl").write_text("\n".join(map(json.dumps, [good, bad, good])))
    folder = run("chats", SFT, f"train.episodes={workplace}/chats.jsonl", UNWATCHED)
    said = run.said[folder].replace("\n", "")
    assert "chats.jsonl: conversations left out: 1 (line 2: no message of the assistant to learn from)" in said
    assert losses(folder)[-1] < losses(folder)[0]


def test_a_model_built_from_nothing_can_be_warm_started(run):
    sizes = {"hidden": 48, "layers": 1, "vision_hidden": 32, "vision_layers": 2, "vocab_size": 480}
    small = ["train.demonstrations.count=8", "train.max_steps=2", "train.per_device_train_batch_size=4", UNWATCHED]
    folder = run("scratch", SFT, *small, model={"name": None, "tiny": sizes})
    assert configs.load(str(folder / "config.yaml")).model.tiny.hidden == 48
    assert AutoModelForImageTextToText.from_pretrained(folder / "model").config.text_config.hidden_size == 48


# ---------------------------------------------------------------------- before anything is loaded
@pytest.fixture
def settle(monkeypatch, tiny_folder):
    """The overrides with which a shipped config is looked at here; from then on no weights can be loaded."""

    def never(*args, with_numbers=True, **kwargs):
        assert not with_numbers, "weights were loaded"

    monkeypatch.setattr("viewbox.engines.hf.loading.load_model", never)
    monkeypatch.setattr("viewbox.engines.hf.loading.build_tiny_model", never)

    def run(name):
        overrides = [*FEW] if configs.load(name).model.tiny else [*FEW, f"model.name={tiny_folder}"]
        if name == "qwen2_5_vl_3b":  # pixels as coordinates: views have sizes that the model keeps
            overrides += ["env.pixel_multiple=16", "env.max_pixels=147456"]
        return overrides

    return run


TRAINERS = dict.fromkeys(SHIPPED, "GRPOConfig") | {"tiny_warmstart": "TrainingArguments"}


@each("name, trainer", TRAINERS.items())
def test_every_shipped_config_passes_its_checks(settle, name, trainer):
    lines = check(Plan(configs.load(name, settle(name)))).lines
    assert (lines["environment"]["name"], lines["trainer"]) == ("digits", trainer)


def test_a_shipped_config_passes_a_dry_run_that_loads_no_weights(settle, capsys):
    small = "train.per_device_train_batch_size=4"  # each of its tensors is made without numbers, for the memory
    assert train.main(["tiny_warmstart", *settle("tiny_warmstart"), small, "--dry-run", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["config"]["env"]["name"] == said["resolved"]["environment"]["name"] == "digits"
    assert said["resolved"]["trainer"] == "TrainingArguments"


def test_the_help_lists_every_section_with_its_keys(capsys):
    with pytest.raises(SystemExit) as caught:
        train.main(["--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0
    for name in configs.Config.model_fields:
        assert f"\n  {name}: " in said
    for key in ("attention", "max_reply_tokens", "demonstrations", "target_modules", "eval_tasks", "--dry-run"):
        assert key in said
