"""One training run: the model, the environments, the trainer, and the folder they write to."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewbox.config import Config
from viewbox.rollouts.arguments import trainer_arguments


def make_envs(config: Config, defaults: Mapping[str, Any]) -> tuple[Any, Any]:
    """(training environment, held-out environment) with the reward of the config."""
    from viewbox import make
    from viewbox.rewards import build

    reward = None if config.reward is None else build(config.reward)
    settings = {**defaults, **config.env.settings}
    return (
        make(config.env.name, reward=reward, **settings),
        make(config.env.name, reward=reward, **{**settings, **config.env.eval}),
    )


class Run:
    """One run: the model, the environments and the folder they write to."""

    def __init__(self, config: Config, folder: Path) -> None:
        from viewbox.rollouts.tokens import ChatTokens

        self.config, self.folder = config, folder
        self.model, self.processor = self._model()
        self.tokens = ChatTokens(self.processor, self.model.config)
        self.started = time.monotonic()

    def _model(self) -> tuple[Any, Any]:
        from viewbox.rollouts import models

        section = self.config.model
        if section.name is not None:
            model_config, processor = models.load_processor(section)
            self.env, self.held_out = make_envs(self.config, models.view_settings(model_config, processor))
            models.bound_pixels(processor, section.max_pixels or self.env.max_pixels)
            return models.load_model(section), processor
        assert section.tiny is not None
        multiple = 2 * section.tiny.patch
        self.env, self.held_out = make_envs(self.config, {"coordinates": "per_mille", "pixel_multiple": multiple})
        from viewbox.rollouts.sft import corpus_of

        corpus = corpus_of(self.env)
        return models.build_tiny(section, corpus, self.env.max_pixels, self.config.train.seed)

    def execute(self) -> dict[str, Any]:
        """Evaluate, train, evaluate, and write it all down."""
        from transformers import PrinterCallback

        from viewbox.rollouts import curve, run_folder, table

        method = self.config.train.method
        held_out: dict[str, dict[str, float]] = {}
        if method == "grpo" and self.config.log.eval_tasks:
            held_out["before"] = self.evaluate()
            if self._has_oracle():
                held_out["oracle"] = self.evaluate(oracle=True)
        trained_from = time.monotonic()
        trainer = self.grpo() if method == "grpo" else self.sft()
        trainer.remove_callback(PrinterCallback)  # it prints whole dicts; MetricsFile prints a line
        trainer.train()
        trained = time.monotonic() - trained_from
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        if not trainer.is_world_process_zero():
            return {}
        if self.config.log.eval_tasks:
            held_out["after"] = self.evaluate()
            if self._has_oracle():
                held_out["oracle_after"] = self.evaluate(oracle=True)
        summary: dict[str, Any] = {"name": self.folder.name, "seed": self.config.train.seed, "held_out": held_out}
        summary["seconds"] = {"training": trained, "all": time.monotonic() - self.started}
        self.save(summary)
        lines = run_folder.read_metrics(self.folder / "metrics.jsonl")
        curve.draw_curve(self.folder, lines, summary)
        (self.folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        table.print_table(summary, self.folder)
        return summary

    def _has_oracle(self) -> bool:
        return bool(self.held_out.oracle(self.held_out.tasks[0]))

    def generation(self, **changes: Any) -> dict[str, Any]:
        """Keyword arguments of the generator."""
        rollout = self.config.rollout
        return {
            "slots": rollout.slots,
            "max_reply_tokens": rollout.max_reply_tokens,
            "max_completion_tokens": rollout.max_completion_tokens,
            "prefill_tokens": rollout.prefill_tokens,
            "model_name": self.config.model.name or "tiny",
            **changes,
        }

    def evaluate(self, *, oracle: bool = False) -> dict[str, float]:
        """Held-out metrics of the model as it is now."""
        from viewbox.rollouts.evaluate import evaluate

        log_section = self.config.log
        hot = self.config.rollout.temperature if log_section.eval_temperature is None else log_section.eval_temperature
        generation = self.generation(temperature=hot)
        return evaluate(
            self.held_out,
            self.model,
            self.tokens,
            tasks=log_section.eval_tasks,
            seed=log_section.eval_seed,
            generation=generation,
            oracle=oracle,
        )[0]

    def _callback(self, every: int) -> Any:
        from viewbox.rollouts.progress import MetricsFile

        return MetricsFile(self.folder / "metrics.jsonl", tell, every)

    def grpo(self) -> Any:
        """The GRPO trainer of this run."""
        from datasets import Dataset

        from viewbox.envs.adapters.trl import TRLReward
        from viewbox.rollouts.grpo import EpisodeGRPOTrainer

        arguments = trainer_arguments(self.config, self.folder / "checkpoints")
        count = len(self.env.tasks)
        lora = self.config.lora
        peft_config = None
        if lora is not None:
            from peft import LoraConfig

            peft_config = LoraConfig(
                r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules
            )
        return EpisodeGRPOTrainer(
            model=self.model,
            reward_funcs=TRLReward(self.env),
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": [""] * count, "task": list(range(count))}),
            processing_class=self.processor,
            peft_config=peft_config,
            callbacks=[self._callback(every=1)],
            env=self.env,
            generation=self.generation(),
            time_limit=self.config.rollout.time_limit,
            episodes=self.folder / "episodes",
            kept_episodes=self.config.log.episodes_per_step,
        )

    def sft(self) -> Any:
        """The supervised trainer of this run, on saved or freshly made episodes."""
        from accelerate import PartialState

        from viewbox.rollouts import sft, vision
        from viewbox.rollouts.store import load

        section = self.config.train
        saved = section.episodes
        if section.demonstrations is not None:
            saved = str(self.folder / "demonstrations")
            processes = PartialState()
            if processes.is_main_process:
                sft.demonstrate(self.env, self.tokens, section.demonstrations, saved, section.seed)
            processes.wait_for_everyone()
        assert saved is not None
        episodes = list(load(saved, tokens=True))
        seeing = None
        if section.vision is not None:
            seeing = vision.VisionTask(self.model, self.tokens, episodes, section.vision, section.seed)
        return sft.SFTTrainer(
            model=self.model,
            args=trainer_arguments(self.config, self.folder / "checkpoints"),
            train_dataset=sft.usable(episodes, self.tokens),
            callbacks=[self._callback(every=20)],
            tokens=self.tokens,
            informative=section.informative_weight,
            vision=seeing,
        )

    def save(self, summary: Mapping[str, Any]) -> None:
        """The trained weights with their processor, in the run's folder and where `log.export` says."""
        from viewbox.rollouts.card import write_card

        if hasattr(self.model, "merge_and_unload"):  # LoRA: the adapter by itself, and a model that loads like any
            self.model.save_pretrained(self.folder / "adapter")
            self.model = self.model.merge_and_unload()
        targets = [self.folder / "model", *([Path(self.config.log.export)] if self.config.log.export else [])]
        for target in targets:
            self.model.save_pretrained(target)
            self.processor.save_pretrained(target)
            write_card(target, self.config, summary)


def tell(line: str) -> None:
    """One line for whoever watches."""
    print(line, flush=True)
