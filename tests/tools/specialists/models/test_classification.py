"""`kind: classification` on real tiny models, compared with a plain transformers forward."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModelForImageClassification

from tests.support.refusals import check_refusal
from tests.support.served_models import forget_servers
from tests.support.specialist_env import Clinic, call, get_picture, get_results, offer
from tests.support.tables import each
from tests.support.tiny_specialists import LABELS, save_vit
from viewbox.errors import ConfigError

make = partial(offer, "classification")


def get_logits(folder, env, task=0):
    """What transformers says of the overview of a task."""
    inputs = AutoImageProcessor.from_pretrained(folder)(images=[get_picture(env, task)], return_tensors="pt")
    with torch.inference_mode():
        return AutoModelForImageClassification.from_pretrained(folder).eval()(**inputs).logits[0]


@pytest.mark.parametrize("several", [False, True])  # whether labels do not exclude each other
def test_probabilities_are_those_of_the_model_the_highest_first(tmp_path, several):
    folder = save_vit(tmp_path, **({"problem_type": "multi_label_classification"} if several else {}))
    env = make(folder)
    logits = get_logits(tmp_path, env)
    expected = torch.sigmoid(logits) if several else torch.softmax(logits, 0)
    (result,) = get_results(env, call("look"))
    assert result.facts == pytest.approx(dict(zip(LABELS, expected.tolist(), strict=True)), abs=1e-4)
    assert list(result.facts.values()) == sorted(result.facts.values(), reverse=True)
    assert several or max(expected) - min(expected) > 0.05  # the model says something
    (result,) = get_results(make(folder, top_k=1), call("look"))
    assert list(result.facts) == [LABELS[int(logits.argmax())]]
    assert "2 labels left out" in result.text


def test_a_picture_unlike_those_that_the_model_knows_gets_their_rates(tmp_path):
    save_vit(tmp_path)
    known = {"mean": [0.0] * 4, "whiten": np.eye(4).tolist(), "rates": [0.5, 0.3, 0.2]}
    for at_most, words in ((0.0, "uncertain"), (1e9, "probabilities")):
        edit_config(known={**known, "at_most": at_most})(tmp_path)
        env = make(tmp_path, max_batch=15 + bool(at_most), memory=10**9 + bool(at_most))
        (result,) = get_results(env, call("look"))
        assert result.text.startswith(words)
        assert (result.facts == dict(zip(LABELS, known["rates"], strict=True))) == (at_most == 0)


HEADS = {"side": ["left", "right"], "finding": ["none", "opacity", "effusion"]}
FLAT = ["left", "right", "none", "opacity", "effusion"]


@pytest.mark.parametrize("place", ["yaml", "config"])
def test_several_heads_are_choices_of_their_own(tmp_path, place):
    folder = save_vit(tmp_path, FLAT, **({"heads": HEADS} if place == "config" else {}))
    env = make(folder, **({"heads": HEADS} if place == "yaml" else {}))
    logits = get_logits(tmp_path, env)
    (result,) = get_results(env, call("look"))
    for head, numbers in (("side", [0, 1]), ("finding", [2, 3, 4])):
        shares = torch.softmax(logits[numbers], 0).tolist()
        expected = {FLAT[number]: share for number, share in zip(numbers, shares, strict=True)}
        assert dict(result.facts[head]) == pytest.approx(expected, abs=1e-4)


def test_a_model_is_loaded_once_and_two_tools_of_it_share_results(tmp_path):
    folder = save_vit(tmp_path)
    spec = {"kind": "classification", "model": folder, "device": "cpu"}
    env = Clinic(specialists={"one": spec, "two": {**spec, "top_k": 1}})
    server = env.toolbox["one"].function.server
    assert env.toolbox["two"].function.server is server
    assert Clinic(specialists={"three": spec}).toolbox["three"].function.server is server
    one, two = get_results(env, call("one"), call("two"))
    assert list(one.facts)[:1] == list(two.facts)
    assert sum(server.batches) == 1


def test_a_model_of_one_color_channel(tmp_path):
    env = make(save_vit(tmp_path, num_channels=1))
    edit("preprocessor_config.json", image_mean=[0.5], image_std=[0.5])(tmp_path)
    (result,) = get_results(env, call("look"))
    assert sum(result.facts.values()) == pytest.approx(1, abs=1e-3)


def remove(name):
    return lambda folder: (folder / name).unlink()


def edit(name, **changes):
    def change(folder):
        path = folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | changes))

    return change


edit_config = partial(edit, "config.json")


def only_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def without_head(folder):
    weights = {name: one for name, one in load_file(folder / "model.safetensors").items() if "classifier" not in name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def with_text_encoder(folder):
    weights = load_file(folder / "model.safetensors") | {"text_encoder.weight": torch.zeros(2)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def cut_off(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def index(name):
    return edit("model.safetensors.index.json", weight_map={"a": name})


RATELESS = {"mean": [0.0], "whiten": [[1.0]], "at_most": 1.0}


@each("damage, says", [
    (index("../x.safetensors"), "allowed: files .safetensors in its folder"),
    (index("pytorch_model.bin"), "allowed: files .safetensors in its folder"),
    *((remove(name), name) for name in ("config.json", "model.safetensors", "preprocessor_config.json")),
    (cut_off, "cannot be loaded"), (only_pickle, "model.safetensors"),
    (without_head, "no weights for classifier.bias, classifier.weight: it was not trained as"),
    (with_text_encoder, "weights that would be dropped, text_encoder.weight: it was not"),
    (edit("preprocessor_config.json", size={"height": 333, "width": 333}), "fails at a gray picture"),
    (edit_config(known={"gift": 1}), "cannot be loaded"),
    (edit_config(known={**RATELESS, "mean": [0.0] * 4}), "gray"),
    (edit_config(known=RATELESS), "fails at a gray picture"),
    (edit_config(model_type="owlvit"), "unknown model_type 'owlvit'; allowed: "),
    (edit_config(model_type="gift"), "gift"), (edit_config(hidden_size=64), "cannot be loaded"),
])  # fmt: skip
def test_a_model_that_cannot_be_loaded_is_an_error_at_start_up(tmp_path, damage, says):
    forget_servers()
    folder = Path(save_vit(tmp_path / "model"))
    damage(folder)
    said = check_refusal(make(folder).prepare, "specialists.look.model", says)
    assert said.startswith(f"specialists.look.model = {str(folder)!r}: ")


@each("spec, key, says", [
    ({"model": "./no/such/folder"}, "model", "no such folder"),
    ({"model": "package:no_such_model"}, "model", "unknown shipped model"),
    ({"model": "nobody/no-such-model"}, "model", "cannot be loaded"),
    ({"device": "cuda:7"}, "device", "there is no such GPU; allowed: auto, cpu"),
    ({"memory": "1kB"}, "memory", "allowed: at most memory = 1,000"),
    ({"heads": {"side": ["left"]}}, "heads", "heads.side: unknown label 'left'; allowed: clear, effusion, opacity"),
])  # fmt: skip
def test_a_setting_that_cannot_hold_is_named(tmp_path, monkeypatch, spec, key, says):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no retries of the hub
    forget_servers()
    check_refusal(make(save_vit(tmp_path / "model"), **spec).prepare, f"specialists.look.{key}", says)


def test_code_in_a_model_folder_is_not_run_and_a_config_that_names_code_of_a_hub_repository_is_refused(tmp_path):
    folder = Path(save_vit(tmp_path / "model"))
    for named in ("gift/kernel", {"": "gift/kernel"}):
        edit_config(attn_implementation=named)(folder)
        with pytest.raises(ConfigError, match=r"code of a hub repository; allowed: one that is part of transformers"):
            make(folder).prepare()
    folder, ran = Path(save_vit(tmp_path / "other")), tmp_path / "RAN"
    (folder / "gift.py").write_text(f"from pathlib import Path\nPath({str(ran)!r}).touch()\nclass Thing: pass\n")
    classes = {"AutoConfig": "gift.Thing", "AutoModelForImageClassification": "gift.Thing"}
    edit_config(auto_map=classes, model_type="gift")(folder)
    processor = {"auto_map": {"AutoImageProcessor": "gift.Thing"}, "image_processor_type": "G"}
    edit("preprocessor_config.json", **processor)(folder)
    with pytest.raises(ConfigError):
        make(folder).prepare()
    assert not ran.exists()


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    env = make(save_vit(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    says = "specialists.look.kind = 'classification': needs transformers"
    check_refusal(env.prepare, "specialists.look.kind", says)
