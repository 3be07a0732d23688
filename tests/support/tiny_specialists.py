"""Tiny models of every kind of specialist, with random weights that are drawn wide, saved as folders."""

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

LABELS = ["clear", "opacity", "effusion"]
WORDS = ("opacity", "clear", "left", "right")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def build_swin(*stages):
    sizes = {"image_size": 64, "embed_dim": 8, "depths": [1] * 4, "num_heads": [1] * 4, "window_size": 2}
    return transformers.SwinConfig(**sizes, out_features=[f"stage{number}" for number in stages])


def name_labels(labels):
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def draw(seed=0, size=(48, 32), color=False):
    """A picture of noise, uint8: (height, width), or (height, width, 3)."""
    shape = (*size[::-1], 3) if color else size[::-1]
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def widen(model, seed=0):
    """Draw the weights of a model wide, so that its outputs differ between pictures."""
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.2)
    return model.eval()


def save(folder, model, processor):
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def save_vit(folder, labels=LABELS, problem_type=None, seed=0, **config):
    """A classifier of 32 x 32 pixels."""
    made = transformers.ViTConfig(
        image_size=32, patch_size=8, problem_type=problem_type, **SIZES, **name_labels(labels), **config
    )
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    return save(folder, widen(transformers.ViTForImageClassification(made), seed), processor)


def save_yolos(folder, labels=LABELS, seed=0):
    """A detector of 8 boxes."""
    config = transformers.YolosConfig(
        image_size=[32, 48], patch_size=8, num_detection_tokens=8, **SIZES, **name_labels(labels)
    )
    processor = transformers.YolosImageProcessor(size={"shortest_edge": 32, "longest_edge": 48})
    return save(folder, widen(transformers.YolosForObjectDetection(config), seed), processor)


def build_words(tokens, unknown, around=(), special=(), **settings):
    """A tokenizer of whole words; `around` are what begins and ends a text."""
    core = Tokenizer(WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=unknown))
    core.pre_tokenizer = Whitespace()
    core.add_special_tokens(list(special))
    if around:
        marks = [(token, tokens.index(token)) for token in around]
        core.post_processor = TemplateProcessing(single=f"{around[0]} $A {around[1]}", special_tokens=marks)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token=unknown, **settings)


def save_owlvit(folder, seed=0):
    """A grounder of 36 boxes; 16 tokens for every text."""
    around = ("<|startoftext|>", "<|endoftext|>")
    ends = {"bos_token": around[0], "eos_token": around[1], "pad_token": "!", "model_max_length": 16}
    tokenizer = build_words(["!", *around, "<unk>", *WORDS], "<unk>", around, **ends)
    config = transformers.OwlViTConfig(
        text_config={"vocab_size": len(tokenizer), "max_position_embeddings": 16, **SIZES, "eos_token_id": 2},
        vision_config={"image_size": 48, "patch_size": 8, **SIZES},
        projection_dim=32,
    )
    images = transformers.OwlViTImageProcessor(size={"height": 48, "width": 48}, crop_size={"height": 48, "width": 48})
    processor = transformers.OwlViTProcessor(images, tokenizer)
    return save(folder, widen(transformers.OwlViTForObjectDetection(config), seed), processor)


def save_grounding_dino(folder, words=WORDS, seed=0):
    """A grounder of 9 boxes, as Grounding DINO is built."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", *words]
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "mask")}
    tokenizer = build_words(tokens, "[UNK]", ("[CLS]", "[SEP]"), **names)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.GroundingDinoConfig(
        backbone_config=build_swin(2, 3, 4),
        text_config=transformers.BertConfig(vocab_size=len(tokens), max_position_embeddings=32, **sizes),
        **dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "max_text_len"), 32),
        **dict.fromkeys(("decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 2),
        encoder_layers=1,
        num_queries=9,
        disable_custom_kernels=True,
    )
    images = transformers.GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    processor = transformers.GroundingDinoProcessor(images, tokenizer)
    return save(folder, widen(transformers.GroundingDinoForObjectDetection(config), seed), processor)


GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }} {% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}<start_of_image>{% else %} {{ item['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}model {% endif %}"
)


def save_gemma3(folder, words=("user", "model", "opacity", "is", "it", "left", "right", "the", "image"), seed=0):
    """A vision-language model, as MedGemma is built: 4 tokens for a picture."""
    marks = {"boi_token": GEMMA[4], "eoi_token": GEMMA[5], "image_token": GEMMA[6]}
    named = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos")}
    tokenizer = build_words([*GEMMA, *words], "<unk>", special=GEMMA, extra_special_tokens=marks, **named)
    config = transformers.Gemma3Config(
        text_config={
            "vocab_size": len(tokenizer),
            "num_key_value_heads": 1,
            "head_dim": 16,
            "max_position_embeddings": 256,
            "sliding_window": 64,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            **SIZES,
        },
        vision_config={"image_size": 32, "patch_size": 8, **SIZES},
        mm_tokens_per_image=4,
        boi_token_index=4,
        eoi_token_index=5,
        image_token_index=6,
    )
    images = transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(images, tokenizer, chat_template=GEMMA_TEMPLATE, image_seq_length=4)
    return save(folder, widen(transformers.Gemma3ForConditionalGeneration(config), seed), processor)


def save_segformer(folder, labels=("background", "lung", "heart"), seed=0):
    """A semantic segmenter, whose masks are a quarter as wide as its pictures of 32 x 32."""
    config = transformers.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32, **name_labels(labels),
    )  # fmt: skip
    processor = transformers.SegformerImageProcessor(size={"height": 32, "width": 32})
    return save(folder, widen(transformers.SegformerForSemanticSegmentation(config), seed), processor)


def save_sam(folder, seed=0):
    """A promptable segmenter of pictures of 64 x 64."""
    looks = {"output_channels": 16, "image_size": 64, "patch_size": 8, "window_size": 4, "global_attn_indexes": [1]}
    looks |= {"mlp_dim": 64, "num_pos_feats": 8}
    config = transformers.SamConfig(
        vision_config={"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, **looks},
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 8},
        mask_decoder_config={"hidden_size": 16, "mlp_dim": 32, "num_attention_heads": 2, "iou_head_hidden_dim": 16},
    )
    images = transformers.SamImageProcessor(
        size={"longest_edge": 64},
        pad_size={"height": 64, "width": 64},
        mask_size={"longest_edge": 16},
        mask_pad_size={"height": 16, "width": 16},
    )
    return save(folder, widen(transformers.SamModel(config), seed), transformers.SamProcessor(images))


def save_mask2former(folder, labels=("lung", "heart"), seed=0):
    """A segmenter of objects, at most 6."""
    config = transformers.Mask2FormerConfig(
        backbone_config=build_swin(1, 2, 3, 4),
        **dict.fromkeys(("feature_size", "mask_feature_size", "hidden_dim"), 32),
        **dict.fromkeys(("encoder_feedforward_dim", "dim_feedforward"), 32),
        **dict.fromkeys(("decoder_layers", "num_attention_heads"), 2),
        encoder_layers=1,
        num_queries=6,
        **name_labels(labels),
    )
    processor = transformers.Mask2FormerImageProcessor(size={"height": 64, "width": 64}, num_labels=len(labels))
    return save(folder, widen(transformers.Mask2FormerForUniversalSegmentation(config), seed), processor)
