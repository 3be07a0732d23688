"""How often pictures are prepared in a GRPO step, and how many bytes of pixels are held. Bar: each picture once.

    python benchmarks/picture_cost.py       (prints one JSON object; exit code 1 if the bar is missed)

One step of the trainer plays 8 groups of 8 episodes with LoRA: a prompt's picture for each group, and 4 pictures of
tools for each episode, all different. Replies are scripted (`scripted_case.py`). Pictures are small, and the limits of
the pixel cache smaller by the same factor, so it holds as large a share of the batch as with pictures of 672 tokens.
"""

import itertools
import json
import sys
import tempfile
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from scripted_case import CALL, PATCH, CaseSize, LooksEnv, ScriptedEngine, Stage, make_image
from trl import GRPOConfig

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.hf import Settings, chat_tokens
from viewbox.engines.hf import engine as engine_module
from viewbox.engines.hf.architectures import Architecture
from viewbox.images.view import View
from viewbox.tools import ToolOutput
from viewbox.training.grpo import trainer as trainer_module

CASE, TURNS = CaseSize(prompts=8, group=8, side=4, tool_side=4), 4
BYTES, REAL_BYTES = CASE.side**2 * 4 * 6 * PATCH**2, 672 * 4 * 6 * 16**2  # of a picture, for each byte of a number


class NewPicturesEnv(LooksEnv):
    """A tool that never shows a picture twice."""

    name = "new_pictures"

    def __init__(self, case: CaseSize) -> None:
        seeds = itertools.count(case.prompts)

        def look(view: View) -> ToolOutput:
            """Show another picture."""
            return ToolOutput("looked", image=make_image(next(seeds), case.tool_side))

        self.__dict__.update(_case=case, _distinct_prompts=False)
        BaseMultiTurnEnv.__init__(self, tools=(look,), max_pixels=(case.side * 2 * PATCH) ** 2)


def build_trainer(folder: str, stage: Stage) -> Any:
    """Return a trainer of one step."""
    env = NewPicturesEnv(CASE)
    encode = partial(stage.tokens.tokenizer, add_special_tokens=False)
    call, answer = ([*encode(text)["input_ids"], stage.tokens.end_id] for text in (CALL, "hello world"))
    engine_module.HFGenerator = partial(ScriptedEngine, scripts=[[*[call] * TURNS, answer]])  # type: ignore[misc]
    arguments = GRPOConfig(
        folder, max_steps=1, num_generations=CASE.group, per_device_train_batch_size=CASE.episodes, bf16=True,
        gradient_checkpointing=True, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    return trainer_module.EpisodeGRPOTrainer(
        model=stage.model.to(torch.bfloat16),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [""] * CASE.prompts, "task": list(range(CASE.prompts))}),
        processing_class=stage.processor,
        peft_config=LoraConfig(target_modules=".*language_model.*_proj"),
        env=env,
        rollout=Settings(max_completion_tokens=4000),
    )


def measure() -> dict[str, int]:
    """Pictures prepared in a step, distinct ones among them, and the bytes of pixels that the loss needs."""
    stage = Stage(CASE)
    chat_tokens.MAX_BYTES = chat_tokens.MAX_BYTES * BYTES // REAL_BYTES
    chat_tokens.MIN_BYTES_EACH = chat_tokens.MIN_BYTES_EACH * BYTES // REAL_BYTES
    prepared: list[bytes] = []
    preprocess = Architecture.preprocess

    def count_preprocess(self: Architecture, image: Any) -> Any:
        prepared.append(image.tobytes())
        return preprocess(self, image)

    Architecture.preprocess = count_preprocess  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(folder, stage)
        held: list[int] = []
        build = trainer.build_loss_tensors

        def count_bytes(*args: Any) -> dict[str, Any]:
            batch = build(*args)
            pictures = sum(pixels.inputs["pixel_values"].nbytes for pixels in trainer.log_probs.pixels.values())
            held.append(pictures + batch.get("pixel_values", torch.empty(0)).nbytes)
            return batch

        trainer.build_loss_tensors = count_bytes
        trainer.train()
    return {"prepared": len(prepared), "distinct": len(set(prepared)), "bytes": sum(held)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    figures = measure()
    met = figures["prepared"] == figures["distinct"]
    print(json.dumps(figures | {"met": met}))
    sys.exit(not met)
