"""Which rows are held out, so that no group is in two splits; and what tasks share that they should not: a picture or a
patient on both sides of a cut, or one question with two right answers."""

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from ...errors import BadRow, ConfigError
from ...utils.values import fold_text, identify, normalize, read_number
from .columns import ColumnMap, ExpressionError, check_column, compile_path
from .fields import TaskField
from .images import IMAGE_FIELDS, get_location, list_images
from .rows import Row, Rows
from .settings import DataSettings

SLACK = 0.005  # of all rows, by which packed groups may miss the share
MISSED = 0.05  # of all rows: a share that is missed by more is warned of, or by a quarter of the smaller part
MAX_EMBEDDED = 2500  # rows whose pictures are compared if they are in the rows themselves
MAX_CONTRADICTING = 0.1  # share of tasks whose labels or boxes contradict an earlier one
_PERSON = re.compile(
    r"(patient|subject|participant|person|study|case|mrn|pid)([ _-]?((instance)?u?id|no|nr|number|name|key))?"
)
Keep = Callable[[Row], bool]
_COUNTED = ("kind", "category")  # fields that say how an answer is counted

log = logging.getLogger("viewbox.envs")


@dataclass
class Shared:
    """What rows on two sides of a cut should not share: the column that tells it, in words, and its keys by side."""

    column: str
    what: str
    used: set[str]
    read: Callable[[Row], list[int]]
    trained: set[int] = field(default_factory=set)
    measured: list[list[int]] = field(default_factory=list)  # of each row that is held out


class Cut:
    """The test of a row: whether it is in the chosen split. It counts the rows it has seen."""

    def __init__(self, data: DataSettings, used: set[str], is_test: Keep, shared: Sequence[Shared]) -> None:
        self._data, self._is_test, self._shared = data, is_test, shared
        self.used = used.union(*(link.used for link in shared))
        self._seen = self._held_out = 0

    def __call__(self, row: Row) -> bool:
        held_out = self._is_test(row)
        self._seen += 1
        self._held_out += held_out
        for link in self._shared:
            link.measured.append(link.read(row)) if held_out else link.trained.update(link.read(row))
        return held_out == (self._data.split == "test")

    def warn_if_missed(self, rows: Rows) -> None:
        """Warn if the rows held out are not about the share that was asked for, or show what is trained on."""
        cut = self._data.cut
        if cut is None or not self._seen:
            return
        self._warn_if_shared(rows, cut.share)
        got, wanted = self._held_out / self._seen, cut.share
        if abs(got - wanted) <= min(MISSED, min(wanted, 1 - wanted) / 4) + 1e-9:
            return
        why = (
            "a hash of its id cuts each row, so that a small dataset misses its share; {share, by: column} meets it"
            if cut.by is None
            else f"no group of {cut.by!r} is parted, and their sizes or data.where allow no closer share"
        )
        text = f"{self._held_out} of {self._seen} rows are held out, {got:.1%} instead of {wanted:.1%}: {why}"
        _warn_once(rows.folder, f"{rows.name}: {text}")

    def _warn_if_shared(self, rows: Rows, share: float) -> None:
        said, columns = list[str](), list[tuple[int, str]]()
        for link in self._shared:
            count = sum(not link.trained.isdisjoint(keys) for keys in link.measured)
            if count and (different := len(link.trained.union(*link.measured))) > 1:
                said.append(f"{count} of {len(link.measured)} held-out rows {link.what} that is also trained on")
                columns.append((different, link.column))
        if said:
            way = f"{{share: {share:g}, by: {min(columns)[1]}}} keeps them apart"
            _warn_once(rows.folder, f"{rows.name}: {'; '.join(said)}; {way}")


@cache
def _warn_once(folder: Path | None, text: str) -> None:
    """Warn of a cut, of which a run opens both sides."""
    log.warning("data.hold_out: %s", text)


def build_cut(rows: Rows, data: DataSettings, columns: ColumnMap) -> Cut:
    """Return the cut of `hold_out`: by a hash of the id, or by groups that are packed. Raise `ConfigError`."""
    cut = data.cut
    assert cut is not None
    shared = [link for link in list_shared(rows, columns) if link.column != cut.by]
    if cut.by is not None:
        column, read = check_column(cut.by, rows, "data.hold_out.by"), compile_path(cut.by)
        sizes = Counter(hash_group(read(row)) for row in rows.scan([column]) if not isinstance(row, BadRow))
        if len(sizes) == 1:
            key, allowed = "data.hold_out.by", "allowed: a column with several values"
            problem = f"all {sizes.total()} rows of {rows.name} have one value, and a group is never parted"
            raise ConfigError(f"{key} = {cut.by!r}: {problem}; {allowed}", key=key)
        held_out = pack_groups(sizes, cut.share) if sizes else set()  # all rows are bad
        return Cut(data, {column}, lambda row: hash_group(read(row)) in held_out, shared)
    if "id" not in columns:
        problem = "data.hold_out: needs something that stays with a row"
        raise ConfigError(f"{problem}; allowed: data.columns.id, or hold_out: {{share: …, by: column}}", key="data")
    used = columns.get_used(["id"])
    return Cut(data, used, lambda row: hash_name(columns.read("id", row)) < cut.share * 2**64, shared)


def pack_groups(sizes: Mapping[int, int], share: float) -> set[int]:
    """Return the groups (rows by hash) that are held out: together about `share` of the rows, at least one and never
    all. The groups come in the order of their hashes, and each is taken that still fits. If that misses the share by
    more than `SLACK`, the groups larger than that are chosen anew, by the sum that comes closest.

    >>> sorted(pack_groups({1: 50, 2: 30, 3: 12, 4: 8}, 0.2)), sorted(pack_groups({1: 60, 2: 40}, 0.25))
    ([3, 4], [2])
    """
    total, order = sum(sizes.values()), sorted(sizes)
    wanted, slack = share * total, SLACK * total
    held_out = _fill(order, sizes, wanted)
    if wanted - sum(map(sizes.__getitem__, held_out)) > slack:
        large = [group for group in order if sizes[group] > slack]
        small = [group for group in order if sizes[group] <= slack]
        held_out = _choose(large, sizes, wanted, sum(map(sizes.__getitem__, small)))
        held_out |= _fill(small, sizes, wanted - sum(map(sizes.__getitem__, held_out)))
    return held_out or {min(order, key=sizes.__getitem__)}


def _fill(order: list[int], sizes: Mapping[int, int], room: float) -> set[int]:
    taken = set()
    for group in order:
        if sizes[group] <= room:
            taken.add(group)
            room -= sizes[group]
    return taken


def _choose(groups: list[int], sizes: Mapping[int, int], wanted: float, small: int) -> set[int]:
    """Return the groups whose sum, with up to `small` rows beside it, comes closest to what is wanted; not all of all
    rows."""
    reached = [1]  # after each group, a bit for each sum
    for group in groups:
        reached.append(reached[-1] | reached[-1] << sizes[group])
    sums = [total for total, bit in enumerate(reversed(f"{reached[-1]:b}")) if bit == "1"]
    sums = [total for total in sums if total + small > 0 and total < sums[-1] + small]
    rest, chosen = min(sums, key=lambda total: max(total - wanted, wanted - small - total, 0)), set()
    while rest:
        group = next(group for group, bits in zip(groups, reached[1:], strict=True) if bits >> rest & 1)
        chosen.add(group)
        rest -= sizes[group]
    return chosen


def hash_group(value: object) -> int:
    """Return the group of a value: 7, 7.0 and "7" are one, so are p7 and P7, and all rows that have none."""
    return hash_name(fold_text(identify(value)))


def hash_name(value: object) -> int:
    """Return a number from 0 to 2^64 - 1 that is the same on every machine."""
    text = identify(value).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def list_shared(rows: Rows, columns: ColumnMap) -> Iterator[Shared]:
    """Yield the patients and pictures that rows have."""
    for name in filter(lambda name: _PERSON.fullmatch(name.lower()), rows.columns):
        yield Shared(name, f"have a {name}", {name}, partial(_list_persons, name))
    used = columns.get_used(IMAGE_FIELDS)
    if used and can_compare(rows, columns):
        column = next((columns.plain[name] for name in IMAGE_FIELDS if name in columns.plain), min(used))
        yield Shared(column, "show a picture", used, partial(list_pictures, columns))


def _list_persons(name: str, row: Row) -> list[int]:
    return [hash(key)] if (key := _fold(compile_path(name)(row))) else []


def can_compare(rows: Rows, columns: ColumnMap) -> bool:
    """Return whether the pictures of all rows can be told apart without reading much."""
    return len(rows) <= MAX_EMBEDDED or rows.holds_paths(columns.get_used(IMAGE_FIELDS))


def list_pictures(columns: ColumnMap, row: Row) -> list[int]:
    """Return a number for each picture of a row: equal for the same path, or the same content in the row."""
    with suppress(ExpressionError):
        values = (image for name in IMAGE_FIELDS for image in list_images(columns.read(name, row)))
        places = (place for value in values if (place := get_location(value)) is not None)
        return [hash(place if isinstance(place, bytes) else os.path.normpath(place)) for place in places]
    return []


def _fold(value: object) -> str:
    return fold_text(identify(value))


def _normalize(value: object) -> object:
    """Return a right answer as rewards compare it; the order of labels and of boxes does not count."""
    if not isinstance(value, list | tuple):
        return normalize(value).text
    items = [_normalize(item) for item in value]
    is_box = bool(items) and all(isinstance(item, int | float) for item in value)
    return items if is_box else sorted(items, key=repr)


def _is_part(value: object) -> bool:
    """Return whether a right answer may be one of several: a label or boxes, and no number, yes or no."""
    return read_number(value) is None and normalize(value).text not in ("yes", "no", "maybe")


def check_contradictions(rows: Rows, columns: ColumnMap, fields: Mapping[str, TaskField], numbers: list[int]) -> None:
    """Warn of tasks that ask the same of the same pictures, and have other right answers. Raise `ConfigError` if more
    than a few have labels or boxes, as of a table with a row for each."""
    if not can_compare(rows, columns):
        return
    parts = [
        [name for name, field in fields.items() if field.place == place and name not in _COUNTED]
        for place in ("prompt", "reference")
    ]
    pairs, parted = list[tuple[int, int]](), 0
    chosen, seen = set(numbers), dict[int, tuple[int, list[object]]]()
    last = max(chosen, default=-1)
    for number, row in enumerate(rows.scan(sorted(columns.get_used([*IMAGE_FIELDS, *fields])))):
        if number > last:
            break
        if number not in chosen or isinstance(row, BadRow) or not (pictures := list_pictures(columns, row)):
            continue
        with suppress(ExpressionError):
            prompt, gold = ([columns.read(name, row) for name in names] for names in parts)
            first, known = seen.setdefault(hash((*pictures, *map(_fold, prompt))), (number, gold))
            if first != number and [*map(_normalize, known)] != [*map(_normalize, gold)]:
                pairs.append((first, number))
                parted += all(map(_is_part, (*known, *gold)))
    if not pairs:
        return
    text = (
        f"{rows.name}: {len({one for pair in pairs for one in pair})} of {len(chosen)} tasks ask the same of the same "
        f"picture as another, and have other right answers, such as {' and '.join(map(rows.locate, pairs[0]))}; "
        "data.group: COLUMN makes rows with one value in it one task: that of the picture joins their boxes and lists, "
        "and that of the ids keeps them apart"
    )
    if parted > MAX_CONTRADICTING * len(chosen):
        raise ConfigError(f"data: {text}", key="data.group")
    log.warning("%s", text)
