"""Finds the run and checkpoint to resume from, and puts the run's folder back to that step.

No checkpoint or episode is deleted: what is of later steps is set aside as `superseded-…`, since the repeated steps
make it again, and maybe otherwise. Metrics after the checkpoint are removed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from itertools import count, islice
from pathlib import Path

import torch
from trl import GRPOConfig

from ..configs import yaml_reader
from ..configs.schema import Config
from ..configs.train_sections import GONE_DEFAULTS
from ..core.base import BaseMultiTurnEnv
from ..envs.data.sources import fingerprint_data, list_changed
from ..errors import ConfigError
from ..rollouts.store import run_folder
from ..rollouts.store.layout import LINES
from ..rollouts.store.lines import open_lines, read_lines
from ..rollouts.store.reader import load
from ..rollouts.store.run_folder import HELD_OUT, LATEST, iter_leaves
from ..utils.files import write_atomically
from ..utils.terminal import make_line
from . import checkpoints
from .precision import LEARNING_RATES
from .trainer_args import get_defaults

DATA = "data.json"  # in a run's folder: what the files of its tasks held


@dataclass(frozen=True)
class RunLocation:
    """A run's folder, and the checkpoint to resume from (None: start from the beginning)."""

    folder: Path
    checkpoint: Path | None

    @property
    def step(self) -> int:
        return 0 if self.checkpoint is None else checkpoints.get_step(self.checkpoint)


def find_run(parent: Path, name: str, wanted: str) -> RunLocation | None:
    """Return the run that `--resume` names; None if there is no run of that name yet. `wanted`: "latest" for the newest
    run of that name, a run's folder, or one of its checkpoints. Raise `ConfigError` if `wanted` is a folder, but
    neither a run nor a checkpoint."""
    if wanted == LATEST:
        folder = run_folder.find_latest_folder(parent, name)
        return None if folder is None else _locate_newest(folder)
    path = Path(wanted)
    if path.name.startswith("checkpoint-"):
        return RunLocation(path.parent.parent, checkpoints.check_resumable(path))
    if not (path / "config.yaml").is_file():
        allowed = "a run's folder (with config.yaml) or a checkpoint-<step> in it"
        raise ConfigError(f"--resume {wanted}: is not a run; allowed: {allowed}")
    return _locate_newest(path)


def _locate_newest(folder: Path) -> RunLocation:
    saved = checkpoints.list_checkpoints(folder)
    return RunLocation(folder, checkpoints.check_resumable(saved[-1]) if saved else None)


def rewind(location: RunLocation) -> None:
    """Put a run's folder back to the checkpoint: remove later metrics, set later checkpoints and episodes aside."""
    metrics = location.folder / "metrics.jsonl"
    if os.path.lexists(metrics):
        write_atomically(metrics, "".join(f"{json.dumps(line)}\n" for line in _read_until(metrics, location.step)))
    _set_episodes_aside(location.folder / "episodes", location.step)
    played_after = [path for path in run_folder.list_held_out(location.folder) if int(path.name) > location.step]
    saved_after = [
        path for path in checkpoints.list_complete(location.folder) if checkpoints.get_step(path) > location.step
    ]
    for later in saved_after + played_after:
        later.rename(_find_free(later.with_name(f"superseded-{later.name}")))


def _set_episodes_aside(folder: Path, step: int) -> None:
    """Move the stored episodes of later steps, which are the last ones, into a file beside the others."""
    if not (folder / LINES).is_file():
        return
    stored = load(folder, errors="skip")
    if not any(isinstance(of := episode.info.get("step"), int) and of > step for episode in stored):
        return
    with open_lines(folder) as file:
        for _ in islice(read_lines(file), stored.line - 1):
            pass
        place, later = file.tell(), file.read()
    write_atomically(_find_free(folder / f"superseded-{LINES}"), later)
    os.truncate(folder / LINES, place)


def _find_free(path: Path) -> Path:
    """Return the path, or with the first number from 2 on that is free."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not path.exists() else next(candidate for candidate in numbered if not candidate.exists())


def _read_until(metrics: Path, step: int) -> Iterator[dict[str, object]]:
    try:
        for line in run_folder.read_metrics(metrics):
            is_kept = isinstance(line.get("step"), int | float) and line["step"] <= step
            if is_kept and "train_runtime" not in line:  # TRL's last line of a whole training
                yield line
    except OSError as error:
        raise ConfigError(f"{metrics}: cannot be read ({error.strerror or error})") from error


# What a changed setting does to a resumed run, by its key or that of a section around it. All others take effect from
# the resumed step on.
_WEIGHTS = "the weights in the checkpoint belong to it"
_OPTIMIZER = "the checkpoint holds the state of that optimizer"
_ORDER = "it decides on the order of the tasks, and the run is in the middle of it"
REFUSED = {
    **dict.fromkeys(("env.name", "train.method"), "a run is of one environment and one method"),
    **dict.fromkeys(("model.name", "model.revision", "model.tiny", "model.freeze"), _WEIGHTS),
    **dict.fromkeys(("lora.r", "lora.alpha", "lora.target_modules", "lora.quantize"), _WEIGHTS),
    **dict.fromkeys(("train.optim", "train.optim_args", "train.optim_target_modules"), _OPTIMIZER),
    **{
        f"train.{name}": _ORDER
        for name in (
            "seed", "per_device_train_batch_size", "gradient_accumulation_steps", "num_generations",
            "steps_per_generation", "generation_batch_size", "num_iterations", "shuffle_dataset",
            "dataloader_drop_last", "episodes", "demonstrations", "where", "best_of_group",
        )
    },
}  # fmt: skip
KEPT = {"log.dir": "the run stays in its folder", "log.name": "the run stays in its folder"}


def find_rule(rules: Mapping[str, str], key: str) -> str | None:
    """Return the rule of a key, or of a section around it.

    >>> find_rule(REFUSED, "train.demonstrations.count") == _ORDER, find_rule(REFUSED, "train.learning_rate")
    (True, None)
    """
    return next((rule for name, rule in rules.items() if f"{key}.".startswith(f"{name}.")), None)


def _find_recorded(config: Mapping[str, object], key: str) -> str | None:
    """Return why a key cannot change after what a run learns from was recorded; None if it can."""
    is_of_tasks = key.startswith("env.") and not key.startswith("env.eval.")
    return "its demonstrations are recorded" if is_of_tasks and "train.demonstrations.count" in config else None


def list_changes(folder: Path, config: Mapping[str, object]) -> list[str]:
    """Return the settings that differ from those the run was started with, as `changed: key: old → new`. Raise
    `ConfigError` if one of them cannot change (`REFUSED`)."""
    path = folder / "config.yaml"
    if not path.is_file():
        return []
    before, now = dict(iter_leaves(yaml_reader.read(path, inside=folder).values)), dict(iter_leaves(config))
    lines = []
    # the method and the environment are named before what belongs to them
    for key in sorted({*before, *now}, key=lambda one: (one not in ("train.method", "env.name"), one)):
        default = _get_default(key, now)
        old, new = before.get(key, default), now.get(key, default)
        if old == new or (not old and not new and [] in (old, new)):
            continue
        if (reason := find_rule(REFUSED, key) or _find_recorded(now, key)) is not None:
            raise ConfigError(
                f"{key} = {new!r:.200}: the run in {folder} was started with {old!r:.200}, and {reason}; allowed: the "
                f"same, or a new run without --resume (if only a name or a place has changed: change {path})",
                key=key,
            )
        rule = find_rule(KEPT, key)
        lines.append(f"changed: {key}: {old} → {new}" if rule is None else f"kept: {key}: {old}; {rule}")
    return lines


def _get_default(key: str, config: Mapping[str, object]) -> object:
    """Return the value of an argument of the trainer that a config does not set; None for every other key."""
    section, _, name = key.partition(".")
    if section != "train":
        return None
    adapts = any(setting.startswith("lora.") for setting in config)
    rate = LEARNING_RATES["grpo" if config.get("train.method", "grpo") == "grpo" else "sft", adapts]
    gpu = torch.cuda.is_available() and not config.get("train.use_cpu")
    defaults = {**get_defaults(gpu), "learning_rate": rate, **GONE_DEFAULTS}
    field = GRPOConfig.__dataclass_fields__.get(name)
    return defaults.get(name, None if field is None or field.default is MISSING else field.default)


def fingerprint_held_out(config: Config, env: BaseMultiTurnEnv) -> str:
    """Return a hash of all that held-out figures depend on beside the weights: tasks, reward, seed, sampling."""
    rollout, log = config.rollout, config.log
    temperature = rollout.temperature if log.eval_temperature is None else log.eval_temperature  # 0 is greedy
    parts = [
        {**config.env.settings, **config.env.eval},
        config.reward,
        rollout.sampling.model_dump(mode="json") | {"temperature": temperature},
        [rollout.max_reply_tokens, rollout.max_completion_tokens, log.eval_tasks, log.eval_seed],
        [config.model.max_pixels, fingerprint_data(env)],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def set_held_out_aside(folder: Path, step: int) -> None:
    """Rename the held-out figures and episodes of a run that are of other tasks, rewards or seeds than from now on."""
    for name in ("before.json", "held_out", "metrics.jsonl"):
        path = folder / name
        if not path.exists():
            continue
        aside = path.rename(_find_free(path.with_name(f"{path.stem}-until-step-{step}{path.suffix}")))
        if name == "metrics.jsonl":
            lines = run_folder.read_metrics(aside)
            cleaned = [{key: line[key] for key in line if not key.startswith(f"{HELD_OUT}/")} for line in lines]
            write_atomically(path, "".join(json.dumps(line) + "\n" for line in cleaned))


def record_data(folder: Path, envs: Iterable[object], print_line: Callable[[str], None]) -> None:
    """Write what the files of a run's tasks hold into data.json, and warns of those that have changed since."""
    path = folder / DATA
    before = run_folder.read_json(path) if os.path.lexists(path) else {}
    now = {name: fingerprint for env in envs for name, fingerprint in fingerprint_data(env).items()}
    for change in list_changed(before, now):
        line = f"warning: the data of this run have changed, and with them its tasks from here on: {change}"
        print_line(make_line(line, 500))
    if now:
        write_atomically(path, json.dumps({**before, **now}, indent=2) + "\n")
