"""Supervised warm start on saved episodes: the policy's tokens are trained on, the environment's are not.

The scalar values in a reply's JSON (labels, coordinates) get a higher weight. The punctuation around them is learned in
a few steps and would otherwise dominate the loss.
"""

import asyncio
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import Trainer

from ...configs.train_sections import Demonstrations
from ...core.base import BaseMultiTurnEnv
from ...core.parsing.scan import MARK
from ...core.tasks import to_sequence
from ...engines.hf import tiny_model
from ...engines.hf.chat_tokens import ChatTokens, describe_mismatch
from ...engines.scripted import ScriptedGenerator
from ...errors import StoreError
from ...records import Episode, EpisodeTokens
from ...rollouts.play import play_many
from ...rollouts.store.reader import load
from ...rollouts.store.writer import EpisodeWriter
from ..checkpoints import Checkpoints
from ..grpo.batch import add_pixels, build_model_inputs, collate
from ..held_out import build_script, collect_episodes

log = logging.getLogger("viewbox.train")
SFT_BATCHES = 4  # of similar length, into which a device batch is cut
_VALUE = re.compile(r'[:\[,(=>]\s*("(?:[^"\\]|\\.)*"(?!\s*:)|-?\d+(?:\.\d+)?)')
VALUE_WEIGHT = 12.0
_OBJECT = re.compile(rf"(?:{MARK}).*|\{{.*\}}", re.DOTALL)  # calls in any syntax, or an answer


def compute_token_weights(episode: EpisodeTokens, tokens: ChatTokens, weigh_values: bool) -> list[float]:
    """Return a weight for each completion token: 0 on the environment's tokens, 1 on the policy's.
    The tokens of a scalar value in a reply's JSON or calls share a weight of 12, so that a label of one token counts as
    much as a coordinate of three; a token never has a weight below 1."""
    weights = [float(bit) for bit in episode.mask]
    if not weigh_values:
        return weights
    start = 0
    while start < len(weights):
        if not episode.mask[start]:
            start += 1
            continue
        end = start
        while end < len(weights) and episode.mask[end]:
            end += 1
        pieces = [tokens.tokenizer.decode([i]) for i in episode.completion_ids[start:end]]
        text, offset = "".join(pieces), 0
        written = _OBJECT.search(text)  # numbers in the text around it are not values
        spans = [match.span(1) for match in _VALUE.finditer(text, *written.span())] if written else []
        tokens_of_value: dict[int, list[int]] = {}  # the index of a span -> the tokens inside it
        for k, piece in enumerate(pieces):
            begin, stop = offset + len(piece) - len(piece.lstrip()), offset + len(piece.rstrip())
            value = next((n for n, (a, b) in enumerate(spans) if a <= begin < stop <= b), None)
            if value is not None:
                tokens_of_value.setdefault(value, []).append(start + k)
            offset += len(piece)
        for indices in tokens_of_value.values():
            for index in indices:
                weights[index] = max(1.0, VALUE_WEIGHT / len(indices))
        start = end
    return weights


def build_sft_batches(
    episodes: Sequence[EpisodeTokens], tokens: ChatTokens, weigh_values: bool, num_batches: int = 1
) -> list[dict[str, Any]]:
    """Collate episodes into `num_batches` batches of similar length, which saves padding.

    Returns:
        What `collate` returns for each batch, and `weights`, (B, C) float: see `compute_token_weights`.
    """
    ordered = sorted(episodes, key=lambda episode: len(episode.prompt_ids) + len(episode.completion_ids))
    size = -(-len(ordered) // num_batches)
    batches = []
    for start in range(0, len(ordered), size):
        group = ordered[start : start + size]
        batch = add_pixels(collate(group, tokens), group, tokens)
        batch["weights"] = torch.zeros(batch["completion_ids"].shape)
        for i, episode in enumerate(group):
            batch["weights"][i, : len(episode.mask)] = torch.tensor(
                compute_token_weights(episode, tokens, weigh_values)
            )
        batches.append(batch)
    return batches


def sum_weights(batches: Iterable[dict[str, Any]]) -> torch.Tensor:
    """Return the sum of all token weights, a scalar."""
    return torch.stack([batch["weights"].sum() for batch in batches]).sum()


def compute_sft_loss(
    model: torch.nn.Module, batches: Sequence[dict[str, Any]], total: torch.Tensor | float | None = None
) -> torch.Tensor:
    """Return the weighted sum of −log p over the policy's tokens of all batches, divided by `total`, a scalar.
    `total` is the sum of the weights of everything that one update learns from; by default that of `batches`."""
    total = sum_weights(batches).clamp(min=1.0) if total is None else total
    losses = []
    for batch in batches:
        targets = batch["completion_ids"]
        logits = model(**build_model_inputs(batch), logits_to_keep=targets.shape[1] + 1).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        losses.append((loss * batch["weights"]).sum() / total)
    return torch.stack(losses).sum()


class SFTTrainer(Checkpoints, Trainer):
    """transformers' `Trainer` with the weighted loss.
    An update learns from a window: the batches of all accumulation steps and processes. Its loss is the weighted mean
    over all tokens of the window, so that a token counts the same in whatever batch it is."""

    def __init__(self, *, tokens: ChatTokens, weigh_values: bool = False, **kwargs: Any) -> None:
        self.tokens, self.weigh_values = tokens, weigh_values
        self._figures: dict[str, float] = {}
        super().__init__(data_collator=self._collate, **kwargs)

    loss_is_scaled_for_ga = True  # transformers would divide the loss by the accumulation steps

    def add_figures(self, figures: Mapping[str, float]) -> None:
        """Add figures to the next line of metrics."""
        self._figures |= figures

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        figures, self._figures = self._figures, {}
        super().log({**logs, **figures}, start_time)

    def collect_state(self) -> dict[str, object]:
        return super().collect_state() | {"figures": self._figures}

    def restore_state(self, state: dict[str, Any]) -> None:
        super().restore_state(state)
        self._figures = dict(state["figures"])

    def _collate(self, episodes: Sequence[EpisodeTokens]) -> dict[str, Any]:
        return {"batches": build_sft_batches(episodes, self.tokens, self.weigh_values, SFT_BATCHES)}

    def get_batch_samples(
        self, epoch_iterator: Iterator[object], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | None]:
        """Return the batches of a window of this process, and the sum of the weights of the whole window."""
        window, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        batches = [batch for inputs in window for batch in inputs["batches"]]
        total = sum_weights(batches) if batches else torch.zeros(())
        gathered: torch.Tensor = self.accelerator.gather(total.to(device))
        return window, gathered.sum().clamp(min=1.0)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> object:
        loss = compute_sft_loss(model, inputs["batches"], num_items_in_batch)
        if num_items_in_batch is not None:  # the gradients of all processes are averaged, not summed
            loss = loss * self.accelerator.num_processes
        return (loss, None) if return_outputs else loss


def select_usable(episodes: Iterable[Episode], tokens: ChatTokens) -> list[EpisodeTokens]:
    """Return the tokens of the episodes that can be trained on; raise `StoreError` if there are none."""
    recorded = [episode.tokens for episode in episodes if episode.tokens is not None]
    problems = [describe_mismatch(item, tokens) for item in recorded]
    usable = [item for item, problem in zip(recorded, problems, strict=True) if problem is None]
    for problem, count in Counter(filter(None, problems)).items():
        log.warning("%d of %d episodes are left out: %s", count, len(recorded), problem)
    if not usable:
        raise StoreError("no episode has tokens that fit this model's tokenizer and image processor")
    return usable


def record_demonstrations(
    env: BaseMultiTurnEnv, tokens: ChatTokens, section: Demonstrations, folder: str, seed: int
) -> None:
    """Play the environment's demonstrations and save them with their tokens in `folder`; skip those in it."""
    generator = ScriptedGenerator(tokens, build_script(env, "demonstration", **section.habits))

    async def play(writer: EpisodeWriter) -> None:
        tasks = to_sequence(env.tasks, env.name)[: section.count]
        recorded = {(episode.info["index"], 0) for episode in load(folder)}
        async for episode in play_many(env, tasks, generator, seed=seed, skip=recorded):
            writer.append_or_error(episode)

    with EpisodeWriter(folder) as writer:
        asyncio.run(play(writer))


def build_corpus(env: BaseMultiTurnEnv, count: int = 200) -> list[str]:
    """Texts to train a tokenizer on: the environment's prompts and demonstrations."""
    bootstrap = tiny_model.build_tokenizer([""], 280)
    tokens = ChatTokens(
        tiny_model.build_processor(bootstrap), tiny_model.build_config(bootstrap, hidden=16, layers=1, vision_layers=2)
    )
    tokens.context = math.inf  # of texts that no model reads
    generator = ScriptedGenerator(tokens, build_script(env, "demonstration"), max_completion_tokens=100_000)
    episodes = collect_episodes(env, to_sequence(env.tasks, env.name)[:count], generator, slots=16, seed=0)
    corpus = []
    for number, episode in enumerate(episodes):
        assert episode.tokens is not None
        parts = [episode.tokens.completion_ids] + ([episode.tokens.prompt_ids] if number % 4 == 0 else [])
        for ids in parts:  # keeps one placeholder token of each image; all of them would dominate the text
            single = [i for k, i in enumerate(ids) if i != tokens.image_id or ids[k - 1] != tokens.image_id]
            corpus.append(bootstrap.decode(single))
    return corpus
