"""Keeps a leaderboard in one JSON file, and beside it as Markdown and HTML.

    row = add_run("leaderboard.json", "runs/mine")

A run that is added again replaces its row. Several processes may add at once: each reads, changes and replaces the file
under a lock, and a process that is killed leaves the old file or the new one.

All names in a page are text of others and are shown as text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import DictLoader, Environment, StrictUndefined
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random

from viewbox.errors import ConfigError
from viewbox.files import check_writable, lock_file, read_regular, write_atomically
from viewbox.rollouts.leaderboard.record import FORMAT, MAX_ROWS, Figure, Leaderboard, Row
from viewbox.rollouts.leaderboard.row import read_row
from viewbox.rollouts.scoring.bootstrap import Interval
from viewbox.terminal import make_line

HEADINGS = (
    "",
    "model",
    "environment",
    "tasks",
    "episodes",
    "reward",
    "tool gain",
    "calls",
    "tokens",
    "settings",
    "run",
)
NOTE = (
    "Mean with 95 % interval, a bootstrap over tasks. Rewards are those that the run stores. Rewards of one column "
    "were given for the same tasks; rows with the same settings, unless unknown, "
    "also had the same environment and reward."
)
CAUTION = "A command runs what the run's own config names: read that before, if somebody else made it."
_MARKS = re.compile(r"([\\`*_{}\[\]!|~$:@>]|^[#+-]|(?<=www)\.)", re.IGNORECASE)  # also what makes an address a link

_MARKDOWN = """\
# Leaderboard

{{ note }}

{{ table(*matrix) }}

## Runs

{{ table(headings, rows) }}

Calls and tokens are those of an episode. `viewbox score RUN` checks the reward of a run.

## Commands

From the folder of this file. {{ caution }}
{% for number, row in numbered %}
{{ number }}. {{ text(row.run) }}
{% if row.command %}
```bash
{{ line(row.command) }}
```
{% else %}
No command: {{ text(row.no_command) }}.
{% endif %}
{%- endfor %}
"""

_HTML = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>Leaderboard</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { border: 1px solid #ccc; padding: .3rem .6rem; text-align: left; vertical-align: top; overflow-wrap: anywhere }
td { font-variant-numeric: tabular-nums }
pre { background: #f4f4f4; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }
</style>
</head>
<body>
{%- macro table(headings, rows) %}
<table>
<thead><tr>{% for cell in headings %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody>
</table>
{%- endmacro %}
<h1>Leaderboard</h1>
<p>{{ note }}</p>
{{ table(*matrix) }}
<h2>Runs</h2>
{{ table(headings, rows) }}
<p>Calls and tokens are those of an episode. <code>viewbox score RUN</code> checks the reward of a run.</p>
<h2>Commands</h2>
<p>From the folder of this file. {{ caution }}</p>
{%- for number, row in numbered %}
<p>{{ number }}. {{ line(row.run) }}</p>
{%- if row.command %}
<pre>{{ line(row.command) }}</pre>
{%- else %}
<p>No command: {{ line(row.no_command) }}.</p>
{%- endif %}
{%- endfor %}
</body>
</html>
"""
_TEMPLATES = {
    name: Environment(
        loader=DictLoader({"page": source}),
        autoescape=name == "html",
        undefined=StrictUndefined,
        trim_blocks=name == "markdown",
        keep_trailing_newline=True,
    ).get_template("page")
    for name, source in (("markdown", _MARKDOWN), ("html", _HTML))
}


def render_markdown(board: Leaderboard) -> str:
    """The leaderboard as Markdown: models × environments, then every run with its figures and its command."""
    return _TEMPLATES["markdown"].render(_collect(board), table=_write_table, text=escape_markdown)


def render_html(board: Leaderboard) -> str:
    """The leaderboard as one HTML page that runs no program and loads nothing."""
    return _TEMPLATES["html"].render(_collect(board))


def escape_markdown(text: object) -> str:
    r"""The text on one line, with nothing in it that Markdown or HTML acts on.

    >>> escape_markdown("<b>|[x](y)\nz")
    '&lt;b\\>\\|\\[x\\](y) z'
    """
    return _MARKS.sub(r"\\\1", make_line(text).replace("&", "&amp;").replace("<", "&lt;"))


def _collect(board: Leaderboard) -> Mapping[str, Any]:
    numbered = list(enumerate(board.rows, 1))
    return {
        "note": NOTE,
        "caution": CAUTION,
        "headings": HEADINGS,
        "rows": [_list_cells(number, row) for number, row in numbered],
        "matrix": _build_matrix(numbered),
        "numbered": numbered,
        "line": make_line,
    }


def _build_matrix(numbered: Sequence[tuple[int, Row]]) -> tuple[list[str], list[list[str]]]:
    """The headings and the lines of models × environments; a column for each set of tasks that was played."""
    columns = {(row.environment, row.tasks, row.played): None for _, row in numbered}
    models = {row.model: None for _, row in numbered}
    cells: dict[tuple[str, tuple[str, int, str]], list[str]] = {}
    for number, row in numbered:
        place = row.model, (row.environment, row.tasks, row.played)
        cells.setdefault(place, []).append(f"{_format(row.reward)} ({number})")
    several = {name for name, tasks, _ in columns if sum(one[:2] == (name, tasks) for one in columns) > 1}
    headings = [
        make_line(f"{name}, {tasks} tasks" + (f" {played}" if name in several else ""))
        for name, tasks, played in columns
    ]
    lines = [[make_line(model), *("; ".join(cells.get((model, one), ["-"])) for one in columns)] for model in models]
    return ["model", *headings], lines


def _list_cells(number: int, row: Row) -> list[str]:
    skipped = f" ({row.skipped} unreadable)" if row.skipped else ""
    named = [make_line(one) for one in (row.model, row.environment)]
    return [
        str(number),
        *named,
        str(row.tasks),
        f"{row.episodes}{skipped}",
        _format(row.reward),
        _format(row.tool_gain, "+"),
        _format(row.calls, digits=2),
        _format(row.tokens, digits=0),
        make_line(row.settings),
        make_line(row.run),
    ]


def _format(figure: Figure | None, sign: str = "", digits: int | None = None) -> str:
    if figure is None:
        return "-"
    if digits is not None:
        return f"{figure.mean:.{digits}f}"
    return Interval(figure.mean, figure.low, figure.high if figure.low is not None else None, figure.count).format(sign)


def _write_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    cells = (line if n == 1 else map(escape_markdown, line) for n, line in enumerate(lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


MAX_FILE = 2**26  # bytes
_WAIT = 60.0  # seconds for the lock; it is held for milliseconds
_SHOWN = {".md": render_markdown, ".html": render_html}


def read_board(path: str | Path) -> Leaderboard:
    """Read a leaderboard; one without rows if there is no file yet.

    Raises:
        ConfigError: it is no regular file, too large, or not what `add_run` writes.
    """
    path = Path(path)
    try:
        return msgspec.json.decode(read_regular(path, limit=MAX_FILE), type=Leaderboard)
    except FileNotFoundError:
        return Leaderboard(FORMAT, [])
    except (OSError, ValueError, RecursionError) as error:
        why = make_line(getattr(error, "strerror", None) or error, 300)
        raise ConfigError(f"{path}: not a leaderboard that this viewbox reads ({why})") from error


def add_run(path: str | Path, run: str | Path, *, resamples: int = 1000) -> Row:
    """Add the row of a run, or replace the one it has; writes the JSON file, and Markdown and HTML beside it.

    Args:
        path: the leaderboard, a file that ends in .json.
        run: a folder; see `read_row`.
        resamples: bootstrap draws for the intervals; 0: none.

    Raises:
        ConfigError: the run or the leaderboard cannot be read, or it cannot be written.
        StoreError: the run holds no episodes.
    """
    path = _check_path(path)
    row = read_row(run, path.parent, resamples=resamples)
    with _lock(path):
        rows = [one for one in read_board(path).rows if one.run != row.run]
        if len(rows) >= MAX_ROWS:
            raise ConfigError(f"{path}: has {len(rows):,} rows; allowed: {MAX_ROWS:,}; begin another with --board")
        rows = sorted([*rows, row], key=lambda one: (one.environment, one.model, one.run))
        board = Leaderboard(FORMAT, rows)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(board), indent=2) + b"\n")
        _write_pages(path, board)
    return row


def render_board(path: str | Path) -> list[Path]:
    """Write a leaderboard as Markdown and HTML beside its file; returns the two paths.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    path = _check_path(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such leaderboard; `viewbox leaderboard add RUN` begins one")
    with _lock(path):
        return _write_pages(path, read_board(path))


def _write_pages(path: Path, board: Leaderboard) -> list[Path]:
    pages = [path.with_suffix(suffix) for suffix in _SHOWN]
    for page, render in zip(pages, _SHOWN.values(), strict=True):
        write_atomically(page, render(board))
    return pages


def _check_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".json":
        raise ConfigError(f"--board {path}: allowed: a file that ends in .json; .md and .html are written beside it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in (path, *(path.with_suffix(suffix) for suffix in _SHOWN)):
            check_writable(one, path.parent)
    except OSError as error:
        raise ConfigError(f"--board {path}: cannot be written ({error.filename}: {error.strerror})") from error
    return path


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of a leaderboard, waiting for other processes."""
    waiting = Retrying(
        retry=retry_if_exception_type(BlockingIOError), wait=wait_random(0.01, 0.05), stop=stop_after_delay(_WAIT)
    )
    with ExitStack() as stack:
        try:
            waiting(lambda: stack.enter_context(lock_file(path.with_name(f".{path.name}.lock"))))
        except RetryError:
            raise ConfigError(f"{path}: another process has held its lock for {_WAIT:g} seconds") from None
        yield
