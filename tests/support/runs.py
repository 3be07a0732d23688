"""Whole runs by the command line's function, and what tests compare of them."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train

TIMINGS = ("time/", "step_time", "train_", "total_flos", "per_second", "profiling/")
GUESSES = Path(__file__).with_name("guesses.py").read_text()
RUN = {
    "env": {"name": "guesses:Guesses", "max_turns": 3, "eval": {"split": "test"}},
    "rollout": {"slots": 8, "max_reply_tokens": 6, "max_completion_tokens": 300},
    "train": {
        "max_steps": 3, "num_generations": 4, "per_device_train_batch_size": 8, "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
    },
    "log": {"eval_tasks": 6, "episodes_per_step": 2},
}  # fmt: skip


def write_config(folder, weights, name="run", content=RUN, /, **sections):
    """The path of a config in `folder`, its sections changed as given, with the module `guesses` beside it."""
    (folder / "guesses.py").write_text(GUESSES)
    content = {section: {**values, **sections.pop(section, {})} for section, values in content.items()}
    content |= {"model": {"name": str(weights), "dtype": "float32", **sections.pop("model", {})}, **sections}
    content["log"] = {"dir": str(folder / "out"), **content.get("log", {})}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@contextmanager
def on_path(folder):
    """The folder is on the import path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


def run(path, *overrides, code=0, name=None):
    """Trains; returns the run's folder."""
    assert train.main([str(path), *([f"log.name={name}"] if name else []), *overrides]) == code
    return path.parent / "out" / (name or f"{path.stem}-seed0")


def read_steps(folder):
    """What a run logged at each step, without its timings."""
    return [
        {key: value for key, value in line.items() if not any(timing in key for timing in TIMINGS)}
        for line in read_metrics(folder / "metrics.jsonl")
        if "train_runtime" not in line
    ]


def read_weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def have_equal_weights(one, other):
    """Whether the models that two runs saved are the same."""
    others = read_weights(other)
    return all(torch.equal(weight, others[name]) for name, weight in read_weights(one).items())
