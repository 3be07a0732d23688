"""Checkpoints that are complete or absent, and hold all the state a run depends on.

transformers writes a checkpoint file by file into its final folder: a killed process leaves one that looks complete.
Nor does it save our counters, a batch that still serves updates, or sums that are not logged yet. Here a checkpoint is
written to `.draft` beside the others, synced to disk, and then renamed.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator, PartialState
from safetensors import safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.core_model_loading import revert_weight_conversion
from trl.trainer.utils import RepeatSampler

from ..configs.sections import ModelSection
from ..engines.hf.loading import describe_damage, load_model
from ..errors import ConfigError, ModelError
from ..rollouts.store.run_folder import read_json
from ..utils.files import sync_to_disk

# Every private name of transformers' `Trainer` that viewbox uses; only this file uses them. `training/grpo/trainer.py`
# lists those of TRL, and `tests/training/grpo/test_private_names.py` checks both lists.
PRIVATE_NAMES = {
    "_save_checkpoint": "extended: writes to a draft folder, adds our state, renames",
    "_get_output_dir": "overridden while a checkpoint is written: the draft folder",
    "_load_from_checkpoint": "overridden: weights are loaded as those of a model are; called for a run that has ended",
    "_load_optimizer_and_scheduler": "extended: the settings of the optimizer are those of the config",
    "_tr_loss": "saved and restored: the sum of losses not logged yet",
    "_total_loss_scalar": "saved and restored: the sum of losses that were logged; the last line has their mean",
    "_initial_global_step": "read: the step that this session began with",
    "_globalstep_last_logged": "saved and restored: when they were last logged",
}

log = logging.getLogger("viewbox.train")
_NAME = re.compile(r"checkpoint-(\d+)")
DRAFT = ".draft"
SKIPPED = "the gradient is not finite, so that no weight is changed"
MAX_SKIPPED = 3  # steps in a row whose gradient is not finite, after which a run ends
NUMBERS = {"betas", "eps", "weight_decay"}  # of an optimizer, which the section `train` sets beside the rate
MAX_STATE = 2**30  # bytes of trainer_state.json, which holds every line that was logged


def get_step(checkpoint: Path) -> int:
    """Return the step of a checkpoint, from its folder's name; raise `ConfigError` for any other name."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ConfigError(f"{checkpoint}: not a checkpoint; allowed: a folder named checkpoint-<step>")
    return int(match[1])


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a run's folder, the latest last."""
    return sorted(
        (path for path in (folder / "checkpoints").glob("checkpoint-*") if _NAME.fullmatch(path.name)), key=get_step
    )


def list_complete(folder: Path) -> list[Path]:
    """Return those that are complete."""
    return [path for path in list_checkpoints(folder) if _is_complete(path)]


def check_resumable(checkpoint: Path) -> Path:
    """Return the checkpoint; raise `ConfigError` if it is incomplete, damaged, or saved without its optimizer."""
    get_step(checkpoint)
    if not _is_complete(checkpoint):
        others = ", ".join(map(str, list_complete(checkpoint.parent.parent))) or "none: start again"
        raise ConfigError(f"{checkpoint}: not a complete checkpoint; allowed: {others}")
    if not (checkpoint / "optimizer.pt").is_file():
        raise ConfigError(f"{checkpoint}: saved without its optimizer (train.save_only_model); it cannot be resumed")
    read_json(checkpoint / "trainer_state.json", limit=MAX_STATE)  # raises if it is damaged or no regular file
    processes = PartialState().num_processes
    needed = ["*.safetensors", "scheduler.pt", *map(_get_state_file, range(processes))]
    needed += [f"rng_state_{number}.pth" for number in range(processes)] if processes > 1 else ["rng_state.pth"]
    missing = [name for name in needed if not any(checkpoint.glob(name))]
    problem = f"holds no {missing[0]} (of {processes} processes)" if missing else describe_damage(checkpoint)
    problem = problem or _describe_weights(checkpoint)
    if problem is not None:
        raise ConfigError(f"{checkpoint}: {problem}; allowed: another one, --resume=RUN/checkpoints/checkpoint-N")
    return checkpoint


def _describe_weights(checkpoint: Path) -> str | None:
    """Return which weights in a checkpoint are not the model's or an adapter's, or are not finite; None if none."""
    adapter = checkpoint / "adapter_model.safetensors"
    weights: dict[str, torch.Tensor] | None = None  # by the names of the file, where buffers may be infinite
    try:
        if not adapter.is_file():
            model = load_model(ModelSection(name=str(checkpoint)), with_numbers=False)
            weights = revert_weight_conversion(model, dict(model.named_parameters()))
    except ModelError as error:
        return str(error).partition(": ")[2]
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                if path == adapter and not name.startswith("base_model.model."):
                    return f"{name} in {path.name} is no weight of an adapter"
                if (weights is None or name in weights) and not file.get_tensor(name).isfinite().all():
                    return f"{name} in {path.name} holds NaN or infinity"
    return None


def _is_complete(checkpoint: Path) -> bool:
    return all((checkpoint / name).is_file() for name in ("trainer_state.json", _get_state_file(0)))


def _get_state_file(process: int) -> str:
    return f"viewbox-{process}.pt"


class Best(NamedTuple):
    """The step with the highest held-out reward so far, and the largest share of scored episodes of such a step."""

    step: int
    reward: float
    scored: float = 1.0


class Checkpoints:
    """A mixin for a transformers `Trainer`, before it in the bases; subclasses extend `collect_state`.
    `train(resume_from_checkpoint=…)` then continues as if it had never stopped."""

    args: TrainingArguments
    state: TrainerState
    accelerator: Accelerator
    _tr_loss: torch.Tensor
    _total_loss_scalar: float
    _initial_global_step: int
    _globalstep_last_logged: int
    optimizer: Any
    lr_scheduler: Any
    _drafting = False
    held_out_of: str | None = None  # which tasks, seed and reward the held-out figures are of
    skipped_steps: tuple[int, ...] = ()  # whose gradient was not finite
    best: Best | None = None  # its checkpoint is kept whatever `save_total_limit` is
    is_finished: Callable[[int], bool] = staticmethod(lambda step: False)  # whether training ended early at a step

    def collect_state(self) -> dict[str, object]:
        """Return the state of this process besides weights, optimizer, scheduler and random state."""
        best = None if self.best is None else tuple(self.best)
        return {
            "loss": self._tr_loss,
            "total_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
            "best": best,
            "held_out_of": self.held_out_of,
            "skipped_steps": self.skipped_steps,
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        self._tr_loss, self._globalstep_last_logged = state["loss"].to(self.args.device), state["last_logged"]
        self._total_loss_scalar = state["total_loss"]
        self.skipped_steps = tuple(state.get("skipped_steps", ()))
        self._restore_best(state)

    def _restore_best(self, state: dict[str, Any]) -> None:
        if state.get("best") is not None and state.get("held_out_of") == self.held_out_of:
            self.best = Best(*state["best"])

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: object, **kwargs: object) -> Any:
        if isinstance(resume_from_checkpoint, str):
            self.add_callback(_Restore(self, Path(resume_from_checkpoint)))  # type: ignore[attr-defined]
        self.add_callback(OrdersEpochs())  # type: ignore[attr-defined]
        # first: a step that diverged is not evaluated
        self.callback_handler.callbacks.insert(0, StaysFinite(self))  # type: ignore[attr-defined]
        return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log; the closing `train_loss` is the mean over the whole run, not over the steps since it was resumed."""
        if "train_loss" in logs:
            own_steps = self.state.global_step - self._initial_global_step
            logs["train_loss"] *= max(own_steps, 0.001) / max(self.state.global_step, 0.001)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def load_if_finished(self, checkpoint: Path) -> bool:
        """Load the checkpoint's weights if training had ended there; return whether it had."""
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        self._restore_best(_load_state(checkpoint, self.accelerator.process_index))
        if self.args.max_steps > 0:
            done = state.global_step >= self.args.max_steps
        else:
            done = (state.epoch or 0) >= self.args.num_train_epochs
        done = done or self.is_finished(state.global_step)
        if done:
            self.load_weights(checkpoint)
        return done

    def save_first(self) -> None:
        """Save a checkpoint of step 0, whose weights are the best so far. Every process calls this."""
        self._save_checkpoint(self.model, None)  # type: ignore[attr-defined]

    def load_weights(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint, and nothing else of it."""
        self._load_from_checkpoint(str(checkpoint))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of a checkpoint, or its adapter.
        transformers' own takes the file's names and shapes for those of the model. Of most families the names are
        others: nothing would be loaded, and nothing said (huggingface/transformers issue 48805). Of others, experts lie
        in the file the other way round."""
        model = model or self.model  # type: ignore[attr-defined]
        weights = model.state_dict()
        written = revert_weight_conversion(model, dict(weights))  # as a checkpoint has them
        is_alike = all(written.get(name) is value for name, value in weights.items())
        if is_alike or (Path(resume_from_checkpoint) / "adapter_config.json").is_file():
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        else:
            model.load_state_dict(type(model).from_pretrained(resume_from_checkpoint, dtype="auto").state_dict())

    def save_unsaved(self) -> Path | None:
        """Save a checkpoint of the last step, unless there is one or none is wanted; return it. For a run that ends
        between two steps: every process calls this."""
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if not self.state.global_step or self.args.save_strategy == "no" or _is_complete(path):
            return None
        if not are_finite(self.model.parameters()):  # type: ignore[attr-defined]
            return None
        self._save_checkpoint(self.model, None)  # type: ignore[attr-defined]
        return path

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load their state; the rates and other numbers are those of the config, which may have changed."""
        numbers = [{name: group[name] for name in NUMBERS & group.keys()} for group in self.optimizer.param_groups]
        scheduler = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # accelerate wraps it
        rates = scheduler.base_lrs
        try:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"{checkpoint}: its optimizer or schedule is not this run's: {error}") from error
        if checkpoint is None:
            return
        scheduler.base_lrs = rates
        scheduler._last_lr = [
            rate * f(scheduler.last_epoch) for rate, f in zip(rates, scheduler.lr_lambdas, strict=True)
        ]
        groups = zip(self.optimizer.param_groups, numbers, rates, scheduler._last_lr, strict=True)
        for group, saved, base, rate in groups:
            group.update(saved, initial_lr=base, lr=rate)

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)  # type: ignore[misc]
        return os.path.join(folder, DRAFT) if self._drafting else folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        parent = Path(self.args.output_dir)
        draft = parent / DRAFT
        name = f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(draft, ignore_errors=True)  # left by a killed process
        self.accelerator.wait_for_everyone()
        self._drafting = True
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self._drafting = False
        torch.save(self.collect_state(), draft / name / _get_state_file(self.accelerator.process_index))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            files = [path for path in (draft / name).rglob("*") if path.is_file()]
            for path in (*files, draft / name):
                sync_to_disk(path)
            shutil.rmtree(parent / name, ignore_errors=True)  # the same step, saved before an earlier resume
            os.replace(draft / name, parent / name)
            self._delete_old(parent)
        self.accelerator.wait_for_everyone()

    def _delete_old(self, parent: Path) -> None:
        limit = self.args.save_total_limit
        complete = list_complete(parent.parent)
        for old in complete[: -max(1, limit)] if limit else ():
            if self.best is not None and get_step(old) == self.best.step:
                continue
            os.replace(old, parent / DRAFT / old.name)  # renamed first: a half-deleted checkpoint is never seen
        shutil.rmtree(parent / DRAFT, ignore_errors=True)


class StaysFinite(TrainerCallback):
    """Lets only finite gradients reach the weights, and ends a run that has diverged.
    A step whose gradient is not finite changes nothing; after `MAX_SKIPPED` in a row, or as soon as a weight is not
    finite, `ModelError` is raised. With fp16, transformers passes over such steps itself, and scales the loss anew."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.skipped, self.first = trainer, 0, 0

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.first = state.global_step

    def on_pre_optimizer_step(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        model, step = kwargs["model"], state.global_step + 1
        if self.trainer.accelerator.scaler is not None or are_finite(model.parameters(), gradients=True):
            self.skipped = 0
            return
        model.zero_grad(set_to_none=True)  # an optimizer passes over a weight without a gradient
        self.skipped += 1
        self.trainer.skipped_steps += (step,)
        log.warning("step %d: %s", step, SKIPPED)

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        if not are_finite(kwargs["model"].parameters()):
            raise self._build_error(f"the weights after step {step} are not finite", step - 1)
        if self.skipped == MAX_SKIPPED or (step == state.max_steps and self.skipped == step - self.first):
            self.trainer.save_unsaved()
            raise self._build_error(f"{self.skipped} steps in a row had no finite gradient", step - self.skipped)

    def _build_error(self, problem: str, good: int) -> ModelError:
        saved = list_complete(Path(self.trainer.args.output_dir).parent)
        way_out = f"go on with --resume={saved[-1]} and" if saved else "no checkpoint was saved: start again with"
        return ModelError(
            f"{problem}: the run has diverged; the last good step is {good}; {way_out} a smaller train.learning_rate"
        )


def are_finite(weights: Iterable[torch.nn.Parameter], *, gradients: bool = False) -> bool:
    """Return whether all weights that are trained are finite, or all their gradients; without a gradient counts so."""
    trained = [weight for weight in weights if weight.requires_grad]
    numbers = [tensor for tensor in ((w.grad if gradients else w.detach()) for w in trained) if tensor is not None]
    return not numbers or bool(torch.nn.utils.get_total_norm(numbers).isfinite())


class OrdersEpochs(TrainerCallback):
    """Makes the order of an epoch depend on the seed and the epoch alone, as that of transformers' own sampler does.
    TRL's goes on from the epochs that this process has drawn: a resumed run would begin with the first one again."""

    def on_epoch_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        batches = kwargs["train_dataloader"].batch_sampler
        while hasattr(batches, "batch_sampler"):  # one for each process
            batches = batches.batch_sampler
        sampler = batches.sampler
        if isinstance(sampler, RepeatSampler) and sampler.shuffle:
            sampler.generator.manual_seed(sampler.seed or 0)
            for _ in range(int(state.epoch or 0)):
                next(iter(sampler), None)  # draws an order


class _Restore(TrainerCallback):
    """Restores a trainer's own state after transformers has restored the rest."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self.trainer, self.checkpoint = trainer, checkpoint

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.trainer.restore_state(_load_state(self.checkpoint, self.trainer.accelerator.process_index))
        state.compute_steps(self.trainer.args, state.max_steps)  # of the config, not of the checkpoint


def _load_state(checkpoint: Path, process: int) -> dict[str, Any]:
    file = checkpoint / _get_state_file(process)
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state
