"""What a model's processor makes of pictures: sizes it keeps, borders it would cut off, and what a picture may cost.

A processor is asked with blank pictures; its settings are turned by their names, whatever model they belong to.
"""

import math
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from PIL import Image

from ...images.resample import fit_size
from .. import model_profiles
from .architectures import Architecture, Pixels

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MAX_SIDE, MAX_FRAMES = 512, 16  # of what an image token stands for
SOFT_TOKENS = (1120, 560, 280, 140, 70)  # what a processor with `max_soft_tokens` takes; it says so only when it fails
TURNED = (
    *("size", "max_image_size", "min_patches", "max_patches", "max_soft_tokens"),
    *("min_image_tokens", "max_image_tokens", "max_tiles", "do_image_splitting"),
)
LIMITS = ("max_patches", "max_soft_tokens", "max_tiles", "do_image_splitting")  # of these the class may allow more
_loaded: "WeakKeyDictionary[Any, dict[str, Any]]" = WeakKeyDictionary()  # these settings, as a folder has them
STRIPS = {(128, 64): ((0, 0, 8, 64), (120, 0, 128, 64)), (64, 128): ((0, 0, 64, 8), (0, 120, 64, 128))}


def get_view_settings(config: "PretrainedConfig", processor: Any) -> dict[str, object]:
    """Return the environment settings that follow from a model: the conventions it was trained on, and the multiple of
    which both sides of a view are to be."""
    profile = model_profiles.get_model_defaults(Architecture(config).model_type).to_settings()
    multiple = find_pixel_multiple(Architecture(config, processor))
    return profile | ({"pixel_multiple": multiple} if multiple else {})


def find_pixel_multiple(architecture: Architecture) -> int | None:
    """Return the side of an image token in pixels, if pictures whose sides are multiples of it keep their size; None if
    the processor makes squares or tiles, or scales up. A picture of 4 x 3 such sides then has 12 tokens."""
    patch, merged = _find_sides(architecture.processor)
    if patch is None or merged is None:
        return None
    for columns, rows in ((10, 8), (4, 3), (2, 1)):  # the first may be too large for it, the last too small
        picture = Image.new("RGB", (columns * patch * merged, rows * patch * merged))
        if architecture.preprocess(picture).tokens == columns * rows:
            return patch * merged
    return None


def _find_sides(processor: Any) -> list[int | None]:
    owners = (processor.image_processor, processor)
    return [
        next((side for owner in owners for name in names if (side := get_side(getattr(owner, name, None)))), None)
        for names in (("patch_size", "encoder_patch_size"), ("merge_size", "downsample_factor", "spatial_merge_size"))
    ]


def describe_misfit(config: "PretrainedConfig", processor: Any) -> str | None:
    """Return why the pictures that a processor makes are not those of a model; None if they are. It crops no more."""
    images, vision = processor.image_processor, getattr(config, "vision_config", None)
    for name, vision_name in (("patch_size", "patch_size"), ("merge_size", "spatial_merge_size")):
        actual, needed = (get_side(getattr(*item, None)) for item in ((images, name), (vision, vision_name)))
        if None not in (actual, needed) and actual != needed:
            return f"its processor has {name} = {actual}, its config.json {needed}; allowed: the same"
    side, frames = math.prod(item or 1 for item in _find_sides(processor)), getattr(images, "temporal_patch_size", 1)
    if side > MAX_SIDE or frames > MAX_FRAMES:
        limits = f"at most {MAX_SIDE} pixels and {MAX_FRAMES} frames"
        return f"its processor makes image tokens of {side} pixels a side and {frames} frames; allowed: {limits}"
    show_whole(images)
    if loses_border(Architecture(config, processor)):
        return "its processor cuts off the borders of pictures; allowed: one that shows all of them"
    return None


def set_max_pixels(processor: Any, max_pixels: int) -> None:
    """Turn the settings of an image processor so that a picture costs no more than one of `max_pixels`.

    Views of up to `max_pixels` keep their size where pixels are counted. Tiles and budgets of tokens hold at most as
    many pixels: at least one tile (with several, a small copy of the picture on top) or the smallest budget, and at
    most what the folder or the class allows, whichever is more: a folder may have been saved after smaller views."""
    images = processor.image_processor
    if images not in _loaded:
        _loaded[images] = {name: _read_limit(images, name) for name in TURNED} | {"frames": _count_frames(images)}
    loaded = _loaded[images]
    if loaded["frames"]:
        smallest = loaded["frames"] * (images.patch_size * images.merge_size) ** 2
        images.size = {"shortest_edge": smallest, "longest_edge": max(smallest, loaded["frames"] * max_pixels)}
    elif loaded["max_image_size"]:  # a grid of tiles, to which every picture is enlarged
        tile = loaded["max_image_size"]["longest_edge"]
        side = max(1, math.isqrt(max_pixels) // tile)
        usual = type(images).size["longest_edge"] // type(images).max_image_size["longest_edge"]
        images.size = {"longest_edge": min(max(loaded["size"]["longest_edge"], usual * tile), side * tile)}
    elif loaded["max_patches"] and getattr(images, "crop_to_patches", False):
        tiles = max_pixels // (get_side(images.size) or 1) ** 2
        images.max_patches = max(loaded["min_patches"] or 1, min(loaded["max_patches"], tiles))
    elif loaded["max_soft_tokens"]:
        token = (images.patch_size * images.pooling_kernel_size) ** 2
        most = max(SOFT_TOKENS[-1], min(loaded["max_soft_tokens"], max_pixels // token))
        images.max_soft_tokens = next(number for number in SOFT_TOKENS if number <= most)
    elif loaded["max_image_tokens"]:
        token = images.encoder_patch_size * images.downsample_factor
        most = max(1, max_pixels // token**2)
        images.max_image_tokens = min(max(loaded["max_image_tokens"], (images.tile_size // token) ** 2), most)
        images.min_image_tokens = min(loaded["min_image_tokens"], most)
        tiles = min(loaded["max_tiles"], max_pixels // images.tile_size**2)
        images.do_image_splitting = loaded["do_image_splitting"] and tiles >= images.min_tiles
        images.max_tiles = max(images.min_tiles, tiles)


def find_kept(processor: Any) -> dict[str, int]:
    """Return what a processor keeps of a picture, as `RunConfig` has it; nothing if that is not known: its settings are
    not turned yet, or it cuts tiles of several shapes."""
    images = processor.image_processor
    loaded, size = _loaded.get(images, {}), images.size
    if loaded.get("frames"):
        return {"max_pixels": int(size["longest_edge"]) // int(loaded["frames"])}
    if loaded.get("max_image_size"):
        return {"max_side": int(size["longest_edge"])}
    if loaded.get("max_soft_tokens"):
        return {"max_pixels": images.max_soft_tokens * (images.patch_size * images.pooling_kernel_size) ** 2}
    tiles = getattr(images, "max_patches", 1) if loaded.get("max_patches") else 1
    if not loaded or tiles > 1 or loaded["max_image_tokens"] or getattr(images, "image_grid_pinpoints", None):
        return {}
    sides = {name: value for name, value in size.items() if value} if hasattr(size, "keys") else {}
    is_one = not sides or sides.keys() == {"longest_edge"} or sides.get("height") == sides.get("width") is not None
    side = sides.get("longest_edge") or get_side(size) if is_one else None
    return {} if side is None else {"max_side": side}


def _read_limit(images: Any, name: str) -> Any:
    """Return a setting as a folder has it; of a limit the larger of the folder's and the class's own."""
    value, usual = getattr(images, name, None), getattr(type(images), name, None)
    return max(value, usual) if name in LIMITS and value is not None and usual is not None else value


def show_whole(images: Any) -> None:
    """Make an image processor squeeze a picture into the square to which it would crop it, which loses borders."""
    if getattr(images, "do_center_crop", None):
        images.do_center_crop, images.size = False, {side: images.crop_size[side] for side in ("height", "width")}


def loses_border(architecture: Architecture) -> bool:
    """Whether the pixels that the model gets of a long picture are the same whatever is at an end of it."""
    for size, strips in STRIPS.items():
        blank = Image.new("RGB", size)
        before = architecture.preprocess(blank).inputs
        for strip in strips:
            marked = blank.copy()
            marked.paste("white", strip)
            after = architecture.preprocess(marked).inputs
            if all(torch.equal(value, after[name]) for name, value in before.items()):
                return True
    return False


def find_largest_view(architecture: Architecture, max_pixels: int, multiple: int) -> tuple[tuple[int, int], Pixels]:
    """Return the view of at most `max_pixels` that has most tokens, as (width, height) and as the model takes it."""
    sizes = dict.fromkeys(fit_size(side * max_pixels, max_pixels, max_pixels, multiple) for side in (1, 2, 0.5))
    views = [(size, architecture.preprocess(Image.new("RGB", size))) for size in sizes]
    return max(views, key=lambda view: view[1].tokens)


def get_side(size: Any) -> int | None:
    """Return the side of a square: a number, [height, width], or {"height": …, "width": …}."""
    return (
        size if size is None or isinstance(size, int) else int(size[0 if isinstance(size, list | tuple) else "height"])
    )


def _count_frames(images: Any) -> int:
    """Return how often the processor counts a pixel against its limits: some take a picture for two frames of a video.
    0: its limits are no numbers of pixels."""
    patch, merged = (getattr(images, name, None) for name in ("patch_size", "merge_size"))
    if patch is None or merged is None:
        return 0
    side, size = patch * merged, images.size
    images.size = {"shortest_edge": side**2, "longest_edge": 4 * side**2}
    grid = images(images=[Image.new("RGB", (2 * side, 2 * side))], return_tensors="pt")["image_grid_thw"]
    images.size = size
    return 1 if int(grid.prod()) == 4 * merged**2 else int(images.temporal_patch_size)
