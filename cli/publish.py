"""`viewbox publish`: writes an environment or a model into a folder, or sends it to a hub after it was asked."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..publish.checks import Row
    from ..publish.package import PublishedPackage

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("publish")
def publish(
    what: Annotated[
        str,
        typer.Argument(
            help="An environment: a registered name, package.module:Class, path/to/file.py:Class, the folder of a "
            "package (`viewbox new`), or a config (.yaml). Or a model: a run, its folder `model` or `adapter`."
        ),
    ],
    out: Annotated[str | None, typer.Argument(help="Folder to write, for --to dir.")] = None,
    to: Annotated[
        str,
        typer.Option(
            help="Where to: dir, a folder; prime, the Environments Hub of Prime Intellect; hf, the Hugging Face hub."
        ),
    ] = "dir",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the environment as KEY=VALUE (YAML); may be repeated."),
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="Name of the package, by default viewbox-NAME; on a hub OWNER/NAME.")
    ] = None,
    version: Annotated[str | None, typer.Option(help="Version. Default: that of the folder, or 0.1.0.")] = None,
    bump: Annotated[
        str | None, typer.Option(help="Raise this part of the latest version there: patch, minor or major.")
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(help="License (SPDX). Default: what the author's project states; for a model, its base model's."),
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="Hub name of a model's base, if it was trained from a folder.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everybody read it on the hub. Default: private.")
    ] = False,
    viewbox: Annotated[
        str | None,
        typer.Option(
            help="How the package gets viewbox. copy: it holds the part that plays it; dependency: pip installs it, "
            "from an index that has this version. Default: copy."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="Data files of your package to publish, as a pattern relative to it, such as 'data/*.json'; may be "
            "repeated. Without it: those that the build of its project packs.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking, after the list of files.")] = False,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Download what was published, compare it, and install it into a fresh environment. "
            "Default: from a hub.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and list the files, without writing or sending them.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Replace a package that was written to the folder before.")] = False,
) -> None:
    """Publish an environment as a self-contained package for verifiers 0.4, or a trained model with a card.

    It is checked before, as `viewbox check` does it; nothing is written or sent if a row fails.

    Example: `viewbox publish digits my-digits --set split=test`

    Example: `viewbox publish digits --to prime --id me/my-digits`

    Example: `viewbox publish runs/quickstart --to hf --id me/my-model`
    """
    from ..configs.yaml_reader import parse_key_values
    from ..errors import ConfigError
    from ..publish import publish as write_package
    from ..publish.model import is_model, publish_model
    from ..publish.vendor import DEFAULT, PROVISIONS

    def confirm(lines: "Sequence[str]") -> bool:
        return ask(lines, yes)

    if is_model(what):
        of_packages = {"--set": settings, "--data": data, "--viewbox": viewbox}
        if given := [name for name, value in of_packages.items() if value]:
            raise ConfigError(f"{given[0]}: is for an environment, and {what} holds a model", key=given[0])
        sent = publish_model(
            what,
            out,
            to=to,
            id=id,
            version=version,
            bump=bump,
            license=license,
            base_model=base_model,
            public=public,
            force=force,
            dry_run=dry_run,
            verify=verify,
            confirm=confirm,
        )
        typer.echo("\n".join(describe(sent, dry_run)))
        return
    if viewbox not in (None, *PROVISIONS):
        raise ConfigError(f"--viewbox {viewbox!r}; allowed: {', '.join(PROVISIONS)}", key="viewbox", given=viewbox)
    if base_model is not None:
        raise ConfigError("--base-model: is for a model, and this is an environment", key="base_model")
    package = write_package(
        what,
        out,
        to=to,
        settings=parse_key_values(settings or [], "--set"),
        id=id,
        version=version,
        bump=bump,
        license=license,
        public=public,
        viewbox=viewbox or DEFAULT,
        force=force,
        data=data or (),
        dry_run=dry_run,
        verify=verify,
        confirm=confirm,
        on_files=print_files,
        check=check_aloud if sys.stderr.isatty() else None,
    )
    typer.echo(render_report(package, to, dry_run=dry_run))


def ask(lines: "Sequence[str]", yes: bool) -> bool:
    """Print what would be sent, and ask a person; without a terminal, only `--yes` agrees."""
    for line in lines:
        typer.echo(line)
    if yes:
        return True
    if not sys.stdin.isatty():
        typer.echo("nobody can be asked here: add --yes to send it", err=True)
        return False
    return typer.confirm("Send these files?", default=False)


def check_aloud(folder: Path) -> "Sequence[Row]":
    """Check a package that was written, and name each row on the terminal when it is known."""
    from ..publish.package import check_staged

    return check_staged(folder, lambda row: typer.echo(f"checked: {row.name}", err=True))


def print_files(taken: "Sequence[Path]", left_out: "Sequence[Path]") -> None:
    """Print the author's files that are published, and those of the package that are not."""
    for path in taken:
        typer.echo(f"publishes {path}")
    for path in left_out:
        typer.echo(f"leaves out {path} (not declared as data; --data takes it)")


def render_report(package: "PublishedPackage", to: str, *, dry_run: bool = False) -> str:
    """What was written or sent, what was checked, and the next commands.

    The commands give the full path of the folder: pip would take a bare word for a project on PyPI and download that.
    """
    lines = describe(package, dry_run)
    if to == "dir":
        folder = shlex.quote(str(Path(package.place).resolve()))
        wheel = f"{package.id.replace('-', '_')}-{package.version}-py3-none-any.whl"
        lines.append("next:")
        lines.append(f"  pip wheel --no-deps --wheel-dir {folder}/dist {folder}")
        lines.append(f"  pip install {folder}/dist/{wheel}")
        lines.append(f"  vf-eval {package.id} --model MODEL --client.base-url URL --no-push --no-rich -n 3")
    return "\n".join(lines)


def describe(package: "PublishedPackage", dry_run: bool) -> list[str]:
    """Lines that say what was written or sent, and what was checked."""
    written = "nothing was written or sent; it would be " if dry_run else ""
    about = f"{package.id} {package.version}, {package.files} files, {package.bytes / 1000:.0f} kB"
    return [f"{package.place}: {written}{about}", *(f"- {finding}" for finding in package.findings)]
