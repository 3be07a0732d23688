"""Trains the model that `configs/literature_tiny.yaml` starts from, from random weights: it learns to search, to read
which article stands and to cite it by its number.

    python benchmarks/write_literature.py build/literature 600 2400    # the world: seconds
    python benchmarks/literature_warmstart.py [STEPS]                  # build/tiny_literature

The demonstrations are those of `configs/literature_warmstart.yaml`. Whenever one is learned from, its names, PMIDs,
numbers, years and journals are new, so that nothing can be known by heart: the model learns to copy them from its
question and from what the search returned. The names of held-out topics are never among the new ones.
"""

import math
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from literature_world import _ENDS, _MIDDLES, _STARTS, _VOWELS, NOUNS, SHORT_JOURNALS
from msgspec.structs import replace

from viewbox.configs import schema
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.literature_vqa import LiteratureVQA
from viewbox.envs.literature_vqa.world import read_facts
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.store.reader import load
from viewbox.training.sft import trainer

FILMS = 32  # the question does not depend on the film: few are drawn
STEPS, READ = 900, 0.3  # the weight of names and PMIDs in a result that were read before: they are copies, too
_NAME = re.compile(rf"[A-Z][a-z]+(?= (?:{'|'.join(NOUNS['device'])})\b)")
_PMID, _YEAR = re.compile(r"99\d{7}"), re.compile(r"\b20[012]\d\b")
_VALUE, _ANSWER = re.compile(r"(scanned for )(\d+)"), re.compile(r'("answer": "?)(\d+)')
_CITED = re.compile(r'"99\d{7}"(, "99\d{7}")*')
_JOURNAL, _NUMBERED = re.compile(rf"(?<=, )(?:{'|'.join(SHORT_JOURNALS)})"), re.compile(r"\[\d+\] PMID (\d+)")


class QuickVQA(LiteratureVQA):
    """The environment with a few films."""

    def images(self, task: Task) -> Sequence[Any]:
        seed = int(task.metadata["seed"]) % FILMS
        if seed not in _films:
            _films[seed] = super().images(self.make_drawn(seed))
        return _films[seed]


_films: dict[int, Any] = {}


class Renewal:
    """Demonstrations as text, each with other names, PMIDs, numbers, years and journals whenever it is drawn."""

    def __init__(self, episodes: Sequence[Episode], facts: str, tokenizer: Any, seed: int) -> None:
        self.rng, self.tokenizer, self.episodes = random.Random(seed), tokenizer, episodes
        self.held_out = {fact.topic.key for fact in (*read_facts(facts), *read_facts()) if fact.topic.split == "test"}

    def draw(self) -> tuple[EpisodeTokens, list[float]]:
        """Return a sample, and the weights of what it reads."""
        tokens, known = self.rng.choice(self.episodes).tokens, dict[tuple[str, str], str]()
        assert tokens is not None
        shift, read, seen = self.rng.randrange(-4, 5), "", set[str]()
        parts: dict[int, list[int]] = {-1: [], 0: []}
        mask: list[int] = []
        weights: list[float] = []

        def renew(kind: str, old: str) -> str:
            if (kind, old) not in known:
                known[kind, old] = self._invent(kind)
            return known[kind, old]

        for ids, bit in _split(tokens):
            text = _NAME.sub(lambda match: renew("name", match[0]), self.tokenizer.decode(ids))
            if bit == 1:  # what is cited: its number in what was read
                order = _NUMBERED.findall(read)
                text = _ANSWER.sub(lambda match: match[1] + renew("value", match[2]), text)
                text = _CITED.sub(
                    lambda match, order=order: self._cite(order, [renew("pmid", i) for i in _PMID.findall(match[0])]),
                    text,
                )
            text = _VALUE.sub(lambda match: match[1] + renew("value", match[2]), text)
            text = _PMID.sub(lambda match: renew("pmid", match[0]), text)
            text = _JOURNAL.sub(lambda match: self.rng.choice(SHORT_JOURNALS), text)
            text = _YEAR.sub(lambda match: str(int(match[0]) + shift), text)
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            copies = list(_find_copies(text, seen))
            if bit == 0:
                read += text
            if bit >= 0:
                mask += [bit] * len(encoded["input_ids"])
                weights += [
                    READ * (bit == 0 and any(first <= begin < end <= last for first, last in copies))
                    for begin, end in encoded["offset_mapping"]
                ]
            parts[min(bit, 0)] += encoded["input_ids"]
        new = {"prompt_ids": tuple(parts[-1]), "completion_ids": tuple(parts[0]), "mask": tuple(mask)}
        return replace(tokens, **new, logprobs=(0.0,) * len(mask), replies=()), weights

    def _invent(self, kind: str) -> str:
        pick = self.rng.choice
        while kind == "name":
            stem = pick(_STARTS) + pick(_VOWELS) + pick(_MIDDLES) + pick(_VOWELS) + pick(_MIDDLES)
            name = (stem + pick(_ENDS["person"])).capitalize()
            if name not in self.held_out:
                return name
        return str(self.rng.randrange(4, 95)) if kind == "value" else f"9900{self.rng.randrange(1, 12_000):05}"

    def _cite(self, order: Sequence[str], pmids: Sequence[str]) -> str:
        numbers = [order.index(one) + 1 if one in order else self.rng.randrange(1, 3) for one in pmids]
        return ", ".join(f'"{number}"' for number in sorted(set(numbers)))


def _split(tokens: EpisodeTokens) -> Iterator[tuple[list[int], int]]:
    """Yield the prompt (-1), and what is read (0) and written (1)."""
    yield list(tokens.prompt_ids), -1
    start = 0
    for end in range(1, len(tokens.mask) + 1):
        if end == len(tokens.mask) or tokens.mask[end] != tokens.mask[start]:
            yield list(tokens.completion_ids[start:end]), int(tokens.mask[start])
            start = end


def _find_copies(text: str, seen: set[str]) -> Iterator[tuple[int, int]]:
    """Yield where a text repeats a name or a PMID that was read before."""
    for match in sorted((*_NAME.finditer(text), *_PMID.finditer(text)), key=lambda match: match.start()):
        if match[0] in seen:
            yield match.span()
        seen.add(match[0])


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    config = schema.load("literature_warmstart")
    section, export = config.train, config.log.export
    env = QuickVQA(**config.env.settings)
    model, processor = loading.build_tiny_model(config.model, trainer.build_corpus(env), env.max_pixels, section.seed)
    model, tokenizer = model.train(), processor.tokenizer
    tokens = ChatTokens(processor, model.config, model.generation_config)
    trainer.record_demonstrations(env, tokens, section.demonstrations, f"{export}/demonstrations", section.seed)
    episodes = [one for one in load(f"{export}/demonstrations", tokens=True) if one.tokens is not None]
    print(f"{len(episodes)} demonstrations, {len(tokenizer)} tokens, {model.num_parameters()} parameters", flush=True)
    train(model, tokens, Renewal(episodes, env.facts, tokenizer, section.seed), section, steps)
    model.save_pretrained(export)
    processor.save_pretrained(export)


def train(model: torch.nn.Module, tokens: ChatTokens, renewal: Renewal, section: Any, steps: int) -> None:
    betas = (0.9, float(section.arguments["adam_beta2"]))
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=betas, weight_decay=float(section.arguments["weight_decay"])
    )
    count = int(section.arguments["per_device_train_batch_size"])
    for step in range(steps):
        rate = float(section.arguments["learning_rate"]) * min(1.0, (step + 1) / int(section.arguments["warmup_steps"]))
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        drawn = [renewal.draw() for _ in range(count)]
        drawn.sort(key=lambda one: len(one[0].prompt_ids) + len(one[0].completion_ids))
        samples = [sample for sample, _ in drawn]
        batches = trainer.build_sft_batches(samples, tokens, section.weigh_values, trainer.SFT_BATCHES)
        extra = iter(weights for _, weights in drawn)
        for batch in batches:
            for row, weights in zip(batch["weights"], extra, strict=False):
                row[: len(weights)] += torch.tensor(weights)
        with torch.autocast("cpu", torch.bfloat16):
            loss = trainer.compute_sft_loss(model, batches)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), float(section.arguments["max_grad_norm"]))
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps}  loss {loss.item():.3f}  {time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
