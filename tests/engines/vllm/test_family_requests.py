"""What a vLLM server is sent of each family: ids with one placeholder a picture, weights named as in a checkpoint.

`tests/vllm/test_families.py` asks vLLM itself. Right values here are those of transformers alone.
"""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.support.families import NAMES, build_family, save_family
from viewbox.engines.generator import ReplyError
from viewbox.engines.hf.adapters import use_merged_adapters
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.vllm import wire
from viewbox.engines.vllm.vllm import build_probe
from viewbox.engines.vllm.weights import iterate_weights
from viewbox.images.ref import ImageRef

# Whitespace and punctuation beside a picture: what stands for it may begin and end with newlines that merge with them
TEXTS = ("Look?{}\nWhat?", "\n\n{}", "b]{}", "{}\n\n\nc")
SIZES = ((224, 168), (140, 336), (64, 64), (90, 30))
PICTURES = tuple(ImageRef.of(Image.linear_gradient("L").resize(size)) for size in SIZES)


@pytest.fixture(scope="module", params=NAMES)
def tokens(request):
    model, processor = build_family(request.param)
    return ChatTokens(processor, model.config, model.generation_config)


def encode(tokens, text):
    return tokens.tokenizer(text, add_special_tokens=False)["input_ids"]


def expand(tokens, text, image):
    """The ids that the family's processor makes of a text with a placeholder and a picture."""
    given = {"text": [text], "images": [image.open().convert("RGB")]}
    return tokens.processor(**given, return_tensors="pt", add_special_tokens=False)["input_ids"][0].tolist()


def test_a_server_is_sent_the_text_as_it_was_before_its_pictures_were_put_in_one_by_one(tokens):
    mark = tokens.architecture.placeholder
    texts = [text.format(mark) for text in TEXTS]
    said = [*encode(tokens, "so"), tokens.end_id]
    whole = [i for text, image in zip(texts, PICTURES, strict=True) for i in [*expand(tokens, text, image), *said]]
    wanted = [i for text in texts for i in [*encode(tokens, text), *said]]
    assert len(whole) > len(wanted)
    assert wire.fold_ids(whole, PICTURES, tokens) == wanted
    shown = "".join(tokens.pixel_cache.describe(image)[1] for image in PICTURES[:3])
    assert wire.fold_ids(encode(tokens, shown + "so"), PICTURES[:3], tokens) == encode(tokens, mark * 3 + "so")
    probe = build_probe(tokens)
    counts = [tokens.count_image_tokens(image) for image in probe.images]
    assert list(probe.ids).count(tokens.image_id) == sum(counts)
    assert wire.fold_ids(probe.ids, probe.images, tokens) == encode(tokens, f"a b c{mark}d{mark}d")


@pytest.mark.parametrize("wrong", ["one missing", "one too many", "sampled before", "sampled after", "two swapped"])
def test_ids_that_do_not_fit_their_images_are_never_sent(tokens, wrong):
    ids = encode(tokens, "a" + "b".join(tokens.pixel_cache.describe(image)[1] for image in PICTURES[:2]) + "c")
    images, own = PICTURES[:2], tokens.image_id
    if wrong == "one missing":
        images = images[:1]
    elif wrong == "one too many":
        images = PICTURES[:3]
    elif wrong == "two swapped":
        images = images[::-1]
        if len({tokens.pixel_cache.describe(image)[1] for image in images}) == 1:
            pytest.skip("all pictures have the same tokens")
    else:
        ids.insert(1 if wrong == "sampled before" else len(ids), own)
    with pytest.raises(ReplyError, match="placeholder"):
        wire.fold_ids(ids, images, tokens)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_sent_under_the_names_and_in_the_layout_of_the_models_file(name, tmp_path):
    """Also after adapters were merged, which are added as the weights are sent."""
    model = AutoModelForImageTextToText.from_pretrained(save_family(name, tmp_path / "start"))
    sent, saved = dict(iterate_weights(model)), load_file(tmp_path / "start" / "model.safetensors")
    assert saved.keys() <= sent.keys()
    assert all(name.endswith("lm_head.weight") for name in sent.keys() - saved.keys())  # tied, yet sent
    assert all(torch.equal(value, sent[name]) for name, value in saved.items())
    layers = [name for name, _ in model.named_modules() if name.endswith("mlp.down_proj") and "language_model" in name]
    layers = layers or [name for name, _ in model.named_modules() if name.endswith(("q_proj", "w1"))][:4]
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=layers[-1:], init_lora_weights=False))
    with use_merged_adapters(adapted):
        sent = {name: tensor.clone() for name, tensor in iterate_weights(adapted)}
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert [name for name, value in merged.items() if not torch.equal(value, saved[name])]
    assert all(torch.allclose(value, sent[name], atol=1e-6) for name, value in merged.items())
