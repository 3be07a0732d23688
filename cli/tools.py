"""`viewbox tools`: lists the viewer's tools, tries them on an image, draws each of them."""

import sys
from typing import Annotated, Literal

import typer

app = typer.Typer(name="tools", add_completion=False, rich_markup_mode="markdown")
Frame = Literal["unit", "per_mille", "pixel"]


@app.callback(invoke_without_command=True)
def tools(
    context: typer.Context,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/tools.md instead of a table.")] = False,
) -> None:
    """List the viewer's tools by family, or try them on an image.

    Example: `viewbox tools`
    """
    if context.invoked_subcommand is not None:
        return
    from viewbox.cli.docs import tools_page

    if markdown or not sys.stdout.isatty():
        typer.echo(tools_page.markdown(), nl=False)
    else:
        from rich.console import Console

        Console().print(tools_page.table())


@app.command("try")
def try_tools(
    image: Annotated[str, typer.Argument(help="A picture, DICOM, NIfTI or .npy file, or a folder of slices.")],
    calls: Annotated[
        list[str] | None,
        typer.Argument(help="Tools with their arguments, one after the other.", metavar="[TOOL NAME=VALUE...]..."),
    ] = None,
    out: Annotated[str, typer.Option(help="Picture file to write: what is shown last.")] = "view.png",
    max_pixels: Annotated[int, typer.Option(min=256, help="Largest view, width times height.")] = 512 * 512,
    coordinates: Annotated[Frame, typer.Option(help="How points and boxes are written.")] = "unit",
) -> None:
    """Apply tools to an image and print what a model would read after each call.

    Stops with status 2 at the first call that fails, and writes no picture then. Without a call, shows the image as a
    model first sees it.

    Example: `viewbox tools try scan.dcm zoom factor=2 crop box=0.1,0.1,0.5,0.5`
    """
    from viewbox.cli.tool_trial import try_calls

    results = try_calls(image, calls or [], out=out, coordinates=coordinates, max_pixels=max_pixels)
    for result in results:
        typer.echo(result.text)
    if results[-1].error is not None:
        raise typer.Exit(2)
    typer.echo(out)


@app.command("sheet")
def draw_sheet(
    image: Annotated[str | None, typer.Argument(help="Image to draw on. Default: a CT slice from pydicom.")] = None,
    out: Annotated[str, typer.Option(help="PNG file to write.")] = "tools.png",
) -> None:
    """Draw every tool on one image.

    Example: `viewbox tools sheet photo.png --out tools.png`
    """
    from viewbox.cli.docs.tool_sheet import draw, example
    from viewbox.cli.tool_trial import save_picture

    save_picture(draw(image or example()), out)
    typer.echo(out)
