"""Every family of the kit: what the engine records is what a plain forward of the same episode says."""

import pytest
from PIL import Image

from tests.support.families import FAMILIES, NAMES
from viewbox.core.messages import Message
from viewbox.images.ref import ImageRef


@pytest.mark.parametrize("name", NAMES)
def test_log_probs_are_those_of_a_plain_forward(kits, name, play_mixed, measure_mismatch):
    family = kits(name)
    model = family.model()
    episodes = play_mixed(family.generator(model, slots=4, max_completion_tokens=900), tasks=2)
    assert {len(episode.tokens.images) for episode in episodes} >= {1, 2}
    assert measure_mismatch(model, family, episodes) <= family.tolerance


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_has_the_ids_of_the_familys_own_processor(kits, name):
    family = kits(name)
    messages = [Message("system", ("Be brief.",)), Message("user", ("What is this?", ImageRef.of(draw(90, 60)), "So?"))]
    ids, images = family.tokens.encode_prompt(messages, ())
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image"}, {"type": "text", "text": "So?"}]
    system = [{"type": "text", "text": "Be brief."}] if family.tokens.template.in_parts else "Be brief."
    said = [{"role": "system", "content": system}, {"role": "user", "content": parts}]
    text = family.processor.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    begins = family.tokenizer.bos_token is not None and text.startswith(family.tokenizer.bos_token)
    pictures = [image.open().convert("RGB") for image in images]
    whole = family.processor(text=[text], images=pictures, return_tensors="pt", add_special_tokens=not begins)
    assert ids == whole["input_ids"][0].tolist()


def draw(width, height):
    return Image.linear_gradient("L").resize((width, height))
