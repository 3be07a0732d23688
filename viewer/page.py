"""The page itself: one HTML file with its style, program and data inside, and the policy that lets nothing else in."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..rollouts.scoring.filters import describe_fields
from ..utils.files import fill_template
from ..utils.frozen import PlainRecord
from ..utils.sanitize import replace_surrogates

STATIC = Path(__file__).with_name("static")
STYLES = ("uplot.css", "app.css")
PROGRAMS = ("uplot.js", "filters.js", "data.js", "draw.js", "episode.js", "group.js", "compare.js", "app.js")
TITLE = "viewbox"
MAX_DEPTH = 70  # a stored episode is nested 64 deep at most
MAX_DIGITS = 1024  # bits of an integer
_END = "<script>{program}</script>\n</body>\n</html>\n"


@cache
def _read(names: tuple[str, ...]) -> str:
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)


def build_policy(*, served: bool) -> str:
    """Return the content security policy: only this page's own program and style run, and nothing is loaded from
    elsewhere.

    >>> build_policy(served=False).split(";")[0]
    "default-src 'none'"
    """
    connect = "connect-src 'self'; img-src 'self' data:" if served else "img-src data:"
    return (
        f"default-src 'none'; script-src '{_hash(_read(PROGRAMS))}'; style-src '{_hash(_read(STYLES))}'; {connect}; "
        "base-uri 'none'; form-action 'none'"
    )


def build_head(*, served: bool) -> str:
    """Return the page up to its data."""
    return fill_template(STATIC / "page.html", policy=build_policy(served=served), title=TITLE, style=_read(STYLES))


def build_end() -> str:
    """Return the page after its data."""
    return build_data("fields", describe_fields()) + _END.format(program=_read(PROGRAMS))


def build_data(name: str, value: object) -> str:
    """Return a block of data that the browser does not run and that nothing in it can end.

    >>> build_data("a", "</script>")
    '<script type="application/json" id="a">"\\\\u003c/script\\\\u003e"</script>\\n'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def to_plain(value: object, depth: int = 0) -> Any:
    """Return the value in JSON's types: what JSON cannot hold becomes text. Never raises.

    >>> to_plain({"p": float("nan"), 3: (1, 2.5), "when": {4}})
    {'p': 'nan', '3': [1, 2.5], 'when': [4]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_DIGITS else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, PlainRecord):
        return {name: to_plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {to_text(key): to_plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item, depth + 1) for item in value), key=str)
    return to_text(value)


def to_text(value: object) -> str:
    """Return the text of an object, which may have none."""
    try:
        return replace_surrogates(str(value))
    except Exception:  # an author's object may raise anything
        return f"(a {type(value).__name__})"
