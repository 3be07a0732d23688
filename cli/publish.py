"""`viewbox new`, `check`, `publish` and `openenv`: an environment or a model on its way to others."""

import json
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from ..publish.release import PublishedPackage, ReleaseOptions
from ..utils.terminal import make_line, make_printable

if TYPE_CHECKING:
    from ..publish.checks import CheckRow

WIDTH = 100  # letters of a line of findings
Settings = Annotated[Sequence[str], typer.Option("--set")]


def new(name: str, *, folder: Annotated[str, typer.Option("--in")] = ".") -> Iterator[str]:
    """Write a package with one working environment, its tests, a README, a license and a file for CI.

    It passes `viewbox check` as it is. Change it into your own, and check it again before you publish it.

    Args:
        name: name of the package: lower-case words joined by '-'.
        folder: folder in which the new folder NAME is made.
    """
    from ..publish.new import write_project

    root = write_project(name, folder)
    yield from (f"written: {path}" for path in sorted(path for path in root.rglob("*") if path.is_file()))
    yield f"next: viewbox check {root}"


def check(
    package: Annotated[str, typer.Argument(metavar="PATH|NAME")],
    *,
    settings: Settings = (),
    row: Sequence[str] = (),
    timeout: Annotated[float, typer.Option(min=1)] = 120,
    memory: Annotated[float, typer.Option(min=0.25)] = 4,
    episode: Annotated[float, typer.Option(min=0.1)] = 30,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check a package before you publish it: a table with a row for each thing, and how to mend those that fail.

    The package is copied elsewhere, built as a wheel and unpacked, where it finds what it declares and nothing else.
    There it is imported and played, in processes with limits on time and memory: its right answers must score 1, wrong
    ones less, and the same seed must give the same episode in every process.

    **This runs the code of the package**, with your rights. Code that hangs, exits or takes too much costs its row, but
    nothing contains a program that means harm: read a stranger's code first.

    The status is 0 if all rows pass, and 1 if one does not.

    Args:
        package: a folder with a pyproject.toml; or what `viewbox publish` takes (a registered name,
            package.module:Class, file.py:Class, a config), of which the package is checked that it would write.
        settings: setting of a named environment as KEY=VALUE (YAML); may be repeated.
        row: try only this row and those that it needs; may be repeated.
        timeout: seconds that the process of one row may take.
        memory: GiB of memory that it may take (Linux).
        episode: seconds that one episode may take.
        as_json: print the rows as one JSON list.
    """
    from ..configs.yaml_reader import parse_key_values
    from ..publish.checks import Limits
    from ..publish.package import check_any

    limits = Limits(seconds=timeout, memory=int(memory * 2**30), episode=episode)
    show = None if as_json else print_row
    rows = check_any(package, parse_key_values(settings, "--set"), limits=limits, rows=row or None, on_row=show)
    left = sum(not result.tried for result in rows)
    failed = sum(result.tried and not result.passed for result in rows)
    counts = f"{len(rows) - failed - left} passed, {failed} failed, {left} not tried"
    typer.echo(json.dumps([asdict(result) for result in rows], indent=1) if as_json else counts)
    raise typer.Exit(0 if all(result.passed for result in rows) else 1)


def print_row(row: "CheckRow") -> None:
    """Print a row, and below it how to mend it."""
    from ..publish.checks import CHECKS

    width = max(map(len, CHECKS))
    mark = "ok  " if row.passed else "FAIL" if row.tried else "-   "
    finding = make_printable(row.finding) if row.tried and not row.passed else make_line(row.finding, 2 * WIDTH)
    lines = _indent(f"{mark}  {row.name:{width}}  ", finding)
    lines += _indent(" " * (width + 8) + "mend: ", row.mend) if row.mend else []
    typer.echo("\n".join(lines))


def _indent(start: str, text: str) -> list[str]:
    lines = [piece for line in text.splitlines() or [""] for piece in textwrap.wrap(line, WIDTH) or [""]]
    return [f"{start if number == 0 else ' ' * len(start)}{line}" for number, line in enumerate(lines)]


def publish(
    what: str,
    out: str | None = None,
    *,
    settings: Settings = (),
    base_model: str | None = None,
    viewbox: str | None = None,
    data: Sequence[str] = (),
    yes: bool = False,
    **target: Unpack[ReleaseOptions],
) -> None:
    """Publish an environment as a self-contained package for verifiers 0.4, or a trained model with a card.

    It is checked before, as `viewbox check` does it; nothing is written or sent if a row fails.

    Args:
        what: an environment: a registered name, package.module:Class, path/to/file.py:Class, the folder of a package
            (`viewbox new`), or a config (.yaml). Or a model: a run, its folder `model` or `adapter`.
        out: folder to write, for --to dir.
        settings: setting of the environment as KEY=VALUE (YAML); may be repeated.
        base_model: hub name of a model's base, if it was trained from a folder.
        viewbox: how the package gets viewbox. copy: it holds the part that plays it; dependency: pip installs it, from
            an index that has this version. Default: copy.
        data: data files of your package to publish, as a pattern relative to it, such as 'data/*.json'; may be
            repeated. Without it: those that the build of its project packs.
        yes: send without asking, after the list of files.
    """
    from ..configs.yaml_reader import parse_key_values
    from ..errors import ConfigError
    from ..publish import publish as write_package
    from ..publish.contents import DEFAULT, PROVISIONS
    from ..publish.model import is_model, publish_model
    from ..publish.package import check_staged

    dry_run = target.get("dry_run", False)

    confirm = partial(ask, yes=yes)
    if is_model(what):
        of_packages = {"--set": settings, "--data": data, "--viewbox": viewbox}
        if flags := [name for name, value in of_packages.items() if value]:
            raise ConfigError(f"{flags[0]}: is for an environment, and {what} holds a model", key=flags[0])
        sent = publish_model(what, out, base_model=base_model, confirm=confirm, **target)
        typer.echo("\n".join(describe(sent, dry_run)))
        return
    if viewbox not in (None, *PROVISIONS):
        raise ConfigError(f"--viewbox {viewbox!r}; allowed: {', '.join(PROVISIONS)}", key="viewbox")
    if base_model is not None:
        raise ConfigError("--base-model: is for a model, and this is an environment", key="base_model")
    package = write_package(
        what,
        out,
        settings=parse_key_values(settings, "--set"),
        viewbox=viewbox or DEFAULT,
        data=data,
        confirm=confirm,
        on_files=print_files,
        check=partial(check_staged, on_row=name_row) if sys.stderr.isatty() else None,
        **target,
    )
    typer.echo(render_report(package, target.get("to", "dir"), dry_run=dry_run))


def ask(lines: Sequence[str], yes: bool) -> bool:
    """Print what would be sent, and ask a person; without a terminal, only `--yes` agrees."""
    for line in lines:
        typer.echo(line)
    if yes:
        return True
    if not sys.stdin.isatty():
        typer.echo("nobody can be asked here: add --yes to send it", err=True)
        return False
    return typer.confirm("Send these files?", default=False)


def name_row(row: "CheckRow") -> None:
    """Name a row on the terminal when it is known."""
    typer.echo(f"checked: {row.name}", err=True)


def print_files(taken: Sequence[Path], left_out: Sequence[Path]) -> None:
    """Print the author's files that are published, and those of the package that are not."""
    for path in taken:
        typer.echo(f"publishes {path}")
    for path in left_out:
        typer.echo(f"leaves out {path} (not declared as data; --data takes it)")


def render_report(package: PublishedPackage, to: str, *, dry_run: bool = False) -> str:
    """Return what was written or sent, what was checked, and the next commands.

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


def describe(package: PublishedPackage, dry_run: bool) -> list[str]:
    """Lines that say what was written or sent, and what was checked."""
    written = "nothing was written or sent; it would be " if dry_run else ""
    about = f"{package.id} {package.version}, {package.files} files, {package.bytes / 1000:.0f} kB"
    return [f"{package.place}: {written}{about}", *(f"- {finding}" for finding in package.findings)]


def openenv(
    environment: str,
    *,
    settings: Settings = (),
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    write: str | None = None,
) -> None:
    """Serve an environment over OpenEnv's WebSocket, or write the folder from which Docker builds its server.

    Args:
        environment: a registered name, package.module:Class, or path/to/file.py:Class.
        settings: setting of the environment as KEY=VALUE (YAML); may be repeated.
        host: address to listen on; whoever reaches it can play.
        port: port to listen on; 0: any that is free.
        write: write a folder with the server and a Dockerfile here, and serve nothing.
    """
    from ..configs.yaml_reader import parse_key_values

    chosen = parse_key_values(settings, "--set")
    if write is not None:
        from ..publish.openenv import write_openenv

        for path in write_openenv(environment, write, chosen):
            typer.echo(f"wrote {path}")
        return
    import uvicorn

    from ..integrations.openenv import build_app

    uvicorn.run(build_app(environment, chosen), host=host, port=port, log_level="info", access_log=False)
