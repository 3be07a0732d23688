"""Weights of a run on a hub or in a folder: which files go, what the card says, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from tests.publish.hubs.conftest import KEY
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.publish.hubs.directory import MANIFEST
from viewbox.publish.model import publish_model

CONFIG = {
    "model": {"name": "package:tiny_viewer"}, "env": {"name": "digits", "split": "train"},
    "train": {"method": "grpo", "steps": 3},
}  # fmt: skip
SUMMARY = {"held_out": {"before": {"reward": 0.25}, "after": {"reward": 0.75, "rewards/iou": 0.5, "note": "x"}}}


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs" / "first")


def write_run(folder, **changes):
    """A run with small weights, as `viewbox train` leaves it; `changes` replace sections of its config."""
    model, adapter = folder / "model", folder / "adapter"
    model.mkdir(parents=True)
    adapter.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    for place, name in ((model, "model"), (adapter, "adapter_model")):
        save_file({"weight": np.ones((2, 2), np.float32)}, place / f"{name}.safetensors")
    (model / "config.json").write_text(json.dumps({"model_type": "tiny", "_name_or_path": str(folder / "warm")}))
    (model / "tokenizer.json").write_text("{}")
    (model / "trainer_state.json").write_text("{}")
    (model / "optimizer.pt").write_bytes(b"state")
    (model / "README.md").write_text("of the trainer")
    base = {"base_model_name_or_path": str(folder / "warm"), "peft_type": "LORA", "r": 4}
    (adapter / "adapter_config.json").write_text(json.dumps(base))
    return folder


def send(what, **more):
    seen = []
    given = {"to": "hf", "id": "me/reader", "confirm": lambda lines: seen.append(lines) or True, **more}
    return publish_model(what, **given), "\n".join(seen[0]) if seen else ""


def read_head(hub):
    return hub.repos[("model", "me/reader")].commits[-1]


def read_card(content):
    _, header, text = content.decode().split("---\n", 2)
    return yaml.safe_load(header), text


def test_a_run_sends_its_weights_with_a_card_of_base_license_data_environment_results_and_config(hf, run):
    """Nothing of the trainer goes along. Versions are tags, and are bumped."""
    package, listed = send(run)
    files = read_head(hf)
    assert set(files) - {MANIFEST} == {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert files["model.safetensors"] == (run / "model" / "model.safetensors").read_bytes()
    assert "model.safetensors  (weights)" in listed
    assert package.findings[0] == "leaves out optimizer.pt, trainer_state.json"
    assert "downloaded again: all 4 files are those that were sent" in package.findings
    assert hf.repos[("model", "me/reader")].private
    header, text = read_card(files["README.md"])
    assert header["license"] == "apache-2.0"
    for words in (
        "| base model | `package:tiny_viewer`, license: apache-2.0 |", "| environment | `digits` |",
        "| data | the environment's own tasks |", "- after: reward 0.750, rewards/iou 0.500", "split: train",
        "# reader",
    ):  # fmt: skip
        assert words in text
    with pytest.raises(ConfigError, match=r"has it already; allowed: --version 0\.1\.1"):
        send(run)
    assert send(run, bump="minor")[0].version == "0.2.0"
    assert list(hf.repos[("model", "me/reader")].tags) == ["v0.1.0", "v0.2.0"]


def test_a_hub_base_and_a_hub_dataset_are_in_the_header(tmp_path, monkeypatch):
    monkeypatch.setattr("viewbox.publish.model.find_license", lambda section: {"license": "mit"})
    data = {"source": "owner/films", "columns": {"image": "image", "question": "q", "answer": "a"}}
    run = write_run(tmp_path / "run", model={"name": "owner/base"}, env={"name": "vqa", "data": data})
    publish_model(run / "adapter", tmp_path / "out", to="dir")
    header, text = read_card((tmp_path / "out" / "README.md").read_bytes())
    assert header["base_model"] == "owner/base"
    assert header["base_model_relation"] == "adapter"
    assert header["library_name"] == "peft"
    assert header["datasets"] == ["owner/films"]
    assert "| base model | `owner/base`, license: mit |" in text
    adapter = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert adapter == {"base_model_name_or_path": "owner/base", "peft_type": "LORA", "r": 4}


def test_no_path_of_this_machine_and_no_key_leaves(hf, tmp_path):
    (tmp_path / "cases.csv").write_text("image,q,a\n")
    data = {"source": str(tmp_path / "cases.csv"), "columns": {"image": "image", "question": "q", "answer": "a"}}
    run = write_run(tmp_path / "run", env={"name": "vqa", "data": data})
    send(run)
    for name, content in read_head(hf).items():
        assert str(tmp_path).encode() not in content, name
        assert KEY.encode() not in content, name
    _, text = read_card(read_head(hf)["README.md"])
    assert "| data | `cases.csv`, a file of its trainer |" in text
    assert "source: …/cases.csv" in text


def test_other_weights_than_were_sent_are_found(hf, run):
    hf.change = lambda name, content: content[:-1] + b"\0" if name.endswith(".safetensors") else content
    with pytest.raises(ConfigError, match=r"model\.safetensors has other content"):
        send(run)


@each("env", [{"name": "vqa", "data": {"source": "a.csv", "restricted": True}}, {"name": "mine:Env"}])
def test_what_was_learned_from_restricted_data_stays(hf, tmp_path, env):
    with pytest.raises(ConfigError, match="must not leave this machine"):
        send(write_run(tmp_path / "run", env=env))
    assert not hf.requests


def test_an_unknown_license_must_be_stated(tmp_path):
    base = tmp_path / "warm"
    base.mkdir()
    (base / "README.md").write_text("---\nbase_model: owner/base\n---\n")
    run = write_run(tmp_path / "run", model={"name": str(base)})
    with pytest.raises(ConfigError, match=r"license of its base \(owner/base\) is not known; allowed: --license"):
        publish_model(run, tmp_path / "out", to="dir")
    publish_model(run, tmp_path / "out", to="dir", license="MIT")
    header, text = read_card((tmp_path / "out" / "README.md").read_bytes())
    assert (header["license"], header["base_model"]) == ("mit", "owner/base")
    assert "| base model | `owner/base`, license: not known |" in text


def test_a_base_that_is_only_here_must_get_its_hub_name(tmp_path, monkeypatch):
    (tmp_path / "warm").mkdir()
    run = write_run(tmp_path / "run", model={"name": str(tmp_path / "warm")})
    with pytest.raises(ConfigError, match="--base-model OWNER/NAME"):
        publish_model(run, tmp_path / "out", to="dir", license="MIT")
    monkeypatch.setattr("viewbox.publish.model.find_license", lambda section: {"license": "mit"})
    publish_model(run, tmp_path / "out", to="dir", base_model="owner/base")
    assert read_card((tmp_path / "out" / "README.md").read_bytes())[0]["base_model"] == "owner/base"


def test_an_adapter_of_random_weights_and_a_folder_without_weights_or_run_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="had random weights"):
        publish_model(
            write_run(tmp_path / "tiny", model={"tiny": {}}) / "adapter", tmp_path / "out", to="dir", license="MIT"
        )
    for number, missing in enumerate(("config.yaml", "model/model.safetensors", "model/config.json")):
        run = write_run(tmp_path / f"run-{number}")
        (run / missing).unlink()
        with pytest.raises(ConfigError, match=r"holds no weights|config\.yaml of a run"):
            publish_model(run, tmp_path / "out", to="dir")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="--to prime: holds no models; allowed: dir, hf"):
        publish_model(write_run(tmp_path / "whole"), to="prime", id="me/reader")


def test_the_command_sends_a_run_after_yes_only_and_takes_no_option_of_environments(hf, run, viewbox, tmp_path):
    code, _, complaint = viewbox("publish", run, tmp_path / "out", "--set", "split=test")
    assert code == 2
    assert "--set: is for an environment" in complaint
    code, said, complaint = viewbox("publish", run, "--to", "hf", "--id", "me/reader")
    assert (code, hf.repos) == (2, {})
    assert "add --yes" in complaint
    assert "model.safetensors  (weights)" in said
    code, said, _ = viewbox("publish", run, "--to", "hf", "--id", "me/reader", "--yes")
    assert code == 0
    assert "sent to " in said
    assert KEY not in said


def test_a_folder_of_weights_is_replaced_only_by_force(run, tmp_path):
    publish_model(run, tmp_path / "out", to="dir")
    with pytest.raises(ConfigError, match="add --force"):
        publish_model(run, tmp_path / "out", to="dir")
    shutil.copy(run / "model" / "tokenizer.json", run / "model" / "vocab.json")
    package = publish_model(run, tmp_path / "out", to="dir", force=True, bump="patch")
    assert (package.version, Path(package.place)) == ("0.1.1", tmp_path / "out")
    assert (tmp_path / "out" / "vocab.json").is_file()
