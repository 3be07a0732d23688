"""Results of specialists, kept up to a number of bytes: the least recently used ones are dropped first."""

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np


class ResultCache:
    """A least-recently-used cache, bounded in bytes. Not safe for threads: its owner holds a lock.

    >>> cache = ResultCache(100_000)
    >>> for number in range(3):
    ...     cache.put(number, np.zeros(40_000, np.uint8))
    >>> [number in cache for number in range(3)], cache.bytes <= 100_000
    ([False, True, True], True)
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._results: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._results

    def get(self, key: Hashable) -> Any:
        """The result, which counts as used now. Raises `KeyError`."""
        result, _ = self._results[key]
        self._results.move_to_end(key)
        return result

    def put(self, key: Hashable, result: Any) -> None:
        """Keep a result; one that is larger than the whole cache is not kept."""
        size = measure_bytes(result)
        if key in self._results or size > self.max_bytes:
            return
        self._results[key] = result, size
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, (_, freed) = self._results.popitem(last=False)
            self.bytes -= freed


def measure_bytes(value: Any) -> int:
    """About how many bytes a result takes in memory.

    >>> measure_bytes(np.zeros((100, 100), bool)) >= 10_000
    True
    """
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + 128
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(measure_bytes(getattr(value, field.name)) for field in dataclasses.fields(value)) + 64
    if isinstance(value, Mapping):
        return sum(measure_bytes(one) for item in value.items() for one in item) + sys.getsizeof(value)
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(measure_bytes, value)) + sys.getsizeof(value)
    return sys.getsizeof(value)
