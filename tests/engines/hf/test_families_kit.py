"""The tiny families are what a test takes them for: real processors and layers, and logits that see the picture."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from viewbox.tests.support.families import FAMILIES, build_family, save_family

QUESTION = "Which digit is this?\n"


def draw(seed, size=(72, 56)):
    noise = np.random.default_rng(seed).integers(0, 256, (size[1] // 4, size[0] // 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST)


def render(processor, turns):
    """Render user turns, each a question after a picture, with a reply between them."""
    messages = []
    for _ in range(turns):
        parts = [{"type": "image"}, {"type": "text", "text": QUESTION}]
        messages += [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": [{"type": "text", "text": "7"}]},
        ]
    return processor.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)


def encode(processor, text, images):
    return processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False)


def compute_logits(model, inputs):
    with torch.no_grad():
        return model(**inputs, use_cache=False).logits[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, tmp_path):
    family = FAMILIES[name]
    model, processor = build_family(name)
    assert model.config.model_type == name
    assert 50_000 < sum(weight.numel() for weight in model.parameters()) < 600_000
    assert {weight.dtype for weight in model.parameters()} == {torch.float32} and not model.training

    text = render(processor, 2)
    first, other = draw(0), draw(1)
    inputs = encode(processor, text, [first, other])
    image_id = getattr(model.config, "image_token_id", None) or model.config.image_token_index
    tokens = (inputs["input_ids"] == image_id).sum().item()
    print(name, inputs["input_ids"].shape[1], tokens)
    logits = compute_logits(model, inputs)
    assert logits.isfinite().all()
    assert logits.std(-1).mean() > 0.5, "the logits tell tokens apart"
    changed = compute_logits(model, encode(processor, text, [draw(2), other]))
    assert (logits[-1].softmax(-1) - changed[-1].softmax(-1)).abs().sum() > 0.01, "they see the picture"

    ends = processor.tokenizer.convert_tokens_to_ids(list(family.ends))
    assert model.generation_config.eos_token_id == ends
    folder = save_family(name, tmp_path)
    loaded, again = AutoModelForImageTextToText.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    assert (type(loaded), type(again)) == (type(model), type(processor))
    assert render(again, 2) == text
    torch.testing.assert_close(compute_logits(loaded, encode(again, text, [first, other])), logits)
    assert loaded.generation_config.eos_token_id == ends
