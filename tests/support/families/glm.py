"""GLM-4.1V and GLM-4.6V: no token ends a reply but the next message's own."""

from typing import Any

import transformers as hf

from .parts import TEXT, build_tokenizer, build_weights, get_ids, get_text_ids, read_template

PATCH = 8
SPECIAL = (
    "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> "
    "<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|> <|image|> <|video|>"
)
ADDED = "<think> </think> <|begin_of_box|> <|end_of_box|>"
ANSWERS = "<answer> </answer>"
CALLS = "<tool_call> </tool_call> <tool_response> </tool_response> <arg_key> </arg_key> <arg_value> </arg_value>"


def build_glm(seed: int, name: str, special: str, added: str) -> tuple[Any, Any]:
    """Build either family by its name in transformers' classes."""
    tokenizer = build_tokenizer(special, "<|endoftext|> <|endoftext|>", added=added)
    frames = 2  # the processor counts a picture's pixels once a frame
    size = {"shortest_edge": frames * (2 * PATCH) ** 2, "longest_edge": frames * 64 * 64}
    images = getattr(hf, f"{name}ImageProcessor")(size=size, patch_size=PATCH)
    processor = getattr(hf, f"{name}Processor")(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=getattr(hf, f"{name}VideoProcessor")(),
        chat_template=read_template(name.lower()),
    )
    config = getattr(hf, f"{name}Config")(
        text_config={
            **TEXT,
            **get_text_ids(tokenizer),
            "attention_bias": True,  # as released: vLLM reads it, transformers has the biases in any case
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
            },
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
            "out_hidden_size": TEXT["hidden_size"], "patch_size": PATCH, "image_size": 64, "spatial_merge_size": 2,
        },
        **get_ids(
            tokenizer,
            image_token_id="<|image|>",
            video_token_id="<|video|>",
            image_start_token_id="<|begin_of_image|>",
            image_end_token_id="<|end_of_image|>",
            video_start_token_id="<|begin_of_video|>",
            video_end_token_id="<|end_of_video|>",
        ),
    )  # fmt: skip
    return build_weights(getattr(hf, f"{name}ForConditionalGeneration"), config, seed), processor


def build_glm4v(seed: int) -> tuple[Any, Any]:
    return build_glm(seed, "Glm4v", SPECIAL, f"{ADDED} {ANSWERS}")


def build_glm46v(seed: int) -> tuple[Any, Any]:
    return build_glm(seed, "Glm46V", f"{SPECIAL} /nothink", f"{ADDED} {CALLS}")
