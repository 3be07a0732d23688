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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from viewbox.configs import schema as configs
from viewbox.configs.schema import Config
from viewbox.errors import ConfigError, ViewboxError, suggest_nearest
from viewbox.exit_status import guard, logged_in
from viewbox.rollouts.store.run_folder import LATEST
from viewbox.training.preflight import check

log = logging.getLogger("viewbox.train")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status (see `viewbox.exit_status`)."""
    return guard(lambda: _main(argv))


class _Parser(argparse.ArgumentParser):
    """Arguments that are wrong end as everything else that is wrong: with one line."""

    def error(self, message: str) -> NoReturn:
        near = suggest_nearest(message.split()[-1], self._option_string_actions)
        raise ConfigError(f"{message}{near}; see --help")


def _main(argv: Sequence[str] | None) -> int:
    parser = _Parser(
        prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=sections()
    )
    parser.add_argument("config", help="a YAML file, or the name of a shipped one")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key.path=value", help="e.g. train.learning_rate=1e-5"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=LATEST,
        metavar="RUN",
        help="go on from the last whole checkpoint of the newest run of this config, or of the run's folder or the "
        "checkpoint that is given (--resume=runs/x, --resume=runs/x/checkpoints/checkpoint-50)",
    )
    parser.add_argument("--dry-run", action="store_true", help="resolve and check everything, load no weights")
    given = parser.parse_intermixed_args(argv)
    if given.resume and "=" in given.resume and not Path(given.resume).exists():  # --resume train.max_steps=200
        given.overrides.append(given.resume)
        given.resume = LATEST
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    config = configs.load(given.config, given.overrides)
    resolved = check(config)
    if given.dry_run:
        whole = {"config": config.model_dump(exclude_none=True), "resolved": resolved}
        print(json.dumps(whole, indent=2, default=list))
        return 0
    summary = run(config, name=Path(given.config).stem, resume=given.resume)
    return 130 if "stopped_at" in summary else 0


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


def run(config: Config, name: str = "run", resume: str | None = None) -> dict[str, Any]:
    """Trains, and returns the summary that is also in the run's folder.

    `resume`: "latest", a run's folder, or one of its checkpoints (see `training/resume.py`).
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from transformers import set_seed
    from transformers.utils import logging as transformers_logging

    from viewbox.rollouts.store import run_folder
    from viewbox.training.resume import Place
    from viewbox.training.run import Run

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("viewbox").setLevel(logging.INFO)
    set_seed(config.train.seed)
    processes = PartialState(cpu=not torch.cuda.is_available())
    shared: list[Any] = [None]
    with ExitStack() as stack:
        if processes.is_main_process:
            try:
                place = _place(config, name, resume)
                stack.enter_context(run_folder.lock_folder(place.folder))
                _prepare(place, config)
                shared = [place]
            except ViewboxError as error:
                shared = [error]
        broadcast_object_list(shared)  # every process writes to the one folder, or learns why it cannot
        if isinstance(shared[0], ViewboxError):
            raise shared[0]
        assert isinstance(shared[0], Place)
        with logged_in(shared[0].folder):
            return Run(config, shared[0]).execute()


def _place(config: Config, name: str, resume: str | None) -> Any:
    """The folder to write to, a new one unless a run goes on, and the checkpoint to start from."""
    from viewbox.rollouts.store import run_folder
    from viewbox.training.resume import Place, find

    parent, own_name = Path(config.log.dir), config.log.name or f"{name}-seed{config.train.seed}"
    found = find(parent, own_name, resume) if resume else None
    if resume and found is None:
        print(f"nothing to resume: no run {parent / own_name} yet; starting one", flush=True)
    return found or Place(run_folder.create_folder(parent, own_name), None)


def _prepare(place: Any, config: Config) -> None:
    """Writes the config, and tells where the run is and from which step it goes on."""
    from viewbox.rollouts.store import run_folder
    from viewbox.training import resume

    resolved = config.model_dump(mode="json", exclude_none=True)
    print(f"run folder: {place.folder}", flush=True)
    if (place.folder / "config.yaml").is_file():
        changed = resume.changes(place.folder, resolved)
        print(f"resumed from step {place.step}" + "".join(f"\n  changed: {one}" for one in changed), flush=True)
        resume.rewind(place)
        if changed:
            (place.folder / "config.yaml").replace(place.folder / f"config-until-step-{place.step}.yaml")
    run_folder.write_config(place.folder, resolved)


if __name__ == "__main__":
    sys.exit(main())
