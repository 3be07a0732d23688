"""Fills the text files that lie beside the code: cards, pages, scripts. They are Jinja2 templates of our own."""

from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined

_JINJA: Final = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)


def fill_template(path: Path, **values: object) -> str:
    """Return the text of a template with these values, which it takes as they are."""
    return _JINJA.from_string(path.read_text(encoding="utf-8")).render(values)
