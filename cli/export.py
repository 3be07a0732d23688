"""`viewbox export`: writes a run, or a config, in a form that another tool reads."""

import shlex
from typing import Annotated

import typer

from ..errors import ConfigError
from ..utils.terminal import make_line
from .filter import print_report

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("export")
def export(
    run: Annotated[str, typer.Argument(help="Run folder, or folder of saved episodes; with `--to verl`, a config.")],
    to: Annotated[str, typer.Option("--to", help="Form: hf, parquet, sft, openai, inspect, dpo or verl; see below.")],
    out: Annotated[str, typer.Option("--out", help="File, or folder for hf and verl, which must not exist.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="With `--to verl`: settings of the config as KEY.PATH=VALUE.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Export only episodes with FIELD OP VALUE, such as 'reward>=0.5'; may be repeated."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="With sft: token ids and masks, not messages.")] = False,
    gap: Annotated[
        float, typer.Option(min=0, help="With dpo: the least by which the best of a group beats the worst.")
    ] = 0.1,
    push: Annotated[
        str | None,
        typer.Option(help="With hf: also put it on the hub, as the private dataset owner/name with a card."),
    ] = None,
) -> None:
    """Write a run, or a config, for another tool, whole or not at all.

    - `openai`: a line of JSON for each episode, `{"messages": [...]}` with images as data URLs
    - `sft`: Parquet with `messages` and `images`, for TRL's SFTTrainer
    - `dpo`: Parquet with `prompt`, `chosen`, `rejected` and `images`, for TRL's DPOTrainer
    - `parquet`: one file with messages, images, answers and scores
    - `hf`: the same as a folder for `datasets.load_from_disk`; `--push owner/name` also puts it on the hub, unless the
      run's data is restricted
    - `inspect`: a log with messages, images and scores, for inspect-ai
    - `verl`: not a run but a config becomes a folder with which verl trains on its environment, on many GPUs

    Example: `viewbox export runs/a --to sft --where 'reward>=0.8' --out good.parquet`

    Example: `viewbox export quickstart --to verl --out quickstart-verl`
    """
    if to == "verl":
        options = {"--where": where, "--tokens": tokens, "--push": push}
        for name in (name for name, value in options.items() if value):
            raise ConfigError(f"{name}: goes with a run; `--to verl` exports a config", key=name.strip("-"))
        return export_config(run, out, overrides or [])
    if overrides:
        raise ConfigError(f"{overrides[0]}: settings go with --to verl; given --to {to}", key="to", given=to)
    from ..rollouts.exchange.export import Export, export_run
    from ..rollouts.exchange.selection import Choice

    print_report(export_run(run, to, out, Export(Choice(where or ()), tokens, gap, push)))


def export_config(config: str, out: str, overrides: list[str]) -> None:
    """Write the folder with which verl trains, and say what is in it."""
    from ..integrations.verl.export import export_verl

    written = export_verl(config, out, overrides)
    train, held_out = written.tasks
    typer.echo(make_line(f"{written.folder}: {train:,} tasks for training, {held_out:,} for validation", 500))
    typer.echo(f"prompts: up to {written.prompt_length} tokens (the longest measured: {written.longest_prompt})")
    for line in written.left_out:
        typer.echo(make_line(f"note: verl decides itself: {line}", 500))
    script = shlex.quote(f"{written.folder}/run.sh")
    typer.echo(make_line(f"next: {script} trainer.n_gpus_per_node=8 (see its README.md)", 500))
