"""The tiny families are what a test takes them for: real processors and layers, and logits that see the picture."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.support.families import FAMILIES, NAMES, build_family, save_family

# Image tokens of a picture of 72 × 56 pixels, by hand from each processor's rule.
TOKENS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4v", "glm46v"), 16),
    **dict.fromkeys(("gemma4", "gemma4_31b"), 9 * 7),  # the largest grid of that shape with 70 cells
    **dict.fromkeys(("smolvlm", "idefics3", "internvl", "aya_vision"), 5 * 4),  # four tiles and the whole
    "gemma3": 4,
    "llava": 16,
    "llava_next": 16 + 6 * (8 + 1),  # the whole; of 8 rows of tiles, two are borders; each row ends in a token
    "llava_onevision": 16 + 1,  # of two pictures; alone, one has tiles
    "mistral3": 4 * 4,
    "lfm2_vl": 4 * 4 + 2,
}
QUESTION, REPLY = "Which digit is this?\n", "seven"


def draw(seed, size=(72, 56)):
    noise = np.random.default_rng(seed).integers(0, 256, (size[1] // 4, size[0] // 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST)


def render(processor, reply, *, prompt=True):
    """Render two questions after a picture, with a reply between them."""
    ask = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    turns = [ask, {"role": "assistant", "content": reply}, ask]
    return processor.apply_chat_template(turns, add_generation_prompt=prompt, tokenize=False)


def find_reply(processor):
    """Return the reply as the template takes it: some drop a string, others write a list as Python does."""
    for reply in (REPLY, [{"type": "text", "text": REPLY}]):
        text = render(processor, reply)
        if REPLY in text and "'type'" not in text:
            return reply
    raise AssertionError("no form of a reply is rendered")


def encode(processor, text, images):
    return processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False)


def compute_logits(model, inputs):
    with torch.no_grad():
        return model(**inputs, use_cache=False).logits[0]


@pytest.mark.parametrize("name", NAMES)
def test_family(name, tmp_path):
    family = FAMILIES[name]
    model, processor = build_family(name)
    assert name.startswith(model.config.model_type)
    assert 50_000 < sum(weight.numel() for weight in model.parameters()) < 600_000
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert not model.training

    reply = find_reply(processor)
    text = render(processor, reply)
    assert text.partition(REPLY)[2].startswith(family.written_end)
    first, other = draw(0), draw(1)
    inputs = encode(processor, text, [first, other])
    image_id = getattr(model.config, "image_token_id", None) or model.config.image_token_index
    assert (inputs["input_ids"] == image_id).sum() == 2 * TOKENS[name]
    logits = compute_logits(model, inputs)
    assert logits.isfinite().all()
    assert logits.std(-1).mean() > 0.5, "the logits tell tokens apart"
    changed = compute_logits(model, encode(processor, text, [draw(2), other]))
    moved = (logits[-1].softmax(-1) - changed[-1].softmax(-1)).abs().sum()
    assert moved > 0.01, "they see the picture"

    ends = processor.tokenizer.convert_tokens_to_ids(list(family.ends))
    assert model.generation_config.eos_token_id == ends
    folder = save_family(name, tmp_path)
    loaded, again = AutoModelForImageTextToText.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    assert (type(loaded), type(again)) == (type(model), type(processor))
    assert render(again, reply) == text
    torch.testing.assert_close(compute_logits(loaded, encode(again, text, [first, other])), logits)
    assert loaded.generation_config.eos_token_id == ends
