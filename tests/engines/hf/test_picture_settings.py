"""What processors make of pictures, with the settings of the released ones: right values are counted by hand.

Sizes: https://huggingface.co/<model>/blob/main/preprocessor_config.json and processor_config.json of the released model
that `FAMILIES` names.
"""

import pytest
from PIL import Image

from tests.support.families import FAMILIES, build_family
from tests.support.tables import each
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.picture_settings import find_kept, find_pixel_multiple, loses_border, set_max_pixels, show_whole

QWEN = {"images.patch_size": 14, "images.size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}}
QWEN3 = {"images.patch_size": 16, "images.size": {"shortest_edge": 256 * 256, "longest_edge": 4096 * 4096}}
GLM = {"images.patch_size": 14, "images.size": {"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 15000}}
SQUARE = {side: {"images.size": {"height": side, "width": side}} for side in (364, 448, 896)}
RELEASED = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), QWEN), **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5"), QWEN3),
    **dict.fromkeys(("glm4v", "glm46v"), GLM), "gemma3": {**SQUARE[896], "tokens": 256},
    "mistral3": {"patch_size": 14, "images.patch_size": 14, "images.size": {"longest_edge": 1540}},
    "gemma4": {"images.patch_size": 16, "images.max_soft_tokens": 280},
    "llava": {
        "patch_size": 14, "images.size": {"shortest_edge": 336}, "images.crop_size": {"height": 336, "width": 336},
    },
    "internvl": {**SQUARE[448], "images.max_patches": 12, "image_seq_length": 256},
    "aya_vision": {**SQUARE[364], "images.max_patches": 12, "img_size": 364, "patch_size": 28},
    "smolvlm": {
        "images.size": {"longest_edge": 1536}, "images.max_image_size": {"longest_edge": 384}, "image_seq_len": 81,
    },
    "idefics3": {
        "images.size": {"longest_edge": 1456}, "images.max_image_size": {"longest_edge": 364}, "image_seq_len": 169,
    },
    "lfm2_vl": {
        "images.encoder_patch_size": 16, "images.tile_size": 512, "images.max_tiles": 10,
        "images.min_image_tokens": 64, "images.max_image_tokens": 256,
    },
}  # fmt: skip
MULTIPLES = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "mistral3"), 28),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "lfm2_vl"), 32),
}
K = 1024
COSTS = [  # family, max_pixels, size of the picture, image tokens
    ("qwen2_vl", 512 * 512, (504, 504), 18 * 18),
    ("qwen2_vl", 512 * 512, (28, 56), 1 * 2),  # the released processor would enlarge it to 56 x 56 pixels or more
    ("qwen3_vl", 512 * 512, (512, 512), 16 * 16),
    ("qwen3_vl", 256 * 256, (512, 512), 8 * 8),
    ("glm4v", 512 * 512, (504, 504), 18 * 18),  # it counts a picture as two frames
    ("mistral3", 512 * 512, (504, 504), 18 * 18),
    ("gemma3", 256 * 256, (256, 256), 256),
    ("gemma3", 4 * K * K, (2048, 1024), 256),
    ("llava", 64 * 64, (64, 32), 24 * 24),
    ("gemma4", 512 * 512, (512, 512), 8 * 8),  # a budget of 70: sqrt(70 * 48 * 48) // 48 = 8
    ("gemma4", K * K, (K, K), 16 * 16),  # 280 fit, 560 do not
    ("internvl", 512 * 512, (512, 512), 256),
    ("internvl", 512 * 512, (1024, 256), 256),
    ("internvl", 896 * 896, (896, 896), (2 * 2 + 1) * 256),  # tiles, and a thumbnail
    ("internvl", 9 * K * K, (1344, 1792), (3 * 4 + 1) * 256),  # 12 tiles at most, as its folder says
    ("aya_vision", 512 * 512, (512, 512), 13 * 13),
    ("aya_vision", 728 * 728, (728, 728), (2 * 2 + 1) * 13 * 13),
    ("smolvlm", 512 * 512, (512, 512), 81),
    ("smolvlm", 768 * 768, (100, 100), (2 * 2 + 1) * 81),  # every picture fills the grid
    ("smolvlm", 768 * 768, (768, 384), (2 * 1 + 1) * 81),
    ("smolvlm", 9 * K * K, (1536, 1536), (4 * 4 + 1) * 81),
    ("idefics3", 728 * 728, (728, 728), (2 * 2 + 1) * 169),
    ("lfm2_vl", 512 * 512, (512, 512), 16 * 16),
    ("lfm2_vl", 512 * 512, (512, 256), 16 * 8),
    ("lfm2_vl", 128 * 128, (128, 128), 4 * 4),
    ("lfm2_vl", K * K, (K, K), (2 * 2 + 1) * 256),
]


def release(name):
    """The architecture of a family whose processor has the released settings."""
    model, processor = build_family(name)
    for key, value in RELEASED.get(name, {}).items():
        owner = processor.image_processor if key.startswith("images.") else processor
        if key == "tokens":
            processor.image_seq_length = value
            processor.full_image_sequence = f"\n\n<start_of_image>{'<image_soft_token>' * value}<end_of_image>\n\n"
        else:
            setattr(owner, key.removeprefix("images."), value)
    return Architecture(model.config, processor)


@pytest.mark.parametrize(("name", "max_pixels", "size", "tokens"), COSTS)
def test_a_picture_costs_no_more_than_max_pixels_say(name, max_pixels, size, tokens):
    architecture = release(name)
    show_whole(architecture.processor.image_processor)
    for most in (4 * K * K, 1024, max_pixels):  # in any order: what the folder says is not forgotten
        set_max_pixels(architecture.processor, most)
    assert architecture.preprocess(Image.new("RGB", size)).tokens == tokens


TILED = {key: {} for key in ("llava_next", "llava_onevision", "lfm2_vl")}
COUNTED = dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4v", "glm46v"))
KEPT = {  # of a picture, with `max_pixels`: of one tile its side; of several, nothing is known
    512 * 512: {
        **TILED, **{key: {"max_pixels": 512 * 512} for key in COUNTED}, "gemma4": {"max_pixels": 70 * 48 * 48},
        "gemma3": {"max_side": 896}, "llava": {"max_side": 336}, "mistral3": {"max_side": 1540},
        "internvl": {"max_side": 448}, "aya_vision": {"max_side": 364}, "smolvlm": {"max_side": 384},
        "idefics3": {"max_side": 364},
    },
    K * K: {
        **TILED, **{key: {"max_pixels": K * K} for key in COUNTED}, "gemma4": {"max_pixels": 280 * 48 * 48},
        "gemma3": {"max_side": 896}, "llava": {"max_side": 336}, "mistral3": {"max_side": 1540}, "internvl": {},
        "aya_vision": {}, "smolvlm": {"max_side": 768}, "idefics3": {"max_side": 728},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "gemma4_31b"])  # with the processor of gemma4
def test_what_is_kept_of_a_large_picture_is_what_the_processor_keeps(name):
    for most, kept in KEPT.items():
        architecture = release(name)
        show_whole(architecture.processor.image_processor)
        assert find_kept(architecture.processor) == {}  # not turned yet
        set_max_pixels(architecture.processor, most)
        assert find_kept(architecture.processor) == kept[name]
        inputs = architecture.preprocess(Image.new("RGB", (3000, 1500))).inputs
        grid, pixels = inputs.get("image_grid_thw"), inputs["pixel_values"]
        if grid is not None:  # an image token more or less
            patch = architecture.processor.image_processor.patch_size
            assert 0.8 < int(grid.prod()) * patch**2 / most <= 1
        elif kept[name] and pixels.ndim == 4:  # a picture, and no tiles
            assert max(pixels.shape[-2:]) == kept[name]["max_side"]


@each("name, size", [
    ("gemma4", (1024, 1024)), ("internvl", (1344, 1792)),
    ("aya_vision", (728, 728)), ("smolvlm", (1536, 1536)), ("idefics3", (728, 728)), ("lfm2_vl", (1024, 1024)),
])  # fmt: skip
def test_a_folder_saved_after_small_views_shows_large_ones_like_the_released_one(tmp_path, name, size):
    architecture, released = release(name), release(name)
    set_max_pixels(architecture.processor, 64 * 64)
    architecture.processor.image_processor.save_pretrained(tmp_path)
    saved = type(architecture.processor.image_processor).from_pretrained(tmp_path)
    architecture.processor.image_processor = saved
    small = architecture.preprocess(Image.new("RGB", size)).tokens
    for one in (architecture, released):
        set_max_pixels(one.processor, size[0] * size[1])
    again = Architecture(architecture.config, architecture.processor)
    assert again.preprocess(Image.new("RGB", size)).tokens == released.preprocess(Image.new("RGB", size)).tokens > small


@each("name", FAMILIES.keys())
def test_sides_of_views_are_multiples_of_an_image_token_and_no_border_of_a_picture_is_lost(name):
    if name in RELEASED:  # and keeps the size of pictures
        assert find_pixel_multiple(release(name)) == MULTIPLES.get(name)
    model, processor = build_family(name)
    architecture = Architecture(model.config, processor)
    assert loses_border(architecture) == (name == "llava")  # its processor crops to the square in the middle
    show_whole(processor.image_processor)
    assert not loses_border(architecture)
