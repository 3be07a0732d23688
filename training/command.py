"""Trains a policy from a YAML config: `viewbox train CONFIG [key.path=value ...]`, or `python train.py CONFIG`.

CONFIG is a YAML file or the name of a shipped one (`quickstart`). `--dry-run` checks everything without loading
weights. On several GPUs: `accelerate launch train.py CONFIG`.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..configs import schema as configs
from ..configs.schema import Config
from ..configs.yaml_reader import is_pipe
from ..errors import ConfigError, ModelError, suggest_nearest
from ..rollouts.store.run_folder import LATEST
from ..utils.docstrings import check_kept, read_docstring
from ..utils.exit_status import guard, log_failures
from ..utils.files import expand_path
from ..utils.secrets import mask_settings
from ..utils.terminal import describe_error, make_line
from . import dry_run
from .findings import check
from .plan import Plan

if TYPE_CHECKING:
    from ..engines.hf.loading import LoadedPolicy
    from .resume import RunLocation
    from .run import Run

log = logging.getLogger("viewbox.train")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (see `utils/exit_status.py`)."""
    return guard(lambda: _main(argv))


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument like any other mistake: in one line, with the nearest option."""

    def error(self, message: str) -> NoReturn:
        near = suggest_nearest(message.split()[-1], self._option_string_actions)
        raise ConfigError(f"{message}{near}; see --help")


def _main(argv: Sequence[str] | None) -> int:
    parser = _Parser(
        prog="viewbox train",
        description=read_docstring(sys.modules[__name__]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=format_sections(),
    )
    parser.add_argument("config", help="a YAML file, or the name of a shipped one")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key.path=value",
        help="settings that override the config's, e.g. train.learning_rate=1e-5",
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=LATEST,
        metavar="RUN",
        help="resume from the latest complete checkpoint of the newest run of this config; or of a given run "
        "(--resume=runs/x), or from a given checkpoint (--resume=runs/x/checkpoints/checkpoint-50)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything without loading weights; print settings, steps, a page with the first prompt",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: print the report as JSON")
    arguments = parser.parse_intermixed_args(argv)
    arguments.resume = arguments.resume and expand_path(arguments.resume, where="--resume: ")
    # in `--resume train.max_steps=200`, argparse takes the override as the run
    if arguments.resume and "=" in arguments.resume and not Path(arguments.resume).exists():
        arguments.overrides.append(arguments.resume)
        arguments.resume = LATEST
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it advises a package that loads code from the hub
    check_kept("transformers")
    plan = Plan(configs.load(arguments.config, arguments.overrides))
    check(plan, dry_run.ROWS if arguments.dry_run else ())
    name = "config" if is_pipe(arguments.config) else Path(arguments.config).stem
    if arguments.dry_run:
        plan.lines["resume"] = _find_run(plan.config, name, arguments.resume)[1]
        _print_report(plan, as_json=arguments.json)
        return 0
    return 130 if "stopped_at" in run(plan, name, resume=arguments.resume) else 0


def _print_report(plan: Plan, *, as_json: bool) -> None:
    resolved = {**plan.lines, "notes": plan.notes, "warnings": plan.warnings}
    report = {"config": mask_settings(plan.config.model_dump(exclude_none=True)), "resolved": resolved}
    print(json.dumps(report, indent=2, default=list) if as_json else dry_run.render_report(plan))


def format_sections() -> str:
    """Return the sections of a config and their keys, for `--help`."""
    lines = ["sections of a config:"]
    for name, field in Config.model_fields.items():
        options = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((option for option in options if hasattr(option, "model_fields")), None)
        keys = (
            ", ".join(model.model_fields) if model else "a reward by its `type`, e.g. {type: exact_match, field: label}"
        )
        more = {
            "env": ", + the environment's settings",
            "rollout": ", + the engine's settings",
            "train": ", + any argument of TRL's GRPOConfig",
        }.get(name, "")
        lines.append(f"  {name}: {keys}{more}")
    return "\n".join(lines)


def run(
    plan: Plan,
    name: str = "run",
    resume: str | None = None,
    build_run: "Callable[[Plan, RunLocation, LoadedPolicy], Run] | None" = None,
) -> dict[str, Any]:
    """Train what was checked, and return the summary that is also saved as summary.json in the run's folder. Raise
    `ViewboxError` if the run cannot be found, resumed or started.

    Args:
        name: the name of a new run unless `log.name` is set; the seed is appended.
        resume: "latest", a run's folder, or one of its checkpoints; None starts a new run.
        build_run: makes the run, for trainers of your own (`benchmarks/new_vision_tower.py`); default: `Run`.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers import set_seed

    from ..engines.hf.loading import silence_transformers
    from ..engines.processes import do_once
    from ..rollouts.store import run_folder
    from .resume import RunLocation
    from .run import Run
    from .trainer_args import pass_hub_token

    config = plan.config
    silence_transformers()
    logging.getLogger("viewbox").setLevel(logging.INFO)
    pass_hub_token(config)
    set_seed(config.train.seed)
    log.debug("training on %s", plan.arguments.device)  # starts the processes as the trainer will
    newest, said = do_once(lambda: _find_run(config, name, resume))
    with advise_on_memory():
        policy = plan.load()  # before a folder is made or changed

    with ExitStack() as stack:

        def prepare() -> RunLocation:
            folder = None if newest is None else newest.folder
            if folder is None:
                folder = run_folder.create_folder(Path(config.log.dir), _get_name(config, name))
                stack.enter_context(run_folder.remove_unused(folder))
            stack.enter_context(run_folder.lock_folder(folder))
            location = newest or RunLocation(folder, None)
            lines = (make_line(line, 500) for line in (*said, *plan.notes))
            print("\n  ".join([f"run folder: {folder}", *lines]), flush=True)
            _prepare_folder(location, config, changed=len(said) > 1)
            return location

        location = do_once(prepare)
        with (
            log_failures(location.folder),
            advise_on_memory(),
            closing((build_run or Run)(plan, location, policy)) as running,
        ):
            return running.execute()


@contextmanager
def advise_on_memory() -> Iterator[None]:
    """Raise `ModelError` with what takes less, where the block runs out of memory."""
    from accelerate.utils.memory import should_reduce_batch_size

    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not should_reduce_batch_size(error):
            raise
        raise ModelError(
            f"out of memory: {describe_error(error, 200)}; allowed: a smaller train.micro_batch_tokens, "
            "train.gradient_checkpointing=true, fewer rollout.slots (`viewbox config memory CONFIG` shows what takes "
            "how much); a run that has a checkpoint goes on with --resume and these settings"
        ) from error


def _get_name(config: Config, name: str) -> str:
    return config.log.name or f"{name}-seed{config.train.seed}"


def _find_run(config: Config, name: str, wanted: str | None) -> "tuple[RunLocation | None, list[str]]":
    """Return the run that is resumed and what is said of it, after its checkpoint and the changes were looked at. Raise
    `ConfigError` if there is no such run, its checkpoint is damaged, or a setting has changed that cannot."""
    if wanted is None:
        return None, []
    from . import resume  # loads the trainers' libraries

    parent, own_name = Path(config.log.dir), _get_name(config, name)
    location = resume.find_run(parent, own_name, wanted)
    if location is None:
        return None, [f"nothing to resume: no run {parent / own_name} yet; starting it"]
    changes = resume.list_changes(location.folder, _resolve(config))
    return location, [f"resumed from step {location.step}", *changes]


def _resolve(config: Config) -> dict[str, Any]:
    resolved: dict[str, Any] = mask_settings(config.model_dump(mode="json", exclude_none=True))
    return resolved


def _prepare_folder(location: "RunLocation", config: Config, *, changed: bool) -> None:
    """Put a resumed run back to its step, and write the config."""
    from ..rollouts.store import run_folder
    from . import resume

    path = location.folder / "config.yaml"
    if path.is_file():
        resume.rewind(location)
        if changed:
            path.replace(path.with_name(f"config-until-step-{location.step}.yaml"))
    run_folder.write_config(location.folder, _resolve(config))
