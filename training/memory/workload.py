"""How long the episodes of a run may become, and the shapes of its model: what the memory of a run depends on."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoProcessor, PretrainedConfig

from ...assets import resolve_model_path
from ...configs.schema import Config
from ...configs.sections import ModelSection
from ...engines import model_profiles
from ...engines.hf.architectures import Pixels, get_architecture
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.loading import SAFE, build_tiny_config, check_weights, get_view_settings, set_max_pixels
from ...envs.from_config import build_envs
from ...errors import ModelError
from ..checks.preflight import open_crowded_task

CHARACTERS_PER_TOKEN = 3.5  # of English text and JSON, where the tokenizer is not here
RESULT_TEXT = 64  # tokens of text that the environment writes between two replies

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Workload:
    """The longest episode of a run.

    Args:
        prompt: tokens of the prompt, images included.
        completion: tokens after it, at most.
        sampled: of these, the tokens of replies.
        result: tokens of what the environment writes between two replies.
        grids: (t, h, w) in patches of each image of the prompt.
        result_grids: of each image that tools show later.
        exact: whether the prompt was counted with the model's tokenizer; otherwise it is estimated from its text.
    """

    prompt: int
    completion: int
    sampled: int
    result: int = RESULT_TEXT
    grids: tuple[Grid, ...] = ()
    result_grids: tuple[Grid, ...] = ()
    exact: bool = True

    def describe(self) -> str:
        """Return the episode in one line.

        >>> Workload(600, 2560, 1536, 208, ((1, 24, 24),), ((1, 24, 24),) * 3, exact=False).describe()
        'an episode: about 600 tokens of prompt with 1 image, at most 2,560 after it (1,536 sampled, 3 images)'
        """
        about, s = "" if self.exact else "about ", "" if len(self.grids) == 1 else "s"
        more = "" if len(self.result_grids) == 1 else "s"
        return (
            f"an episode: {about}{self.prompt:,} tokens of prompt with {len(self.grids)} image{s}, at most "
            f"{self.completion:,} after it ({self.sampled:,} sampled, {len(self.result_grids)} image{more})"
        )


def count_image_tokens(grid: Grid, merge: int = 2) -> int:
    """Return the image tokens of a grid of patches."""
    return math.prod(grid) // merge**2


def find_workload(config: Config, model_config: PretrainedConfig, processor: object) -> Workload:
    """Return the longest episode of a run: the prompt with most images, and as many tokens after it as the config
    allows."""
    vision = model_config.vision_config
    side = vision.patch_size * vision.spatial_merge_size
    profile = model_profiles.get_model_defaults(get_architecture(model_config).model_type).to_settings()
    settings = get_view_settings(model_config, processor) if processor else profile | {"pixel_multiple": side}
    env, _ = build_envs(config, settings)
    max_pixels = config.model.max_pixels or env.max_pixels
    task = open_crowded_task(env, "env")
    state = env.for_task(task).reset(task, seed=0)
    images = [image for message in state.messages for image in message.images]
    grids = tuple(_find_grid(image.width, image.height, max_pixels, side) for image in images)
    if processor is not None:
        set_max_pixels(processor, max_pixels)
        tokens = ChatTokens(processor, model_config)
        prompt = len(tokens.encode_prompt(state.messages, state.tool_schemas, env.reply_format, env.prompts)[0])
    else:
        text = sum(len(part) for message in state.messages for part in message.content if isinstance(part, str))
        text += len(json.dumps(list(state.tool_schemas)))
        prompt = math.ceil(text / CHARACTERS_PER_TOKEN) + sum(map(count_image_tokens, grids))
    completion = config.rollout.max_completion_tokens
    sampled = min(completion, env.max_turns * config.rollout.max_reply_tokens)
    result = RESULT_TEXT
    results: tuple[tuple[int, int, int], ...] = ()
    if env.tools:  # one image a turn, as large as a view may be
        largest = max(side, math.isqrt(max_pixels) // side * side)
        grid = _find_grid(largest, largest, max_pixels, side)
        result += count_image_tokens(grid)
        results = (grid,) * min(env.max_turns - 1, (completion - sampled) // result)
    return Workload(prompt, completion, sampled, min(result, completion), grids, results, processor is not None)


def _find_grid(width: int, height: int, max_pixels: int, side: int) -> Grid:
    """Return the patches of an image of this size, which the processor shrinks to `max_pixels`."""
    scale = min(1.0, math.sqrt(max_pixels / (width * height)))
    rows, columns = (max(1, round(n * scale / side)) for n in (height, width))
    return 1, 2 * rows, 2 * columns


def build_batch(workload: Workload, episodes: int, group: int, image_id: int) -> dict[str, Any]:
    """Return the tensors of `collate` for episodes of this length in groups of one prompt; every result image is
    distinct."""
    filler = 0 if image_id else 1
    prompt = torch.tensor(_place_images([filler] * workload.prompt, workload.grids, image_id)).repeat(episodes, 1)
    completion = torch.tensor(_place_images([filler] * workload.completion, workload.result_grids, image_id))
    sampled = torch.zeros(episodes, workload.completion, dtype=torch.long)
    sampled[:, (completion != image_id).nonzero()[-workload.sampled :, 0]] = 1
    grids = [*workload.grids, *workload.result_grids]
    keys = torch.arange(1, episodes * len(grids) + 1).view(episodes, len(grids))
    others = [token for token in range(66) if token not in (filler, image_id)]
    for number, first in enumerate(range(0, episodes, group)):
        prompt[first : first + group, 0] = others[number % 64]  # prompts of different groups differ
        keys[first : first + group, : len(workload.grids)] = keys[first, : len(workload.grids)].clone()
    return {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones(episodes, workload.prompt, dtype=torch.long),
        "completion_ids": completion.repeat(episodes, 1),
        "completion_mask": torch.ones(episodes, workload.completion, dtype=torch.long),
        "tool_mask": sampled,
        "image_keys": keys,
        "image_tokens": torch.tensor([count_image_tokens(grid) for grid in grids]).expand(episodes, -1),
        "image_grids": grids,
    }


def _place_images(ids: list[int], grids: tuple[Grid, ...], image_id: int) -> list[int]:
    """Return the ids with the tokens of images from the second place on, one text token between two images."""
    start = 1
    for grid in grids:
        count = count_image_tokens(grid)
        ids[start : start + count] = [image_id] * count
        start += count + 1
    return ids


def build_batch_pixels(batch: Mapping[str, Any], model: Any) -> dict[int, Pixels]:
    """Black pixels of every image of a batch, by key, as they are kept on the host."""
    vision, dtype = model.config.vision_config, get_architecture(model.config).get_pixel_dtype(model)
    width = 3 * vision.temporal_patch_size * vision.patch_size**2
    keys, grids = batch["image_keys"].tolist(), batch["image_grids"]
    found = {}
    for key, grid in {pair for row in keys for pair in zip(row, grids, strict=True)}:
        values = torch.zeros(math.prod(grid), width, dtype=dtype)
        inputs = {"pixel_values": values, "image_grid_thw": torch.tensor([grid])}
        found[key] = Pixels(inputs, count_image_tokens(grid), "")
    return found


def find_model_shapes(section: ModelSection, max_pixels: int) -> tuple[PretrainedConfig, Any]:
    """Return the (config, processor) of a model, from this machine alone; the processor is None if it is not here.

    A folder needs no weights; those in it must be the model's. A hub name is looked up among downloaded files, then
    among the models of the shipped configs.

    Raises:
        ModelError: the config is not on this machine, or the architecture is not supported.
    """
    if section.name is None:
        return build_tiny_config(section, max_pixels)
    name, here = resolve_model_path(section.name), {"revision": section.revision, "local_files_only": True, **SAFE}
    try:
        config = AutoConfig.from_pretrained(name, **here)
    except (OSError, ValueError) as error:
        if (known := read_known_models().get(section.name)) is None:
            raise ModelError(_explain_missing(section.name), key="model.name") from error
        return AutoConfig.for_model(**known["config"]), None
    get_architecture(config)
    check_weights(section)
    try:
        return config, AutoProcessor.from_pretrained(name, **here)
    except (OSError, ValueError):
        return config, None


def _explain_missing(name: str) -> str:
    given = f"model.name = {name!r}"
    if Path(name).exists():
        return f"{given}: has no config.json that can be read; allowed: a folder with one (it needs no weights)"
    known = ", ".join(read_known_models())
    return (
        f"{given}: its config.json is not on this machine; allowed: a folder with config.json, a name whose file was "
        f"downloaded (`hf download {name} config.json preprocessor_config.json`), or one of {known}"
    )


@cache
def read_known_models() -> dict[str, Any]:
    """Return the config.json of the models of the shipped configs, with its source, by hub name."""
    known: dict[str, Any] = json.loads(Path(__file__).with_name("known_models.json").read_bytes())
    return known


def count_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors; one that is given twice counts once."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())
