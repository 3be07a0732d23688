"""One training run: measures the model on held-out tasks, trains it, measures it again, and saves the results."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from peft import get_peft_model
from transformers import PrinterCallback, TrainerCallback

from ..configs.sections import MAX_THREADS
from ..core.tasks import to_sequence
from ..engines.generator import GeneratorError
from ..engines.hf.chat_tokens import ChatTokens
from ..engines.hf.loading import LoadedPolicy
from ..engines.hf.parity import check_parity
from ..engines.hf.quantization import merge_adapters
from ..engines.processes import choose_threads
from ..engines.table import get_server_engine
from ..engines.vllm.weights import WeightSender
from ..errors import ConfigError, StoreError
from ..rollouts.exchange.selection import SelectionReport
from ..rollouts.scoring.blind import measure_blind
from ..rollouts.store import run_folder
from ..utils.concurrency import contain_exit
from ..utils.files import write_atomically
from .checkpoints import SKIPPED, Best
from .findings import check
from .generation import TINY, Sampler, use_for_generation
from .grpo.trainer import EpisodeGRPOTrainer
from .held_out import PREFIX, HeldOutEvaluation, evaluate, store_episodes
from .plan import Plan
from .precision import build_lora_config, build_model, freeze_parts
from .reporting import report, tracking
from .reporting.callbacks import Alarms, Interrupt, MetricsFile
from .reporting.model_card import write_card
from .resume import RunLocation, fingerprint_held_out, record_data, set_held_out_aside
from .sft.episodes import add_tokens, read_episodes
from .sft.selection import select_episodes
from .sft.trainer import SFTTrainer, record_demonstrations, select_usable
from .shapes import count_parameters
from .trainer_args import build_trainer_arguments

OUTLINE = ("plan", "episodes", "weights", "learning rate", "held out", "threads", "parameters")  # a run's first lines


class Run:
    """One run of a config."""

    sft_trainer = SFTTrainer  # `benchmarks/new_vision_tower.py` takes another

    def __init__(self, plan: Plan, location: RunLocation, policy: LoadedPolicy | None = None) -> None:
        self.plan = plan if plan.lines else check(plan)
        self.config, self.folder = (config := plan.config), location.folder
        self.checkpoint, self.step = location.checkpoint, location.step
        self.env, self.held_out, self.model, self.processor = policy or plan.load()
        freeze_parts(self.model, config.model.freeze)
        self.threads = self._choose_threads()
        self.tokens = ChatTokens(self.processor, self.model.config, self.model.generation_config)
        check_parity(self.model, self.tokens)
        self.started = time.monotonic()
        self.printer = report.ProgressPrinter(quiet=not PartialState().is_main_process)
        served = get_server_engine(config.rollout.engine) is not None
        self.alarms, self.interrupt = Alarms(self.printer.print_line, is_served=served), Interrupt()
        self.weights = self._build_sender()
        self.sampler = Sampler(self.tokens, config.rollout, config.model.name or TINY, self.weights)

    def close(self) -> None:
        if self.weights is not None:
            self.weights.close()

    def _build_sender(self) -> WeightSender | None:
        """Return what sends the weights to the server that generates; None if the model does."""
        rollout = self.config.rollout
        engine = get_server_engine(rollout.engine)
        if engine is None:
            return None
        dtype = str(self.model.dtype).removeprefix("torch.")
        if dtype == "float32" and torch.cuda.is_available() and self.config.train.arguments.get("bf16", True):
            dtype = "bfloat16"  # the loss computes in it, too: see `precision.py`
        weights = engine.build_sender(self.config.model, rollout, self.tokens, self.folder, dtype)
        if weights.process is not None:
            weights.process.show = self.printer.show_status
        return weights

    def _choose_threads(self) -> str | None:
        """Set the number of threads, which a resumed run keeps: sums are rounded otherwise with another."""
        path = self.folder / "versions.json"
        versions = run_folder.read_json(path) if path.is_file() else {}
        saved = versions.get("threads") if self.config.model.threads is None else None
        if saved is not None and not (type(saved) is int and 1 <= saved <= MAX_THREADS):
            raise ConfigError(f"{path}: threads = {saved!r}; allowed: 1 to {MAX_THREADS}")
        threads = choose_threads(self.model, saved or self.config.model.threads)
        if self.model.device.type == "cpu" and PartialState().is_main_process:
            versions["threads"] = torch.get_num_threads()
            write_atomically(path, json.dumps(versions, indent=2) + "\n")
        return threads if saved is None else f"{saved}, as when this run began; model.threads sets them"

    def execute(self) -> dict[str, object]:
        """Evaluate, train, evaluate again and write the results; return the summary.
        The summary is `{"stopped_at": step}` if the run was interrupted, and empty on all processes but the first."""
        with self.interrupt.handle_signals():
            return self._execute()

    def _execute(self) -> dict[str, object]:
        tracking.prepare_wandb(self.config.log, self.folder, self.printer.print_line)
        self._print_outline()
        self.trainer = trainer = self._build_trainer()
        if trainer.is_world_process_zero():
            record_data(self.folder, [self.env, self.held_out], self.printer.print_line)
        trainer.held_out_of = fingerprint_held_out(self.config, self.held_out)
        held_out, section = self._evaluate_before(), self.config.log
        self.alarms.on_log(
            None, trainer.state, None, logs={f"{PREFIX}reward": held_out.get("before", {}).get("reward")}
        )
        if section.eval_steps is not None:
            limits = (section.eval_steps, section.eval_patience)
            before, blind = held_out.get("before"), held_out.get("blind", {}).get("reward")
            callback = HeldOutEvaluation(trainer, self._evaluate_in_training, *limits, before, section.keep_best, blind)
            trainer.remove_callback(self.interrupt)
            for watcher in (callback, self.interrupt):  # which looks last, also at a signal in held-out play
                trainer.add_callback(watcher)
        training_started, go_on = time.monotonic(), f"continue with --resume={self.folder}"
        trainer.remove_callback(PrinterCallback)  # prints whole dicts; MetricsFile prints a line
        try:
            if self.checkpoint is None or not trainer.load_if_finished(self.checkpoint):
                trainer.train(None if self.checkpoint is None else str(self.checkpoint))
                if trainer.state.global_step == 0:  # the saved model would be the one that it began with
                    raise ConfigError(
                        "no step was trained: there are fewer episodes than one batch needs; allowed: a smaller "
                        "train.per_device_train_batch_size, more episodes, or no train.dataloader_drop_last",
                        key="train.per_device_train_batch_size",
                    )
            else:
                end = f"warning: {self.checkpoint.name} is at the last step: nothing is trained"
                self.printer.print_line(f"{end}; a larger train.max_steps trains on")
        except GeneratorError:  # the server is gone
            if trainer.save_unsaved() is not None:
                self.printer.print_line(f"stopped at step {trainer.state.global_step}; {go_on}")
            raise
        finally:
            self.printer.close()
        training_seconds = time.monotonic() - training_started
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        if self.interrupt.stopped:
            self.printer.print_line(f"stopped at step {trainer.state.global_step}; {go_on}")
            return {"stopped_at": trainer.state.global_step}
        best = self._load_best(trainer)
        if self.config.log.eval_tasks:
            held_out["after"] = self.evaluate(step=None if best is None else best.step)
            after = {f"{PREFIX}{name}": held_out["after"].get(name) for name in ("reward", "answers/beyond_right")}
            self.alarms.on_log(None, trainer.state, None, logs=after)
            if self._has_oracle():
                held_out["oracle_after"] = self.evaluate(oracle=True)
        if not trainer.is_world_process_zero():
            return {}
        tracking.send_held_out(held_out)
        summary: dict[str, Any] = {"name": self.folder.name, "seed": self.config.train.seed, "held_out": held_out}
        summary |= {} if best is None else {"saved": {"step": best.step, "held_out_reward": best.reward}}
        summary["warnings"] = [line for topic, line in self.plan.lines.items() if topic == "held out"]
        fired = [*((step, SKIPPED) for step in trainer.skipped_steps), *self.alarms.fired]
        summary["warnings"] += [f"step {step}: {message}" for step, message in sorted(fired)]
        summary["seconds"] = {"training": training_seconds, "all": time.monotonic() - self.started}
        self.save_model(summary)
        report.draw_curve(self.folder, list(run_folder.read_metrics(self.folder / "metrics.jsonl")), summary)
        (self.folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        report.print_table(summary, self.folder)
        return summary

    def _print_outline(self) -> None:
        """Print what will be trained, on what and how."""
        shapes = self.plan.shapes if self.plan.model else build_model(self.config, self.model.config)
        lines = {**self.plan.lines, "threads": self.threads, "parameters": count_parameters(shapes).line}
        for topic in OUTLINE:
            if lines.get(topic):
                self.printer.print_line(f"{topic}: {lines[topic]}")

    def evaluate(self, *, oracle: bool = False, step: int | None = None) -> dict[str, Any]:
        """Return the held-out figures of the model as it is now; store the episodes, unless an oracle helped.
        `step` is that of the weights, if it is not the trainer's."""
        trainer, section, sampler = self.trainer, self.config.log, self.sampler
        if section.eval_temperature is not None:
            rollout = sampler.rollout.model_copy(update={"temperature": section.eval_temperature})
            sampler = replace(sampler, rollout=rollout)
        given: dict[str, Any] = {"tasks": section.eval_tasks, "seed": section.eval_seed, "oracle": oracle}
        given["on_episode"] = lambda done, total: self.printer.show_status(f"held-out play: {done} of {total} episodes")
        self.interrupt.in_held_out_play = True
        try:
            if self.interrupt.requested:
                raise KeyboardInterrupt
            with use_for_generation(trainer.accelerator, trainer.model) as model:
                figures, episodes = evaluate(self.held_out, model, sampler, **given)
        except KeyboardInterrupt:
            self.printer.print_line(
                f"stopped in held-out play, which is left out; continue with --resume={self.folder}"
            )
            raise
        finally:
            self.interrupt.in_held_out_play = False
        if not oracle:
            best = None if trainer.best is None else trainer.best.step
            store_episodes(self.folder, trainer.state.global_step if step is None else step, episodes, best)
        return figures

    def _evaluate_in_training(self) -> dict[str, Any] | None:
        """Return the held-out figures; None if a signal came: the run stops with a checkpoint, and without them."""
        if any(gather_object([self.interrupt.requested])):
            return None
        try:
            return self.evaluate()
        except KeyboardInterrupt:
            return None

    def _evaluate_before(self) -> dict[str, dict[str, Any]]:
        """Return the figures before training; measured once, and read from before.json when a run is resumed."""
        saved, expected = self.folder / "before.json", self.trainer.held_out_of
        if saved.is_file():
            figures = run_folder.read_json(saved)
            if figures.pop("of", None) == expected:
                return figures
            self.printer.print_line("held-out tasks, reward or sampling have changed: earlier figures are set aside")
            PartialState().wait_for_everyone()
            if PartialState().is_main_process:
                set_held_out_aside(self.folder, self.step)
        figures = {}
        if self.config.train.method != "sft" and self.config.log.eval_tasks:
            figures["before"] = self.evaluate(step=0)
            if self._has_oracle():
                figures["oracle"] = self.evaluate(oracle=True)
        if self.config.log.eval_tasks:
            tasks = to_sequence(self.held_out.tasks, self.held_out.name)[: self.config.log.eval_tasks]
            if (blind := measure_blind(self.held_out, tasks)) is not None:
                figures["blind"] = {"reward": blind}
        if PartialState().is_main_process:
            write_atomically(saved, json.dumps({"of": expected, **figures}))
        return figures

    def _has_oracle(self) -> bool:
        """Return whether the environment knows which tool calls to make; a fault of its oracle costs its figures."""
        task = to_sequence(self.held_out.tasks, self.held_out.name)[0]
        try:
            with contain_exit():
                return bool(self.held_out.for_task(task).oracle(task))
        except Exception as error:
            self.printer.print_line(f"warning: {self.held_out.name}: its oracle is left out: {error}")
            return False

    def _load_best(self, trainer: EpisodeGRPOTrainer | SFTTrainer) -> Best | None:
        """Load the weights with the best held-out reward, if they are to be saved; return which these are."""
        best = trainer.best
        if best is None or not self.config.log.keep_best:
            return None
        checkpoint = self.folder / "checkpoints" / f"checkpoint-{best.step}"
        if not checkpoint.is_dir():
            self.printer.print_line(f"note: checkpoint-{best.step}, the best one, is gone; the last weights are saved")
            return None
        trainer.load_weights(checkpoint)
        step = f"{best.step}{'' if best.step else ', before training'}"
        self.printer.print_line(
            f"best held-out reward {best.reward:.3f} at step {step}: these weights are saved (log.keep_best)"
        )
        return best

    def _build_callbacks(self, every: int) -> list[TrainerCallback]:
        return [MetricsFile(self.folder / "metrics.jsonl", self.printer, every), self.alarms, self.interrupt]

    def _build_trainer(self) -> EpisodeGRPOTrainer | SFTTrainer:
        return self.build_grpo_trainer() if self.config.train.method == "grpo" else self.build_sft_trainer()

    def build_grpo_trainer(self) -> EpisodeGRPOTrainer:
        for note in self.tokens.template.notes:
            self.printer.print_line(f"note: {note}")
        count = len(to_sequence(self.env.tasks, self.env.name))
        trainer = EpisodeGRPOTrainer(
            model=self.model,
            args=build_trainer_arguments(self.config, self.folder / "checkpoints"),
            train_dataset=Dataset.from_dict({"prompt": [""] * count, "task": list(range(count))}),
            processing_class=self.processor,
            peft_config=build_lora_config(self.config.lora, self.model, self.config.model.freeze),
            callbacks=self._build_callbacks(every=1),
            env=self.env,
            rollout=self.config.rollout,
            model_name=self.sampler.model_name,
            episodes_folder=self.folder / "episodes",
            episodes_per_step=self.config.log.episodes_per_step,
            importance_sampling_cap=self.config.train.importance_sampling_cap,
            micro_batch_tokens=self.config.train.micro_batch_tokens,
            credit=self.config.train.credit.type,
            weights=self.weights,
        )
        trainer.player.on_episode = lambda done, total: self.printer.show_status(
            f"step {trainer.state.global_step + 1}/{trainer.state.max_steps}: {done} of {total} episodes played"
        )
        if self.config.log.send_images:
            trainer.add_callback(tracking.EpisodeTable(lambda: trainer.player.latest_episodes))
        return trainer

    def build_sft_trainer(self) -> SFTTrainer:
        """Return the supervised trainer of this run, on saved episodes or on demonstrations recorded now."""
        section = self.config.train
        saved = section.episodes
        if section.demonstrations is not None:
            saved = str(self.folder / "demonstrations")
            processes = PartialState()
            if processes.is_main_process:
                record_demonstrations(self.env, self.tokens, section.demonstrations, saved, section.seed)
            processes.wait_for_everyone()
        assert saved is not None
        limit, say = self.config.rollout.max_completion_tokens, self.printer.print_line
        counts = SelectionReport(saved)
        kept = select_episodes(read_episodes(saved, self.env, self.tokens, limit, say), section, counts)
        if not kept:
            raise StoreError(f"{counts.describe()}; allowed: at least one to train on")
        if counts.left_out.total():
            say(f"note: {counts.describe()}")
        usable = select_usable(add_tokens(kept, self.env, self.tokens, limit, say), self.tokens)
        lora = build_lora_config(self.config.lora, self.model, self.config.model.freeze)
        return self.sft_trainer(
            model=self.model if lora is None else get_peft_model(self.model, lora),
            processing_class=self.processor,
            args=build_trainer_arguments(self.config, self.folder / "checkpoints"),
            callbacks=self._build_callbacks(every=20),
            tokens=self.tokens,
            weigh_values=section.weigh_values,
            train_dataset=usable,
        )

    def save_model(self, summary: Mapping[str, object]) -> None:
        """Save the weights, processor and card into the run's folder, and into `log.export` if it is set."""
        if hasattr(self.model, "merge_and_unload"):  # LoRA: the adapter is saved on its own, then merged
            self.model.save_pretrained(self.folder / "adapter")
            self.processor.save_pretrained(self.folder / "adapter")
            self.model = merge_adapters(self.model)
        targets = [self.folder / "model", *([Path(self.config.log.export)] if self.config.log.export else [])]
        for target in targets:
            self.model.save_pretrained(target)
            self.processor.save_pretrained(target)
            write_card(target, self.config, summary)
