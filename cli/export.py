"""`viewbox export`: writes a run in a form that another tool reads."""

from typing import Annotated

import typer

from viewbox.cli.filter import print_report

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("export")
def export(
    run: Annotated[str, typer.Argument(help="Run folder, or folder of saved episodes.")],
    to: Annotated[str, typer.Option("--to", help="Form: hf, parquet, sft, openai, inspect or dpo; see below.")],
    out: Annotated[str, typer.Option("--out", help="File, or folder for hf, which must not exist.")],
    where: Annotated[
        list[str] | None,
        typer.Option(help="Export only episodes with FIELD OP VALUE, such as reward>=0.5; may be repeated."),
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
    """Write a run for another tool, whole or not at all.

    - `openai`: a line of JSON for each episode, `{"messages": [...]}` with images as data URLs
    - `sft`: Parquet with `messages` and `images`, for TRL's SFTTrainer
    - `dpo`: Parquet with `prompt`, `chosen`, `rejected` and `images`, for TRL's DPOTrainer
    - `parquet`: one file with messages, images, answers and scores
    - `inspect`: a log with messages, images and scores, for inspect-ai
    - `hf`: the same as a folder for `datasets.load_from_disk`; `--push owner/name` puts it on the hub, unless the run's
      data is restricted

    Example: `viewbox export runs/a --to sft --where 'reward>=0.8' --out good.parquet`
    """
    from viewbox.rollouts.exchange.export import Export, export_run
    from viewbox.rollouts.exchange.selection import Choice

    print_report(export_run(run, to, out, Export(Choice(where or ()), tokens, gap, push)))
