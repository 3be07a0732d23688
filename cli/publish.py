"""`viewbox publish`: writes an environment as a package, and prints the commands that come next."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from viewbox.publish.package import PublishedPackage

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("publish")
def publish(
    environment: Annotated[
        str,
        typer.Argument(help="A registered name, package.module:Class, path/to/file.py:Class, or a config (.yaml)."),
    ],
    out: Annotated[str, typer.Argument(help="Folder to write.")],
    to: Annotated[str, typer.Option(help="Format of the output. Only dir, a folder, is supported.")] = "dir",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the environment as KEY=VALUE (YAML); may be repeated."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="Name of the package. Default: viewbox-NAME.")] = None,
    version: Annotated[str, typer.Option(help="Version of the package.")] = "0.1.0",
    license: Annotated[str, typer.Option(help="License of the package (SPDX).")] = "Apache-2.0",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="Data files of your package to publish, as a pattern relative to it, such as 'data/*.json'; may be "
            "repeated. Default: those of package-data in its pyproject.toml.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and list the files, without writing them.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Replace a package that was written here before.")] = False,
) -> None:
    """Write an environment as a self-contained package for verifiers 0.4.

    Example: `viewbox publish digits my-digits --set split=test`
    """
    from viewbox.configs.yaml_reader import parse_key_values
    from viewbox.publish import publish as write_package

    chosen = parse_key_values(settings or [], "--set")
    package = write_package(
        environment,
        out,
        to=to,
        settings=chosen,
        id=id,
        version=version,
        license=license,
        force=force,
        data=data or (),
        dry_run=dry_run,
        on_files=print_files,
    )
    typer.echo(render_report(package, dry_run=dry_run))


def print_files(taken: "Sequence[Path]", left_out: "Sequence[Path]") -> None:
    """Print the author's files that are published, and those of the package that are not."""
    for path in taken:
        typer.echo(f"publishes {path}")
    for path in left_out:
        typer.echo(f"leaves out {path} (not declared as data; --data takes it)")


def render_report(package: "PublishedPackage", *, dry_run: bool = False) -> str:
    """What was written, what was checked, and the next commands.

    The commands give the full path of the folder: pip would take a bare word for a project on PyPI and download that.
    """
    folder = shlex.quote(str(package.folder.resolve()))
    wheel = f"{package.id.replace('-', '_')}-{package.version}-py3-none-any.whl"
    written = "nothing was written; it would be " if dry_run else ""
    return "\n".join(
        [
            f"{package.folder}: {written}{package.id} {package.version}, {package.files} files, "
            f"{package.bytes / 1000:.0f} kB",
            *(f"- {finding}" for finding in package.findings),
            "next:",
            f"  pip wheel --no-deps --wheel-dir {folder}/dist {folder}",
            f"  pip install {folder}/dist/{wheel}",
            f"  vf-eval {package.id} --model MODEL --client.base-url URL --no-push --no-rich -n 3",
        ]
    )
