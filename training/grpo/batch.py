"""The tokens of episodes as tensors: prompts padded left, completions right; images by key, their pixels apart.

A batch names its images by keys. Their pixels stay on the host, each distinct image once (`collect_pixels`), until the
part of a batch that shows them goes through the model. `add_pixels` is for a plain forward pass of a whole batch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import add
from typing import Any

import torch

from ...engines.hf.architectures import Pixels
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.vision_cache import get_image_key
from ...records import EpisodeTokens


def collate(
    episodes: Sequence[EpisodeTokens], tokens: ChatTokens, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Return a batch of B episodes as tensors, under the names that TRL's loss reads.

    Returns:
        prompt_ids, prompt_mask: (B, P), padded left.
        completion_ids, completion_mask, tool_mask, logprobs: (B, C), padded right. `tool_mask` is 1 on sampled tokens.
        mm_token_type_ids: (B, P + C), 1 on image tokens.
        image_keys: (B, N) int64, padded right, N the largest number of images in an episode; equal images have equal
            keys.
        image_tokens: (B, N), the tokens of each image; 0 where an episode has fewer images.
    """
    prompt = max(len(episode.prompt_ids) for episode in episodes)
    shape = (len(episodes), max(1, *(len(episode.completion_ids) for episode in episodes)))
    images = max(len(episode.images) for episode in episodes)
    out: dict[str, Any] = {
        "prompt_ids": torch.full((len(episodes), prompt), tokens.pad_id),
        "prompt_mask": torch.zeros(len(episodes), prompt, dtype=torch.long),
        "completion_ids": torch.full(shape, tokens.pad_id),
        "completion_mask": torch.zeros(shape, dtype=torch.long),
        "tool_mask": torch.zeros(shape, dtype=torch.long),
        "logprobs": torch.zeros(shape),
        "image_keys": torch.zeros(len(episodes), images, dtype=torch.long),
        "image_tokens": torch.zeros(len(episodes), images, dtype=torch.long),
    }
    for i, episode in enumerate(episodes):
        p, c = len(episode.prompt_ids), len(episode.completion_ids)
        out["prompt_ids"][i, prompt - p :] = torch.tensor(episode.prompt_ids)
        out["prompt_mask"][i, prompt - p :] = 1
        out["completion_ids"][i, :c] = torch.tensor(episode.completion_ids)
        out["completion_mask"][i, :c] = 1
        out["tool_mask"][i, :c] = torch.tensor(episode.mask)
        out["logprobs"][i, :c] = torch.tensor(episode.logprobs)
        for k, image in enumerate(episode.images):
            out["image_keys"][i, k] = get_image_key(image.hash)
            out["image_tokens"][i, k] = tokens.count_image_tokens(image)
    out = {name: value.to(device) for name, value in out.items()}
    out["mm_token_type_ids"] = (torch.cat([out["prompt_ids"], out["completion_ids"]], 1) == tokens.image_id).int()
    return out


def collect_pixels(episodes: Iterable[EpisodeTokens], tokens: ChatTokens) -> dict[int, Pixels]:
    """Return the pixels of each distinct image of the episodes, on the host, by key."""
    images = {get_image_key(image.hash): image for episode in episodes for image in episode.images}
    return {key: tokens.get_pixels(image) for key, image in images.items()}


def add_pixels(batch: dict[str, Any], episodes: Sequence[EpisodeTokens], tokens: ChatTokens) -> dict[str, Any]:
    """Return the batch of these episodes with `vision`: the model's arguments for all images in order; {} for none."""
    pixels = [tokens.get_pixels(image) for episode in episodes for image in episode.images]
    ids, architecture = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1), tokens.architecture
    vision = architecture.build_vision_inputs(pixels, ids.device, torch.float32)
    return batch | {"vision": vision | architecture.build_token_types(ids) if vision else {}}


def get_sampled(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B, C): 1 on the tokens the policy sampled and is trained on."""
    return batch["completion_mask"] * batch["tool_mask"]


def find_learned(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B,): whether a sampled token of an episode has an advantage other than 0. All others have no gradient.
    At least one counts as learned, with an image if any has: a weight that no gradient reaches would have none instead
    of zeros, and an optimizer would pass over it."""
    sampled = get_sampled(batch)
    learned = (batch["advantages"].view(len(sampled), -1) * sampled != 0).any(1)
    shows = (batch["image_tokens"] > 0).any(1)
    shows |= ~shows.any()
    if not (learned & shows).any():
        lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
        learned[lengths.where(shows, lengths.max() + 1).argmin()] = True
    return learned


def build_model_inputs(batch: dict[str, Any]) -> dict[str, object]:
    """Return the keyword arguments of the model's forward pass for a collated batch with its pixels (`add_pixels`)."""
    return {
        "input_ids": torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        "attention_mask": torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        **batch.get("vision", {}),
    }


def split_by_tokens(
    batch: dict[str, Any],
    tokens: int,
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda table: table,
    *,
    share: bool = True,
    learned: torch.Tensor | None = None,
) -> list[list[int]]:
    """Split a batch into parts of at most `tokens` tokens; a prompt that episodes share counts once.
    Episodes of a group stay together if they fit. An episode longer than `tokens` is a part of its own.

    Args:
        gather: stacks a tensor of all processes. They cut after the same number of episodes, because they synchronize
            in every part.
        share: whether the loss computes a shared prompt once; if not, it counts with each episode.
        learned: (B,) whether an episode goes through the model; the others count nothing, and come last. None: all do.

    Returns:
        The indices of the episodes in each part.
    """
    learned = torch.ones_like(batch["prompt_ids"][:, 0]) if learned is None else learned
    prompts, completions = ((batch[f"{name}_mask"].sum(1) * learned).tolist() for name in ("prompt", "completion"))
    pictures = batch["image_keys"][:, :1].tolist()
    names = [(*ids, *keys) for ids, keys in zip(batch["prompt_ids"].tolist(), pictures, strict=True)]
    groups = {name: i for i, name in enumerate(dict.fromkeys(names))}
    group = [groups[name] if share else i for i, name in enumerate(names)]
    order = sorted(range(len(names)), key=lambda k: (completions[k] == 0, group[k], -completions[k]))
    table = torch.tensor([[group[k], prompts[k], completions[k]] for k in order], device=batch["prompt_ids"].device)
    ends = _find_cuts(gather(table).view(-1, len(order), 3).tolist(), tokens)
    return [order[start:end] for start, end in pairwise([0, *ends])]


def _find_cuts(tables: list[list[list[int]]], tokens: int) -> list[int]:
    """Return where parts end such that no process has more than `tokens` in one; rows are (group, prompt, completion).

    >>> _find_cuts([[[0, 10, 5], [0, 10, 5], [1, 10, 5]], [[0, 10, 1], [0, 10, 1], [0, 10, 1]]], 25)
    [2, 3]
    """
    ends, held, last = [], [0] * len(tables), [-1] * len(tables)
    for i, rows in enumerate(zip(*tables, strict=True)):
        more = [row[2] + (0 if row[0] == group else row[1]) for row, group in zip(rows, last, strict=True)]
        if i and any(more) and max(map(add, held, more)) > tokens:
            ends.append(i)
            held, more = [0] * len(tables), [prompt + completion for _, prompt, completion in rows]
        held, last = list(map(add, held, more)), [row[0] for row in rows]
    return [*ends, len(tables[0])]


def select(batch: dict[str, Any], part: Sequence[int]) -> dict[str, Any]:
    """Return the batch of only the episodes with the indices `part`, in that order."""
    count = len(batch["prompt_ids"])
    rows = list(part)
    return {
        name: value[rows] if isinstance(value, torch.Tensor) and value.ndim and len(value) == count else value
        for name, value in batch.items()
    }


def compute_share(batch: dict[str, Any], part: Sequence[int], loss_type: str) -> float:
    """Return the weight of a part's loss in the loss of the batch; it depends on what TRL averages over for
    `loss_type`."""
    if loss_type in ("dapo", "cispo", "vespo"):  # sums over tokens, divided by the number in the whole batch
        return 1.0
    if loss_type == "bnpo":
        sampled = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
        return float(sampled[list(part)].sum() / sampled.sum().clamp(min=1))
    return len(part) / len(batch["prompt_ids"])
