"""How long the episodes of a run may become, and the shapes of its model: what the memory of a run depends on."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig

from ...configs.schema import Config
from ...engines.hf.architectures import Pixels
from ...engines.hf.picture_settings import find_largest_view
from ..plan import Plan, open_crowded_task

CHARACTERS_PER_TOKEN = 3.5  # of English text and JSON, where the tokenizer is not here
RESULT_TEXT = 64  # tokens of text that the environment writes between two replies
MEASURED = 2048  # tokens, at most, that a layer with a state is tried with


@dataclass(frozen=True)
class Workload:
    """The longest episode of a run.

    Args:
        prompt: tokens of the prompt, images included.
        completion: tokens after it, at most.
        sampled: of these, the tokens of replies.
        result: tokens of what the environment writes between two replies.
        images: those of the prompt, as the vision tower takes them.
        result_images: those that tools show later.
        exact: whether the prompt was counted with the model's tokenizer; otherwise it is estimated from its text.
    """

    prompt: int
    completion: int
    sampled: int
    result: int = RESULT_TEXT
    images: tuple[Pixels, ...] = ()
    result_images: tuple[Pixels, ...] = ()
    exact: bool = True

    def describe(self) -> str:
        """Return the episode in one line.

        >>> image = Pixels({}, tokens=144, text="")
        >>> Workload(600, 2560, 1536, 208, (image,), (image,) * 3, exact=False).describe()
        'an episode: about 600 tokens of prompt with 1 image, at most 2,560 after it (1,536 sampled, 3 images)'
        """
        about, s = "" if self.exact else "about ", "" if len(self.images) == 1 else "s"
        more = "" if len(self.result_images) == 1 else "s"
        return (
            f"an episode: {about}{self.prompt:,} tokens of prompt with {len(self.images)} image{s}, at most "
            f"{self.completion:,} after it ({self.sampled:,} sampled, {len(self.result_images)} image{more})"
        )


def find_workload(plan: Plan) -> Workload:
    """Return the longest episode of a run: the prompt with most images, and as many tokens after it as the config
    allows."""
    config, model = plan.config, plan.known_model
    env = plan.build_for(model.view_settings).env
    max_pixels = config.model.max_pixels or env.max_pixels
    task = open_crowded_task(env, "env")
    state = env.for_task(task).reset(task, seed=0)
    if model.processor is not None:
        tokens, ids, shown = model.encode_prompt(config, env, state)
        prompt, images = len(ids), [tokens.get_pixels(image) for image in shown]
    else:
        shown = [image for message in state.messages for image in message.images]
        images = [build_blank(model.config, image.width, image.height, max_pixels) for image in shown]
        text = sum(len(part) for message in state.messages for part in message.content if isinstance(part, str))
        text += len(json.dumps(list(state.tool_schemas)))
        prompt = math.ceil(text / CHARACTERS_PER_TOKEN) + sum(image.tokens for image in images)
    completion = config.rollout.max_completion_tokens
    sampled = min(completion, env.max_turns * config.rollout.max_reply_tokens)
    result, results = RESULT_TEXT, 0
    if env.tools:  # one image a turn, as large as a view may be
        if model.processor is not None:
            largest = find_largest_view(tokens.architecture, env.max_pixels, env.pixel_multiple)[1]
            result += len(tokens.encode_plain(largest.text))
        else:
            side = math.isqrt(env.max_pixels)
            largest = build_blank(model.config, side, side, max_pixels)
            result += largest.tokens
        results = min(env.max_turns - 1, (completion - sampled) // result)
    shown_later = (largest,) * results if results else ()
    is_exact = model.processor is not None
    return Workload(prompt, completion, sampled, min(result, completion), tuple(images), shown_later, is_exact)


def build_blank(config: PretrainedConfig, width: int, height: int, max_pixels: int) -> Pixels:
    """Return a black image of a model whose processor is not here, and shrinks images to `max_pixels`: patches, which a
    projector merges."""
    vision = config.vision_config
    side = vision.patch_size * vision.spatial_merge_size
    scale = min(1.0, math.sqrt(max_pixels / (width * height)))
    rows, columns = (max(1, round(n * scale / side)) * vision.spatial_merge_size for n in (height, width))
    values = torch.zeros(rows * columns, 3 * vision.temporal_patch_size * vision.patch_size**2)
    inputs = {"pixel_values": values, "image_grid_thw": torch.tensor([[1, rows, columns]])}
    return Pixels(inputs, rows * columns // vision.spatial_merge_size**2, "")


def build_batch(workload: Workload, episodes: int, group: int, image_id: int) -> dict[str, Any]:
    """Return the tensors of `collate` for episodes of this length in groups of one prompt; every result image is
    distinct."""
    filler = 0 if image_id else 1
    prompt = torch.tensor(_place_images([filler] * workload.prompt, workload.images, image_id)).repeat(episodes, 1)
    completion = torch.tensor(_place_images([filler] * workload.completion, workload.result_images, image_id))
    sampled = torch.zeros(episodes, workload.completion, dtype=torch.long)
    sampled[:, (completion != image_id).nonzero()[-workload.sampled :, 0]] = 1
    images = [*workload.images, *workload.result_images]
    keys = torch.arange(1, episodes * len(images) + 1).view(episodes, len(images))
    others = [token for token in range(66) if token not in (filler, image_id)]
    for number, first in enumerate(range(0, episodes, group)):
        prompt[first : first + group, 0] = others[number % 64]  # prompts of different groups differ
        keys[first : first + group, : len(workload.images)] = keys[first, : len(workload.images)].clone()
    return {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones(episodes, workload.prompt, dtype=torch.long),
        "completion_ids": completion.repeat(episodes, 1),
        "completion_mask": torch.ones(episodes, workload.completion, dtype=torch.long),
        "tool_mask": sampled,
        "image_keys": keys,
        "image_tokens": torch.tensor([image.tokens for image in images]).expand(episodes, -1),
    }


def _place_images(ids: list[int], images: Sequence[Pixels], image_id: int) -> list[int]:
    """Return the ids with the tokens of images from the second place on, one text token between two images."""
    start = 1
    for image in images:
        ids[start : start + image.tokens] = [image_id] * image.tokens
        start += image.tokens + 1
    return ids


def build_batch_pixels(batch: Mapping[str, Any], workload: Workload, dtype: torch.dtype) -> dict[int, Pixels]:
    """Pixels of every image of a batch, by key; equal ones are the same, and are kept on the host."""
    images = [image.to(dtype) for image in (*workload.images, *workload.result_images)]
    return {key: image for row in batch["image_keys"].tolist() for key, image in zip(row, images, strict=True)}


def count_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors; one that is given twice counts once."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())


def count_step(config: Config, arguments: Any, model: Any, workload: Workload, *, verl: bool = False) -> dict[str, int]:
    """Return what an update of GRPO takes at most, by name; pictures in float32, each episode with its own.
    A server is sent all weights before it samples; by verl in float32, and of LoRA the adapters alone."""
    episodes = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    patches = sum(image.numbers for image in (*workload.images, *workload.result_images))
    adapters = verl and config.lora is not None
    weights = [weight for name, weight in model.state_dict().items() if (".lora_" in name) == adapters]
    return {
        "episodes": episodes,
        "sampled tokens": episodes * workload.sampled,
        "tokens": episodes * (workload.prompt + workload.completion),
        "bytes of pictures": episodes * 4 * patches,
        "bytes of weights sent": sum(4 * weight.numel() if verl else weight.nbytes for weight in weights),
    }


def find_products(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    """Return the linear layers of a model by name, adapters left out."""
    layers = [(name.removesuffix(".base_layer"), one) for name, one in model.named_modules() if ".lora_" not in name]
    return [(name, layer) for name, layer in layers if isinstance(layer, torch.nn.Linear)]
