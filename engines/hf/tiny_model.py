"""A Qwen3-VL of about a million random weights, with a tokenizer trained on the spot.

For the quickstart, for tests, and for whole runs on a laptop. The architecture, the processor and the chat template are
those of Qwen3-VL; only the sizes differ.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
]  # fmt: skip
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def build_tokenizer(corpus: Iterable[str], vocab_size: int = 896) -> Any:
    """Train a byte-level BPE tokenizer. Digits stay single tokens; merges may cross spaces and punctuation, so that
    boilerplate (JSON, tool schemas) takes few tokens and most tokens of a reply carry meaning."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(r"\n"), behavior="merged_with_previous"),
            pre_tokenizers.Split(Regex(r'(?<=: ")[a-z]+(?=")'), behavior="isolated"),  # a JSON string value
            pre_tokenizers.Split(Regex(r"[A-Z][a-z]+"), behavior="isolated"),  # a name, the same anywhere
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL + ADDED,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=256,
        show_progress=False,
    )
    raw.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=SPECIAL[1:]
    )


def build_processor(tok: Any, *, patch: int = 8, max_pixels: int = 64 * 64) -> Any:
    """Build the Qwen3-VL processor around a tokenizer; views of up to `max_pixels` are not resized."""
    import trl
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3_vl.jinja").read_text(encoding="utf-8")
    tok.chat_template = template
    images = Qwen2VLImageProcessorPil(
        size={"shortest_edge": (2 * patch) ** 2, "longest_edge": max_pixels}, patch_size=patch, merge_size=2
    )
    return Qwen3VLProcessor(
        image_processor=images, tokenizer=tok, video_processor=Qwen3VLVideoProcessor(), chat_template=template
    )


def build_config(
    tok: Any,
    *,
    hidden: int = 128,
    layers: int = 3,
    heads: int = 4,
    patch: int = 8,
    vision_hidden: int = 64,
    vision_layers: int = 4,
    positions: int = 64,
) -> Any:
    """Build the config of a small Qwen3-VL; `patch` is a side in pixels, `positions` those that the vision tower
    learns."""
    from transformers import Qwen3VLConfig

    ids = {name: tok.convert_tokens_to_ids(name) for name in SPECIAL}
    std = hidden**-0.5  # the usual 0.02 suits widths in the thousands; at this size learning would stall
    head = hidden // heads
    sections = [head // 2 - 2 * (head // 6), head // 6, head // 6]
    return Qwen3VLConfig(
        text_config={
            "vocab_size": len(tok),
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 2,
            "head_dim": head,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": sections,
                "mrope_interleaved": True,
                "rope_theta": 10000.0,
            },
            "initializer_range": std,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": vision_layers,
            "hidden_size": vision_hidden,
            "intermediate_size": 2 * vision_hidden,
            "num_heads": 4,
            "out_hidden_size": hidden,
            "patch_size": patch,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": positions,
            "initializer_range": std,
            "deepstack_visual_indexes": [vision_layers - 2],
        },
        initializer_range=std,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def build_model(tok: Any, *, seed: int = 0, **sizes: int) -> Any:
    from transformers import Qwen3VLForConditionalGeneration

    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(build_config(tok, **sizes))
    model.generation_config.eos_token_id = tok.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.pad_token_id = tok.convert_tokens_to_ids("<|endoftext|>")
    # other servers then sample as in training
    model.generation_config.do_sample, model.generation_config.top_k = True, 0
    return model
