"""Checks a dataset: its columns and labels against what the data block expects, its splits, and every image."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...core.base import BaseMultiTurnEnv
from ...errors import BadRow, ConfigError, describe_value
from ...utils.files import check_out, replace_atomically
from ...utils.terminal import make_line
from ...utils.values import is_null, to_text
from .columns import ExpressionError, check_column, compile_path
from .csv_rows import CellRow
from .env import DataEnv
from .images import IMAGE_FIELDS
from .rows import JsonLines
from .splits import hash_group
from .tables import TableRows

MAX_ROWS = 2000  # rows whose columns are compared, the first ones
MAX_EXAMPLES, MAX_EXAMPLE = 3, 40  # values of a column that are shown, and characters of one
MAX_LABELS = 20  # different values of a field that are counted one by one
MAX_SHOWN = 5  # values that a finding names
MAX_ROWS_NAMED = 3  # of the rows that one problem spoils
UNOPENED = "an image that can be opened ("  # how `RowImages` begins what was expected
MAX_REASON = 200  # characters of a problem
KINDS = ("missing", "other type", "unexpected label", "extra", "does not occur")  # of findings; the last two do no harm


@dataclass(frozen=True)
class DataReport:
    """How a dataset differs from what is expected: findings are (kind, sentence), in the order of `KINDS`. A column
    that is empty in every row is missing, too."""

    rows: int
    compared: int
    columns: tuple[str, ...]
    findings: tuple[tuple[str, str], ...]

    @property
    def fits(self) -> bool:
        return not any(kind in KINDS[:3] for kind, _ in self.findings)

    def describe(self) -> str:
        if not self.compared:
            return f"{self.rows} rows; no column is compared, because data.features names none"
        fits = f"it fits: the columns of data.features, in {self.compared} rows"
        head = f"{self.rows} rows; the first {self.compared} are compared"
        verdict = fits if self.fits else f"it does not fit; its columns: {', '.join(self.columns)}"
        return "\n".join([head, *(f"{kind}: {sentence}" for kind, sentence in self.findings), verdict])


def compare_columns(env: DataEnv) -> DataReport:
    """Compare the first rows with the `features` of the data block; without them none is read. Raise `ConfigError`."""
    rows, features = env.rows, env.data.features
    columns: dict[str, str] = {}
    for path in features:
        with suppress(ConfigError):
            columns[path] = check_column(path, rows, "data.features")
    first = list(islice(rows.scan(sorted(set(columns.values()))), MAX_ROWS)) if features else []
    values: dict[str, list[Any]] = {path: [] for path in features}
    for path in columns:
        read = compile_path(path)
        for row in first:
            if not isinstance(row, BadRow):
                written = row.written if isinstance(row, CellRow) else {}
                is_text = (written and features[path] == "text") or read(written) in tuple(features[path])
                values[path].extend(_list_values(read(written if is_text else row), flat="*" in path))
    findings = [("missing", path) for path in features if not values[path] and first]
    findings += [finding for path, expected in features.items() for finding in _compare(path, expected, values[path])]
    findings += [("extra", column) for column in rows.list_columns() if first and column not in columns.values()]
    findings.sort(key=lambda finding: KINDS.index(finding[0]))
    return DataReport(len(rows), len(first), rows.list_columns(), tuple(findings))


def describe_columns(env: DataEnv) -> Iterator[str]:
    """Yield how each column of the first rows was read, with three values, and what in the source is no data."""
    rows = env.rows
    yield from rows.notes
    pictures = {name for name in env.columns.get_used(IMAGE_FIELDS) if not rows.holds_paths([name])}
    names = [name for name in rows.list_columns() if name not in pictures]
    peek = next(rows.scan(names), {})
    names = [name for name in names if isinstance(peek, BadRow) or _name_type(peek.get(name)) != "image"]
    first = [row for row in islice(rows.scan(names), MAX_ROWS) if not isinstance(row, BadRow)]
    for name in names:
        values = [row.get(name) for row in first]
        kinds = Counter("null" if value is None else _name_type(value) for value in values)
        shown = {json.dumps(value, ensure_ascii=False, default=str): 0 for value in values if value is not None}
        examples = ", ".join(make_line(text, MAX_EXAMPLE) for text in islice(shown, MAX_EXAMPLES)) or "nothing"
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        yield f"column {name}: {f'{counts}, such as {examples}' if counts else 'no row can be read'}"


def _list_values(value: Any, *, flat: bool) -> Iterator[Any]:
    """Yield a value, or (`flat`) the values of a list and of the lists inside it; nothing for null."""
    if flat and isinstance(value, list | tuple):
        for item in value:
            yield from _list_values(item, flat=True)
    elif value is not None:
        yield value


def _compare(path: str, expected: str | tuple[str, ...], values: list[Any]) -> Iterator[tuple[str, str]]:
    if isinstance(expected, str):
        allowed = (expected, "text") if expected == "image" else (expected,)  # a path is an image, too
        if strange := [value for value in values if _name_type(value) not in allowed]:
            kinds = ", ".join(sorted({_name_type(value) for value in strange}))
            held = f"{kinds} ({len(strange)} of {len(values)} values, such as {_shorten(strange[:1])})"
            yield "other type", f"{path}: holds {held}; expected: {expected}"
        return
    occurring = {to_text(value) or str(value) for value in values}
    if labels := sorted(occurring - set(expected)):
        yield "unexpected label", f"{path}: holds {_shorten(labels)}; expected: {', '.join(expected)}"
    if values and (lacking := [label for label in expected if label not in occurring]):
        yield "does not occur", f"{path}: {_shorten(lacking)}"


_TYPES = {bool: "bool", int: "number", float: "number", str: "text", bytes: "image", list: "list", tuple: "list"}


def _name_type(value: Any) -> str:
    if isinstance(value, Mapping):
        return "image" if value.keys() == {"bytes", "path"} else "mapping"
    return _TYPES.get(type(value), type(value).__name__)


def _shorten(values: list[Any]) -> str:
    shown = ", ".join(f"{value!r:.60}" for value in values[:MAX_SHOWN])
    return f"{shown} and {len(values) - MAX_SHOWN} more" if len(values) > MAX_SHOWN else shown


def describe_splits(env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv, *, labels: bool = False) -> list[str]:
    """Describe each split by its tasks and groups, with `labels` also by its labels: the two sides of a cut, or the
    splits that a run trains on and holds out; of a mixture, those of each part."""
    parts, others = getattr(env, "parts", None), getattr(held_out, "parts", {})
    if parts is not None:
        lines = {key: describe_splits(part, others.get(key, part), labels=labels) for key, part in parts.items()}
        return [f"{key}: {line}" for key, inner in lines.items() for line in inner]
    if not isinstance(env, DataEnv) or not isinstance(held_out, DataEnv):
        return []
    told = []
    for split in list_splits(env, held_out):
        fields = {
            name: field.place == "reference"
            for name, field in split.fields.items()
            if labels and name in split.data.columns and field.kind in ("text", "list", "answers", "any")
        }
        try:
            told.append(_describe_split(split, fields))
        except ConfigError as error:
            told.append(f"{split.data.split}: {error}")
    return told


def _describe_split(env: DataEnv, fields: Mapping[str, bool]) -> str:
    """Describe a split in one line: tasks, groups, and how often each value of `fields` comes, of a prompt (false) if
    it repeats."""
    by = env.data.cut.by if env.data.cut is not None else None
    used = env.columns.get_used(fields)
    if by is not None:
        used.add(check_column(by, env.rows, "data.hold_out.by"))
    chosen, groups, without = {index for number in env.tasks.numbers for index in env.list_rows(number)}, set(), 0
    values: dict[str, Counter[str]] = {name: Counter() for name in fields}
    for number, row in enumerate(env.rows.scan(sorted(used)) if used else ()):
        if number not in chosen or isinstance(row, BadRow):
            continue
        if by is not None:
            group = compile_path(by)(row)
            groups.add(hash_group(group))
            without += is_null(group)
        for name, distinct in values.items():
            if len(distinct) <= MAX_LABELS:
                with suppress(ExpressionError):
                    labels = _list_values(env.columns.read(name, row), flat=True)
                    distinct.update(to_text(label)[:60] for label in labels if isinstance(label, str | int))
    parts = [f"{env.data.split}: {len(env.tasks)} task{'s' * (len(env.tasks) != 1)}"]
    if by is not None:
        parts[0] += f", {len(groups)} group{'s' * (len(groups) != 1)} of {by}"
        if without:
            parts[0] += f" (one is the {without} rows that have none)"
    for name, distinct in values.items():
        repeats = 1 < len(distinct) <= distinct.total() / 2
        if 0 < len(distinct) <= MAX_LABELS and (fields[name] or repeats):
            parts.append(f"{name}: {', '.join(f'{value} {count}' for value, count in distinct.most_common())}")
        elif len(distinct) > MAX_LABELS and fields[name]:
            parts.append(f"{name}: more than {MAX_LABELS} values")
    return "; ".join(parts)


def list_splits(env: DataEnv, held_out: DataEnv) -> list[DataEnv]:
    """Return the splits that a run trains on and holds out, and the other side of a cut."""
    splits = [env] if held_out.data == env.data else [env, held_out]
    if env.data.cut is not None:
        chosen = {side.data.split for side in splits}
        splits += [env.change_data(split=split) for split in ("train", "test") if split not in chosen]
    return splits


@dataclass(frozen=True)
class CheckedRows:
    """The rows of a source: how many there are, and the bad ones by number."""

    total: int
    bad: dict[int, BadRow]

    def list_problems(self) -> list[str]:
        """Return each problem once, with the rows it spoils."""
        places: dict[str, list[str]] = {}
        for error in self.bad.values():
            why = f"expected {error.expected}"
            if error.expected.startswith(UNOPENED):  # "… (image 'a.png': why)": the name is said already
                why = error.expected.removeprefix(UNOPENED).rpartition("': ")[2].removesuffix(")")
            line = make_line(f"{error.column} {describe_value(error.given)}: {why}", MAX_REASON)
            places.setdefault(line, []).append(error.row)
        return [f"{line} ({_join(rows)})" for line, rows in places.items()]


def _join(rows: list[str]) -> str:
    shown, more = ", ".join(rows[:MAX_ROWS_NAMED]), len(rows) - MAX_ROWS_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def open_all_rows(env: DataEnv, on_row: Callable[[int], object], most: int | None = None) -> CheckedRows:
    """Open every image of every row of the source, whatever `hold_out`, `where`, `sample` and `limit` choose; or those
    of the first `most` tasks. `on_row(1)` is called after each."""
    if most is None:
        env = env.change_data(hold_out=None, where=(), difficulty=None, sample=None, limit=None, bad_rows="skip")
    bad = dict(env.tasks.skipped)
    opened: dict[str, str] = {}

    def check(number: int) -> BadRow | None:
        try:
            env.open_row(number, opened)
        except BadRow as error:
            return error
        return None

    numbers = env.tasks.numbers[:most]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for number, error in zip(numbers, pool.map(check, numbers), strict=True):
            on_row(1)
            if error is not None:
                bad[number] = error
    total = sum(len(env.list_rows(number)) for number in (*numbers, *env.tasks.skipped))
    return CheckedRows(total, {row: bad[number] for number in sorted(bad) for row in env.list_rows(number)})


def write_clean_rows(env: DataEnv, path: Path, bad: Mapping[int, object]) -> None:
    """Write the rows that are not bad: a JSONL file's lines as they are, those of another file as JSON. Raise
    `ConfigError` if the source has no lines, or is the file to write."""
    check_clean_path(env, path)
    rows = env.rows
    with replace_atomically(path) as file:
        for number in range(len(rows)):
            if number not in bad and isinstance(rows, JsonLines):
                file.write(rows.read_line(number))
            elif number not in bad:
                line = json.dumps(rows.read(number, rows.columns), ensure_ascii=False)
                file.write(line.encode(errors="surrogatepass") + b"\n")


def check_clean_path(env: DataEnv, path: Path) -> None:
    """Raise `ConfigError` as `write_clean_rows` does."""
    check_out(path, "new", "--write")
    if isinstance(env.rows, TableRows):
        problem = f"the rows of {env.rows.name} are no lines of text"
        raise ConfigError(f"{problem}; allowed: a .jsonl, .json, .csv or .tsv file", key="data.source")
