"""YAML → a training run: `python train.py CONFIG [key.path=value …]`.

A config names a shipped one (`quickstart`) or a file. `--dry-run` resolves and checks everything without loading
weights. On several GPUs: `accelerate launch train.py CONFIG`.
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from viewbox import config as configs
from viewbox.config import Config
from viewbox.errors import ConfigError, ViewboxError, unknown

log = logging.getLogger("viewbox.train")

# Arguments of TRL and transformers that a run sets itself.
OWNED = {"output_dir", "seed", "report_to", "disable_tqdm", "remove_unused_columns", "temperature", "use_vllm"}


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


def trainer_arguments(config: Config, output: Path | str) -> Any:
    """The `GRPOConfig` or `TrainingArguments` of a run; raises `ConfigError` for keys and values they refuse."""
    import torch
    from transformers import TrainingArguments
    from trl import GRPOConfig

    cls = GRPOConfig if config.train.method == "grpo" else TrainingArguments
    allowed = {field.name for field in fields(cls) if field.init}
    given = config.train.arguments
    for name in given:
        if name in OWNED:
            raise ConfigError(f"train.{name}: is set by viewbox (see the sections rollout, log and train.seed)")
        if name not in allowed:
            raise ConfigError(f"train.{name}: {unknown('key', name, allowed)}")
    gpu = torch.cuda.is_available()
    defaults: dict[str, Any] = {
        "bf16": gpu,
        "use_cpu": not gpu,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": gpu,
    }
    if cls is GRPOConfig:
        defaults |= {
            "temperature": config.rollout.temperature,
            "max_completion_length": config.rollout.max_completion_tokens,
        }
    owned = {
        "output_dir": str(output),
        "seed": config.train.seed,
        "report_to": config.log.report_to or "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    try:
        with warnings.catch_warnings():  # TRL itself still sets the old name of activation_checkpointing
            warnings.simplefilter("ignore", FutureWarning)
            return cls(**{**defaults, **given, **owned})
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"train: {error}") from error


def check(config: Config) -> dict[str, Any]:
    """Everything that can be known without weights; returns what was resolved."""
    from viewbox.rollouts.store import load

    defaults: dict[str, Any] = {}
    notes = []
    if config.model.name is not None:
        from viewbox.rollouts.models import load_processor, resolve, view_settings

        name = resolve(config.model.name)
        if Path(name).is_dir():
            defaults = view_settings(*load_processor(config.model))
            if not [*Path(name).glob("*.safetensors"), *Path(name).glob("*.bin")]:
                raise ConfigError(f"model.name = {config.model.name!r}: the folder holds no weights (*.safetensors)")
        elif name.startswith(("/", ".")):
            raise ConfigError(f"model.name = {config.model.name!r}: no such folder")
        else:
            notes.append(f"{name}: a hub name; its files are checked when the run starts")
    env, held_out = make_envs(config, defaults)
    if config.rollout.temperature == 0 and config.train.method == "grpo":
        raise ConfigError("rollout.temperature = 0: GRPO needs samples that differ; allowed: above 0")
    arguments = trainer_arguments(config, "runs")
    if config.model.tiny is not None and config.lora is None and getattr(arguments, "beta", 0.0) != 0:
        raise ConfigError(f"train.beta = {arguments.beta}: model.tiny has no saved reference; allowed: 0, or with lora")
    if config.train.method == "sft" and config.lora is not None:
        raise ConfigError("lora: not with train.method = sft, which trains every weight; leave the section out")
    if config.train.episodes is not None:
        load(config.train.episodes)  # raises where there are none
    if config.log.eval_tasks > len(held_out.tasks):
        raise ConfigError(f"log.eval_tasks = {config.log.eval_tasks}: the environment has {len(held_out.tasks)}")
    return {
        "environment": {
            name: getattr(env, name) for name in ("name", "max_turns", "tools", "coordinates", "max_pixels")
        },
        "reward": str(env.reward),
        "trainer": type(arguments).__name__,
        "notes": notes,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status (2: something given is wrong)."""
    parser = argparse.ArgumentParser(
        prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=sections()
    )
    parser.add_argument("config", help="a YAML file, or the name of a shipped one")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="e.g. train.learning_rate=1e-5")
    parser.add_argument("--dry-run", action="store_true", help="resolve and check everything, load no weights")
    given = parser.parse_intermixed_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = configs.load(given.config, given.overrides)
        try:
            resolved = check(config)
        except ViewboxError as error:
            raise ConfigError(f"{given.config}: {error}") from error
        if given.dry_run:
            whole = {"config": config.model_dump(exclude_none=True), "resolved": resolved}
            print(json.dumps(whole, indent=2, default=list))
            return 0
        run(config, name=Path(given.config).stem)
    except ViewboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def sections() -> str:
    """The sections of a config, for `--help`."""
    lines = ["sections of a config:"]
    for name, field in Config.model_fields.items():
        options = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((one for one in options if hasattr(one, "model_fields")), None)
        keys = ", ".join(model.model_fields) if model else "a typed union, e.g. {type: exact_match, field: label}"
        more = {"env": ", + the environment's settings", "train": ", + any argument of TRL's GRPOConfig"}.get(name, "")
        lines.append(f"  {name}: {keys}{more}")
    return "\n".join(lines)


def run(config: Config, name: str = "run") -> dict[str, Any]:
    """Trains, and returns the summary that is also in the run's folder."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from transformers import set_seed
    from transformers.utils import logging as transformers_logging

    from viewbox.rollouts import run_folder

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("viewbox").setLevel(logging.INFO)
    set_seed(config.train.seed)
    processes = PartialState(cpu=not torch.cuda.is_available())
    made = [""]
    if processes.is_main_process:
        folder = run_folder.create(Path(config.log.dir), config.log.name or f"{name}-seed{config.train.seed}")
        run_folder.write_config(folder, config.model_dump(mode="json", exclude_none=True))
        print(f"run folder: {folder}", flush=True)
        made = [str(folder)]
    broadcast_object_list(made)  # every process writes to the one folder
    return Run(config, Path(made[0])).execute()


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

        from viewbox.rollouts import run_folder, table

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
        run_folder.draw_curve(self.folder, lines, summary)
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
        from viewbox.rollouts.run_folder import MetricsFile

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


if __name__ == "__main__":
    sys.exit(main())
