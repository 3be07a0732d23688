"""The kit of the table of cases in `tests/training/test_run_does_what_config_says.py`.

A case is a command of a user with its right outcome. Its inputs are written into the test's own folder, runs that
several cases resume are made once and copied.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from viewbox.assets import resolve_model_path
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import read_metrics

SHIPPED = Path(resolve_model_path("package:tiny_viewer"))
FEW = "env.num_tasks=64"  # so that what looks at all tasks is done soon
# The quickstart with 8 episodes in a step
SMALL = ("train.per_device_train_batch_size=8", "train.num_generations=4", "log.eval_tasks=0", "rollout.slots=8", FEW)
STEADY = ("train.warmup_steps=0", "train.lr_scheduler_type=constant", "train.learning_rate=4e-4")
SFT = ("train={method: sft, demonstrations: {count: 8}, max_steps: 2, save_steps: 1, per_device_train_batch_size: 4}",)
LORA = ("lora.r=4",)
# Runs that cases resume or look at, by name: their overrides, and their last step
RUNS: Mapping[str, tuple[Sequence[str], int]] = {
    "plain": ((*SMALL, *STEADY, "train.save_steps=2"), 2),
    "held": ((*SMALL, *STEADY, "train.save_steps=1", "log.eval_tasks=2", "log.eval_steps=1"), 1),
    "lora": ((*SMALL, *STEADY, *LORA, "train.save_steps=1"), 1),
    "sft": ((*SFT, "log.eval_tasks=0", FEW), 2),
    "sft and lora": ((*SFT, *LORA, "log.eval_tasks=0", FEW), 2),
}


@dataclass(frozen=True)
class Case:
    """What a user did, and what is right.

    `command` is `train`, `dry run`, `load` (the model alone), or `viewbox` if the arguments begin with another command;
    empty: only what `holds` looks at.
    """

    id: str  # that of a kind (`T03`), and what differs from its first case
    source: str  # public reports of it, as `owner/repository#number`; empty: tried here only
    given: Sequence[str] = ()  # overrides or, with `command`, all arguments
    status: int = 0  # the right one
    says: Sequence[str] = ()  # words of the error, or of what is printed
    holds: "Check | tuple[Check, ...]" = ()  # checks of the run's folder
    prepare: Callable[[Path], object] | None = None  # writes inputs into the current folder
    resumes: str = ""  # the name of the run whose copy, `runs/base`, is resumed
    beside: str = ""  # the name of a run, of which there is a copy named `prior`
    config: str = "quickstart"  # a shipped config, or a file that `prepare` writes
    command: str = "train"
    is_dry: bool = False  # whether a refusal is due by `--dry-run` as well; then the plan is asked
    starts: bool = False  # whether the run may have begun before it ends with status 2


@dataclass(frozen=True)
class Outcome:
    """What a call left: its status and words, the folder of the run, and the current folder; or the model it loaded."""

    status: int
    said: str
    cwd: Path
    made: Callable[[str], Path] = field(repr=False)  # a run of `RUNS`, by name; not a copy
    model: torch.nn.Module | None = None

    @cached_property
    def folder(self) -> Path:
        """The run's folder."""
        (found,) = [path.parent for path in self.cwd.rglob("config.yaml")]
        return found

    @cached_property
    def steps(self) -> dict[int, dict[str, Any]]:
        """The logged lines, by step."""
        lines = list(read_metrics(self.folder / "metrics.jsonl"))
        return {line["step"]: line for line in lines if "train_runtime" not in line}

    @property
    def rates(self) -> dict[int, float]:
        return {step: line["learning_rate"] for step, line in self.steps.items()}

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").glob("checkpoint-*"))

    @property
    def episodes(self) -> list[Any]:
        return list(load(self.folder))

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    def read_optimizer(self, step: int) -> dict[str, Any]:
        return torch.load(self.folder / "checkpoints" / f"checkpoint-{step}" / "optimizer.pt", weights_only=True)


Check = Callable[[Outcome], object]


def list_runs(cwd: Path) -> list[str]:
    """The folders in `runs/`."""
    return sorted(path.name for path in (cwd / "runs").glob("*"))


def take_digest(folder: Path) -> dict[str, str]:
    """Every file of a folder with a digest of its bytes, locks left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---------------------------------------------------------------------- damaged models
def copy_model(target: Path = Path("weights")) -> Path:
    """Copy the shipped model; returns the path of its weights."""
    shutil.copytree(SHIPPED, target)
    return target / "model.safetensors"


def change_tensors(change: Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]) -> Callable[[Path], None]:
    """The folder `weights` holds the shipped model with its tensors changed."""

    def write(_: Path) -> None:
        file = copy_model()
        save_file({name: value.contiguous() for name, value in change(load_file(file)).items()}, file, {"format": "pt"})

    return write


def prefix(text: str) -> Callable[[Path], None]:
    return change_tensors(lambda tensors: {text + name: value for name, value in tensors.items()})


def damage(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """The folder `weights` holds the shipped model, and `change` is called with the folder."""

    def write(_: Path) -> None:
        change(copy_model().parent)

    return write


def at(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """The same, with the path of a file in it."""
    return damage(lambda folder: change(folder / name))


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shard(folder: Path) -> None:
    """Write the weights into two files with an index."""
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    names = sorted(tensors)
    shards = {f"model-0000{n + 1}-of-00002.safetensors": names[n::2] for n in range(2)}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file, {"format": "pt"})
    places = {name: file for file, held in shards.items() for name in held}
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickle_weights(folder: Path) -> Path:
    """Write the weights as PyTorch pickles them."""
    whole = folder / "model.safetensors"
    torch.save(load_file(whole), folder / "pytorch_model.bin")
    whole.unlink()
    return folder / "pytorch_model.bin"


def edit_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def edit_text_config(folder: Path, **values: object) -> None:
    """Change the language model's section of a model's config."""
    text = json.loads((folder / "config.json").read_text())["text_config"]
    edit_json(folder / "config.json", text_config={**text, **values})


def untie(folder: Path) -> None:
    """Give the model an output layer of its own."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["model.language_model.embed_tokens.weight"].clone()
    save_file(tensors, file, {"format": "pt"})
    edit_json(folder / "config.json", tie_word_embeddings=False)
    edit_text_config(folder, tie_word_embeddings=False)
