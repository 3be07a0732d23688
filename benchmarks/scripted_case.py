"""What the engine's benchmarks play: an environment with images, scripted replies, and an engine that follows them.

A random model never calls a tool. Each side of a comparison therefore samples as usual, and then replaces the sample by
the tokens of the script, so that all sides have equal tokens and turns. `Stage` holds what the sides share.
"""

import asyncio
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.generator import Conversation
from viewbox.engines.hf import Settings, loading, tiny_model
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.images.view import View
from viewbox.records import Episode, Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.play import play_many
from viewbox.tools import ToolOutput

PATCH = 8
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
QUESTION = "What is to be seen on this picture? Look at it as often as you like, and then say in a sentence what it is."


@dataclass(frozen=True)
class CaseSize:
    """The size of a comparison. Lengths of sides are in image tokens: an image of side n has n x n tokens."""

    prompts: int
    group: int  # episodes of each prompt
    side: int  # of the prompt's image
    tool_side: int  # of the image that the tool shows
    pictures: int | None = None  # distinct images of prompts; None: one for each prompt

    @property
    def episodes(self) -> int:
        return self.prompts * self.group


RIGHT = {"text": "a circle"}


class LooksEnv(BaseMultiTurnEnv):
    """An image, and a tool that shows another. With `distinct_prompts`, each begins differently, so none is shared."""

    name = "looks"
    max_turns = 6
    boundary = False

    def __init__(self, case: CaseSize, distinct_prompts: bool = False) -> None:
        def look(view: View) -> ToolOutput:
            """Show a part of the picture."""
            return ToolOutput("looked", image=make_image(int(view.source.pixels[0, 0]), case.tool_side))

        self.__dict__.update(_case=case, _distinct_prompts=distinct_prompts)
        super().__init__(tools=(look,), max_pixels=(case.side * 2 * PATCH) ** 2)

    @property
    def group(self) -> int:
        """Episodes per task."""
        return 1 if self._distinct_prompts else self._case.group  # type: ignore[attr-defined]

    @property
    def tasks(self) -> list[Task]:
        case: CaseSize = self._case  # type: ignore[attr-defined]
        each = case.group // self.group
        seeds = [i // each % (case.pictures or case.prompts) for i in range(case.prompts * each)]
        return [
            Task(f"looks-{i}", metadata={"number": i, "seed": seed}, prompt={"question": QUESTION}, reference=RIGHT)
            for i, seed in enumerate(seeds)
        ]

    def system_prompt(self, task: Task) -> str:
        return f"{task.metadata['number']:05d}: you read an image with a viewer's tools."

    def images(self, task: Task) -> list[np.ndarray]:
        return [make_image(task.metadata["seed"], self._case.side)]  # type: ignore[attr-defined]

    def default_reward(self) -> ExactMatchReward:
        return ExactMatchReward("text")


def make_image(seed: int, side: int) -> np.ndarray:
    """Noise of side * side image tokens."""
    pixels = side * 2 * PATCH
    return np.random.default_rng(seed).integers(0, 255, (pixels, pixels), dtype=np.uint8)


def write_script(tokens: ChatTokens, seed: int) -> list[list[int]]:
    """Return the token ids of an episode's replies: 1 to 4 calls of 20 to 60 tokens each, then an answer of 20 to
    100."""
    rng = np.random.default_rng(seed)
    call = tokens.tokenizer(CALL, add_special_tokens=False)["input_ids"]
    plain = [i for i in range(len(tokens.tokenizer)) if re.fullmatch(r" ?[a-z]+", tokens.tokenizer.decode([i]))]
    words = lambda n: rng.choice(plain, n).tolist()  # noqa: E731
    turns = range(rng.integers(1, 5))
    calls = [[*words(max(0, int(rng.integers(20, 61)) - 1 - len(call))), *call, tokens.end_id] for _ in turns]
    return [*calls, [*words(int(rng.integers(20, 101)) - 1), tokens.end_id]]


def count_replies(conversation: Conversation) -> int:
    """Return the number of replies in the conversation so far."""
    return sum(message.role == "assistant" for message in conversation.messages)


class ScriptedEngine(HFGenerator):
    """The engine with scripted tokens. It still samples, so that the work is equal."""

    def __init__(self, *args: Any, scripts: list[list[list[int]]], **kwargs: Any) -> None:
        self.scripts = scripts
        super().__init__(*args, **kwargs)

    def _draw(self, sequences: Any, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ids, _ = super()._draw(sequences, logits)
        scripted = [self._get_reply_ids(s.conversation)[len(s.output_ids)] for s in sequences]
        ids = torch.tensor(scripted, device=ids.device)
        return ids, torch.log_softmax(logits, dim=-1).gather(1, ids[:, None])[:, 0]

    def _get_reply_ids(self, conversation: Conversation) -> list[int]:
        return self.scripts[conversation.index % len(self.scripts)][count_replies(conversation)]


@dataclass
class Stage:
    """A case with its tiny model (about a million parameters), and the script of its episodes.

    With `family`, the model is that family's of `tests/support/families`; its pictures have as many tokens as it says.
    """

    case: CaseSize
    family: str | None = None
    processor: Any = field(init=False)
    model: Any = field(init=False)
    tokens: ChatTokens = field(init=False)
    scripts: list[list[list[int]]] = field(init=False)
    env: LooksEnv = field(init=False)

    def __post_init__(self) -> None:
        patches = max(self.case.side, self.case.tool_side) * 2
        if self.family is None:
            self.model, self.processor = self._build_own(patches)
        else:
            sys.path.append(str(Path(__file__).resolve().parents[1]))  # the families are part of the tests
            from tests.support.families import build_family

            self.model, self.processor = build_family(self.family)
            loading.set_max_pixels(self.processor, (patches * PATCH) ** 2)
        self.tokens = ChatTokens(self.processor, self.model.config, self.model.generation_config)
        self.scripts = [write_script(self.tokens, i) for i in range(self.case.episodes)]
        self.env = LooksEnv(self.case)

    def _build_own(self, patches: int) -> tuple[Any, Any]:
        tokenizer = tiny_model.build_tokenizer([QUESTION, CALL, "hello world"] * 10, 896)
        processor = tiny_model.build_processor(tokenizer, patch=PATCH, max_pixels=(patches * PATCH) ** 2)
        sizes = {"hidden": 128, "layers": 4, "vision_layers": 3, "positions": patches**2}
        return tiny_model.build_model(tokenizer, **sizes).eval(), processor

    def build_engine(
        self, kind: type[ScriptedEngine] = ScriptedEngine, *, model: Any = None, vision_cache: Any = None, **given: Any
    ) -> ScriptedEngine:
        rollout = Settings(**{"slots": self.case.episodes, "max_completion_tokens": 4000} | given)
        return kind(model or self.model, self.tokens, rollout, scripts=self.scripts, vision_cache=vision_cache)

    def play_episodes(self, generator: ScriptedEngine, env: LooksEnv | None = None) -> list[Episode]:
        """Play all episodes; return them in the order of their tasks."""
        env = env or self.env

        async def play_all() -> list[Episode]:
            limits = {"group": env.group, "concurrency": generator.settings.slots}
            return [episode async for episode in play_many(env, env.tasks, generator, **limits)]

        found = asyncio.run(play_all())
        assert {episode.end_reason for episode in found} == {"answered"}
        return sorted(found, key=lambda episode: (episode.info["index"], episode.info["sample"]))

    def play(self, generator: ScriptedEngine, env: LooksEnv | None = None) -> int:
        """Play all episodes; return the number of sampled tokens."""
        return sum(sum(episode.tokens.mask) for episode in self.play_episodes(generator, env) if episode.tokens)
