"""`viewbox view`: shows saved episodes in a browser."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..utils.terminal import make_line

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("view")
def view(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders, or folders of saved episodes; several can be compared.")
    ],
    out: Annotated[
        str | None, typer.Option(help="HTML file to write. Default: report.html, for at most 2,000 episodes.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page on 127.0.0.1 instead: for large runs, and runs in progress.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server; 0: any free one.")] = 0,
) -> None:
    """Show saved episodes in a browser: curves, a table, every turn with its pictures and boxes, two runs compared.

    A small run becomes one HTML file, which needs no server and loads nothing. A large one is served on this machine
    until you stop the command; a run in progress updates itself. Held-out episodes of a run are sets of their own.

    Example: `viewbox view runs/quickstart-seed0`
    """
    from ..rollouts.runs.pack import find_restriction
    from ..viewer.report import MAX_EPISODES, write_report
    from ..viewer.sources import find_sets, read_all

    if serve:  # says before it reads what is not installed
        from ..viewer import server  # noqa: F401

    def show(done: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r{done} episodes read", nl=False, err=True)

    sets = find_sets(runs)
    count = read_all(sets, show)
    if sys.stderr.isatty():
        typer.echo(f"\r{' ' * 40}\r", nl=False, err=True)
    for one in sets:
        skipped = f"; {one.index.skipped} lines cannot be read" if one.index.skipped else ""
        typer.echo(make_line(f"{one.name}: {len(one.index)} episodes{skipped}"))
    if serve or (out is None and count > MAX_EPISODES):
        from ..viewer.server import HOST, create_key, open_socket
        from ..viewer.server import serve as serve_sets

        opened, key = open_socket(port), create_key()
        typer.echo(f"open http://{HOST}:{opened.getsockname()[1]}/{key}/  (Ctrl-C ends it)")
        serve_sets(sets, opened, key)
        return
    path = Path(out or "report.html")
    size = write_report(sets, path)
    for reason in dict.fromkeys(why for one in sets if (why := find_restriction(one.run, one.index.folder))):
        typer.echo(make_line(f"warning: {reason}: keep the file on this machine"))
    typer.echo(make_line(f"wrote {path} ({size / 2**20:.1f} MB): open it in a browser"))
