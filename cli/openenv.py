"""`viewbox openenv`: serves an environment to OpenEnv's clients, or writes the folder of such a server."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("openenv")
def openenv(
    environment: Annotated[
        str, typer.Argument(help="A registered name, package.module:Class, or path/to/file.py:Class.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the environment as KEY=VALUE (YAML); may be repeated."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; whoever reaches it can play.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8000,
    write: Annotated[
        str | None, typer.Option(help="Write a folder with the server and a Dockerfile here, and serve nothing.")
    ] = None,
) -> None:
    """Serve an environment over OpenEnv's WebSocket, or write the folder from which Docker builds its server.

    Example: `viewbox openenv digits --set split=test`

    Example: `viewbox openenv digits --write digits-server`
    """
    from ..configs.yaml_reader import parse_key_values

    chosen = parse_key_values(settings or [], "--set")
    if write is not None:
        from ..integrations.openenv_folder import write_openenv

        for path in write_openenv(environment, write, chosen):
            typer.echo(f"wrote {path}")
        return
    import uvicorn

    from ..integrations.openenv import build_app

    uvicorn.run(build_app(environment, chosen), host=host, port=port, log_level="info", access_log=False)
