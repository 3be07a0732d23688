"""YAML → a training run: `python train.py CONFIG [key.path=value …]`.

A config names a shipped one (`quickstart`) or a file. `--dry-run` resolves and checks everything without loading
weights. On several GPUs: `accelerate launch train.py CONFIG`.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viewbox import config as configs
from viewbox.config import Config
from viewbox.errors import ConfigError, ViewboxError

log = logging.getLogger("viewbox.train")


def check(config: Config) -> dict[str, Any]:
    """Everything that can be known without weights; returns what was resolved."""
    from viewbox.rollouts.arguments import trainer_arguments
    from viewbox.rollouts.run import make_envs
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
    from viewbox.rollouts.run import Run

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


if __name__ == "__main__":
    sys.exit(main())
