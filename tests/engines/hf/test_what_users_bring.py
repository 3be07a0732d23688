"""What broke other software that trains or serves these families. Each row has its right value and the report."""

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import AddedToken, pre_tokenizers

from tests.support import family_episodes
from tests.support.families import NAMES, build_family
from tests.support.tables import each
from viewbox.core.messages import Message
from viewbox.engines.generator import Conversation
from viewbox.engines.hf.chat_template import ASSISTANT, USER
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.errors import ImageError
from viewbox.images.ref import ImageRef

HUB = "https://github.com/"
NOISE = np.random.default_rng(0)


def read(model, processor):
    return ChatTokens(processor, model.config, model.generation_config)


def noise(width, height, channels=3):
    return Image.fromarray(NOISE.integers(0, 256, (height, width, channels), dtype=np.uint8))


# ---------------------------------------------------------------------- ends
# fmt: off
ENDS = (  # family, the only end that its configs name, the end that its template writes, report
    ("idefics3", "<|end_of_text|>", "<end_of_utterance>", "Blaizzy/mlx-vlm/issues/1932"),
    ("gemma3", "<eos>", "<end_of_turn>", "Blaizzy/mlx-vlm/pull/309"),
    ("gemma4", "<eos>", "<turn|>", "NVIDIA-NeMo/Megatron-Bridge/pull/5246"),
    ("qwen2_vl", "<|endoftext|>", "<|im_end|>", "Blaizzy/mlx-vlm/pull/2112"),
    ("llava_onevision", "<|endoftext|>", "<|im_end|>", "hiyouga/LlamaFactory/issues/7454"),
    ("aya_vision", "<PAD>", "<|END_OF_TURN_TOKEN|>", "huggingface/nanoVLM/issues/197"),
)
# fmt: on


@each("family, named, written, report", ENDS)
def test_the_token_that_the_template_ends_replies_with_ends_them(family, named, written, report):
    model, processor = build_family(family)
    processor.tokenizer.eos_token = named
    given, right = processor.tokenizer.convert_tokens_to_ids([named, written])
    for config in (model.config, model.config.get_text_config(), model.generation_config):
        config.eos_token_id = given
    tokens = read(model, processor)
    assert (tokens.end_id, tokens.template.end) == (right, written), HUB + report
    assert {given, right} <= tokens.stop_ids
    assert any(written in note and "no config names" in note for note in tokens.template.notes)


BETWEEN = (  # family, the token that the policy ended its reply with, that and what follows, report
    ("glm46v", "<|observation|>", "<|observation|>\n<tool", "fw-ai/cookbook/pull/400"),
    ("glm46v", "<|user|>", "<|user|><|observation|>\n<tool", "fw-ai/cookbook/pull/400"),  # what was sampled stays
    ("glm46v", "a", "a<|observation|>\n<tool", "zai-org/GLM-4/issues/398"),  # cut off by its length
    ("glm4v", "<|user|>", "<|user|>\n<tool", "lmstudio-ai/lmstudio-bug-tracker/issues/1992"),
    ("glm4v", "<|endoftext|>", "<|endoftext|><|user|>\n<tool", "fw-ai/cookbook/pull/400"),
    ("qwen2_vl", "<|im_end|>", "<|im_end|>\n<|im_start|>user", "NVIDIA-NeMo/labs-molt/pull/131"),
    ("qwen2_vl", "a", "a<|im_end|>\n<|im_start|>user", "NVIDIA-NeMo/labs-molt/pull/131"),
)


@each("family, last, right, report", BETWEEN)
def test_a_reply_ends_once(family, last, right, report):
    tokens = read(*build_family(family))
    conversation = Conversation([Message("system", ("s",)), Message("user", ("q",))], (), 0, 0)
    tokens.observe(conversation, 1000)
    conversation.record.add_sampled([tokens.tokenizer.convert_tokens_to_ids(last)], [-1.0])
    conversation.messages += [Message("assistant", ("",)), Message("tool", ("r",))]
    tokens.observe(conversation, 1000)
    assert tokens.tokenizer.decode(conversation.record.completion_ids).startswith(right), HUB + report


# ---------------------------------------------------------------------- what is around text
def begin_with_a_space(tokenizer, end):
    """As Llama's and Mistral's tokenizers: only what begins a text gets a space before it."""
    space = pre_tokenizers.Metaspace(prepend_scheme="first")
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([space, rest])


def swallow_spaces(tokenizer, end):
    """As Phi's tokenizer: its end token takes the white space after it."""
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken(end, special=True, normalized=False, rstrip=True)])


TOKENIZERS = (
    (begin_with_a_space, "haotian-liu/LLaVA/issues/661"), (swallow_spaces, "huggingface/transformers/issues/29872"),
)  # fmt: skip


@pytest.mark.parametrize("family", NAMES)
def test_an_observation_has_the_ids_that_it_has_in_the_whole_text_and_marks_of_pictures_in_it_are_text(family):
    """https://github.com/MakazhanAlpamys/Soup/pull/488, https://github.com/hiyouga/EasyR1/issues/110"""
    model, processor = build_family(family)
    tokens = read(model, processor)
    mark, token = tokens.architecture.placeholder, tokens.tokenizer.convert_ids_to_tokens(tokens.image_id)
    text = f"{mark}\nWhat is {token}? {tokens.template.end}"
    controls = {*tokens.never_sampled, tokens.end_id}

    def count(ids):
        return sum(i in controls for i in ids)

    prompts = [tokens.encode_prompt([Message("system", (a,)), Message("user", (b,))], ())[0]
               for a, b in (("S", "q"), (text, "q"), ("S", text))]  # fmt: skip
    assert len({count(ids) for ids in prompts}) == 1
    results = [tokens.encode_observation([Message("tool", (said,))], ended=True)[0] for said in ("q", text)]
    assert count(results[0]) == count(results[1])
    assert count(tokens.encode_reply(text)) == 1
    for change, report in TOKENIZERS:
        model, processor = build_family(family)
        change(processor.tokenizer, tokens.template.end)
        changed = read(model, processor)
        ids, _ = changed.encode_observation([Message("tool", ("nothing",))], ended=True)
        template = changed.template
        said = template.merge_user_messages([template.build_tool_result([{"type": "text", "text": "nothing"}])])
        text = template.render([USER, ASSISTANT, *said], prompt=True)
        whole = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert whole[-len(ids) :] == ids, HUB + report
        assert not template.writes_end or whole[-len(ids) - 1] == changed.end_id


# ---------------------------------------------------------------------- pictures
# fmt: off
SIZES = (  # width, height, report
    (1, 1, "vllm-project/vllm/issues/8954"), (3, 3, "vllm-project/vllm/issues/8954"),
    (2, 1, "raullenchai/Rapid-MLX/pull/739"), (3, 64, "raullenchai/Rapid-MLX/pull/739"),
    (31, 639, "QwenLM/Qwen3-VL/pull/1145"), (690, 15420, "QwenLM/Qwen3-VL/issues/220"),
    (4000, 10, "QwenLM/Qwen3-VL/issues/220"), (10, 4000, "QwenLM/Qwen3-VL/pull/2121"),
    (337, 64, "huggingface/transformers/issues/34625"),
)
STRICT = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4v", "glm46v")  # up to 1 : 200
REFUSED = {  # by the family's own processor
    *((family, *size) for family in (*STRICT, "mistral3", "lfm2_vl") for size in ((4000, 10), (10, 4000))),
    *(("lfm2_vl", *size) for size in ((31, 639), (690, 15420))),  # its thumbnail is larger than a tile
}
# fmt: on


@pytest.mark.parametrize("family", NAMES)
def test_a_picture_of_any_size_has_as_many_tokens_as_features_or_is_refused(family):
    model, processor = build_family(family)
    tokens, beside = read(model, processor), ImageRef.of(noise(64, 64))
    for width, height, report in SIZES:
        image = ImageRef.of(noise(width, height))
        if (family, width, height) in REFUSED:
            with pytest.raises(ImageError, match=f"{width}x{height}"):
                tokens.get_pixels(image)
            continue
        pixels = tokens.get_pixels(image)
        with torch.no_grad():
            (alone,) = tokens.architecture.encode_images(model, [pixels])
            second = tokens.architecture.encode_images(model, [tokens.get_pixels(beside), pixels])[1]
        assert len(alone[0]) == pixels.tokens, HUB + report
        torch.testing.assert_close(alone[0], second[0], atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------------- the loss
def pad_with(token):
    def change(model, processor):
        tokenizer = processor.tokenizer
        tokenizer.pad_token = token and tokenizer.convert_ids_to_tokens(token(model, tokenizer))

    return change


def narrow_window(model, processor):
    """A picture has more tokens than a layer sees."""
    text = model.config.get_text_config()
    text.sliding_window = 2
    for part in model.modules():
        if getattr(part, "sliding_window", None):
            part.sliding_window = 2


def pad_vocabulary(model, processor):
    model.resize_token_embeddings(len(processor.tokenizer) + 37)


LOSSES = (  # family, what is unusual, report
    ("gemma3", narrow_window, "huggingface/transformers/pull/46850"),
    ("gemma4_31b", narrow_window, "vllm-project/vllm/pull/47217"),
    ("qwen2_vl", pad_vocabulary, "NVIDIA-NeMo/RL/issues/237"),
    ("gemma3", pad_vocabulary, "vllm-project/vllm/pull/22471"),
    ("llava", pad_with(lambda model, tokenizer: tokenizer.eos_token_id), "mlabonne/llm-course/issues/33"),
    ("smolvlm", pad_with(None), "ibm-granite/granite-3.1-language-models/issues/2"),
    ("qwen2_vl", pad_with(lambda model, tokenizer: model.config.image_token_id), "unslothai/unsloth/issues/3481"),
    ("gemma3", lambda model, processor: model.train(), "huggingface/trl/issues/4142"),
)


@pytest.mark.parametrize(("family", "change", "report"), LOSSES)
def test_numbers_are_those_of_plain_forwards(family, change, report, monkeypatch):
    def build(name):
        model, processor = build_family(name)
        change(model, processor)
        return model, processor

    monkeypatch.setattr(family_episodes, "build_family", build)
    kit = family_episodes.FamilyKit(family)
    episodes = kit.make_episodes()  # text alone, pictures first, last and side by side
    batch = kit.collate(episodes)
    ours = kit.score(kit.model, batch, episodes)
    theirs = kit.score_plainly(kit.model, episodes, batch["completion_ids"].shape[1])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5, msg=HUB + report)
