"""Tiny models, one of each family, of about 250,000 parameters, and environments for them.

The weights are drawn wide and the output layer has a bias, so log-probs differ a lot between tokens, attention looks
far back, and replies end at different lengths: what a parity test needs.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
import trl
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from tests.support.families import build_family
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.hf import Settings, tiny_model
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.envs.digits import Digits
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward

torch.set_num_threads(1)
FAMILIES = ("qwen3_vl", "qwen2_5_vl")


class Words(BaseMultiTurnEnv):
    """Has no image. Any reply is the answer, after one more question."""

    name = "words"
    max_turns = 3

    @property
    def tasks(self):
        return [Task(f"words-{i}", prompt={"question": "How are you? " * (i + 1)}) for i in range(8)]

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


def build_qwen2_5_vl(tok, seed, hidden, layers):
    ids = {name: tok.convert_tokens_to_ids(name) for name in tiny_model.SPECIAL}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tok),
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [hidden // 8 - 2 * (hidden // 24), hidden // 24, hidden // 24],
                "rope_theta": 10000.0,
            },
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": hidden,
            "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2, "fullatt_block_indexes": [1],
            "window_size": 32,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(seed)
    return Qwen2_5_VLForConditionalGeneration(config)


def build_qwen2_5_processor(tok):
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5_vl.jinja").read_text()
    tok.chat_template = template
    images = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 16 * 16, "longest_edge": 64 * 64}, patch_size=8, merge_size=2
    )
    return Qwen2_5_VLProcessor(
        image_processor=images, tokenizer=tok, video_processor=Qwen2VLVideoProcessor(), chat_template=template
    )


@dataclass(eq=False)
class Kit:
    """One family: its processor, its chat tokens, and models of it."""

    name: str
    processor: object
    tokens: ChatTokens = field(init=False)
    tolerance = 1e-5  # of log-probs in float32

    def __post_init__(self):
        self.tokens = ChatTokens(self.processor, self.model().config)

    @property
    def tokenizer(self):
        return self.processor.tokenizer

    def model(self, seed=0, *, bias=None, ends=3.0):
        """A new model. `bias` maps token ids to offsets of their logits; `ends` is the offset of the end token."""
        hidden, layers = 96, 2
        if self.name == "qwen3_vl":
            sizes = {"vision_hidden": 32, "vision_layers": 3}
            model = tiny_model.build_model(self.tokenizer, seed=seed, hidden=hidden, layers=layers, **sizes)
        else:
            model = build_qwen2_5_vl(self.tokenizer, seed, hidden, layers)
            model.generation_config.eos_token_id = model.config.get_text_config().eos_token_id
            model.generation_config.pad_token_id = model.config.get_text_config().pad_token_id
        torch.manual_seed(seed + 1)
        for weight in model.parameters():
            if weight.ndim == 2:
                torch.nn.init.normal_(weight, std=0.1)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
        model.lm_head = torch.nn.Linear(hidden, len(self.tokenizer))
        torch.nn.init.normal_(model.lm_head.weight, std=0.12)
        torch.nn.init.zeros_(model.lm_head.bias)
        with torch.no_grad():
            for one, offset in {self.tokenizer.eos_token_id: ends, **(bias or {})}.items():
                model.lm_head.bias[one] += offset
        return model.eval()

    def generator(self, model=None, **settings):
        given = {"slots": 4, "max_reply_tokens": 12, "max_completion_tokens": 600} | settings
        own = {name: given.pop(name) for name in ("vision_cache", "model_name") if name in given}
        return HFGenerator(self.model() if model is None else model, self.tokens, Settings(**given), **own)


class FamilyKit(Kit):
    """Any family of `tests/support/families`, with an output layer as above."""

    def __init__(self, name):
        self.name, self.processor = name, build_family(name)[1]
        self.tokens = ChatTokens(self.processor, self.model().config, self.model().generation_config)
        if "linear_attention" in self.tokens.architecture.masks.kinds:
            # A gated delta rule is one sum token by token and another in chunks. In 8 draws the log-probs of a plain
            # forward were up to 1.5e-4 from those in float64, the engine's as far, and 6e-5 from each other.
            # `test_state_cache.py` holds the engine to this rounding.
            self.tolerance = 2e-4

    def model(self, seed=0, *, bias=None, ends=3.0):
        model, _ = build_family(self.name, seed)
        torch.manual_seed(seed + 1)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = False
        head = torch.nn.Linear(*reversed(model.get_output_embeddings().weight.shape))
        torch.nn.init.normal_(head.weight, std=0.12)
        torch.nn.init.zeros_(head.bias)
        with torch.no_grad():
            for one, offset in {self.tokenizer.eos_token_id: ends, **(bias or {})}.items():
                head.bias[one] += offset
        model.set_output_embeddings(head)
        return model.eval()
