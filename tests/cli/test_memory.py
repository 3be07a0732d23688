"""`viewbox config memory`: the table, the verdict, and the settings with which a run fits."""

import json
import re
from pathlib import Path

import pytest

import viewbox as package

CONFIGS = Path(package.__file__).with_name("configs")
SMALL = ["quickstart", "train.per_device_train_batch_size=8", "rollout.slots=4", "log.eval_tasks=4"]
WARM = ["tiny_warmstart", "train.per_device_train_batch_size=4", "log.eval_tasks=0"]
SAID = [  # what is given, the status, and what is said
    ([*SMALL, "--device-memory", "8GiB"], 0, [
        r"weights +0\.\d\d GiB|other", "keys and values|other", r"needs 0\.\d of 8\.0 GiB, \d+% \(\w+\): fits"]),
    ([*WARM, "--measure"], 0, [r"measured here: update \d+\.\d\d GiB"]),  # a supervised batch, too
    ([*SMALL, "lora={r: 4, quantize: 4bit}", "--measure"], 2, [r"allowed: no lora\.quantize"]),
    ([*SMALL, "--device-memory", "40MiB"], 1, ["does not fit", r"with train\.gradient_checkpointing=true"]),
    ([*WARM, "--device-memory", "1MiB", "--json"], 1, ['"fits": false']),  # a script is told by the status, too
    (["tiny_warmstart", "--gpus", "8"], 2, [r"train\.method = 'sft': verl cannot do this"]),
    *(([*SMALL, f"--device-memory={size}"], 2, ["--device-memory"]) for size in ("much", "-3GiB")),
]  # fmt: skip


@pytest.mark.slow
def test_the_table_and_the_verdict_are_printed(viewbox):
    for given, status, said in SAID:
        found, out, err = viewbox("config", "memory", *given)
        assert (found, [words for words in said if not re.search(words, out + err)]) == (status, []), (given, out, err)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["qwen3_vl_4b_qlora", *(pytest.param(name, marks=pytest.mark.nightly)
    for name in ("qwen3_vl_4b_lora", "qwen2_5_vl_3b"))])  # fmt: skip
def test_shipped_configs_fit_the_card_of_their_first_line(viewbox, config):
    size = re.search(r"one (\d+) GB GPU", (CONFIGS / f"{config}.yaml").read_text().splitlines()[0])[1]
    status, out, err = viewbox("config", "memory", config, "--device-memory", f"{size}GiB")
    assert (status, err, ": fits" in out) == (0, "", True), out


PICTURE = 24 * 24 * 3 * 2 * 16 * 16 * 4  # 384 x 384 pixels in patches of two equal frames of 16 x 16, in float32
LORA = 36 * 32 * (2 * (2560 + 4096) + 2 * (2560 + 1024) + 3 * (2560 + 9728))  # q, o; k, v; gate, up, down
ALL = ["lora=null", "model.dtype=float32"]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "overrides", "gpus", "weights", "trained", "sent"), [
    # in bytes; how many are trained, on a GPU
    ("4B", [], [], 8_875_631_616, LORA, 8_875_631_616 + 2 * 151_936 * 2560),  # the tied head is sent, too
    ("4B", [], ["--gpus=1"], 2 * 8_875_631_616 + 4 * LORA, LORA, 4 * LORA),
    ("8B", ALL, ["--gpus=8"], 2 * 17_534_247_392 / 8, 8_767_123_696 / 8, 2 * 17_534_247_392),
    pytest.param("32B", ALL, ["--gpus=32"], 2 * 66_714_780_128 / 32, 33_357_390_064 / 32, 2 * 66_714_780_128,
        marks=pytest.mark.nightly),
])  # fmt: skip
def test_the_parts_that_are_exact(viewbox, model, overrides, gpus, weights, trained, sent):
    given = [f"model.name=Qwen/Qwen3-VL-{model}-Instruct", "train.per_device_train_batch_size=64", *overrides]
    status, out, _ = viewbox("config", "memory", "qwen3_vl_4b_lora", *given, *gpus, "--json")
    report = json.loads(out)
    parts = [*report["phases"].values()][-1]["parts"]
    assert all(sum(phase["parts"].values()) == phase["peak"] for phase in report["phases"].values())
    assert (status, report["fits"]) == (0, None)
    assert parts["weights"] == pytest.approx(weights, abs=4096)  # and buffers
    assert parts["gradients"] == pytest.approx(4 * trained, abs=1)
    assert parts["optimizer"] == pytest.approx(8 * trained, abs=2)
    assert report["step"] == {"episodes": 64, "sampled tokens": 64 * 4 * 384, "tokens": 64 * (682 + 2560),
        "bytes of pictures": 64 * 4 * PICTURE, "bytes of weights sent": sent}  # fmt: skip
