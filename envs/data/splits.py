"""Which rows are held out, so that no group is in two splits."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ...errors import BadRow, ConfigError
from ...utils.values import fold_text, identify
from .columns import ColumnMap, check_column, compile_path
from .overlap import Shared, list_shared
from .rows import Row, Rows
from .settings import DataSettings

SLACK = 0.005  # of all rows, by which packed groups may miss the share
MISSED = 0.05  # of all rows: a share that is missed by more is warned of, or by a quarter of the smaller part

log = logging.getLogger("viewbox.envs")


class Cut:
    """The test of a row: whether it is in the chosen split. It counts the rows it has seen."""

    def __init__(
        self, data: DataSettings, used: set[str], is_test: Callable[[Row], bool], shared: Sequence[Shared]
    ) -> None:
        self._data, self._is_test, self._shared = data, is_test, shared
        self.used = used.union(*(one.used for one in shared))
        self._seen = self._held_out = 0

    def __call__(self, row: Row) -> bool:
        held_out = self._is_test(row)
        self._seen += 1
        self._held_out += held_out
        for one in self._shared:
            one.measured.append(one.read(row)) if held_out else one.trained.update(one.read(row))
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
        for one in self._shared:
            count = sum(not one.trained.isdisjoint(keys) for keys in one.measured)
            if count and (different := len(one.trained.union(*one.measured))) > 1:
                said.append(f"{count} of {len(one.measured)} held-out rows {one.what} that is also trained on")
                columns.append((different, one.column))
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
    shared = [one for one in list_shared(rows, columns) if one.column != cut.by]
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
    all.

    The groups come in the order of their hashes, and each is taken that still fits. If that misses the share by more
    than `SLACK`, the groups larger than that are chosen anew, by the sum that comes closest.

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
    whole = sum(map(sizes.__getitem__, groups))
    last = np.full(whole + 1, -1)  # the group that first reached a sum, by its place; -1: none did
    reached = np.zeros(whole + 1, bool)
    reached[0] = True
    for place, group in enumerate(groups):
        size = sizes[group]
        found = np.flatnonzero(reached[: whole + 1 - size] & ~reached[size:]) + size
        reached[found], last[found] = True, place
    sums = np.flatnonzero(reached)
    sums = sums[(sums + small > 0) & (sums < whole + small)]
    rest = int(sums[np.argmin(np.maximum(sums - wanted, wanted - small - sums).clip(0))])
    chosen = set()
    while rest:
        chosen.add(groups[last[rest]])
        rest -= sizes[groups[last[rest]]]
    return chosen


def hash_group(value: object) -> int:
    """Return the group of a value: 7, 7.0 and "7" are one, so are p7 and P7, and all rows that have none."""
    return hash_name(fold_text(identify(value)))


def hash_name(value: object) -> int:
    """Return a number from 0 to 2^64 - 1 that is the same on every machine."""
    text = identify(value).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
