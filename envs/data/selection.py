"""Which rows become tasks, and in which order: cut by a hash, filtered, drawn, limited."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.tasks import ProceduralTasks
from ...errors import BadRow, ConfigError
from ...records import Task
from ...utils.conditions import parse_condition
from ...utils.frozen import to_plain
from ...utils.values import identify, is_canonical, reaches, read_number
from .columns import ColumnMap, Read, check_column, compile_path
from .csv_rows import CellRow
from .rows import Row, Rows
from .settings import DataSettings, Difficulty
from .splits import Cut, Keep, build_cut

WINDOW = 4  # row groups whose rows are shuffled together
MAX_REWARDS = 2**28  # bytes of a file of rewards


@dataclass
class RowSelection:
    """The rows that become tasks: their numbers, in order, the bad ones among those that were read, and the rows of
    each group by its first one."""

    numbers: np.ndarray
    bad: dict[int, BadRow] = field(default_factory=dict)
    groups: dict[int, list[int]] = field(default_factory=dict)


def select_rows(rows: Rows, data: DataSettings, columns: ColumnMap) -> RowSelection:
    """Return the rows that become tasks. All rows are read once if there is a cut, a filter, a band, a group or an id.
    Raise `ConfigError` for an unknown column, a condition that cannot be read, or no row that is left."""
    selected = RowSelection(np.arange(len(rows)))
    cut = None if data.cut is None else build_cut(rows, data, columns)
    tests = _build_tests(rows, data, columns, cut)
    used, group = {column for needed, _ in tests for column in needed} | columns.get_used(["id"]), None
    if data.group is not None:
        used, group = used | {check_column(data.group, rows, "data.group")}, compile_path(data.group)
    if used and (tests or group or not any(used == {name} and rows.is_unique(name) for name in rows.columns)):
        scanned = _scan(rows, sorted(used), [test for _, test in tests], columns, group, selected)
        selected.numbers = np.fromiter(scanned, np.int64)
    if cut is not None:
        cut.warn_if_missed(rows)
    numbers = selected.numbers
    if not len(numbers) and not selected.bad:
        conditions = ", ".join((*data.conditions, *(["difficulty"] if data.difficulty else [])))
        problem = f"data: {rows.name}: none of its {len(rows)} rows is left of split {data.split!r}"
        raise ConfigError(f"{problem}{f' where {conditions}' if conditions else ''}", key="data")
    draw = data.draw
    if draw is not None:
        generator, starts = np.random.default_rng(draw.seed), rows.starts
        drawn = shuffle_nearby(numbers, starts, generator) if len(starts) else generator.permutation(numbers)
        selected.numbers = drawn[: draw.count]
    return selected


def shuffle_nearby(kept: np.ndarray, starts: Sequence[int], generator: np.random.Generator) -> np.ndarray:
    """Return the rows `kept` in an order in which neighbors come from few row groups (`starts`), so that each group is
    read once: the groups are shuffled, and the rows of every `WINDOW` of them with one another.

    >>> rows = shuffle_nearby(np.arange(100), range(0, 101, 5), np.random.default_rng(0))
    >>> sorted(rows) == list(range(100)), len({row // 5 for row in rows[:20]})
    (True, 4)
    """
    parts = np.split(kept, np.searchsorted(kept, starts[1:-1]))
    parts = [parts[number] for number in generator.permutation(len(parts))]
    windows = [np.concatenate(parts[first : first + WINDOW]) for first in range(0, len(parts), WINDOW)]
    return np.concatenate([generator.permutation(window) for window in windows])


def _scan(
    rows: Rows, used: list[str], tests: list[Keep], columns: ColumnMap, group: Read | None, found: RowSelection
) -> Iterator[int]:
    """Yield the numbers of the rows that pass every test, of a group the first. A row whose id was there before is
    bad. A row without the value of the group is a task of its own."""
    seen, firsts = dict[int, int](), dict[str, int]()
    has_id = "id" in columns
    for number, row in enumerate(rows.scan(used)):
        if isinstance(row, BadRow):
            found.bad[number] = row
            yield number
            continue
        if not all(test(row) for test in tests):
            continue
        if group is not None and (key := identify(group(row))):
            members = found.groups.setdefault(firsts.setdefault(key, number), [])
            members.append(number)
            if len(members) > 1:
                continue
        if has_id and (name := identify(value := columns.read("id", row))):
            first = seen.setdefault(hash(name), number)
            if first != number:
                expected = f"another id: {rows.locate(first)} has this one"
                found.bad[number] = BadRow(rows.name, rows.locate(number), columns.described["id"], value, expected)
        yield number


def _build_tests(rows: Rows, data: DataSettings, columns: ColumnMap, cut: Cut | None) -> list[tuple[set[str], Keep]]:
    tests: list[tuple[set[str], Keep]] = []
    for text in data.conditions:
        path, passes = parse_condition(text, "data.where", "modality=CT")
        column = check_column(path, rows, "data.where")
        tests.append(({column}, partial(_passes, compile_path(path), passes, column)))
    if cut is not None:
        tests.append((cut.used, cut))
    if data.difficulty is not None:
        tests.append(_build_band(rows, data, data.difficulty, columns))
    return tests


def _passes(read: Read, test: Callable[[Any], bool], column: str, row: Row) -> bool:
    value = to_plain(read(row))
    if isinstance(row, CellRow) and type(value) in (int, float) and is_canonical(row.written[column]):
        value = row.written[column]  # in a column of names, 1.10 is not 1.1
    return test(tuple(value) if isinstance(value, list) else value)


def _build_band(rows: Rows, data: DataSettings, band: Difficulty, columns: ColumnMap) -> tuple[set[str], Keep]:
    low, high = band.range
    if band.rewards is None:
        column = str(band.column)
        used, read = {check_column(column, rows, "data.difficulty.column")}, compile_path(column)
    elif "id" in columns:
        rewards = read_rewards(Path(band.rewards))
        used, read = columns.get_used(["id"]), lambda row: rewards.get(identify(columns.read("id", row)))
        if data.group is not None:  # the id of a task is that of its first row
            firsts, key, of_row = dict[str, Any](), compile_path(data.group), read
            read = lambda row: firsts.setdefault(identify(key(row)) or f"\0{len(firsts)}", of_row(row))  # noqa: E731
    else:
        raise ConfigError("data.difficulty.rewards: needs data.columns.id, which names its tasks", key="data")

    def is_inside(row: Row) -> bool:
        figure = read_number(read(row))
        return figure is not None and reaches(figure, low) and reaches(high, figure)

    return used, is_inside


def read_rewards(path: Path) -> Mapping[str, float]:
    """Return the mean reward of each task, by its id, as `viewbox score --task-rewards` writes it. Raise
    `ConfigError`."""
    key = "data.difficulty.rewards"
    try:
        if path.stat().st_size > MAX_REWARDS:
            raise ConfigError(f"{key} = {str(path)!r}: larger than {MAX_REWARDS:,} bytes", key=key)
        lines = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        return {identify(line["task"]): float(line["reward"]) for line in lines if line["reward"] is not None}
    except OSError as error:
        raise ConfigError(f"{key} = {str(path)!r}: {error.strerror}", key=key) from error
    except (ValueError, KeyError, TypeError) as error:
        allowed = 'lines such as {"task": "a-17", "reward": 0.25}'
        raise ConfigError(f"{key} = {str(path)!r}: cannot be read; allowed: {allowed}", key=key) from error


MAX_CHECKED = 50_000  # rows that are checked when a dataset is opened; of a larger one each when it is played
MAX_NAMED = 3  # bad rows that a warning names
BAD_ROW = "bad_row"  # the metadata of a task whose row is bad

log = logging.getLogger("viewbox.envs")


class DataTasks(ProceduralTasks):
    """Tasks that are each made from its row; `skipped` are the bad rows that were left out."""

    def __init__(self, numbers: np.ndarray, make: Callable[[int], Task], skipped: dict[int, BadRow]) -> None:
        super().__init__(len(numbers), lambda place: make(int(numbers[place])))
        self._numbers, self.skipped = numbers, skipped

    @property
    def numbers(self) -> list[int]:
        return [int(number) for number in self._numbers]


def check_tasks(
    selected: RowSelection, check: Callable[[int], object], *, dataset: str, limit: int | None, stop: bool
) -> tuple[np.ndarray, dict[int, BadRow]]:
    """Return the rows of which a task can be made, at most `limit`, and the bad rows that were left out; of more than
    `MAX_CHECKED` rows only the known bad ones. `check` reads a row and raises `BadRow`; `stop` raises the first. Raise
    `ConfigError` if no row is left."""
    good: list[int] = []
    skipped: dict[int, BadRow] = {}
    every = min(len(selected.numbers), limit or len(selected.numbers)) <= MAX_CHECKED
    for number in map(int, selected.numbers):
        if limit is not None and len(good) == limit:
            break
        error = selected.bad.get(number)
        if error is None and every:
            try:
                check(number)
            except BadRow as found:
                error = found
        if error is None:
            good.append(number)
        elif stop:
            raise error
        else:
            skipped[number] = error
    if skipped:
        reasons = [str(error).removeprefix(f"{dataset}: ") for error in list(skipped.values())[:MAX_NAMED]]
        more = f"; and {len(skipped) - MAX_NAMED} more" if len(skipped) > MAX_NAMED else ""
        total = len(skipped) + len(good)
        text = f"{dataset}: {len(skipped)} of {total} rows are left out: {'; '.join(reasons)}{more}"
        if not good:
            raise ConfigError(f"data: {text}; no task is left", key="data")
        log.warning("%s", text)
    return np.array(good, np.int64), skipped
