"""A server gets the picture that a local model sees: 8 bits, not cut off at 255, no color that is transparent."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.families import build_family
from tests.support.tables import each
from viewbox.configs.sections import SamplingParams
from viewbox.core.messages import to_openai_messages
from viewbox.engines.generator import Conversation
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.vllm.generator import TokenRequest
from viewbox.engines.vllm.wire import build_request
from viewbox.images.ref import ImageRef
from viewbox.records import Message

RAMP = [0, 51, 255]  # nothing, a fifth, and all of the range


def draw(values, dtype):
    return Image.fromarray(np.repeat(np.array(values, dtype), 20)[None].repeat(40, 0))


def lay(hidden, mode):
    """A gray square on what is transparent, which lies on white (docs/images.md)."""
    image = Image.new(mode, (60, 40), hidden)
    image.paste((51, 255) if mode == "LA" else (51, 51, 51, 255), (20, 0, 40, 40))
    return image


PICTURES = {  # the levels of three bands, from left to right; the report
    "I;16": (draw([0, 800, 4000], np.uint16), RAMP, "python-pillow/Pillow/issues/5991"),
    "I": (draw([-1000, 0, 4000], np.int32), RAMP, "huggingface/transformers/issues/25694"),
    "F": (draw([0, 0.2, 1], np.float32), RAMP, "python-pillow/Pillow/issues/5991"),
    "RGBA": (lay((200, 10, 10, 0), "RGBA"), [255, 51, 255], "InternLM/InternLM-XComposer/issues/439"),
    "LA": (lay((200, 0), "LA"), [255, 51, 255], "InternLM/InternLM-XComposer/issues/439"),
    "1": (draw([0, 255, 255], np.uint8).convert("1"), [0, 255, 255], "Pillow: 1 bit"),
    "L": (draw(RAMP, np.uint8), RAMP, "as it is"),
    "CMYK": (draw(RAMP, np.uint8).convert("RGB").convert("CMYK"), RAMP, "PNG has no CMYK"),
}


def read_levels(url):
    image = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
    assert image.mode in ("L", "RGB", "1"), image.mode
    pixels = np.asarray(image.convert("RGB"))
    assert (pixels == pixels[..., :1]).all()
    return pixels[20, 10::20, 0].tolist()


LOCAL = ("qwen2_vl", "gemma3", "smolvlm", "llava", "idefics3", "internvl", "mistral3")


@pytest.fixture(scope="module")
def families():
    built = [build_family(name) for name in LOCAL]
    return [ChatTokens(processor, model.config, model.generation_config) for model, processor in built]


@each("image, levels, report", PICTURES.values())
def test_a_server_and_a_local_model_see_the_same(image, levels, report, families):
    ref, tokens = ImageRef.of(image), families[0]
    (message,) = to_openai_messages([Message("user", ("Look.", ref))])
    assert read_levels(message["content"][1]["image_url"]["url"]) == levels, report
    ids = tokens.tokenizer(tokens.pixel_cache.describe(ref)[1])["input_ids"]
    request = TokenRequest(Conversation([], (), 0, 0), tuple(ids), (ref,), 8, 0)
    (part,) = build_request("tiny", request, tokens, SamplingParams())["content_parts"]
    assert read_levels(part["url"]) == levels, report
    gray = ImageRef.of(np.repeat(np.array(levels, np.uint8), 20)[None].repeat(40, 0))
    for tokens in families:
        assert torch.equal(*(tokens.get_pixels(one).inputs["pixel_values"] for one in (ref, gray))), report
