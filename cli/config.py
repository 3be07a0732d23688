"""`viewbox config`: what a config can set."""

from collections.abc import Iterator
from pathlib import Path

from .commands import say


def read_page(name: str) -> str:
    """A page of the documentation that is shipped."""
    return (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8").rstrip()


def list_settings() -> Iterator[str]:
    """Print every section, key, type and default of a YAML config."""
    yield read_page("configuration.md")


def list_environments() -> Iterator[str]:
    """List the registered environments, each with the first line of its docstring."""
    from ..envs import load_class
    from ..plugins import list_plugins

    for name in sorted(list_plugins("environments")):
        yield say(f"{name}: {(load_class(name).__doc__ or '').strip().splitlines()[0]}")
