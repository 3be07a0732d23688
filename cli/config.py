"""`viewbox config`: what a config can set, and how much memory its run needs, before it starts."""

import json
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.docstrings import read_docstring
from .command_builder import say

if TYPE_CHECKING:
    from ..training.memory.forecast import Forecast
    from ..training.plan import Plan


def read_page(name: str) -> str:
    """Return a page of the documentation that is shipped."""
    return (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8").rstrip()


def list_settings() -> Iterator[str]:
    """Print every section, key, type and default of a YAML config."""
    yield read_page("configuration.md")


def list_environments() -> Iterator[str]:
    """List the registered environments, each with the first line of its docstring."""
    from ..envs import load_class
    from ..registry import list_plugins

    for name in sorted(list_plugins("environments")):
        yield say(f"{name}: {read_docstring(load_class(name)).split(chr(10))[0]}")


def memory(
    config: str,
    overrides: Annotated[Sequence[str], typer.Argument(metavar="KEY.PATH=VALUE", show_default=False)] = (),
    *,
    device_memory: str | None = None,
    gpus: Annotated[int | None, typer.Option(min=1)] = None,
    measure: bool = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Predict the largest memory that a run needs while it plays and while it learns.

    Needs no weights: it is counted from shapes. If the run does not fit the device, settings are shown with which it
    does, and the exit status is 1.

    Args:
        config: YAML config, or the name of a shipped one.
        overrides: settings that override the config's.
        device_memory: memory of the device, such as 24GiB. Default: that of this machine's GPU.
        gpus: predict an update by verl that is divided among so many GPUs; its server of the model is not counted.
        measure: also run two updates on the longest batch here, with random weights.
        as_json: print the forecast as JSON.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # as in `train`
    from ..configs import schema
    from ..integrations.verl.export import check_config
    from ..training.memory.forecast import GIB, find_changes, find_device_memory, predict
    from ..training.plan import Plan

    size = _parse_size(device_memory) if device_memory else find_device_memory()
    settings, forecast_run = list(overrides), partial(predict, device_memory=size, gpus=gpus or 0)
    run = schema.load(config, settings)
    with schema.locate_errors(run):
        if gpus:
            check_config(run)
        plan = Plan(run)
        forecast = forecast_run(plan)
        measured = _measure(plan) if measure else None
    if as_json:
        phases = {phase.name: {"peak": phase.peak, "parts": phase.parts} for phase in forecast.phases}
        report = {"slots": forecast.slots, "device_memory": size, "fits": forecast.fits, "phases": phases}
        more = {"step": forecast.step, **({"measured": measured} if measure else {})}
        typer.echo(json.dumps({"episode": forecast.workload.describe(), **report, **more}, indent=2))
    else:
        typer.echo(format_table(forecast))
        if measured is not None:
            typer.echo(f"measured here: update {measured / GIB:.2f} GiB")
    if forecast.fits is False and not as_json:
        changes, changed = find_changes(
            run, forecast, lambda more: forecast_run(Plan(schema.load(config, [*settings, *more])))
        )
        result = "fits" if changed.fits else "still does not fit"
        if changes:
            typer.echo(f"with {' '.join(changes)} it {result}: {changed.peak.peak / GIB:.1f} GiB")
        else:
            typer.echo("no setting is known that would make it fit: a smaller model or a larger device")
    if forecast.fits is False:
        raise typer.Exit(1)


def _measure(plan: "Plan") -> int:
    import torch

    from ..errors import ConfigError
    from ..training.memory.measure import measure

    try:
        return measure(plan)
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"--measure: an update does not fit this device: {error}") from error


def _parse_size(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from ..errors import ConfigError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError as error:
        allowed = "a number with a unit, such as 24GiB"
        raise ConfigError(f"--device-memory {text}: not a size; allowed: {allowed}", key="--device-memory") from error


def format_table(forecast: "Forecast") -> str:
    """Return the parts of each phase in GiB, the peaks, and whether they fit."""
    from ..training.memory.forecast import GIB, USABLE

    lines = [forecast.workload.describe()]
    for phase in forecast.phases:
        slots = f", {forecast.slots} episodes at once" if phase.name == "generation" else ""
        large = {name: size for name, size in phase.parts.items() if size >= GIB / 200}
        other = sum(size for name, size in phase.parts.items() if name not in large)
        sizes = {**large, **({"other": other} if other else {}), "peak": phase.peak}
        lines += ["", f"{phase.name}{slots}"]
        lines += [f"  {name:<24}{size / GIB:>9.2f} GiB" for name, size in sizes.items()]
    if forecast.step:
        lines += ["", "a step, at most", *(f"  {name:<24}{n:>14,}" for name, n in forecast.step.items())]
    peak, memory = forecast.peak, forecast.device_memory
    need = f"needs {peak.peak / GIB:.1f}"
    if memory is None:
        return "\n".join([*lines, "", f"{need} GiB ({peak.name}); --device-memory 24GiB compares"])
    verdict = "fits" if forecast.fits else f"does not fit (at most {USABLE:.0%} can be used)"
    share = f"{peak.peak / memory:.0%}"
    return "\n".join([*lines, "", f"{need} of {memory / GIB:.1f} GiB, {share} ({peak.name}): {verdict}"])
