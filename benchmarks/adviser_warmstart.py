"""Trains the model that `configs/software_adviser_tiny.yaml` starts from, from random weights: it learns to look, to
ask, to write what it sees and reads as a query, and to answer by the number of a hit.

    python benchmarks/adviser_warmstart.py [STEPS]     # assets/tiny_adviser

No demonstration is of a request of the environment, so that nothing can be known by heart: each has words in any order
around its task, a task, a format and dimensions that need not belong together, a picture of its own, and hits with
invented names. The model learns to copy the facts and to read the picture. A fact is a token wherever it stands.
"""

import json
import random
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from literature_warmstart import train
from literature_world import _ENDS, _MIDDLES, _STARTS, _VOWELS
from tokenizers import AddedToken

from viewbox.configs import schema
from viewbox.core.messages import write_call
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.software_adviser.catalogue import DIMENSIONS, FORMATS, SoftwareTool
from viewbox.envs.software_adviser.demonstrations import write_query, write_question
from viewbox.envs.software_adviser.env import SoftwareAdviser
from viewbox.envs.software_adviser.generator import _describe_file, write_hidden_fact
from viewbox.envs.software_adviser.phrases import MODALITIES, QUESTIONS, TASKS
from viewbox.envs.software_adviser.request import UNKNOWN, Request
from viewbox.envs.software_adviser.scenes import SCENES
from viewbox.records import EpisodeTokens, Task
from viewbox.rollouts.store.reader import load
from viewbox.training.sft import trainer
from viewbox.utils.frozen import FrozenDict

TEXTS = 400  # demonstrations from which the tokenizer is made
FIRST, HITS = 0.75, 5  # share of the answers with the first hit, and hits of a search
FACTS = sorted({*TASKS, *MODALITIES, *FORMATS, *DIMENSIONS, *(scene.structure for scene in SCENES), UNKNOWN})
MARKS = (".", ".", "?", ":", ";", ",")


class InventedRequests(SoftwareAdviser):
    """The environment with invented requests and hits."""

    @property
    def make_request(self) -> Any:
        return self._invent

    def _invent(self, seed: int) -> Request:
        rng, scene = random.Random(seed), SCENES[seed % len(SCENES)]
        task, format, dimensions = rng.choice([*TASKS]), rng.choice(FORMATS), rng.choice(DIMENSIONS)
        request = Request(
            self._write_words(task, rng), "expert", task, scene.modality, dimensions, format, seed=seed,
            structure=scene.structure, variant=scene.variant, pictured=("modality", "structure"),
        )  # fmt: skip
        known = dict(_describe_file(request, np.random.default_rng(seed)))
        if rng.random() < self.ambiguous:
            kind = rng.choice(self.hides)
            known = {name: text for name, text in known.items() if (name, kind) != ("size", "dimensions")}
            known[kind] = UNKNOWN
            hidden = FrozenDict({kind: write_hidden_fact(request, kind)})
            request = replace(request, status="ambiguous", hidden=hidden)
        return replace(request, metadata=FrozenDict(known))

    def _write_words(self, task: str, rng: random.Random) -> str:
        """Return a sentence with a task, and up to four without."""
        said = [[*self._draw_words(rng, 1, 7), task, *self._draw_words(rng, 0, 5)]]
        said += [self._draw_words(rng, 2, 9) for _ in range(rng.randrange(5))]
        texts = map(" ".join, said)
        return " ".join(f"{text[0].upper()}{text[1:]}{rng.choice(MARKS)}" for text in texts)

    def _draw_words(self, rng: random.Random, least: int, most: int) -> list[str]:
        count = rng.randrange(least, most)
        return [invent_name(rng) if rng.random() < 0.08 else rng.choice(self._vocabulary) for _ in range(count)]

    @cached_property
    def _vocabulary(self) -> list[str]:
        """The words of the catalogue's sentences that are no facts."""
        texts = " ".join(tool.features for tool in self.software.values()).casefold()
        return sorted({*re.findall(r"[a-z-]{2,12}", texts)} - {*" ".join(FACTS).casefold().split()})

    def make_drawn(self, seed: int) -> Task:
        request = self.make_request(seed)
        prompt = {"words": request.words, "file": dict(request.metadata), "choices": 1}
        reference = {"facts": request.write_facts(), "hidden": list(request.hidden.values())}
        return Task(f"invented-{seed}", prompt=prompt, reference=reference, metadata={"seed": seed})

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, object]:
        context: Any = super().hidden_arguments(task, tool)["context"]
        return {"context": replace(context, retriever=InventedHits(context.retriever.tools, task.metadata["seed"]))}

    def demonstration(self, task: Task, seed: int, **habits: float) -> list[str]:
        """Return a question if a fact is hidden, a search for what is seen and told, and an answer; with `habits`."""
        request, rng = self.make_request(task.metadata["seed"]), random.Random(seed)
        habitual = rng.random() < habits.get("guess" if request.hidden else "ask", 0.0)
        asked = [*request.hidden] if not habitual else [] if request.hidden else [rng.choice([*QUESTIONS])]
        told = not (habitual and request.hidden)
        stray = rng.random() < habits.get("stray", 0.0)
        searched = self.make_request(request.seed + rng.randrange(1, 2**20)) if stray else request
        reads = f" and reads {request.format} files" if told or "format" not in request.hidden else ""
        why = f"It is made for {request.task} of the {request.structure} in {request.modality} images{reads}."
        number = 1 if rng.random() < FIRST else rng.randrange(2, HITS + 1)
        choice = {"name": str(number), "rank": 1, "accuracy": 100, "why": why}
        return [
            *map(write_question, asked),
            write_call("search_tools", {"query": write_query(searched, told=told)}),
            json.dumps({"choices": [choice], "continue": False}),
        ]


class InventedHits:
    """A search that finds software with invented names, whatever is asked."""

    def __init__(self, tools: Sequence[SoftwareTool], seed: int) -> None:
        rng = random.Random(seed)
        found = [tool.model_copy(update={"name": invent_name(rng)}) for tool in rng.sample(tools, HITS)]
        self.by_name = {tool.name: tool for tool in found}

    def search(self, words: str, **settings: object) -> list[str]:
        return [*self.by_name]


class Demonstrations:
    """Draws recorded demonstrations, each once before the next round."""

    def __init__(self, samples: Sequence[EpisodeTokens], seed: int) -> None:
        self._drawn = self._draw_all([*samples], random.Random(seed))

    def draw(self) -> tuple[EpisodeTokens, list[float]]:
        """Return a sample, and the weights of what it reads."""
        sample = next(self._drawn)
        return sample, [0.0] * len(sample.mask)

    def _draw_all(self, samples: list[EpisodeTokens], rng: random.Random) -> Iterator[EpisodeTokens]:
        while True:
            rng.shuffle(samples)
            yield from samples


def invent_name(rng: random.Random) -> str:
    name = rng.choice(_STARTS) + rng.choice(_VOWELS) + rng.choice(_MIDDLES) + rng.choice(_ENDS["person"])
    return name.upper()[: rng.randrange(3, 6)] if rng.random() < 0.3 else name.capitalize()


def build(config: schema.Config, env: SoftwareAdviser) -> tuple[Any, Any]:
    """Return (model, processor), with a token for each of `FACTS`."""
    facts = re.compile("|".join(map(re.escape, sorted(FACTS, key=len, reverse=True))))
    corpus = [facts.sub("\n", text) for text in trainer.build_corpus(env, TEXTS)]
    model, processor = loading.build_tiny_model(config.model, corpus, env.max_pixels or 0, config.train.seed)
    processor.tokenizer.add_tokens([AddedToken(fact, single_word=True, normalized=False) for fact in FACTS])
    model.resize_token_embeddings(len(processor.tokenizer), mean_resizing=False)
    return model, processor


def main() -> None:
    config = schema.load("software_adviser_warmstart")
    section, export = config.train, str(config.log.export)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else int(section.arguments["max_steps"])
    env = InventedRequests(**config.env.settings)
    model, processor = build(config, env)
    tokens, folder = ChatTokens(processor, model.config, model.generation_config), "build/adviser_demonstrations"
    shutil.rmtree(folder, ignore_errors=True)
    trainer.record_demonstrations(env, tokens, section.demonstrations, folder, section.seed)
    samples = [episode.tokens for episode in load(folder, tokens=True) if episode.tokens is not None]
    sizes = f"{len(processor.tokenizer)} tokens, {model.num_parameters()} parameters"
    print(f"{len(samples)} demonstrations, {sizes}", flush=True)
    train(model.train(), tokens, Demonstrations(samples, section.seed), section, steps)
    model.save_pretrained(export)
    processor.save_pretrained(export)


if __name__ == "__main__":
    main()
