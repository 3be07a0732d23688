"""Tiny models, one of each family, of about 250,000 parameters, and environments for them.

The weights are drawn wide and the output layer has a bias, so log-probs differ a lot between tokens, attention looks
far back, and replies end at different lengths: what a parity test needs.
"""

import json
from dataclasses import dataclass, field

import torch

from tests.support.families import build_family
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.hf import Settings, tiny_model
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.utils.frozen import thaw

torch.set_num_threads(1)
FAMILIES = ("qwen3_vl", "qwen2_5_vl")


FINE = {"text": "Fine."}


class Words(BaseMultiTurnEnv):
    """Has no image. Any reply is the answer, after one more question."""

    name = "words"
    max_turns = 3

    @property
    def tasks(self):
        return [Task(f"words-{i}", prompt={"question": "How are you? " * (i + 1)}, reference=FINE) for i in range(8)]

    def default_reward(self):
        return ExactMatchReward(field="text")

    def on_answer(self, state, answer):
        return "Are you sure?" if state.turn == 1 else None


class Strips(Digits):
    """Digits on canvases of several shapes, so that prompts and images differ in length. Boxes are not tested."""

    def images(self, task):
        (whole,) = super().images(task)
        seed = task.metadata["seed"]
        return [whole.crop((0, 0, (256, 120, 256, 200)[seed % 4], (100, 256, 256, 160)[seed % 4]))]


class Pairs(Strips):
    """Two images of different size a task: a strip, and another one turned on its side."""

    def count_images(self, task):
        return 2

    def images(self, task):
        return [*super().images(task), super().images(self.tasks[task.metadata["seed"] + 1])[0].rotate(90, expand=True)]


def write_corpus(count=40):
    """Texts to train a tokenizer on: prompts, tool schemas, calls and answers."""
    env = Digits()
    tasks = [env.tasks[i] for i in range(count)]
    said = [line for task in tasks for line in viewer.write_demonstration(env, task, 0, viewer.Habits(0.2, 0.2, 0.2))]
    prompt = [env.build_system_prompt(tasks[0]), *(json.dumps(thaw(schema)) for schema in env.tool_schemas)]
    return [*prompt * 20, *said]


def build_kit(corpus=None):
    """A tiny Qwen3-VL whose tokenizer knows these texts, or those of 20 tasks."""
    tokenizer = tiny_model.build_tokenizer(corpus or write_corpus(20), 480)
    return Kit("qwen3_vl", tiny_model.build_processor(tokenizer))


@dataclass(eq=False)
class Kit:
    """A tiny Qwen3-VL whose tokenizer may know more: its processor, its chat tokens, and models of it."""

    name: str
    processor: object
    tokens: ChatTokens = field(init=False)
    tolerance = 1e-5  # of log-probs in float32

    def __post_init__(self):
        model = self.model()
        self.tokens = ChatTokens(self.processor, model.config, model.generation_config)

    @property
    def tokenizer(self):
        return self.processor.tokenizer

    def build(self, seed):
        sizes = {"hidden": 96, "layers": 2, "vision_hidden": 32, "vision_layers": 3}
        model = tiny_model.build_model(self.tokenizer, seed=seed, **sizes)
        torch.manual_seed(seed + 1)
        for weight in model.parameters():
            if weight.ndim == 2:
                torch.nn.init.normal_(weight, std=0.1)
        return model

    def model(self, seed=0, *, bias=None, ends=3.0):
        """A new model. `bias` maps token ids to offsets of their logits; `ends` is the offset of the end token."""
        model = self.build(seed)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
        head = torch.nn.Linear(*reversed(model.get_output_embeddings().weight.shape))
        torch.nn.init.normal_(head.weight, std=0.12)
        torch.nn.init.zeros_(head.bias)
        with torch.no_grad():
            for one, offset in {self.tokenizer.eos_token_id: ends, **(bias or {})}.items():
                head.bias[one] += offset
        model.set_output_embeddings(head)
        return model.eval()

    def generator(self, model=None, **settings):
        given = {"slots": 4, "max_reply_tokens": 12, "max_completion_tokens": 600} | settings
        own = {name: given.pop(name) for name in ("vision_cache", "model_name") if name in given}
        return HFGenerator(self.model() if model is None else model, self.tokens, Settings(**given), **own)


class FamilyKit(Kit):
    """Any family of `tests/support/families`, with an output layer as above."""

    def __init__(self, name):
        super().__init__(name, build_family(name)[1])
        if "linear_attention" in self.tokens.architecture.masks.kinds:
            # A gated delta rule is one sum token by token and another in chunks. In 8 draws the log-probs of a plain
            # forward were up to 1.5e-4 from those in float64, the engine's as far, and 6e-5 from each other.
            # `test_state_cache.py` holds the engine to this rounding.
            self.tolerance = 2e-4

    def build(self, seed):
        model, _ = build_family(self.name, seed)
        torch.manual_seed(seed + 1)
        return model
