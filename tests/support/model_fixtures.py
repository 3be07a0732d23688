"""Fixtures with tiny models and the ways to play episodes with them.

A folder that needs them has `from tests.support.model_fixtures import *` in its conftest.py. They are not a plugin of
all tests, because they import torch.
"""

import asyncio
from functools import cache
from inspect import signature

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from tests.support.tiny_models import FAMILIES, FamilyKit, Pairs, Strips, Words, build_kit, write_corpus
from viewbox.engines.hf.model_parts import get_base_model
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.records import Reply
from viewbox.rollouts.play import play_many

__all__ = [
    "bf16_accelerator", "corpus", "kit", "kits", "look", "looking", "measure_mismatch", "pairs", "plain_logps",
    "play", "play_mixed", "play_pairs", "played", "qwen3", "strips", "words",
]  # fmt: skip


@pytest.fixture
def bf16_accelerator():
    """An `Accelerator` in bf16; accelerate's state, which is one for a process, comes back afterward."""
    states = AcceleratorState._shared_state, PartialState._shared_state
    before = [dict(state) for state in states]
    for state in states:
        state.clear()
    yield Accelerator(cpu=True, mixed_precision="bf16")
    for state, values in zip(states, before, strict=True):
        state.clear()
        state.update(values)


@pytest.fixture(scope="session")
def corpus():
    return write_corpus()


@pytest.fixture(scope="session")
def kits(corpus):
    """A function that returns the kit of a family, and builds each once."""

    @cache
    def kit(name):
        return build_kit(corpus) if name == "qwen3_vl" else FamilyKit(name)

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
def pairs():
    return Pairs(max_turns=4, tools=("zoom", "crop"))


@pytest.fixture(scope="session")
def words():
    return Words()


@pytest.fixture(scope="session")
def look(strips):
    """A script: some episodes look (in one of two ways) before the model replies, and again later."""

    def script(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        twice = viewer.write_zoom(strips, 2, 0.5, 0.5) + "\n" + viewer.write_zoom(strips, 2, 0.1, 0.9)
        plans = [viewer.write_zoom(strips, 2, 0.4, 0.6)], [None, viewer.write_zoom(strips, 4, 0.2, 0.2)], []
        plan = (*plans, [twice, None, "Hmm, wait."])[conversation.index % 4]
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


def force(generator, script):
    """A generator that says what a script forces, and leaves the rest to another one."""
    limit = generator.settings.max_completion_tokens
    return ScriptedGenerator(generator.tokens, script, generator, max_completion_tokens=limit)


@pytest.fixture(scope="session")
def play_mixed(play, strips, look):
    """Plays 4 tasks in groups of 3 (12 episodes in 5 slots): the looks are scripted, the model writes the rest."""

    def run(generator, *, tasks=4, group=3, seed=0, concurrency=5, env=None):
        env = env or strips
        chosen = [env.tasks[i] for i in range(tasks)]
        return play(env, chosen, force(generator, look), group=group, concurrency=concurrency, seed=seed)

    return run


@pytest.fixture(scope="session")
def play_pairs(play):
    """Plays 3 tasks with two images each in groups of 4. One opens the second image before the model replies, one later
    and zooms in; the third never does."""

    def run(generator, env):
        opened = '<tool_call>\n{"name": "open_image", "arguments": {"image": "image_2"}}\n</tool_call>'
        looks = ([opened], [None, opened + "\n" + viewer.write_zoom(env, 2, 0.4, 0.6)], [])

        def script(conversation):
            said = sum(message.role == "assistant" for message in conversation.messages)
            plan = looks[conversation.index % 3]
            return plan[said] if said < len(plan) else None

        return play(env, [env.tasks[i] for i in range(3)], force(generator, script), group=4)

    return run


@pytest.fixture(scope="session")
def played(play_mixed):
    """A family's model and the 12 episodes that it plays at temperature 1 in 5 slots, built once."""

    @cache
    def once(kit):
        model = kit.model()
        return model, play_mixed(kit.generator(model, slots=5))

    return once


def read_pixels(kit, images):
    """What the family's own processor makes of all pictures of an episode in one call, without ids."""
    placeholder = kit.tokens.architecture.placeholder
    found = kit.processor(text=[placeholder * len(images)], images=images, return_tensors="pt")
    return {
        name: value
        for name, value in found.items()
        if name not in ("input_ids", "attention_mask") and "type_ids" not in name
    }


@pytest.fixture(scope="session")
def plain_logps():
    """Log-probs of a completion after one forward of the episode alone: no cache, the model's own position ids."""

    @torch.no_grad()
    def compute(model, kit, tokens, temperature=1.0):
        ids = torch.tensor([tokens.prompt_ids + tokens.completion_ids])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if tokens.images:
            inputs |= read_pixels(kit, [image.open().convert("RGB") for image in tokens.images])
            names = {"mm_token_type_ids", "token_type_ids"} & signature(
                type(get_base_model(model)).forward
            ).parameters.keys()
            inputs |= dict.fromkeys(names, (ids == kit.tokens.image_id).int())
        logits = model(**inputs, use_cache=False).logits[0, len(tokens.prompt_ids) - 1 : -1].float()
        logps = torch.log_softmax(logits / temperature, dim=-1)
        return logps.gather(1, torch.tensor(tokens.completion_ids)[:, None])[:, 0]

    return compute


@pytest.fixture(scope="session")
def measure_mismatch(plain_logps):
    """The largest |recorded − plain| log-prob over the sampled tokens of the episodes, without forced replies."""

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


@pytest.fixture(scope="session")
def looking(strips):
    """Environments whose play is known while every token is the policy's own: see `Looking`."""

    class Looking(type(strips)):
        """Reads whatever the policy says as a look, `looks(seed)` times, and then as an answer, right or wrong."""

        at_most: int = 2

        async def step(self, state, reply_):
            if state.turn < state.seed % (self.at_most + 1):
                said = viewer.write_zoom(self, 2, 0.3, 0.6)
            else:
                said = viewer.write_answer(self, state.task, LABELS[0] if state.seed % 2 else None)
            return await super().step(state, Reply(said))

    def make(**settings):
        return Looking(**{"max_turns": 4, "tools": ("zoom",)} | settings)

    return make
