"""`viewbox config memory`: the table, the verdict, and the settings with which a run fits."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import viewbox as package

CONFIGS = Path(package.__file__).with_name("configs")

SMALL = ["quickstart", "train.per_device_train_batch_size=8", "rollout.slots=4", "log.eval_tasks=4"]


def test_a_run_that_fits(viewbox):
    status, out, _ = viewbox("config", "memory", *SMALL, "--device-memory", "8GiB")
    assert status == 0
    assert re.search(r"weights +0\.\d\d GiB", out) or "other" in out
    assert "keys and values" in out or "other" in out
    assert re.search(r"needs 0\.\d of 8\.0 GiB, \d+% \(\w+\): fits", out)


def test_the_parts_add_up_to_the_peak_and_a_batch_can_be_measured(viewbox):
    status, out, _ = viewbox("config", "memory", *SMALL, "--json", "--measure")
    report = json.loads(out)
    assert (status, list(report["phases"])) == (0, ["generation", "update"])
    for phase in report["phases"].values():
        assert sum(phase["parts"].values()) == phase["peak"]
    assert report["fits"] is None
    assert report["measured"] > 0


def test_a_supervised_batch_is_measured_too(viewbox):
    small = ("train.per_device_train_batch_size=4", "log.eval_tasks=0")
    status, out, _ = viewbox("config", "memory", "tiny_warmstart", *small, "--measure")
    assert status == 0
    assert re.search(r"measured here: update \d+\.\d\d GiB", out)


def test_weights_of_4_bits_are_not_measured(viewbox):
    status, _, error = viewbox("config", "memory", "qwen3_vl_4b_qlora", "--measure")
    assert status == 2
    assert "allowed: no lora.quantize" in error


def test_a_run_that_does_not_fit_is_told_what_to_change(viewbox):
    status, out, _ = viewbox("config", "memory", *SMALL, "--device-memory", "40MiB")
    assert status == 1
    assert "does not fit" in out
    assert "with train.gradient_checkpointing=true" in out


def test_a_script_is_told_by_the_status_too(viewbox):
    status, out, _ = viewbox("config", "memory", *SMALL, "--device-memory", "40MiB", "--json")
    assert (status, json.loads(out)["fits"]) == (1, False)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["qwen3_vl_4b_lora", "qwen3_vl_4b_qlora", "qwen2_5_vl_3b"])
def test_shipped_configs_fit_the_card_of_their_first_line(config):
    first = (CONFIGS / f"{config}.yaml").read_text().splitlines()[0]
    size = re.search(r"one (\d+) GB GPU", first)[1]
    command = [sys.executable, "-m", "viewbox", "config", "memory", config, "--device-memory", f"{size}GiB"]
    done = subprocess.run(command, text=True, capture_output=True)  # a process of its own: nothing was imported yet
    assert done.returncode == 0, done.stdout
    assert ": fits" in done.stdout
    assert done.stderr == ""


PICTURE = 24 * 24 * 3 * 2 * 16 * 16 * 4  # 384 x 384 pixels in patches of two equal frames of 16 x 16, in float32
LORA = 36 * 32 * (2 * (2560 + 4096) + 2 * (2560 + 1024) + 3 * (2560 + 9728))  # q, o; k, v; gate, up, down
EVERY_WEIGHT = ["lora=null", "model.dtype=float32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "overrides", "gpus", "weights", "trained", "sent"),  # in bytes; how many are trained, on a GPU
    [
        ("4B", [], [], 8_875_631_616, LORA, 8_875_631_616 + 2 * 151_936 * 2560),  # the tied head is sent, too
        ("4B", [], ["--gpus=1"], 2 * 8_875_631_616 + 4 * LORA, LORA, 4 * LORA),
        ("8B", EVERY_WEIGHT, ["--gpus=8"], 2 * 17_534_247_392 / 8, 8_767_123_696 / 8, 2 * 17_534_247_392),
        ("32B", EVERY_WEIGHT, ["--gpus=32"], 2 * 66_714_780_128 / 32, 33_357_390_064 / 32, 2 * 66_714_780_128),
    ],
)
def test_the_parts_that_are_exact(viewbox, model, overrides, gpus, weights, trained, sent):
    given = [f"model.name=Qwen/Qwen3-VL-{model}-Instruct", "train.per_device_train_batch_size=64", *overrides]
    status, out, _ = viewbox("config", "memory", "qwen3_vl_4b_lora", *given, *gpus, "--json")
    report = json.loads(out)
    parts = [*report["phases"].values()][-1]["parts"]
    assert status == 0
    assert parts["weights"] == pytest.approx(weights, abs=4096)  # and buffers
    assert parts["gradients"] == pytest.approx(4 * trained, abs=1)
    assert parts["optimizer"] == pytest.approx(8 * trained, abs=2)
    assert report["step"] == {
        "episodes": 64,
        "sampled tokens": 64 * 4 * 384,
        "tokens": 64 * (682 + 2560),
        "bytes of pictures": 64 * 4 * PICTURE,
        "bytes of weights sent": sent,
    }


def test_what_verl_cannot_train_has_no_share(viewbox):
    status, _, error = viewbox("config", "memory", "tiny_warmstart", "--gpus", "8")
    assert status == 2
    assert "train.method = 'sft': verl cannot do this" in error


def test_a_size_that_is_none(viewbox):
    for given in ["much", "-3GiB"]:
        status, _, error = viewbox("config", "memory", *SMALL, f"--device-memory={given}")
        assert status == 2
        assert "--device-memory" in error
