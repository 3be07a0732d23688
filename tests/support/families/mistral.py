"""Mistral Small 3.1: pictures of any size (Pixtral), rows that end with a token of their own."""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_text_ids, read_template


def build_mistral3(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] "
        "[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] "
        "[TOOL_CONTENT]",
        "</s> <pad> <s> <unk>",
        begins=True,
    )
    processor = hf.PixtralProcessor(
        image_processor=hf.PixtralImageProcessor(size={"longest_edge": 64}, patch_size=8),
        tokenizer=tokenizer,
        patch_size=8,
        spatial_merge_size=2,
        chat_template=read_template("mistral3"),
    )
    config = hf.Mistral3Config(
        text_config={**TEXT, **get_text_ids(tokenizer), "model_type": "mistral", "sliding_window": None},
        vision_config={**VISION, "model_type": "pixtral", "image_size": 64, "patch_size": 8, "head_dim": 16},
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
        spatial_merge_size=2,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    return build_weights(hf.Mistral3ForConditionalGeneration, config, seed), processor
