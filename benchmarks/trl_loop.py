"""Sampled tokens/s of one generation phase: TRL 1.16's own loop (`environment_factory`) against the engine.

    python benchmarks/trl_loop.py [REPEATS]        (default 2; one thread; the last line is one JSON object)

Both sides play the same environment with the same model, at temperature 1 and in float32. Their completions are equal,
observations included; this is checked. TRL's environment below calls viewbox's and returns its messages; TRL renders
them with its own template of Qwen3-VL. Both sides sample, and then replace the sample by the script. Where the sides
differ, the engine has the disadvantage: its prompts are a little longer (`"required": []` in the tool schema), and its
time includes resets, scoring and log-probs, while only `_generate` of TRL is timed. No side keeps anything from one
repeat to the next.
"""

import json
import logging
import os
import sys
import tempfile
import time
from typing import Any, NamedTuple

from scripted_case import CALL, CaseSize, Stage  # first: it asks for one thread

# ruff: isort: split
import torch
from datasets import Dataset
from per_turn import ForceTokens
from transformers import LogitsProcessorList
from trl import GRPOConfig, GRPOTrainer

from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.images.ref import ImageRef
from viewbox.records import Message, Reply

BAR = 2.5


def to_trl_content(message: Message) -> list[dict[str, Any]]:
    """Return the content of a message in TRL's form."""
    return [
        {"type": "image", "image": part.open().convert("RGB")}
        if isinstance(part, ImageRef)
        else {"type": "text", "text": part}
        for part in message.content
    ]


class EpisodeIds(NamedTuple):
    """The token ids of an episode; `mask` is 1 on sampled tokens of the completion."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]


def build_trl_environment(stage: Stage) -> type:
    """Return the environment as a class whose public methods become TRL's tools."""

    class TRLLooksEnv:
        def reset(self, number: int, **row: Any) -> None:
            self._state = stage.env.reset(stage.env.tasks[number], seed=0)

        async def look(self):  # TRL would put a return type into the prompt
            """Show a part of the picture."""
            result = await stage.env.step(self._state, Reply(CALL))
            return [block for message in result.messages for block in to_trl_content(message)]

    return TRLLooksEnv


class ScriptedGenerate:
    """Replaces `model.generate` by one with scripted tokens. TRL keeps the order of rows and drops answered ones."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.generate = stage, stage.model.generate
        self.reset()

    def reset(self) -> None:
        self.turn, self.active = 0, list(range(len(self.stage.scripts)))

    def __call__(self, input_ids: torch.Tensor, **given: Any) -> Any:
        assert len(input_ids) == len(self.active)
        said = [self.stage.scripts[i][self.turn] for i in self.active]
        self.turn += 1
        self.active = [i for i in self.active if self.turn < len(self.stage.scripts[i])]
        force = LogitsProcessorList([ForceTokens(said, input_ids.shape[1], self.stage.tokens.pad_id)])
        return self.generate(input_ids=input_ids, logits_processor=force, **given)


class TRLSide:
    """TRL's trainer on a stage; its method `_generate` is timed."""

    def __init__(self, stage: Stage, folder: str) -> None:
        self.stage, self.scripted = stage, ScriptedGenerate(stage)
        case = stage.case
        self.rows = [
            {"number": number, "prompt": self._prompt(number)}
            for number in range(case.prompts)
            for _ in range(case.group)
        ]
        self.trainer = GRPOTrainer(
            model=stage.model,
            reward_funcs=[lambda completions, **columns: [0.0] * len(completions)],
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=case.episodes,
                num_generations=case.group,
                max_completion_length=4000,
                temperature=1.0,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,  # otherwise TRL switches it off and on around each turn
                report_to=[],
            ),
            train_dataset=Dataset.from_list([{"number": 0, "prompt": [{"role": "user", "content": ""}]}]),
            processing_class=stage.processor,
            environment_factory=build_trl_environment(stage),
        )

    def _prompt(self, number: int) -> list[dict[str, Any]]:
        env = self.stage.env
        return [
            {"role": message.role, "content": to_trl_content(message)}
            for message in env.reset(env.tasks[number], seed=0).messages
        ]

    def play(self) -> tuple[float, list[EpisodeIds]]:
        """Seconds of one generation phase, and its completions."""
        found: dict[str, Any] = {}
        generate = type(self.trainer)._generate

        def watched(prompts: list) -> tuple:
            started = time.perf_counter()
            found["out"] = generate(self.trainer, prompts)
            found["seconds"] = time.perf_counter() - started
            return found["out"]

        self.scripted.reset()
        model, trainer = self.stage.model, self.trainer
        model.generate, trainer._generate = self.scripted, watched  # type: ignore[method-assign]
        model.train()
        try:
            trainer._generate_and_score_completions(self.rows)
        finally:
            del model.generate, trainer._generate
            model.eval()
        prompts, completions, masks, *_ = found["out"]
        return found["seconds"], [EpisodeIds(*one) for one in zip(prompts, completions, masks, strict=True)]


def play_with_engine(stage: Stage) -> tuple[float, list[EpisodeIds]]:
    """Seconds and completions of the engine, through `play_many`."""
    stage.tokens = ChatTokens(stage.processor, stage.model.config)  # with empty caches
    generator = stage.build_engine()
    started = time.perf_counter()
    episodes = stage.play_episodes(generator)
    seconds = time.perf_counter() - started
    tokens = [episode.tokens for episode in episodes]
    return seconds, [EpisodeIds(*map(list, (one.prompt_ids, one.completion_ids, one.mask))) for one in tokens if one]


def compare_with_trl(case: CaseSize, repeats: int) -> dict[str, Any]:
    """Sampled tokens/s of the engine over those of TRL's loop: the best of `repeats` plays each."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    stage = Stage(case)
    seconds: dict[str, list[float]] = {"engine": [], "trl": []}
    with tempfile.TemporaryDirectory() as folder:
        side = TRLSide(stage, folder)
        for _ in range(repeats):
            spent, theirs = side.play()
            seconds["trl"].append(spent)
            spent, ours = play_with_engine(stage)
            seconds["engine"].append(spent)
            assert [one[1:] for one in ours] == [one[1:] for one in theirs]
    best = {name: min(found) for name, found in seconds.items()}
    sampled = sum(sum(one.mask) for one in ours)
    ratio = best["trl"] / best["engine"]
    return {
        "ratio": ratio,
        "bar": BAR,
        "met": ratio >= BAR,
        "seconds": best,
        "tokens": sampled,
        "tokens_per_second": {name: sampled / spent for name, spent in best.items()},
        "episodes": case.episodes,
        "prompt_tokens": {"engine": len(ours[0].prompt), "trl": len(theirs[0].prompt)},
    }


def main() -> None:
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(json.dumps(compare_with_trl(CaseSize(8, 8, 12, 8), repeats)))


if __name__ == "__main__":
    main()
