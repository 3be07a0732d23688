"""`viewbox import`: makes a run of what another tool recorded."""

from typing import Annotated

import typer

from .filter import print_report

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="The file that the other tool wrote.")],
    source: Annotated[str, typer.Option("--from", help="Tool: verifiers, trl, openai, inspect or parquet; see below.")],
    out: Annotated[str, typer.Option("--out", help="Folder of the new run, which must not exist.")],
) -> None:
    """Make a run of what another tool recorded, to view, compare and score it. Recorded scores are kept.

    - `verifiers`: traces.jsonl of verifiers 0.4, such as `vf-eval` writes it
    - `trl`: a Parquet file of completions, from TRL's `log_completions`
    - `openai`: a line of JSON for each conversation, `{"messages": [...]}`
    - `inspect`: a log of inspect-ai
    - `parquet`: what `viewbox export --to parquet` wrote, or `--push` put on the hub

    The file is not trusted: no address in it is fetched, and only images in its own folder are opened. It ends with
    status 1 if a row cannot be read, and writes nothing if none can. What a run cannot hold is named.

    Example: `viewbox import outputs/traces.jsonl --from verifiers --out runs/theirs`
    """
    from ..rollouts.exchange.importing import import_file

    print_report(import_file(file, source, out))
