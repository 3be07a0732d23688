"""Real models of about a quarter of a million parameters, one of each family, and the ways to play episodes with them.

The weights are drawn wide and the output layer has a bias, so log-probs differ a lot between tokens, attention looks
far back, and replies end at different lengths: what a parity test needs.
"""

import asyncio
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import torch
import trl
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from viewbox.configs.schema import SamplingParams
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.digits import Digits, viewer
from viewbox.frozen import thaw
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.engine import tiny_model
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.play import play_many
from viewbox.rollouts.scripted import ScriptedGenerator

torch.set_num_threads(1)
FAMILIES = ("qwen3_vl", "qwen2_5_vl")


class Words(BaseMultiTurnEnv):
    """No picture at all: any reply is the answer, after one more question."""

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
    """Digits on canvases of many shapes, so that prompts and images differ in length; boxes are of no interest."""

    def images(self, task):
        (whole,) = super().images(task)
        seed = task.metadata["seed"]
        return [whole.crop((0, 0, (256, 120, 256, 200)[seed % 4], (100, 256, 256, 160)[seed % 4]))]


def _qwen2_5_vl(tok, seed, hidden, layers):
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
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "fullatt_block_indexes": [1],
            "window_size": 32,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    return Qwen2_5_VLForConditionalGeneration(config)


def _qwen2_5_processor(tok):
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

    def __post_init__(self):
        self.tokens = ChatTokens(self.processor, self.model().config)

    @property
    def tokenizer(self):
        return self.processor.tokenizer

    def model(self, seed=0, *, bias=None, ends=3.0):
        """A new model; `bias` are offsets of logits by token id, `ends` that of the end token."""
        hidden, layers = 96, 2
        if self.name == "qwen3_vl":
            sizes = {"vision_hidden": 32, "vision_layers": 3}
            model = tiny_model.build_model(self.tokenizer, seed=seed, hidden=hidden, layers=layers, **sizes)
        else:
            model = _qwen2_5_vl(self.tokenizer, seed, hidden, layers)
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
        drawing = {name: given.pop(name) for name in SamplingParams.model_fields.keys() & given.keys()}
        given |= {"sampling": SamplingParams(**drawing)} if drawing else {}
        return HFGenerator(self.model() if model is None else model, self.tokens, **given)


@pytest.fixture(scope="session")
def corpus():
    """Text like that of the episodes: prompts, schemas, calls, answers."""
    env = Digits()
    tasks = [env.tasks[i] for i in range(40)]
    said = [line for task in tasks for line in viewer.write_demonstration(env, task, 0, viewer.Habits(0.2, 0.2, 0.2))]
    prompt = [env.build_system_prompt(tasks[0]), *(json.dumps(thaw(schema)) for schema in env.tool_schemas)]
    return [*prompt * 20, *said]


@pytest.fixture(scope="session")
def kits(corpus):
    """The kit of a family by its name, made once."""

    @cache
    def kit(name):
        tok = tiny_model.build_tokenizer(corpus, 480)
        return Kit(name, tiny_model.build_processor(tok) if name == "qwen3_vl" else _qwen2_5_processor(tok))

    return kit


@pytest.fixture(scope="session", params=FAMILIES)
def kit(request, kits):
    return kits(request.param)


@pytest.fixture(scope="session")
def qwen3(kits):
    return kits("qwen3_vl")


@pytest.fixture(scope="session")
def strips():
    return Strips(max_turns=4, tools=("zoom", "crop"))


@pytest.fixture(scope="session")
def words():
    return Words()


@pytest.fixture(scope="session")
def look(strips):
    """A script: some episodes look (in two ways) before the model itself is asked, and look again later."""

    def script(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        plan = (
            [viewer.write_zoom(strips, 2, 0.4, 0.6)],
            [None, viewer.write_zoom(strips, 4, 0.2, 0.2)],
            [],
            [
                viewer.write_zoom(strips, 2, 0.5, 0.5) + "\n" + viewer.write_zoom(strips, 2, 0.1, 0.9),
                None,
                "Hmm, wait.",
            ],
        )[conversation.index % 4]
        return plan[said] if said < len(plan) else None

    return script


@pytest.fixture(scope="session")
def play():
    """Plays tasks and returns the episodes in the order of (index, sample)."""

    def run(env, tasks, generator, **settings):
        async def gather():
            return [episode async for episode in play_many(env, tasks, generator, **{"concurrency": 4} | settings)]

        return sorted(asyncio.run(gather()), key=lambda episode: (episode.info["index"], episode.info["sample"]))

    return run


@pytest.fixture(scope="session")
def mixed(play, strips, look):
    """Plays 4 tasks in groups of 3 (12 episodes in 5 slots) where looks succeed and the model says the rest."""

    def run(generator, *, tasks=4, group=3, seed=0, concurrency=5, env=None):
        forced = ScriptedGenerator(
            generator.tokens, look, generator, max_completion_tokens=generator.max_completion_tokens
        )
        env = env or strips
        chosen = [env.tasks[i] for i in range(tasks)]
        return play(env, chosen, forced, group=group, concurrency=concurrency, seed=seed)

    return run


@pytest.fixture(scope="session")
def played(mixed):
    """A family's model and what it plays at temperature 1 in 5 slots, made once: (model, 12 episodes)."""

    @cache
    def once(kit):
        model = kit.model()
        return model, mixed(kit.generator(model, slots=5))

    return once


@pytest.fixture(scope="session")
def plain_logps():
    """Log-probs of an episode's completion by one forward of it alone: no cache, the model's own position ids."""

    @torch.no_grad()
    def compute(model, kit, tokens, temperature=1.0):
        ids = torch.tensor([tokens.prompt_ids + tokens.completion_ids])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if tokens.images:
            inputs |= kit.processor.image_processor(
                images=[image.open().convert("RGB") for image in tokens.images], return_tensors="pt"
            )
            inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
        logits = model(**inputs, use_cache=False).logits[0, len(tokens.prompt_ids) - 1 : -1].float()
        logps = torch.log_softmax(logits / temperature, dim=-1)
        return logps.gather(1, torch.tensor(tokens.completion_ids)[:, None])[:, 0]

    return compute


@pytest.fixture(scope="session")
def mismatch_of(plain_logps):
    """The largest |recorded − plain| over the sampled tokens of the episodes, forced replies left out."""

    def compute(model, kit, episodes, temperature=1.0):
        training, worst, compared = model.training, 0.0, 0
        model.eval()
        for episode in episodes:
            recorded = torch.tensor(episode.tokens.logprobs)
            sampled = torch.tensor(episode.tokens.mask).bool() & (recorded != 0)  # a forced token's log-prob is 0
            gap = (recorded - plain_logps(model, kit, episode.tokens, temperature)).abs()
            worst, compared = max(worst, gap[sampled].max().item()), compared + int(sampled.sum())
        model.train(training)
        assert compared > 50
        return worst

    return compute
