"""Warm-starts a tiny model for `configs/literature_tiny.yaml`: demonstrations whose names, PMIDs and numbers are new
whenever they are learned from, so that the model learns to copy them from its question and from the articles.

    python benchmarks/write_literature.py build/literature 400 800
    viewbox train literature_warmstart                      # records the demonstrations, and learns them by heart
    python benchmarks/literature_warmstart.py [SHARE]       # build/tiny_literature; SHARE of the steps, to try it

The names of held-out topics are never among the new ones.
"""

import math
import random
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from literature_world import _ENDS, _MIDDLES, _STARTS, _VOWELS
from msgspec.structs import replace

from viewbox.configs import schema
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.literature_vqa.world import read_facts
from viewbox.records import Episode, EpisodeTokens
from viewbox.rollouts.store.reader import load
from viewbox.training.sft import trainer

RUN, EXPORT = "runs/literature_warmstart-seed0", "build/tiny_literature"
BATCH, RATE, GUESSES, WEIGHT = 32, 2e-3, 0.25, 8.0
# Stages: steps; steps after which the rate would be 0; whether numbers are cited; the weight of names and PMIDs in a
# result that were read before (they are copies, too). From random weights, 370 steps of the second do not suffice.
STAGES = ((200, 700, False, 0.5), (350, 350, True, 0.5), (330, 330, True, 0.1))
_NAME, _PMID = re.compile(r"[A-Z][a-z]+"), re.compile(r"99000\d{4}")
_VALUE, _ANSWER = re.compile(r"(scanned for )(\d+)"), re.compile(r'("answer": "?)(\d+)')
_CITED = re.compile(r'"(99000\d{4})"')
_NUMBERED, _REPEATED = re.compile(r"\[\d+\] PMID (\d+)"), re.compile(r"(?<=invented\.)\d{9}|(?<=invalid/)\d{9}")


class Renaming:
    """Demonstrations as text, and with other names, PMIDs and numbers each time."""

    def __init__(
        self, episodes: Sequence[Episode], facts: str, tokenizer: Any, seed: int, by_number: bool, read_weight: float
    ) -> None:
        self.rng, self.tokenizer = random.Random(seed), tokenizer
        self.by_number, self.read_weight = by_number, read_weight
        every = read_facts(facts)
        self.names = {fact.topic.key for fact in every}
        self.held_out = {fact.topic.key for fact in (*every, *read_facts()) if fact.topic.split == "test"}
        replies = [sum(turn.role == "assistant" for turn in episode.turns) for episode in episodes]
        self.guesses = [one for one, count in zip(episodes, replies, strict=True) if count == 1]
        self.looks = [one for one, count in zip(episodes, replies, strict=True) if count > 1]
        self.extra: dict[int, list[float]] = {}  # by the id of a sample: weights of what is read

    def draw(self, count: int) -> list[EpisodeTokens]:
        """Return so many samples; the weights of what they read are in `extra`."""
        self.extra.clear()
        choose = self.rng.choice
        return [self._renew(choose(self.guesses if self.rng.random() < GUESSES else self.looks)) for _ in range(count)]

    def _invent(self) -> str:
        while True:
            pick = self.rng.choice
            name = (pick(_STARTS) + pick(_VOWELS) + pick(_MIDDLES) + pick(_ENDS["person"])).capitalize()
            if name not in self.held_out:
                return name

    def _renew(self, episode: Episode) -> EpisodeTokens:
        names: dict[str, str] = {}
        pmids: dict[str, str] = {}
        values: dict[str, str] = {}

        def rename(match: re.Match[str]) -> str:
            return names.setdefault(match[0], self._invent()) if match[0] in self.names else match[0]

        def number(match: re.Match[str]) -> str:
            return match[1] + values.setdefault(match[2], str(self.rng.randrange(4, 95)))

        assert episode.tokens is not None
        prompt: list[int] = []
        ids: list[int] = []
        mask: list[int] = []
        extra: list[float] = []
        read = ""
        for part, bit in _split(episode.tokens):
            text = _NAME.sub(rename, self.tokenizer.decode(part))
            text = _PMID.sub(lambda m: pmids.setdefault(m[0], f"99000{self.rng.randrange(1, 5000):04}"), text)
            text = _VALUE.sub(number, text)
            if bit == 1:
                order = _NUMBERED.findall(read)
                text = _ANSWER.sub(number, text)
                text = _CITED.sub(partial(self._find, order), text) if self.by_number else text
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            if bit == -1:
                prompt = encoded["input_ids"]
                continue
            weights = [0.0] * len(encoded["input_ids"])
            if bit == 0:
                read += text
                spans = list(_find_copies(text, set(names.values()), names.get(episode.task.reference["about"])))
                for place, (begin, end) in enumerate(encoded["offset_mapping"]):
                    if any(begin >= first and first < end <= last for first, last in spans):
                        weights[place] = self.read_weight
            ids, mask, extra = ids + encoded["input_ids"], mask + [bit] * len(weights), extra + weights
        new = {"prompt_ids": tuple(prompt), "completion_ids": tuple(ids), "mask": tuple(mask)}
        sample = replace(episode.tokens, **new, logprobs=(0.0,) * len(ids))
        self.extra[id(sample)] = extra
        return sample

    def _find(self, order: Sequence[str], cited: re.Match[str]) -> str:
        return f'"{order.index(cited[1]) + 1 if cited[1] in order else self.rng.randrange(1, 3)}"'


def _split(tokens: EpisodeTokens) -> Iterator[tuple[list[int], int]]:
    """Yield the prompt (-1), and what is read (0) and written (1)."""
    yield list(tokens.prompt_ids), -1
    start = 0
    for end in range(1, len(tokens.mask) + 1):
        if end == len(tokens.mask) or tokens.mask[end] != tokens.mask[start]:
            yield list(tokens.completion_ids[start:end]), int(tokens.mask[start])
            start = end


def _find_copies(text: str, names: set[str], asked: str | None) -> Iterator[tuple[int, int]]:
    """Yield where a result repeats a name or a PMID that was read before."""
    seen = {asked}
    for match in _NAME.finditer(text):
        if match[0] in names:
            if match[0] in seen:
                yield match.span()
            seen.add(match[0])
    for match in _REPEATED.finditer(text):
        yield match.span()


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    torch.manual_seed(0)
    config = schema.load("literature_warmstart")
    by_heart = config.model.model_copy(update={"tiny": None, "name": f"{RUN}/model"})
    policy = loading.open_policy(config.model_copy(update={"model": by_heart}))
    model = policy.model.train()
    tokens = ChatTokens(policy.processor, model.config, model.generation_config)
    episodes = [one for one in load(f"{RUN}/demonstrations", tokens=True) if one.tokens is not None]
    for stage, (steps, horizon, by_number, read_weight) in enumerate(STAGES):
        renaming = Renaming(episodes, config.env.settings["facts"], tokens.tokenizer, stage, by_number, read_weight)
        train(model, tokens, renaming, max(1, round(share * steps)), max(1, round(share * horizon)))
    model.save_pretrained(EXPORT)
    policy.processor.save_pretrained(EXPORT)


def train(model: torch.nn.Module, tokens: ChatTokens, renaming: Renaming, steps: int, horizon: int) -> None:
    """Learn from new samples for so many steps; after `horizon` steps the rate would be 0."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    size = -(-BATCH // trainer.SFT_BATCHES)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / horizon))
        samples = sorted(renaming.draw(BATCH), key=lambda one: len(one.prompt_ids) + len(one.completion_ids))
        batches = trainer.build_sft_batches(samples, tokens, WEIGHT, trainer.SFT_BATCHES)
        for number, batch in enumerate(batches):
            for row, sample in enumerate(samples[number * size : (number + 1) * size]):
                extra = torch.tensor(renaming.extra[id(sample)])
                batch["weights"][row, : len(extra)] += extra
        loss = trainer.compute_sft_loss(model, batches)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
