"""`viewbox tools`: lists the built-in tools, tries them on an image, or draws all of them on a sheet."""

import sys
from typing import Annotated, Any, Literal

import typer

from ..utils.terminal import make_printable

app = typer.Typer(name="tools", add_completion=False, rich_markup_mode="markdown")
Frame = Literal["unit", "per_mille", "pixel"]


@app.callback(invoke_without_command=True)
def tools(
    context: typer.Context,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/tools.md instead of a table.")] = False,
) -> None:
    """List the built-in tools by family, or try them on an image.

    Example: `viewbox tools`
    """
    if context.invoked_subcommand is not None:
        return
    from .docs import tools_page

    if markdown or not sys.stdout.isatty():
        typer.echo(tools_page.format_markdown(), nl=False)
    else:
        from rich.console import Console

        Console().print(tools_page.build_table())


@app.command("try")
def try_tools(
    image: Annotated[str, typer.Argument(help="A picture, DICOM, NIfTI or .npy file, or a folder of slices.")],
    calls: Annotated[
        list[str] | None,
        typer.Argument(help="Tools in order, each followed by its arguments.", metavar="[TOOL NAME=VALUE...]..."),
    ] = None,
    out: Annotated[str, typer.Option(help="File for the last picture shown.")] = "view.png",
    max_pixels: Annotated[int, typer.Option(min=256, help="Largest view in pixels (width times height).")] = 512 * 512,
    coordinates: Annotated[Frame, typer.Option(help="Unit of points and boxes.")] = "unit",
) -> None:
    """Apply tools to an image and print what a model would read after each call.

    If a call fails, stops with status 2 and writes no picture. If there is no call, writes the image as a model first
    sees it.

    Example: `viewbox tools try scan.dcm zoom factor=2 crop box=0.1,0.1,0.5,0.5`
    """
    from .tool_trial import try_calls

    results = try_calls(image, calls or [], out=out, coordinates=coordinates, max_pixels=max_pixels)
    for result in results:
        typer.echo(make_printable(result.text))
    if results[-1].error is not None:
        raise typer.Exit(2)
    typer.echo(out)


@app.command("sheet")
def write_sheet(
    image: Annotated[str | None, typer.Argument(help="Image to draw on. Default: a CT slice from pydicom.")] = None,
    out: Annotated[str, typer.Option(help="PNG file to write.")] = "tools.png",
) -> None:
    """Draw every tool on one image.

    Example: `viewbox tools sheet photo.png --out tools.png`
    """
    from .docs.tool_sheet import draw_sheet, get_example_path
    from .tool_trial import save_picture

    save_picture(draw_sheet(image or get_example_path()), out)
    typer.echo(out)


@app.command("mcp", context_settings={"allow_interspersed_args": False})
def list_mcp_tools(
    command: Annotated[
        list[str] | None, typer.Argument(help="The program of the server and its arguments.", metavar="[COMMAND]...")
    ] = None,
    url: Annotated[str | None, typer.Option(help="In place of a program: the address of the server.")] = None,
    picture: Annotated[
        list[str] | None, typer.Option(help="An argument that is a picture, of every tool that has it; repeatable.")
    ] = None,
    api_key_env: Annotated[str | None, typer.Option(help="With --url: the variable with the API key.")] = None,
    variable: Annotated[
        list[str] | None, typer.Option(help="An environment variable that the program sees; repeatable.")
    ] = None,
) -> None:
    """Print the tools of an MCP server as a specialist of a config. The program is started.

    Read what it prints before you use it: descriptions are texts of the server's author, and become part of the prompt.

    Example: `viewbox tools mcp --picture image python -m hospital.server`
    """
    import yaml

    from ..tools.specialists.mcp_server import record_tools
    from ..tools.specialists.spec import build_specialists

    given = {"command": command or [], "url": url, "api_key_env": api_key_env, "variables": variable or []}
    given = {"kind": "mcp", **{name: value for name, value in given.items() if value}}
    specialist: Any = build_specialists({"NAME": {**given, "tools": {"unknown": {}}}})["NAME"]
    specialist.build_tools("NAME")  # refuses an address or a key that it would refuse in a config
    found = {"specialists": {"NAME": {**given, "tools": record_tools(specialist.server, picture or [])}}}
    typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120), nl=False)
