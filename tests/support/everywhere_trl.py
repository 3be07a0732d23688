"""TRL's own trainer with scripted replies: everything but the sampling of tokens is its own."""

from contextlib import suppress

import torch
from trl import GRPOConfig, GRPOTrainer

from tests.support.everywhere import Play
from tests.support.tiny_models import build_kit
from viewbox.images.ref import ImageRef
from viewbox.integrations.trl_rollouts import TRLRollouts


def make_trainer(env, folder, *, kit=None, cls=GRPOTrainer, on_episode=None, limit=None, **given):
    """TRL's stock trainer on an environment."""
    kit = kit or build_kit()
    rollouts = TRLRollouts(env, on_episode=on_episode)
    dataset = rollouts.build_dataset(limit)
    fixed = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "beta": 0.0}
    fixed |= {"max_tool_calling_iterations": rollouts.max_tool_calling_iterations, "save_strategy": "no"}
    return cls(
        model=kit.model(),
        args=GRPOConfig(output_dir=str(folder), **fixed | given),
        train_dataset=dataset,
        processing_class=kit.processor,
        **rollouts.arguments,
    )


class ScriptedTrainer(GRPOTrainer):
    """Samples the tokens of a script; a reply that was cut off has no token at its end."""

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False):
        replies = []
        for ids in prompt_ids:
            number = self.find_task(ids)
            text, reason = self.script[number][self.turns[number]]
            self.turns[number] += 1
            end = [self._tokenizer.eos_token_id] if reason == "stop" else []
            replies.append(self._tokenizer(text, add_special_tokens=False)["input_ids"] + end)
        return replies, None

    def find_task(self, ids):
        """The task of a conversation, which begins with that task's prompt."""
        return next(number for number, prompt in enumerate(self.prompts) if ids[: len(prompt)] == prompt)

    def _tokenize_prompts(self, prompts):
        found = super()._tokenize_prompts(prompts)
        self.asked = [list(prompt) for prompt in prompts]  # the tool loop appends to them
        # prompts of equal text differ in their pictures alone, so a number that no model reads marks each
        self.prompts = [[*ids, self.marks + number] for number, ids in enumerate(found[0])]
        return self.prompts, found[1], found[2]


def play_trl(case, folder):
    episodes = []
    trainer = make_trainer(
        case.env, folder, cls=ScriptedTrainer, on_episode=episodes.append, num_generations=2,
        per_device_train_batch_size=len(case.names), max_completion_length=10**6,
    )  # fmt: skip
    kept = []
    compute = trainer.reward_funcs[0]

    def keep(**given):
        kept.append(given["completions"])
        return compute(**given)

    trainer.reward_funcs[0] = keep
    trainer.model.config.text_config.max_position_embeddings = 10**6  # nothing is computed with it here
    trainer.script, trainer.turns, trainer.marks = case.replies, [0] * len(case.names), 10**7
    inputs = [trainer.train_dataset[number] for number in range(len(case.names))]
    trainer._calculate_rewards_only = True
    prompts, completions, rewards = generate(trainer, inputs, kept)
    plays = {}
    for number, (prompt, completion, episode) in enumerate(zip(prompts, completions, episodes, strict=True)):
        assert rewards[number] == torch.tensor(episode.scores.total)
        wire = [write_message(message) for message in [*prompt, *completion]]
        plays[number] = Play.of(wire, episode.end_reason, episode.scores.total, episode.scores.components)
    return plays


def generate(trainer, inputs, kept):
    """TRL's generation and its rewards, up to where it would compute log-probs."""

    class Enough(Exception):
        pass

    rewards = []
    calculate = trainer._calculate_rewards

    def stop(*given):
        rewards.extend(calculate(*given)[:, 0])
        raise Enough

    trainer._calculate_rewards = stop
    trainer._get_per_token_logps_and_entropies = lambda *given, **more: (None, None)
    with suppress(Enough):
        trainer._generate_and_score_completions(inputs)
    return trainer.asked, kept[0], rewards


def write_message(message):
    """A message of TRL as a chat-completion dict."""
    parts = (
        [{"type": "text", "text": message["content"]}] if isinstance(message["content"], str) else message["content"]
    )
    content = [
        {"type": "image_url", "image_url": {"url": ImageRef.of(part["image"]).to_data_url()}}
        if part["type"] == "image"
        else {"type": "text", "text": part["text"]}
        for part in parts
    ]
    return {**message, "content": content}
