"""The cache by itself: whatever is taken, dropped, copied and moved, every row finds what it put there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from viewbox.engines.hf.kv_cache import KVCache, KVCacheLayer
from viewbox.engines.hf.scheduler import Sequence

LAYERS, SLOTS, HEADS, SIZE = 2, 6, 2, 3


class Model:
    """Puts numbers that are never the same into a cache, and remembers what each row must find."""

    def __init__(self):
        self.cache, self.rows, self.kept, self.next = KVCache([KVCacheLayer] * LAYERS, SLOTS), [], {}, 0.0

    def write(self, rows, slots, width, lengths):
        """One forward: `width` columns a slot, of which `lengths` count for the rows (None: nobody's)."""
        filled = [0 if row is None else row.length for row in rows]
        self.cache.prepare(slots, filled, width, max(filled) + width, torch.device("cpu"))
        count = len(slots) * HEADS * width * SIZE
        given = self.next + torch.arange(count, dtype=torch.float64).reshape(len(slots), HEADS, width, SIZE)
        self.next += count
        for number in range(LAYERS):
            self.cache.layers[number].update(given + number / 4, -given - number / 4)
        for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if row is not None and length:
                self.kept[row] = torch.cat([self.kept[row], given[i, :, :length]], dim=1)
                row.length += length

    def join(self, count=1):
        for _ in range(count):
            row = Sequence(None, 0)
            self.cache.take_slot(row)
            self.rows.append(row)
            self.kept[row] = torch.zeros(HEADS, 0, SIZE, dtype=torch.float64)

    def leave(self, row):
        self.cache.free_slot(row)
        self.rows.remove(row)

    def prefill(self, rows, lengths):
        self.write(rows, [row.held_slot for row in rows], max(lengths), lengths)

    def decode(self, rows):
        """A step as the engine does it: who lies in between goes through it for nothing."""
        width = self.cache.compact(rows)
        held = self.cache.owners[:width]
        self.write(held, range(width), 1, [int(row in rows) for row in held])
        return width

    def copy(self, source, targets):
        self.cache.copy_prefix(source.held_slot, [row.held_slot for row in targets], source.length)
        for row in targets:
            row.length, self.kept[row] = source.length, self.kept[source]

    def check(self):
        assert self.cache.num_used == len(self.rows)
        held = [row for row in self.cache.owners if row is not None]
        assert all(self.cache.owners[row.held_slot] is row for row in held)
        assert {id(row) for row in held} == {id(row) for row in self.rows}
        for row in self.rows if self.next else ():
            for number in range(LAYERS):
                layer, expected = self.cache.layers[number], self.kept[row] + number / 4
                assert torch.equal(layer.keys[row.held_slot, :, : row.length], expected)
                assert torch.equal(layer.values[row.held_slot, :, : row.length], -expected)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_whatever_joins_leaves_and_is_copied_every_row_keeps_its_slot_and_finds_what_it_put_there(dice, steps):
    made = Model()
    for _ in range(steps):
        ready = [row for row in made.rows if row.length]
        fresh = [row for row in made.rows if not row.length]
        allowed = {"join": len(made.rows) < SLOTS, "leave": made.rows, "prefill": made.rows, "decode": ready}
        allowed["copy"] = ready and fresh
        what = dice.choice([name for name, fine in allowed.items() if fine])
        if what == "join":
            made.join()
        elif what == "leave":
            made.leave(dice.choice(made.rows))
        elif what == "prefill":
            rows = dice.sample(made.rows, dice.randint(1, len(made.rows)))
            made.prefill(rows, [dice.randint(1, 40) for _ in rows])
        elif what == "decode":
            made.decode(dice.sample(ready, dice.randint(1, len(ready))))
        else:
            made.copy(dice.choice(ready), dice.sample(fresh, dice.randint(1, len(fresh))))
        made.check()


def test_rows_that_lie_far_apart_are_moved_and_those_that_lie_together_are_read_as_they_lie():
    # two of six; three of four, the fourth for nothing: no copy
    for count, chosen, width in ((SLOTS, (0, 5), 2), (4, (0, 2, 3), 4)):
        made = Model()
        made.join(count)
        made.prefill(made.rows, [5] * count)
        assert made.decode([made.rows[k] for k in chosen]) == width
        assert (made.cache.bytes_copied > 0) == (width == len(chosen))
        made.check()
    made = Model()
    made.join()
    (row,) = made.rows
    made.leave(row)
    made.join()
    made.cache.free_slot(row)
    made.check()
    made.join(SLOTS - 1)
    with pytest.raises(ValueError, match="not in list"):
        made.join()


@pytest.mark.parametrize("failing", range(1, 2 * LAYERS + 1))
def test_a_cache_that_could_not_grow_for_lack_of_memory_is_whole(monkeypatch, failing):
    made, pad, calls = Model(), torch.nn.functional.pad, []

    def fail(*args, **kwargs):
        calls.append(args)
        if len(calls) == failing:
            raise RuntimeError("out of memory")
        return pad(*args, **kwargs)

    made.join(3)
    made.prefill(made.rows, [5, 7, 3])
    with monkeypatch.context() as patch:
        patch.setattr("torch.nn.functional.pad", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            made.prefill(made.rows, [1000, 1, 1])
    made.check()
    made.prefill(made.rows, [1000, 1, 1])
    made.check()
