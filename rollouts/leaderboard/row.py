"""Reads the row of a leaderboard from a saved run.

The run may be somebody else's. Its files are read as text and numbers only: no environment is made, nothing that they
name is imported, and no picture is opened. The rewards are those that it stores; `viewbox score RUN` checks them.

Every part of a command is quoted for the shell: a run can hold any text.
"""

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from viewbox import __version__
from viewbox.errors import ConfigError
from viewbox.files import check_inside
from viewbox.records import Episode
from viewbox.rollouts.leaderboard.record import MAX_COMMAND, MAX_PATH, MAX_TEXT, Figure, Row
from viewbox.rollouts.scoring.bootstrap import Interval, TaskSamples
from viewbox.rollouts.scoring.metrics import MAX_COUNT
from viewbox.rollouts.scoring.tool_gain import compare_tools
from viewbox.rollouts.store.reader import EpisodeReader, load
from viewbox.rollouts.store.rollout_folder import COMMAND
from viewbox.rollouts.store.run_folder import HELD_OUT, list_held_out, read_config, read_json
from viewbox.terminal import make_line

WITH, WITHOUT = "with_tools", "without_tools"  # the folders of an evaluation


def read_row(run: str | Path, base: Path, *, resamples: int = 1000) -> Row:
    """Read the row of a run: of an evaluation, of a rollout, or of the last held-out episodes of a training run.

    Args:
        run: its folder.
        base: the folder of the leaderboard; the row names the run relative to it.
        resamples: bootstrap draws over tasks for the 95 % intervals; 0: no intervals.

    Raises:
        ConfigError: it is a training run without held-out episodes, its settings cannot be read, or it has no episodes.
        StoreError: no episodes are stored here.
    """
    run = Path(run)
    name = Path(os.path.relpath(run.absolute(), base.absolute())).as_posix()
    if len(name) > MAX_PATH:
        raise ConfigError(f"{name[:80]}…: a path of {len(name)} characters; allowed: {MAX_PATH}")
    if not name.isprintable():
        raise ConfigError(f"{make_line(name)}: a path with characters that cannot be shown; rename the folder")
    played, unaided = _find_episodes(run)
    episodes = load(played, errors="skip", tokens=True)
    _, config = read_config(run if played == run else played, episodes.folder)
    training = played.parent == run / HELD_OUT
    if training:
        _, config = read_config(run, run / "episodes")
    if not training and isinstance(config.get("train"), Mapping):
        raise ConfigError(
            f"{run}: a training run without held-out episodes, whose model changed while it played; play its model "
            f"with `viewbox evaluate --config {run / 'config.yaml'} --model {run / 'model'}` and add that"
        )
    figures, tasks, names = _measure(episodes, resamples)
    if not figures:
        lost = f"; {episodes.skipped} lines cannot be read" if episodes.skipped else ""
        raise ConfigError(f"{run}: holds no episodes{lost}")
    gain = None
    if unaided is not None:
        pairs = compare_tools(episodes, load(unaided, errors="skip"), resamples=resamples).gains.get("reward")
        gain = None if pairs is None else _convert(pairs.difference)
    if training:
        command, why = build_train_command(name, config)
    else:
        command, why = build_play_command(played, name, evaluation=unaided)
    if len(command) > MAX_COMMAND or not command.isprintable():
        command, why = "", f"its settings are longer than {MAX_COMMAND} characters, or hold some that cannot be shown"
    environment = _get_text(config.get("env"), "name") or max(names, key=lambda one: names[one])
    return Row(
        run=name,
        model=make_line(_name_model(config, played.name if training else None), MAX_TEXT)[:MAX_TEXT],
        environment=make_line(environment, MAX_TEXT)[:MAX_TEXT] or "(unnamed)",
        played=_compute_digest(sorted(tasks)),
        settings=_compute_digest([config["env"], config.get("reward")]) if config.get("env") else "unknown",
        tasks=len(tasks),
        episodes=sum(names.values()),
        skipped=episodes.skipped,
        reward=figures.get("reward"),
        tool_gain=gain,
        calls=figures.get("calls"),
        tokens=figures.get("tokens"),
        command=command,
        no_command=why,
        viewbox=__version__,
    )


def _find_episodes(run: Path) -> tuple[Path, Path | None]:
    """The folder whose episodes are the row, and that of the same tasks without tools."""
    held_out = list_held_out(run)
    evaluation = os.path.lexists(run / WITH)
    played = run / WITH if evaluation else held_out[-1] if held_out else run
    unaided = run / WITHOUT if evaluation else None
    for folder in (played, unaided or run):
        try:
            check_inside(folder, run)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}; a run is kept in its own folder") from error
    return played, unaided


def _measure(episodes: EpisodeReader, resamples: int) -> tuple[dict[str, Figure], list[str], Counter[str]]:
    """The figures of the episodes, the ids of their tasks, and how many are of which environment."""
    samples, names = TaskSamples(), Counter[str]()
    for episode in episodes:
        names[episode.environment] += 1
        samples.add(
            episode.task.id,
            {
                "reward": episode.scores.total if episode.scores else None,
                "calls": float(episode.run_call_count),
                "tokens": _count_tokens(episode),
            },
        )
    if not samples.rows:
        return {}, [], names
    found = samples.compute_intervals(resamples, seed=0)
    return {name: _convert(figure) for name, figure in found.items()}, samples.task_ids, names


def _count_tokens(episode: Episode) -> float | None:
    """The tokens that the model sampled: as the server counted them, or as they are stored; None: neither is known."""
    usage = episode.info.get("usage")
    value = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return float(value)
    return float(sum(episode.tokens.mask)) if episode.tokens else None


def _convert(figure: Interval) -> Figure:
    return Figure(figure.mean, figure.low, figure.high, figure.count)


def _name_model(config: Mapping[str, Any], step: str | None) -> str:
    model = config.get("model")
    name = _get_text(model, "name") or ("tiny" if isinstance(model, Mapping) and model.get("tiny") else "(unnamed)")
    return name if step is None else f"{name[:150]}, trained to step {int(step)}"


def _get_text(values: Any, key: str) -> str:
    value = values.get(key) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else ""


def _compute_digest(values: Iterable[Any]) -> str:
    """Six bytes of SHA-256 over the values as JSON, as hexadecimal digits.

    >>> _compute_digest(["a"]) == _compute_digest(["a"]), len(_compute_digest([{1: "b"}]))
    (True, 12)
    """
    text = json.dumps(list(values), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


_OVERRIDES = ("tool_images", "native_tools", "extra")  # settings of the endpoint in rollout.json


def build_train_command(run: str, config: Mapping[str, Any]) -> tuple[str, str]:
    """The command that trains a run again and "", or "" and why there is none.

    >>> build_train_command("runs/my run", {"train": {}})
    ("viewbox train 'runs/my run/config.yaml'", '')
    """
    if not config:
        return "", "the run has no config.yaml"
    return shlex.join(["viewbox", "train", _protect(f"{run}/config.yaml")]), ""


def build_play_command(played: Path, run: str, *, evaluation: Path | None = None) -> tuple[str, str]:
    """The command that plays a rollout or an evaluation again and "", or "" and why there is none.

    Args:
        played: the folder with the rollout's config.yaml and rollout.json.
        run: the path of the run as the command names it.
        evaluation: the folder of the episodes without tools, if the run is an evaluation.

    Raises:
        ConfigError: rollout.json cannot be read, or its numbers are none.
    """
    if not all(os.path.lexists(played / name) for name in ("config.yaml", COMMAND)):
        return "", f"the run has no config.yaml or no {COMMAND}"
    record = read_json(played / COMMAND)
    inside = run if evaluation is None else f"{run}/{played.name}"
    words = ["viewbox", "rollout" if evaluation is None else "evaluate", "--config", _protect(f"{inside}/config.yaml")]
    for name in ("tasks", "group", "seed"):
        value = record.get(name)
        if type(value) is not int or not 0 <= value <= 2**53:
            raise ConfigError(f"{played / COMMAND}: {name} = {value!r:.80}; allowed: a whole number", key=name)
        words += [f"--{name}", str(value)]
    if isinstance(record.get("endpoint"), str):
        words += [f"--endpoint={record['endpoint']}"]
        words += [
            f"endpoint.{name}={json.dumps(record[name])}" for name in _OVERRIDES if record.get(name) not in (None, {})
        ]
    if (
        evaluation is not None
        and os.path.lexists(evaluation / COMMAND)
        and read_json(evaluation / COMMAND).get("tools") == "refused"
    ):
        words.append("--refuse")
    return shlex.join(words), ""


def _protect(path: str) -> str:
    """The path, never read as an option."""
    return f"./{path}" if path.startswith("-") else path
